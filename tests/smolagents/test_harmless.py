"""Whatever fails in the bridge, the agents do what they do without it."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from agui_otel.smolagents import run_agui, trace_smolagents
from agui_otel.smolagents.bridge import Bridge
from agui_otel.smolagents.invocation import Invocation
from agui_otel.smolagents.steps import CodeStep, FinalStep, PlanningStep, Step
from agui_otel.tracing.boundary import Boundary
from agui_otel.tracing.ending import open_sessions
from agui_otel.tracing.session import Session
from tests.support.agent_cases import CASES, RAISES
from tests.support.agent_trees import TASK, quiet

FAULTS = [
    (kind, name)
    for kind, names in (
        (Bridge, ("emit", "begin", "begin_subagent", "add_usage", "context_of", "left", "below", "finish", "fail")),
        (Invocation, ("begin_step", "end_step", "text", "end_text", "open_call", "claim", "answer", "answer_failure")),
        (Invocation, ("answer_rest", "finish", "fail", "close_rest")),
        (Step, ("see", "tell", "settle", "end")),
        (CodeStep, ("call", "settle")),
        (PlanningStep, ("see",)),
        (FinalStep, ("answered",)),
        (Session, ("feed", "span_of")),
    )
    for name in names
]

CHOSEN = ("three_levels", "fails_in_parallel", "top_max_steps", "planning", *RAISES)


@pytest.fixture(autouse=True)
def as_in_production(raising: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001 (comes after it)
    """The boundary swallows."""
    monkeypatch.setattr(Boundary, "strict", False)


def outcome(name: str) -> Any:
    """What a run returns or raises."""
    try:
        with quiet():
            return CASES[name]().run(TASK)
    except Exception as error:  # noqa: BLE001 - it is compared
        return type(error), str(error)


def broken(*_: Any, **__: Any) -> Any:
    """Fails."""
    raise ZeroDivisionError("a defect of ours")


BARE = {name: outcome(name) for name in CHOSEN}


@pytest.mark.parametrize(("kind", "name"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_a_plain_run_is_what_it_is(kind: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Returned values and exceptions, in every case, whatever of ours fails; and no trace stays open."""
    monkeypatch.setattr(kind, name, broken)
    with trace_smolagents(tracer_provider=TracerProvider()):
        assert {name: outcome(name) for name in CHOSEN} == BARE
    assert open_sessions() == 0


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind, name in FAULTS if (kind, name) != (Bridge, "emit")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_stream_has_an_end(kind: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, and says nothing of our defect's but what is missing."""
    monkeypatch.setattr(kind, name, broken)
    for case in CHOSEN:
        with quiet():
            events = list(run_agui(CASES[case](), TASK))
        assert all(event.type.value != "RUN_ERROR" or "defect" not in str(event) for event in events)


class Unprintable:
    """An object that cannot be printed."""

    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def test_values_that_cannot_be_printed() -> None:
    """Of a tool's that smolagents does not print either: the type stands for them."""
    from agui_otel.smolagents.values import answer_of, failure_text, shown

    class OddError(Exception):
        __str__ = Unprintable.__str__

    assert ("Unprintable", "Unprintable", "AgentToolExecutionError: OddError: OddError") == (
        shown(Unprintable()),
        answer_of(Unprintable()),
        failure_text(OddError()),
    )
