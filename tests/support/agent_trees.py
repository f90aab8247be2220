"""The cases of `tests.support.agent_cases`, run and traced, as `tests/smolagents/test_cases.py` compares them.

    python -m tests.support.agent_trees code_manager

prints the tree of a case. A golden file may be written from it only after it has been read against the case.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterable
from typing import Any

from ag_ui.core import Event
from smolagents import MultiStepAgent

from agui_otel import Settings, trace_events
from agui_otel.smolagents import run_agui, tool_failed, trace_smolagents
from agui_otel.testing import Captured, capture
from tests.support.agent_cases import CASES

TASK = "the task"
SETTINGS = Settings(capture="full", max_value=240)

ATTRIBUTES = (
    "graph.node.id", "input.value", "output.value", "error.type", "agui.cause", "agui.attribution",
    "agui.violations", "llm.token_count.prompt", "llm.token_count.completion",
)  # fmt: skip
EVENT_ATTRIBUTES = ("agui.step.name", "agui.rule", "exception.type")


def wire(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Events as JSON."""
    return [event.model_dump(by_alias=True, exclude_none=True, mode="json") for event in events]


def events_of(agent: MultiStepAgent, **keywords: Any) -> list[dict[str, Any]]:
    """The events of a run."""
    with quiet():
        return wire(run_agui(agent, TASK, **keywords))


def streamed(agent: MultiStepAgent, captured: Captured | None = None) -> Captured:
    """A run as a stream of events that is traced like any stream."""
    captured = captured or capture()
    with quiet():
        events = run_agui(agent, TASK)
        for _ in trace_events(
            events, config=SETTINGS, tracer_provider=captured.tracer_provider, tool_failed=tool_failed
        ):
            pass
    return captured


def plainly(agent: MultiStepAgent, captured: Captured | None = None, **keywords: Any) -> Captured:
    """A run that is traced while it is run as before. What it raises is passed over."""
    captured = captured or capture()
    with (
        quiet(),
        trace_smolagents(config=SETTINGS, tracer_provider=captured.tracer_provider),
        contextlib.suppress(Exception),
    ):
        found = agent.run(TASK, **keywords)
        if keywords.get("stream"):
            list(found)
    return captured


def tree(captured: Captured) -> str:
    """The tree of a run."""
    return captured.tree(attributes=ATTRIBUTES, event_attributes=EVENT_ATTRIBUTES) + "\n"


@contextlib.contextmanager
def quiet() -> Any:
    """smolagents prints what it streams at any level."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        print(f"== {name}\n{tree(streamed(CASES[name]()))}", end="")  # noqa: T201
