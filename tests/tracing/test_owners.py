"""Trace model, parents: whose everything is, and subagents that nobody announced."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.traced import trace
from tests.support.wire import (
    Event,
    broke,
    custom,
    done,
    event,
    finished,
    given,
    messages,
    patch,
    result,
    said,
    started,
    state,
    step,
    step_end,
    subagent,
    text,
    tool,
)

RUN = "invoke_agent supervisor"


class TestOwner:
    """Everything else is a child of its owner's agent span."""

    def test_the_owner_is_the_tag(self) -> None:
        """Messages, reasoning, tool calls and steps."""
        traced = trace(
            started(),
            subagent("s", "sub"),
            text("m", tag="s"),
            event("REASONING_START", "s", messageId="r"),
            event("REASONING_END", "s", messageId="r"),
            tool("c", tag="s"),
            *(step("plan", tag="s"), step_end("plan", tag="s")),
            done("s"),
            finished(),
            steps="spans",
        )
        assert {"invoke_agent sub"} == {
            traced.parent(span.name) for span in traced.spans if not span.name.startswith("invoke_agent")
        }

    def test_an_untagged_continuation_has_its_openers_owner(self) -> None:
        """Deltas, ends and results count for who opened."""
        traced = trace(
            started(),
            subagent("s", "sub"),
            event("TEXT_MESSAGE_START", "s", messageId="m"),
            event("TEXT_MESSAGE_CONTENT", messageId="m", delta="x"),
            event("TEXT_MESSAGE_END", messageId="m"),
            event("ACTIVITY_SNAPSHOT", "s", messageId="a", activityType="chart", content={}),
            event("ACTIVITY_DELTA", messageId="a", activityType="chart", patch=[]),
            done("s"),
            finished(),
        )
        assert {"output.value": "x", "agui.events.count": 7} == traced.some(
            "invoke_agent sub", "output.value", "agui.events.count"
        )
        assert [{"agui.activity.type": "chart", "agui.activity.updates": 2, "agui.message.id": "a"}] == [
            told for _, told in traced.events("invoke_agent sub")
        ]

    @pytest.mark.parametrize("stated", ["stream", "snapshot", "echo", "result"])
    def test_an_untagged_tool_call_inherits_its_messages_owner(self, stated: str) -> None:
        """Wherever that owner was stated: by the stream, a snapshot, the echoed input, or a result."""
        echoed = {**given(), "messages": [said("m", subagentRunId="s")]}
        before: dict[str, list[Any]] = {
            "stream": text("m", tag="s"),
            "snapshot": [messages(said("m", subagentRunId="s"))],
            "echo": [],
            "result": [tool("c0", "other"), result("c0", message="m", tag="s")],
        }
        traced = trace(
            started(input=echoed if stated == "echo" else None),
            before[stated],
            tool("c", "task", parent="m"),
            finished(),
        )
        assert "s" == traced.attributes("execute_tool task")["agui.subagent.run_id"]
        assert [] == traced.rules()

    def test_a_tagged_tool_call_is_its_tags(self) -> None:
        """Also where its parent message is another's, which is a violation."""
        traced = trace(started(), text("m", tag="a"), tool("c", "task", tag="b", parent="m"), finished())
        assert "b" == traced.attributes("execute_tool task")["agui.subagent.run_id"]
        assert ["parent_message_mismatch"] == traced.rules()

    @pytest.mark.parametrize("kind", ["text", "tool", "reasoning"])
    def test_an_id_keeps_its_owner(self, kind: str) -> None:
        """Opened again after its end, untagged or tagged otherwise: the owner stays (rule owner_mismatch)."""
        again: dict[str, Any] = {
            "text": lambda tag: text("i", tag=tag),
            "tool": lambda tag: [tool("i", tag=tag), result("i")],
            "reasoning": lambda tag: [event(f"REASONING_{part}", tag, messageId="i") for part in ("START", "END")],
        }
        traced = trace(started(), *(again[kind](tag) for tag in ("s", None, "other")), finished())
        name = {"text": "message assistant", "tool": "execute_tool search", "reasoning": "reasoning"}[kind]
        assert ["s", "s", "s"] == traced.each(name, "agui.subagent.run_id")
        assert {"owner_mismatch"} == set(traced.rules())
        assert ["s"] == traced.each("invoke_agent", "agui.subagent.run_id")

    def test_a_tag_that_does_not_agree_changes_nothing(self) -> None:
        """A continuation with another's tag stays its opener's, and opens no subagent."""
        traced = trace(
            started(),
            event("TEXT_MESSAGE_START", messageId="m"),
            event("TEXT_MESSAGE_CONTENT", "stranger", messageId="m", delta="x"),
            event("TEXT_MESSAGE_END", messageId="m"),
            finished(),
        )
        assert ["owner_mismatch"] == traced.rules()
        assert {"output.value": "x"} == traced.some(RUN, "output.value")
        assert ["message assistant", RUN] == [span.name for span in traced.spans]

    def test_an_encrypted_value_is_its_entitys(self) -> None:
        """Untagged it counts for the owner of the call, message or reasoning that it names."""
        traced = trace(
            started(),
            subagent("s", "sub"),
            tool("c", tag="s"),
            text("m", tag="s"),
            event("REASONING_START", "s", messageId="r"),
            event("REASONING_END", messageId="r"),
            [
                event("REASONING_ENCRYPTED_VALUE", subtype=kind, entityId=ident, encryptedValue="secret")
                for kind, ident in (("tool-call", "c"), ("message", "m"), ("message", "r"), ("message", "nobody's"))
            ],
            done("s"),
            finished(),
        )
        assert [[3], [1]] == [traced.each(name, "agui.encrypted.count") for name in ("invoke_agent sub", RUN)]


