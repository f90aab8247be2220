"""Trace model, spans: what becomes a span, what it is called, when it starts and ends."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.trace import SpanKind

from tests.support.traced import seconds, trace
from tests.support.wire import (
    custom,
    done,
    event,
    finished,
    result,
    started,
    step,
    step_end,
    subagent,
    text,
    tool,
)

USAGE = [{"provider": "p", "model": "m-1", "inputTokens": 3}]


def reasoning(ident: str = "r", *inner: Any, tag: str | None = None) -> list[Any]:
    """A span of reasoning around `inner`."""
    return [event("REASONING_START", tag, messageId=ident), *inner, event("REASONING_END", tag, messageId=ident)]


def thought(ident: str = "t", *deltas: str, tag: str | None = None) -> list[Any]:
    """A whole reasoning message."""
    return [
        event("REASONING_MESSAGE_START", tag, messageId=ident, role="reasoning"),
        *(event("REASONING_MESSAGE_CONTENT", tag, messageId=ident, delta=delta) for delta in deltas),
        event("REASONING_MESSAGE_END", tag, messageId=ident),
    ]


def test_every_entity_has_its_span_name_and_kind() -> None:
    """A run, subagent, tool call, message, reasoning, step and usage entry: one span each."""
    traced = trace(
        started(),
        step("plan"),
        text("m", "Hello", role="assistant"),
        reasoning("r", thought("t", "Hm")),
        tool("c", "search"),
        subagent("s", "scout", call="c"),
        done("s"),
        result("c"),
        step_end("plan"),
        finished(usage=USAGE),
        steps="spans",
    )
    assert """
invoke_agent supervisor [AGENT] success
  step plan [CHAIN]
  message assistant [CHAIN]
  reasoning [CHAIN]
  execute_tool search [TOOL] success
    invoke_agent scout [AGENT] success
  usage m-1 [LLM]
""" == traced.tree()
    assert {SpanKind.INTERNAL} == {span.kind for span in traced.spans}


def test_without_a_name_there_is_none() -> None:
    """An unnamed agent is `invoke_agent`, usage without a model `usage`; an id never stands in a name."""
    traced = trace(started(), text("m", "x", tag="s"), finished(usage=[{"inputTokens": 1}]), agent_name=None)
    assert """
invoke_agent [AGENT] success
  invoke_agent [AGENT] unreported
    message assistant [CHAIN]
  usage [LLM]
""" == traced.tree()


@pytest.mark.parametrize(
    ("name", "shown"),
    [("", "execute_tool"), ("a\0b\ud800", "execute_tool ab�"), ("x" * 2000, "execute_tool " + "x" * 1024 + "…")],
)
def test_names_are_exportable(name: str, shown: str) -> None:
    """A name has no NUL, no lone surrogate and a bounded length; an empty one is none."""
    traced = trace(started(), tool("c", name), result("c"), finished())
    assert shown == traced.spans[0].name


def test_times() -> None:
    """Each span starts with its opener and ends with its end event; a tool call with its result."""
    traced = trace(
        started(),  # 1
        text("m", "Hello"),  # 2, 3, 4
        tool("c", "search", "{}"),  # 5, 6, 7
        subagent("s", "scout", call="c"),  # 8
        done("s"),  # 9
        result("c"),  # 10
        finished(usage=USAGE),  # 11
    )
    assert {
        "invoke_agent supervisor": (1, 11),
        "message assistant": (2, 4),
        "execute_tool search": (5, 10),
        "invoke_agent scout": (8, 9),
        "usage m-1": (11, 11),
    } == {span.name: seconds(span) for span in traced.spans}


def test_chunks_open_spans() -> None:
    """The opening chunk starts a span; its lane's next event ends it."""
    traced = trace(
        started(),  # 1
        event("TOOL_CALL_CHUNK", toolCallId="c", toolCallName="search", delta="{"),  # 2
        event("TOOL_CALL_CHUNK", delta="}"),  # 3
        event("TEXT_MESSAGE_CHUNK", messageId="m", delta="a"),  # 4
        event("TEXT_MESSAGE_CHUNK", messageId="n", delta="b"),  # 5
        result("c"),  # 6
        finished(),
    )
    assert [("execute_tool search", (2, 6)), ("message assistant", (4, 5)), ("message assistant", (5, 6))] == sorted(
        (span.name, seconds(span)) for span in traced.spans if not span.name.startswith("invoke")
    )
    assert {"input.value": "{}", "agui.tool_call.args_ms": 2000.0} == traced.some(
        "execute_tool search", "input.value", "agui.tool_call.args_ms"
    )


