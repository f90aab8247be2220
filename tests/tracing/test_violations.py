"""Trace model, violations, notes: what is wrong with a stream becomes data, and tracing goes on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from agui_otel.protocol.events import Unreadable
from agui_otel.protocol.rules import RULES
from tests.support.defects import write
from tests.support.traced import Thread, Traced, trace
from tests.support.wire import (
    custom,
    done,
    event,
    failed,
    finished,
    given,
    messages,
    patch,
    said,
    started,
    step,
    subagent,
    text,
    tool,
)

RUN = "invoke_agent supervisor"


def remarks(traced: Traced) -> list[Any]:
    """The violations and notes of the run: kind, rule, index and type of the event."""
    return [
        (name, a["agui.rule"], a["agui.event.index"], a["agui.event.type"])
        for name, a in traced.events(RUN)
        if name in ("agui.violation", "agui.note")
    ]


def test_a_violation() -> None:
    """An event on the run with rule, message, index and type; a count; a metric."""
    traced = trace(started(), text("m"), event("TEXT_MESSAGE_CONTENT", messageId="m", delta="x"), finished())
    assert [
        (
            "agui.violation",
            {
                "agui.rule": "message_not_open",
                "agui.message": "TEXT_MESSAGE_CONTENT: message 'm' is not open",
                "agui.event.index": 3,
                "agui.event.type": "TEXT_MESSAGE_CONTENT",
            },
        ),
        (
            "agui.violation",
            {
                "agui.rule": "unclosed_messages",
                "agui.message": "RUN_FINISHED while still open: messages 'm'",
                "agui.event.index": 4,
                "agui.event.type": "RUN_FINISHED",
            },
        ),
    ] == traced.events(RUN)
    assert {"agui.violations": 2, "agui.outcome": "success"} == traced.some(RUN, "agui.violations", "agui.outcome")
    assert [("message_not_open", 1), ("unclosed_messages", 1)] == sorted(
        (labels["agui.rule"], value) for labels, value in traced.metric("agui.violations")
    )


def test_a_stream_without_any_says_so() -> None:
    """`agui.violations` is on every run."""
    traced = trace(started(), text("m"), finished())
    assert ([], {"agui.violations": 0}) == (traced.events(RUN), traced.some(RUN, "agui.violations"))


def test_nothing_is_judged_at_the_end_of_the_stream() -> None:
    """Whatever is open then."""
    traced = trace(started(), subagent(), event("TEXT_MESSAGE_START", messageId="m"), step(), given=given())
    assert {"agui.violations": 0, "agui.outcome": "unfinished"} == traced.some(RUN, "agui.violations", "agui.outcome")


def test_unknown_types_are_left_out_before_judging() -> None:
    """Also as the first event, and after the last."""
    new = {"type": "NEW", "subagentRunId": None}
    assert [] == trace(new, started(), new, finished(), new).rules()


def test_beyond_the_cap_they_are_counted() -> None:
    """16 notes and violations together on a span; `agui.violations` and the metric have all."""
    traced = trace(
        started(), [custom() | {"timestamp": "x"}] * 10, [custom() | {"subagentRunId": None}] * 10, finished()
    )
    assert (10, 6) == (len(traced.events(RUN, "agui.note")), len(traced.events(RUN, "agui.violation")))
    assert {"agui.violations": 10, "agui.omitted.notes": 4} == traced.some(RUN, "agui.violations", "agui.omitted.notes")
    assert [({"agui.rule": "null_owner"}, 10)] == traced.metric("agui.violations")


@pytest.mark.parametrize("rule", sorted(set(RULES) - {"malformed_event"}))
def test_every_rule_is_told_and_survived(rule: str) -> None:
    """Streams in which it is broken first: the first violation is it, and every span that was opened has ended."""
    seen = 0
    for seed in range(12):
        traced = Thread(agent_name="agent").run(write(f"{rule}/{seed}", rule))
        told = sorted(
            ((event.attributes or {})["agui.event.index"], (event.attributes or {})["agui.rule"])
            for span in traced.spans
            for event in span.events
            if event.name == "agui.violation"
        )
        assert all(span.end_time is not None for span in traced.spans)
        seen += bool(told) and told[0][1] == rule
    assert seen >= 6


class TestMalformed:
    """Not JSON, not an object, a required field missing or of the wrong type: a violation of our own rule."""

    @pytest.mark.parametrize(
        ("bad", "kind", "message"),
        [
            (Unreadable("not JSON (at character 3)"), "", "not JSON (at character 3)"),
            (None, "", None),
            ("event", "", None),
            ({}, "", "type: missing (at $.type)"),
            ({"type": 5}, "", None),
            ({"type": "CUSTOM", "name": 1, "value": 1}, "CUSTOM", "name: expected a string, got a number (at $.name)"),
            ({"type": "TEXT_MESSAGE_START"}, "TEXT_MESSAGE_START", "messageId: missing (at $.messageId)"),
            ({"type": "SUBAGENT_STARTED", "subagentRunId": "s"}, "SUBAGENT_STARTED", "name: missing (at $.name)"),
        ],
    )
    def test_it_is_told_and_skipped(self, bad: Any, kind: str, message: str | None) -> None:
        """It opens nothing, and is counted."""
        thread = Thread()
        traced = thread.run(started(), bad, text("m"), finished())
        assert [("agui.violation", "malformed_event", 1, kind)] == remarks(traced)
        assert message in (None, traced.events(RUN)[0][1]["agui.message"])
        assert [RUN, "message assistant"] == sorted(span.name for span in traced.spans)
        assert [({"agui.rule": "malformed_event"}, 1)] == traced.metric("agui.violations")

    @pytest.mark.parametrize(
        ("last", "outcome"),
        [
            ({"type": "RUN_FINISHED"}, "success"),
            ({"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": []}}, "interrupt"),
            ({"type": "RUN_FINISHED", "outcome": {"type": "interrupt", "interrupts": [{"id": "i"}, 1]}}, "interrupt"),
            ({"type": "RUN_FINISHED", "outcome": {"type": "cancelled"}, "metadata": 1}, "cancelled"),
            ({"type": "RUN_FINISHED", "outcome": {"type": "new"}}, "success"),
            ({"type": "RUN_FINISHED", "outcome": 1, "runId": 5, "usage": 5}, "success"),
            ({"type": "RUN_ERROR"}, "error"),
            ({"type": "RUN_ERROR", "message": 5, "code": 5}, "error"),
        ],
    )
    def test_the_end_of_a_run_ends_it(self, last: Any, outcome: str) -> None:
        """What can be read of it counts; a chunk that is open ends, and the next run is no violation."""
        chunk = event("TEXT_MESSAGE_CHUNK", messageId="m", delta="x")
        traced = trace(started("a"), chunk, last, started("b"), finished("b"))
        assert [outcome, "success"] == traced.each(RUN, "agui.outcome")
        assert [["malformed_event"], []] == [
            [(e.attributes or {})["agui.rule"] for e in span.events if e.name == "agui.violation"]
            for span in traced.spans
            if span.name == RUN
        ]
        assert (2, 3) == traced.times("message assistant")

    def test_an_ill_typed_optional_field_is_left_out_with_a_note(self) -> None:
        """It is outside the comparison with the reference client."""
        traced = trace(
            started(parentRunId=5),
            event("TEXT_MESSAGE_START", messageId="m", role="oracle"),
            text("m")[1:],
            finished(usage="x"),
        )
        assert [
            ("agui.note", "ill_typed_field", 0, "RUN_STARTED"),
            ("agui.note", "ill_typed_field", 1, "TEXT_MESSAGE_START"),
            ("agui.note", "ill_typed_field", 3, "RUN_FINISHED"),
        ] == remarks(traced)
        assert {"agui.violations": 0} == traced.some(RUN, "agui.violations")
        assert "message assistant" == traced.spans[0].name


class TestNotes:
    """Advice that the reference client does not give; no violation, and in no metric."""

    @pytest.mark.parametrize(
        ("events", "rule"),
        [
            ([tool("c"), tool("c")], "repeated_id"),
            ([tool("c"), event("TOOL_CALL_RESULT", toolCallId="?", messageId="r", content="x")], "unknown_result"),
            ([subagent("s", call="c"), tool("c"), done("s")], "late_tool_call"),
            ([subagent("t"), tool("c"), subagent("s", call="c", above="t"), done("s"), done("t")], "parent_mismatch"),
            ([text("m"), messages(said("m", subagentRunId="s"))], "owner_restated"),
            ([patch(("remove", "/nothing"))], "state_patch"),
            ([custom() | {"timestamp": "soon"}], "ill_typed_field"),
        ],
    )
    def test_in_a_run(self, events: Any, rule: str) -> None:
        """One note, on the run."""
        traced = trace(started(), events, finished())
        assert [("agui.note", rule)] == [(kind, name) for kind, name, _, _ in remarks(traced)]
        assert {"agui.violations": 0} == traced.some(RUN, "agui.violations")
        assert [] == traced.metric("agui.violations")

    def test_a_run_id_in_run_finished_that_is_not_run_started_s(self) -> None:
        """RUN_STARTED's counts."""
        traced = trace(started("one"), finished("other"))
        assert ["run_id_mismatch"] == traced.rules()
        assert {"agui.run.id": "one"} == traced.some(RUN, "agui.run.id")

    def test_a_snapshot_that_restates_an_owner(self) -> None:
        """The spans keep what the stream said first; what is opened afterwards has the new one."""
        traced = trace(
            started(), text("m", "x", tag="s"), messages(said("m")), tool("c", "task", parent="m"), finished()
        )
        assert ["owner_restated"] == traced.rules()
        assert ["s"] == traced.each("message assistant", "agui.subagent.run_id")
        assert [None] == traced.each("execute_tool task", "agui.subagent.run_id")

    @pytest.mark.parametrize("role", ["tool", "activity"])
    def test_tool_messages_and_activities_restate_nothing(self, role: str) -> None:
        """A result's message is its answerer's, and an activity in a snapshot takes its owner anew."""
        message = said("m", role, **({"toolCallId": "c"} if role == "tool" else {"activityType": "x", "content": {}}))
        assert [] == trace(started(), text("m", tag="s"), messages(message), finished()).rules()


def test_one_defect_is_one_remark() -> None:
    """What the reference client refuses is a violation; no note is added to it."""
    opener = {
        "text": event("TEXT_MESSAGE_START", messageId="m"),
        "reasoning": event("REASONING_START", messageId="m"),
        "reasoning message": event("REASONING_MESSAGE_START", messageId="m", role="reasoning"),
        "tool": event("TOOL_CALL_START", toolCallId="m", toolCallName="t"),
        "step": step(),
        "subagent": subagent("s"),
    }
    for what, one in opener.items():
        assert 1 == len(trace(started(), one, one).rules()), what
    counts = Counter(len(trace(started(), one, failed(), failed()).rules()) for one in opener.values())
    assert Counter({1: len(opener)}) == counts
