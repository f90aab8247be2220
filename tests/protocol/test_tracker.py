"""Trace model, violations: the tracker and the rules see one stream, and agree on it while a run is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck
from hypothesis import given as examples
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from agui_otel.protocol.entities import Entity, Step
from agui_otel.protocol.rules import RULES, Judge
from agui_otel.protocol.scope import Options, Scope
from agui_otel.protocol.tracker import Tracker
from agui_otel.protocol.transitions import Remark
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


def _known(of: Any) -> Any:
    """All that a tracked thing knows of itself; other things in it are named by their class and id."""
    if isinstance(of, Entity | Step):
        named = {name: value for name, value in vars(of).items() if name not in ("touched_at", "parts", "open_above")}
        return {name: _short(value) for name, value in named.items()} | {"text": getattr(of, "text", "")}
    return _short(of)


def _short(value: Any) -> Any:
    if isinstance(value, Entity | Step):
        return type(value).__name__, getattr(value, "id", ""), value.opened_at
    if isinstance(value, tuple | list):
        return [_short(item) for item in value]
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, Scope):
        return None
    return {name: _short(getattr(value, name)) for name in value.__slots__} if hasattr(value, "__slots__") else value


@hypothesis_settings(suppress_health_check=[HealthCheck.too_slow], max_examples=150)
@examples(st.integers(0, 10**9), st.sampled_from([None, *RULES]))
def test_deltas_by_their_short_cut(seed: int, rule: str | None) -> None:
    """What the short cut for plain deltas leaves behind is what the long way leaves: counts, times, texts, remarks."""
    quick, slow = Tracker(Options(text_limit=20)), Tracker(Options(text_limit=20))
    for index, event in enumerate(write(seed, rule)):
        at = index * index
        assert list(map(_short, quick.receive(event, at))) == list(map(_short, slow.receive_other(event, at)))
        for tracker in (quick, slow):
            assert (tracker.index, tracker.last_event_ns) == (index, at)
        assert (quick.scope is None) == (slow.scope is None)
        if quick.scope is not None and slow.scope is not None:
            things = [[s.run, *s.agents, *s.messages.values(), *s.tools.values()] for s in (quick.scope, slow.scope)]
            quickly, slowly = (list(map(_known, found)) for found in things)
            assert quickly == slowly
    assert quick.take_counts() == slow.take_counts()


RUN: dict[str, Any] = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
TEXT: dict[str, Any] = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "x", "delta": "abc"}
ARGS: dict[str, Any] = {"type": "TOOL_CALL_ARGS", "toolCallId": "x", "delta": "{}"}


def _open() -> Tracker:
    """A run with a message and a tool call of one id, and a delta of the message."""
    tracker = Tracker()
    tracker.receive(RUN, 0)
    tracker.receive({"type": "TEXT_MESSAGE_START", "messageId": "x", "role": "assistant"}, 1)
    tracker.receive({"type": "TOOL_CALL_START", "toolCallId": "x", "toolCallName": "search"}, 2)
    tracker.receive(TEXT, 3)
    return tracker


def test_a_delta_may_have_the_first_tag_of_its_run() -> None:
    """A message that the input says is a subagent's goes on with a tag: the run's events have tags from then on."""
    message = {"id": "x", "role": "assistant", "subagentRunId": "s"}
    tracker = Tracker()
    tracker.receive({**RUN, "input": {"threadId": "t", "runId": "r", "messages": [message]}}, 0)
    tracker.receive({"type": "TEXT_MESSAGE_START", "messageId": "x", "role": "assistant"}, 1)
    told = []
    for at, tag in enumerate([{}, {"subagentRunId": "s"}, {"subagentRunId": "s"}], 2):
        tracker.receive({**TEXT, **tag}, at)
        assert tracker.scope is not None
        told.append(tracker.scope.run.attribution)
    assert ["none", "tags", "tags"] == told
    assert tracker.scope is not None
    assert 3 == tracker.scope.messages["x"].chunks


def test_a_delta_among_deltas_with_a_tag_of_its_own() -> None:
    """A delta of what others continue right before it is judged by its own tag."""
    said = _open().receive({**TEXT, "subagentRunId": "s"}, 4)
    assert [(remark.rule, remark.violation) for remark in said if isinstance(remark, Remark)] == [
        ("owner_mismatch", True)
    ]


def test_deltas_of_a_message_and_a_call_of_one_id() -> None:
    """Each is counted where it belongs, also in turns."""
    tracker = _open()
    for at, delta in enumerate((ARGS, TEXT, ARGS, TEXT), start=4):
        tracker.receive(delta, at)
    assert tracker.scope is not None
    found = tracker.scope.messages["x"], tracker.scope.tools["x"]
    assert [(thing.chunks, thing.text) for thing in found] == [(3, "abcabcabc"), (2, "{}{}")]