def test_deltas_are_folded() -> None:
    """A delta has no span and no event: it is counted, timed and appended."""
    traced = trace(
        started(),
        event("TEXT_MESSAGE_START", messageId="m"),  # 2
        custom("pause"),
        event("TEXT_MESSAGE_CONTENT", messageId="m", delta="Hel"),  # 4
        custom("pause"),
        custom("pause"),
        event("TEXT_MESSAGE_CONTENT", messageId="m", delta="lo"),  # 7
        event("TEXT_MESSAGE_CONTENT", messageId="m", delta="!"),
        event("TEXT_MESSAGE_END", messageId="m"),
        finished(),
        dialect="openinference",
    )
    told = ("agui.chunks", "agui.chars", "agui.time_to_first_chunk", "agui.max_chunk_gap", "output.value")
    assert {
        "agui.chunks": 3,
        "agui.chars": 6,
        "agui.time_to_first_chunk": 2.0,
        "agui.max_chunk_gap": 3.0,
        "output.value": "Hello!",
    } == traced.some("message assistant", *told)
    assert [] == traced.events("message assistant")


def test_text_beyond_the_cap_is_counted_only() -> None:
    """Accumulation stops at `max_value`; counting goes on."""
    traced = trace(started(), text("m", "abc", "def", "ghi"), finished(), max_value=4, dialect="openinference")
    assert {"agui.chars": 9, "output.value": "abcd", "agui.truncated": ("output.value=9",)} == traced.some(
        "message assistant", "agui.chars", "output.value", "agui.truncated"
    )


def test_messages_off() -> None:
    """`messages="off"` makes no message and reasoning spans; their text still is the agents' output."""
    traced = trace(
        started(),
        text("m", "Hello"),
        reasoning("r", thought("t", "Hm")),
        text("n", "I am s", tag="s"),
        finished(),
        messages="off",
    )
    assert """
invoke_agent supervisor [AGENT] success output.value="Hello"
  invoke_agent [AGENT] unreported output.value="I am s"
""" == traced.tree("output.value")


def test_an_empty_message_has_a_span() -> None:
    """An empty answer is a finding."""
    traced = trace(started(), text("m"), finished())
    assert {"agui.chunks": 0, "agui.chars": 0} == traced.some(
        "message assistant", "agui.chunks", "agui.chars", "agui.time_to_first_chunk", "output.value"
    )


@pytest.mark.parametrize("role", ["developer", "system", "assistant", "user"])
def test_the_role_is_in_the_name(role: str) -> None:
    """A message's span is called after its role, which is the assistant's where it is absent."""
    assert [f"message {role}"] == [span.name for span in trace(started(), text("m", role=role), finished()).spans][:1]
    assert "message assistant" == trace(started(), text("m"), finished()).spans[0].name


