"""Trace model, other span events: what is recorded on agents without a span of its own."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.traced import trace
from tests.support.wire import (
    custom,
    done,
    event,
    finished,
    given,
    interrupted,
    messages,
    said,
    started,
    subagent,
    suspended,
)

RUN = "invoke_agent supervisor"
SUB = "invoke_agent researcher"


def activity(ident: str, kind: str = "chart", tag: str | None = None) -> Any:
    """ACTIVITY_SNAPSHOT."""
    return event("ACTIVITY_SNAPSHOT", tag, messageId=ident, activityType=kind, content={"secret": 1})


def test_interrupts() -> None:
    """RUN_FINISHED with interrupts: one event each, on the run, with all that the interrupt says."""
    whole = {
        "id": "i", "reason": "approval", "message": "Send it?", "toolCallId": "c", "expiresAt": "2030-01-01T00:00:00Z",
        "subagentRunId": "sub", "responseSchema": {"type": "object"}, "metadata": {"x": 1},
    }  # fmt: skip
    traced = trace(started(), interrupted(whole, {"id": "j", "reason": "question"}))
    assert [
        (
            "agui.interrupt",
            {
                "agui.interrupt.id": "i",
                "agui.interrupt.reason": "approval",
                "agui.interrupt.message": "Send it?",
                "agui.interrupt.tool_call_id": "c",
                "agui.interrupt.expires_at": "2030-01-01T00:00:00Z",
                "agui.subagent.run_id": "sub",
            },
        ),
        ("agui.interrupt", {"agui.interrupt.id": "j", "agui.interrupt.reason": "question"}),
    ] == traced.events(RUN)


def test_whose_interrupt_it_is_may_be_said_by_the_subagent() -> None:
    """Where the interrupt has no owner, the suspended subagent that lists it is."""
    traced = trace(started(), subagent(), suspended("sub", "i"), interrupted("i"))
    assert ["sub"] == [told.get("agui.subagent.run_id") for _, told in traced.events(RUN)]


def test_very_many_interrupts_are_counted() -> None:
    """What waits has no cap of its own, but a span has: the rest is a number."""
    traced = trace(started(), subagent(), suspended("sub", *map(str, range(100))), interrupted(*map(str, range(200))))
    assert 127 == len(traced.events(RUN, "agui.interrupt"))
    assert {"agui.omitted.interrupts": 73} == traced.some(RUN, "agui.omitted.interrupts")
    assert [64] == [len(told["agui.interrupt.ids"]) for _, told in traced.events(SUB)]
    assert {"agui.omitted.interrupt_ids": 36} == traced.some(SUB, "agui.omitted.interrupt_ids")


@pytest.mark.parametrize(
    ("value", "shown"), [("text", "text"), ({"a": [1]}, '{"a":[1]}'), (None, "null"), (True, "true")]
)
def test_custom(value: Any, shown: str) -> None:
    """On its owner: name and value."""
    traced = trace(started(), subagent(), custom("n", value, tag="sub"), custom("m", value), done(), finished())
    assert [("agui.custom", {"agui.custom.name": "n", "agui.custom.value": shown})] == traced.events(SUB)
    assert [("agui.custom", {"agui.custom.name": "m", "agui.custom.value": shown})] == traced.events(RUN)


def test_activities_are_folded() -> None:
    """Per activity, on the owner: type, message and how many updates."""
    delta = event("ACTIVITY_DELTA", messageId="a", activityType="chart", patch=[])
    traced = trace(
        started(),
        subagent(),
        activity("a"),
        delta,
        delta,
        activity("b", "table"),
        activity("a", tag="sub"),
        done(),
        finished(),
    )
    assert [("agui.activity", {"agui.activity.type": "chart", "agui.activity.updates": 1, "agui.message.id": "a"})] == (
        traced.events(SUB)
    )
    assert [("chart", 3, "a"), ("table", 1, "b")] == [
        (told["agui.activity.type"], told["agui.activity.updates"], told["agui.message.id"])
        for _, told in traced.events(RUN)
    ]


@pytest.mark.parametrize(
    ("replace", "owner"), [(None, "sub"), (True, "sub"), (False, None)], ids=["absent", "replace", "keep"]
)
def test_a_snapshot_that_does_not_replace_an_activity_is_its_owners(replace: bool | None, owner: str | None) -> None:
    """As the reference client keeps owners."""
    again = {**activity("a", tag="sub"), **({} if replace is None else {"replace": replace})}
    traced = trace(started(), subagent(), activity("a"), again, done(), finished())
    assert (1 if owner else 0) == len(traced.events(SUB))
    assert [1 if owner else 2] == [told["agui.activity.updates"] for _, told in traced.events(RUN)]


def test_raw_events_are_counted() -> None:
    """On their owner; their content is never exported."""
    raw = [event("RAW", tag, event={"secret": 1}, source="secret") for tag in ("sub", "sub", None)]
    traced = trace(started(), subagent(), raw, done(), finished())
    assert [[2], [1]] == [traced.each(name, "agui.raw.count") for name in (SUB, RUN)]
    assert "secret" not in traced.tree("*", events=("*",))


def test_encrypted_values_are_counted() -> None:
    """The value never leaves."""
    secret = event("REASONING_ENCRYPTED_VALUE", "sub", subtype="message", entityId="m", encryptedValue="secret")
    traced = trace(started(), subagent(), secret, done(), finished())
    assert [1] == traced.each(SUB, "agui.encrypted.count")
    assert "secret" not in traced.tree("*", events=("*",))


def test_message_snapshots() -> None:
    """On the run: how many messages, and how many of each subagent."""
    traced = trace(
        started(),
        messages(
            said("1", "user"),
            said("2"),
            said("3", subagentRunId="a"),
            said("4", subagentRunId="b"),
            said("5", subagentRunId="a"),
        ),
        messages(),
        finished(),
    )
    assert [
        {"agui.messages.count": 5, "agui.messages.owners": ("a", "b"), "agui.messages.owner_counts": (2, 1)},
        {"agui.messages.count": 0},
    ] == [told for _, told in traced.events(RUN)]


def test_unknown_types() -> None:
    """On their owner, with the type."""
    new = [event("NEW_EVENT", tag, delta="secret") for tag in ("sub", None)]
    traced = trace(started(), subagent(), new, done(), finished())
    assert [("agui.unknown_event", {"agui.event.type": "NEW_EVENT"})] == traced.events(SUB)
    assert [("agui.unknown_event", {"agui.event.type": "NEW_EVENT"})] == traced.events(RUN)
    assert "secret" not in traced.tree("*", events=("*",))
    assert 2 == sum(value for labels, value in traced.metric("agui.events") if labels["agui.event.type"] == "NEW_EVENT")


def test_each_kind_has_its_cap() -> None:
    """16 custom events, 16 of unknown types, 16 activities, 8 snapshots; of the rest a count is kept."""
    flood: dict[str, Any] = {
        "custom": custom(),
        "unknown": event("NEW"),
        "snapshots": messages(),
    }
    for kind, one in flood.items():
        traced = trace(started(), [one] * 20, finished())
        kept = 8 if kind == "snapshots" else 16
        assert (kept, 20 - kept) == (len(traced.events(RUN)), traced.attributes(RUN)[f"agui.omitted.{kind}"])
    traced = trace(started(), [activity(f"a{n}") for n in range(20)], finished())
    assert (16, 4) == (len(traced.events(RUN)), traced.attributes(RUN)["agui.omitted.activities"])


def test_the_caps_are_settings() -> None:
    """Also none at all."""
    traced = trace(
        started(), custom(), activity("a"), finished(), max_custom_events=0, max_activity_events=0, given=given(run="x")
    )
    assert ["input_run_id"] == traced.rules()
    assert ["agui.note"] == [name for name, _ in traced.events(RUN)]
    assert {"agui.omitted.custom": 1, "agui.omitted.activities": 1} == traced.some(
        RUN, "agui.omitted.custom", "agui.omitted.activities", "agui.omitted.notes"
    )


def test_events_have_their_times() -> None:
    """When they were received; what is folded, when its owner ended."""
    traced = trace(started(), custom(), activity("a"), finished())
    span = traced.span(RUN)
    start = span.start_time
    assert start is not None
    assert [("agui.custom", 1e9), ("agui.activity", 3e9)] == [(e.name, e.timestamp - start) for e in span.events]
