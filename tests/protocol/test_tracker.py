"""Trace model, violations: the tracker and the rules see one stream, and agree on it while a run is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck
from hypothesis import given as examples
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agui_otel.protocol.rules import RULES, Judge
from agui_otel.protocol.scope import Scope
from agui_otel.protocol.tracker import Tracker
from tests.support.defects import write

View = tuple[Callable[[Judge], Any], Callable[[Scope], Any]]


def _steps_judged(judge: Judge) -> Any:
    return {(owner, name) for owner, names in judge.open_steps.items() for name in names}


def _steps_traced(scope: Scope) -> Any:
    return {(agent.tag, name) for agent in (scope.run, *scope.agents) for name in agent.steps}


VIEWS: dict[str, View] = {
    "owners of messages": (lambda judge: judge.message_owners, lambda scope: scope.message_owners),
    "owners of tool calls": (lambda judge: judge.tool_call_owners, lambda scope: scope.tool_owners),
    "owners of reasoning": (lambda judge: judge.reasoning_owners, lambda scope: scope.reasoning_owners),
    "owners of activities": (lambda judge: judge.activity_owners, lambda scope: scope.activity_owners),
    "open messages": (lambda judge: judge.open_messages, lambda scope: scope.messages.keys()),
    "open reasoning messages": (lambda judge: judge.open_reasoning, lambda scope: scope.reasoning.keys()),
    "open reasoning": (lambda judge: judge.open_reasoning_spans, lambda scope: scope.reasoning_spans.keys()),
    "open steps": (_steps_judged, _steps_traced),
}


@hypothesis_settings(suppress_health_check=[HealthCheck.too_slow], max_examples=150)
@examples(st.integers(0, 10**9), st.sampled_from([None, *RULES]))
def test_what_is_open_and_whose_it_is(seed: int, rule: str | None) -> None:
    """After each event, also after a breach: the recovery that a rule states is what the tracker does."""
    tracker = Tracker()
    for index, event in enumerate(write(seed, rule)):
        tracker.receive(event, index)
        judge, scope = tracker._judge, tracker.scope
        if scope is not None and judge.in_run and scope.run.outcome is None:
            for what, (judged, traced) in VIEWS.items():
                assert judged(judge) == traced(scope), (what, index, event)