class TestReasoning:
    """A reasoning span and the reasoning messages inside it are one span when they have the same owner."""

    def test_messages_inside_belong_to_the_span(self) -> None:
        """Their texts are one text."""
        traced = trace(started(), reasoning("r", thought("a", "one "), thought("b", "two")), finished())
        assert {"agui.message.id": "r", "agui.message.role": "reasoning", "output.value": "one two"} == traced.some(
            "reasoning", "agui.message.id", "agui.message.role", "output.value"
        )

    def test_a_message_outside_any_span_has_its_own(self) -> None:
        """REASONING_MESSAGE_START opens a span where none is open, and its end ends it."""
        traced = trace(started(), thought("a", "one"), thought("b", "two"), finished())
        assert [(2, 4), (5, 7)] == [seconds(span) for span in traced.spans if span.name == "reasoning"]
        assert ["one", "two"] == traced.each("reasoning", "output.value")

    def test_a_message_of_another_owner_has_its_own(self) -> None:
        """Inside another owner's span it is no part of that."""
        traced = trace(
            started(),
            reasoning("r", thought("a", "mine"), thought("b", "theirs", tag="s")),
            finished(),
        )
        assert """
invoke_agent supervisor [AGENT] success
  reasoning [CHAIN] output.value="mine"
  invoke_agent [AGENT] unreported
    reasoning [CHAIN] output.value="theirs"
""" == traced.tree("output.value")

    def test_an_untagged_message_that_has_the_id_of_the_span_is_its_owners(self) -> None:
        """The id keeps its owner: span and message may have the same one."""
        traced = trace(started(), reasoning("r", thought("r", "theirs"), tag="s"), finished())
        assert """
invoke_agent supervisor [AGENT] success
  invoke_agent [AGENT] unreported
    reasoning [CHAIN] output.value="theirs"
""" == traced.tree("output.value")
        assert [] == traced.rules()

    def test_it_ends_with_the_later_of_its_end_and_its_messages(self) -> None:
        """A message that is still open at REASONING_END keeps the span open."""
        traced = trace(
            started(),
            event("REASONING_START", messageId="r"),  # 2
            event("REASONING_MESSAGE_START", messageId="a", role="reasoning"),  # 3
            event("REASONING_END", messageId="r"),  # 4
            event("REASONING_MESSAGE_END", messageId="a"),  # 5
            finished(),
        )
        assert (2, 5) == traced.times("reasoning")

    def test_the_gap_is_between_deltas(self) -> None:
        """Ends and starts of messages inside do not shorten it."""
        traced = trace(started(), reasoning("r", thought("a", "x"), thought("b", "y")), finished())
        assert {"agui.max_chunk_gap": 3.0} == traced.some("reasoning", "agui.max_chunk_gap")


class TestRepeatedIds:
    """Ids that the protocol allows to be repeated."""

    def test_a_tool_call_that_is_open_is_opened_again(self) -> None:
        """It is the same span, and a note; its arguments are taken once."""
        traced = trace(
            started(),
            tool("c", "task", '{"a":', "1}"),  # 2–5
            tool("c", "task", '{"a":', "1}"),
            result("c"),
            finished(),
        )
        assert """
invoke_agent supervisor [AGENT] success
  * agui.note agui.rule="repeated_id"
  execute_tool task [TOOL] success input.value="{\\"a\\":1}"
""" == traced.tree("input.value", events=("agui.rule",))
        assert {"agui.tool_call.args_ms": 3000.0} == traced.some("execute_tool task", "agui.tool_call.args_ms")

    def test_an_outer_call_is_repeated_after_an_inner_one(self) -> None:
        """START, ARGS and END of an outer `task` call come again after the inner tool: one span each."""
        traced = trace(
            started(), tool("outer", "task", "{}"), subagent("s", call="outer"), tool("inner", "search", tag="s"),
            result("inner", tag="s"), done("s"), tool("outer", "task", "{}"), result("outer"), finished(),
        )  # fmt: skip
        assert """
invoke_agent supervisor [AGENT] success
  execute_tool task [TOOL] success
    invoke_agent researcher [AGENT] success
      execute_tool search [TOOL] success
""" == traced.tree()

    def test_a_call_is_started_twice_before_its_end(self) -> None:
        """That is a violation, not a note: the open one goes on and takes what comes."""
        opener = event("TOOL_CALL_START", toolCallId="c", toolCallName="task")
        args = [event("TOOL_CALL_ARGS", toolCallId="c", delta=delta) for delta in "ab"]
        ended = event("TOOL_CALL_END", toolCallId="c")
        traced = trace(started(), opener, args[0], opener, args[1], ended, finished())
        assert ["tool_call_already_open"] == traced.rules()
        assert {"input.value": "ab"} == traced.some("execute_tool task", "input.value")

    def test_after_its_result_the_id_is_a_new_span(self) -> None:
        """A call may come again under the same id."""
        traced = trace(
            started(),
            *(tool("c", "task", "1"), result("c", "x")),
            *(tool("c", "task", "2"), result("c", "y")),
            finished(),
        )
        assert [("1", "x"), ("2", "y")] == traced.each("execute_tool task", "input.value", "output.value")
        assert [] == traced.rules()

    def test_a_message_id_that_is_opened_again_is_a_new_span(self) -> None:
        """After its end; it keeps its owner."""
        traced = trace(started(), text("m", "one", tag="s"), text("m", "again"), finished())
        assert """
invoke_agent supervisor [AGENT] success
  invoke_agent [AGENT] unreported
    message assistant [CHAIN] agui.chars=3
    message assistant [CHAIN] agui.chars=5
""" == traced.tree("agui.chars")
        assert [] == traced.rules()

    def test_a_second_result_is_a_note(self) -> None:
        """The first one counts."""
        traced = trace(started(), tool("c"), result("c", "first"), result("c", "second"), finished())
        assert {"output.value": "first"} == traced.some("execute_tool search", "output.value")
        assert ["second_result"] == traced.rules()

    def test_a_result_for_an_unknown_call_is_a_note(self) -> None:
        """On the run; it opens no tool span."""
        traced = trace(started(), result("nobody"), finished())
        assert ["unknown_result"] == traced.rules()
        assert ["invoke_agent supervisor"] == [span.name for span in traced.spans]

    def test_arguments_after_the_result_are_nobodys(self) -> None:
        """A call whose result came first still has its END: nothing is set on a span that has ended."""
        traced = trace(
            started(),
            event("TOOL_CALL_START", toolCallId="c", toolCallName="task"),
            event("TOOL_CALL_ARGS", toolCallId="c", delta="a"),
            result("c"),
            event("TOOL_CALL_ARGS", toolCallId="c", delta="b"),
            event("TOOL_CALL_END", toolCallId="c"),
            finished(),
        )
        assert {"input.value": "a", "agui.outcome": "success"} == traced.some(
            "execute_tool task", "input.value", "agui.outcome", "agui.tool_call.args_ms"
        )
        assert [] == traced.rules()


