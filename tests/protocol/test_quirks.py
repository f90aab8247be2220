"""Trace model, quirks: what named producers do otherwise, and how it is read. The rules judge what was sent."""

from __future__ import annotations

from typing import Any

import pytest

from agui_otel.protocol.quirks import QUIRKS, is_cancelled_sibling, is_reannounced_at_root, translate
from tests.support.traced import trace
from tests.support.wire import done, event, finished, started, subagent, text

RUN = "invoke_agent supervisor"


def canary(events: Any) -> list[dict[str, Any]]:
    """The events with their tag under its name in canary builds."""
    return [{("subagentId" if key == "subagentRunId" else key): value for key, value in e.items()} for e in events]


def thinking(*deltas: str, tag: str | None = None) -> list[dict[str, Any]]:
    """A thought in the words of ag-ui-protocol 0.1: no ids."""
    return [
        event("THINKING_START", tag, title="Planning"),
        event("THINKING_TEXT_MESSAGE_START", tag),
        *(event("THINKING_TEXT_MESSAGE_CONTENT", tag, delta=delta) for delta in deltas),
        event("THINKING_TEXT_MESSAGE_END", tag),
        event("THINKING_END", tag),
    ]


@pytest.mark.parametrize("quirk", QUIRKS.values(), ids=QUIRKS)
def test_each_is_told_in_full(quirk: Any) -> None:
    """Its producer, version, what it is, how it is read, and what shows it."""
    assert all(isinstance(value, str) and value for value in quirk)


class TestThinking:
    """THINKING_* is REASONING_*, one at a time."""

    def test_it_is_reasoning(self) -> None:
        """A span with its text; no unknown events, and nothing is judged: the types are none of the 31."""
        traced = trace(started(), thinking("Hm, ", "yes."), text("m", "Hi"), finished())
        assert """
invoke_agent supervisor [AGENT] success
  reasoning [CHAIN]
  message assistant [CHAIN]
""" == traced.tree()
        assert ["Hm, yes."] == traced.each("reasoning", "output.value")
        assert [] == traced.events(RUN)

    def test_one_after_another(self) -> None:
        """They have no ids, and are different spans all the same."""
        traced = trace(started(), thinking("one"), thinking("two"), finished())
        assert ["one", "two"] == traced.each("reasoning", "output.value")

    def test_of_several_agents_at_once(self) -> None:
        """Each agent has its own."""
        mine, theirs = thinking("mine"), thinking("theirs", tag="s")
        traced = trace(started(), [one for pair in zip(mine, theirs, strict=True) for one in pair], finished())
        assert [(None, "mine"), ("s", "theirs")] == traced.each("reasoning", "agui.subagent.run_id", "output.value")

    def test_a_message_alone(self) -> None:
        """Without THINKING_START."""
        traced = trace(started(), thinking("one")[1:-1], finished())
        assert ["one"] == traced.each("reasoning", "output.value")

    def test_its_events_are_counted_as_sent(self) -> None:
        """The metric has the producer's types."""
        traced = trace(started(), thinking("x"), finished())
        assert {"RUN_STARTED", "RUN_FINISHED", *(one["type"] for one in thinking("x"))} == {
            labels["agui.event.type"] for labels, _ in traced.metric("agui.events")
        }

    def test_it_opens_a_run_like_any_event(self) -> None:
        """Outside a run that is an implicit one."""
        assert [True] == trace(thinking("x")).each(RUN, "agui.run.implicit")


class TestSubagentId:
    """`subagentId` of canary builds is subagentRunId, where that is absent."""

    def test_it_is_the_tag(self) -> None:
        """Of whatever carries it."""
        traced = trace(
            started(), subagent("s"), canary([*text("m", "x", tag="s"), event("NEW", "s")]), done("s"), finished()
        )
        assert """
invoke_agent supervisor [AGENT] success
  invoke_agent researcher [AGENT] success
    * agui.unknown_event
    message assistant [CHAIN]
""" == traced.tree(events=())
        assert [] == traced.rules()

    def test_a_subagents_life(self) -> None:
        """Its required field is missing as sent, which is judged; the event is read all the same."""
        traced = trace(started(), canary([subagent("s"), *text("m", tag="s"), done("s")]), finished())
        assert """
invoke_agent supervisor [AGENT] success
  invoke_agent researcher [AGENT] success
    message assistant [CHAIN]
""" == traced.tree()
        assert ["malformed_event", "malformed_event"] == traced.rules()
        assert ["lifecycle"] == traced.each(RUN, "agui.attribution")

    def test_subagent_run_id_wins(self) -> None:
        """Also where it is null."""
        traced = trace(
            started(), [{**text("m")[0], "subagentId": "s", "subagentRunId": None}, text("m")[1]], finished()
        )
        assert [None] == traced.each("message assistant", "agui.subagent.run_id")


@pytest.mark.parametrize(
    ("event_", "read"),
    [
        (
            {"type": "THINKING_START", "subagentRunId": 5},
            {"type": "REASONING_START", "messageId": "thinking", "delta": "", "subagentRunId": None},
        ),
        (
            {"type": "THINKING_END", "subagentId": "s", "delta": 5},
            {"type": "REASONING_END", "messageId": "thinking:s", "delta": "", "subagentRunId": "s", "subagentId": "s"},
        ),
        (
            {"type": "THINKING_TEXT_MESSAGE_CONTENT", "delta": "x", "messageId": "m"},
            {"type": "REASONING_MESSAGE_CONTENT", "delta": "x", "messageId": "m", "subagentRunId": None},
        ),
        ({"type": "CUSTOM", "subagentId": "s"}, {"type": "CUSTOM", "subagentId": "s", "subagentRunId": "s"}),
        ({"type": "CUSTOM", "subagentId": 5}, None),
        ({"type": "CUSTOM"}, None),
        ({"type": ["THINKING_START"]}, None),
        ({}, None),
    ],
)
def test_translation(event_: dict[str, Any], read: dict[str, Any] | None) -> None:
    """A copy, or None where nothing is to be translated."""
    before = dict(event_)
    assert read == translate(event_)
    assert before == event_


@pytest.mark.parametrize(
    ("message", "is_one"),
    [
        ("<object object at 0x7f04d82b1230>", True),
        ("<object object at 0xABCDEF>", True),
        ("<object object at 0x7f04d82b1230> ", False),
        ("<foo.Bar object at 0x7f04d82b1230>", False),
        ("", False),
    ],
)
def test_the_cancelled_sibling(message: str, is_one: bool) -> None:
    """Only the repr of a bare object, as the whole message."""
    assert is_one is is_cancelled_sibling(message)


@pytest.mark.parametrize(
    ("ident", "is_one"), [("c::__root__", True), ("c", False), ("::__root__c", False), (None, False)]
)
def test_the_root_suffix(ident: str | None, is_one: bool) -> None:
    """A call that is announced again at the root."""
    assert is_one is is_reannounced_at_root(ident)