OPENERS: dict[str, list[Any]] = {
    "text": text("x", tag="s"),
    "text delta": [event("TEXT_MESSAGE_CONTENT", "s", messageId="x", delta="x")],
    "chunk": [event("TEXT_MESSAGE_CHUNK", "s", messageId="x", delta="x")],
    "tool": tool("x", tag="s"),
    "arguments": [event("TOOL_CALL_ARGS", "s", toolCallId="x", delta="x")],
    "result": [result("x", tag="s")],
    "reasoning": [event("REASONING_START", "s", messageId="x")],
    "reasoning message": [event("REASONING_MESSAGE_START", "s", messageId="x", role="reasoning")],
    "encrypted": [event("REASONING_ENCRYPTED_VALUE", "s", subtype="message", entityId="x", encryptedValue="x")],
    "step": [step("plan", tag="s")],
    "activity": [event("ACTIVITY_SNAPSHOT", "s", messageId="x", activityType="x", content={})],
}
OPEN_NOTHING: dict[str, list[Event]] = {
    "custom": [custom(tag="s")],
    "raw": [event("RAW", "s", event=1)],
    "state": [state({"a": 1}, tag="s")],
    "delta": [patch(("add", "/a", 1), tag="s")],
    "snapshot": [messages(said("x", subagentRunId="s"))],
    "unknown": [event("NEW_EVENT", "s")],
    "end of a subagent": [done("s")],
    "error of a subagent": [broke("s")],
    "end of a step": [step_end("plan", tag="s")],
    "end of a message": [event("TEXT_MESSAGE_END", "s", messageId="x")],
    "end of a call": [event("TOOL_CALL_END", "s", toolCallId="x")],
    "interrupt": [],
}


class TestUnannounced:
    """A tag that was never announced opens a subagent, where something of its own comes with it."""

    @pytest.mark.parametrize("what", OPENERS)
    def test_it_is_opened(self, what: str) -> None:
        """By a message, tool, reasoning, step or activity event: a child of the run."""
        traced = trace(started(), OPENERS[what], finished())
        assert RUN == traced.parent("invoke_agent")
        assert {
            "agui.subagent.announced": False,
            "agui.subagent.run_id": "s",
            "agui.outcome": "unreported",
        } == traced.some("invoke_agent", "agui.subagent.announced", "agui.subagent.run_id", "agui.outcome")

    @pytest.mark.parametrize("what", OPEN_NOTHING)
    def test_it_is_not_opened(self, what: str) -> None:
        """Tags of CUSTOM, RAW, STATE_*, ids inside snapshots and interrupts, and ends of nothing open nothing."""
        waits = {"id": "i", "reason": "approval", "subagentRunId": "s"}
        outcome = {"type": "interrupt", "interrupts": [waits]} if what == "interrupt" else None
        traced = trace(started(), OPEN_NOTHING[what], finished(outcome=outcome))
        assert [RUN] == [span.name for span in traced.spans]

    def test_announced_after_all(self) -> None:
        """Name and attributes are updated; the span stays, and the parents that are named become links."""
        traced = trace(
            started(),
            subagent("mid", "mid"),
            tool("c", "task", '{"q":1}', tag="mid"),
            text("x", "early", tag="s"),
            subagent("s", "sub", call="c", above="mid", description="searches"),
            *(done("s"), done("mid")),
            finished(),
        )
        assert """
invoke_agent supervisor [AGENT] success
  invoke_agent mid [AGENT] success
    execute_tool task [TOOL] pending
  invoke_agent sub [AGENT] success
    > execute_tool task
    > invoke_agent mid
    message assistant [CHAIN]
""" == traced.tree()
        assert {
            "agui.subagent.announced": True,
            "agui.subagent.name": "sub",
            "agui.parent_tool_call.id": "c",
            "agui.parent_subagent.run_id": "mid",
            "gen_ai.agent.description": "searches",
            "graph.node.id": "supervisor/sub",
            "input.value": '{"q":1}',
        } == traced.some(
            "invoke_agent sub",
            *(
                "agui.subagent.announced",
                "agui.subagent.name",
                "agui.parent_tool_call.id",
                "agui.parent_subagent.run_id",
            ),
            *("gen_ai.agent.description", "graph.node.id", "input.value"),
        )

    def test_who_was_known_by_its_id_is_the_same_one(self) -> None:
        """A writer of state that is opened later is the writer of what it wrote before."""
        traced = trace(
            started(),
            state({"a": 1}, tag="s"),
            *(subagent("s", "sub"), subagent("t", "other")),
            patch(("replace", "/a", 2), tag="t"),
            *(done("s"), done("t")),
            finished(),
        )
        assert [{"agui.state.previous.subagent.run_id": "s", "agui.state.previous.subagent.name": "sub"}] == [
            {key: value for key, value in told.items() if "previous" in key}
            for _, told in traced.events(RUN, "agui.state.overwrite")
        ]