class TestAfterTheEnd:
    """What arrives for an owner that has ended is recorded on its nearest open ancestor, with its id."""

    def test_it_is_told_above(self) -> None:
        """CUSTOM, RAW, activities and unknown events; the middle agent is open and takes them."""
        late = [
            custom("late", tag="in"),
            event("RAW", "in", event={}),
            event("ACTIVITY_SNAPSHOT", "in", messageId="a", activityType="chart", content={}),
            event("NEW_EVENT", "in"),
        ]
        traced = trace(
            started(),
            subagent("mid", "mid"),
            subagent("in", "in", above="mid"),
            done("in"),
            late,
            done("mid"),
            finished(),
        )
        assert """
invoke_agent supervisor [AGENT] success
  invoke_agent mid [AGENT] success agui.raw.count=1
    * agui.custom agui.custom.name="late" agui.custom.value="1" agui.subagent.run_id="in"
    * agui.unknown_event agui.event.type="NEW_EVENT" agui.subagent.run_id="in"
    * agui.activity agui.activity.type="chart" agui.activity.updates=1 agui.message.id="a" agui.subagent.run_id="in"
    invoke_agent in [AGENT] success
""" == traced.tree("agui.raw.count", events=("*",))

    def test_at_last_on_the_run(self) -> None:
        """Where every agent above has ended."""
        traced = trace(
            started(), subagent("mid", "mid"), subagent("in", "in", above="mid"), done("in"), done("mid"),
            custom("late", tag="in"), finished(),
        )  # fmt: skip
        assert [
            ("agui.custom", {"agui.custom.name": "late", "agui.custom.value": "1", "agui.subagent.run_id": "in"})
        ] == (traced.events("invoke_agent supervisor"))

    def test_spans_are_opened_under_it_all_the_same(self) -> None:
        """A finished subagent is still a valid parent."""
        traced = trace(started(), subagent("s"), done("s"), text("m", "late", tag="s"), finished())
        assert """
invoke_agent supervisor [AGENT] success
  invoke_agent researcher [AGENT] success
    message assistant [CHAIN]
""" == traced.tree()
