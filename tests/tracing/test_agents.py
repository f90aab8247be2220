"""Trace model, attributes: what the spans of runs and subagents say."""

from __future__ import annotations

from typing import Any

import pytest

from agui_otel import Settings, trace_events
from tests.support.traced import Thread, trace
from tests.support.wire import (
    done,
    event,
    finished,
    given,
    result,
    said,
    started,
    step,
    step_end,
    subagent,
    text,
    tool,
)

RUN = "invoke_agent supervisor"
SUB = "invoke_agent researcher"
CALL = "execute_tool search"
EVERYTHING = [
    started(protocolVersion="1.0.0", parentRunId="p", timestamp=1_767_225_600),
    step("plan"),
    text("m", "Hello"),
    event("REASONING_START", messageId="r"),
    event("REASONING_END", messageId="r"),
    tool("c", "search", '{"q":1}', parent="m"),
    subagent("sub", call="c", message="m", description="searches", timestamp=5),
    text("n", "sub", tag="sub"),
    tool("d", "fetch", tag="sub"),
    result("d", "x", tag="sub"),
    done("sub", result={"r": 1}),
    result("c", "found"),
    step_end("plan"),
    finished(usage=[{"provider": "p", "model": "m-1", "inputTokens": 1, "outputTokens": 2}]),
]


class TestAgents:
    """Runs and subagents."""

    def test_names_and_places(self) -> None:
        """In both vocabularies, whatever the dialect; the place is the path of names from the root."""
        for dialect in ("both", "openinference", "gen_ai"):
            traced = trace(EVERYTHING, dialect=dialect)
            keys = (
                *("gen_ai.operation.name", "gen_ai.agent.name", "agent.name"),
                *("graph.node.id", "graph.node.name", "graph.node.parent_id"),
            )
            assert ["invoke_agent", "supervisor", "supervisor", "supervisor", "supervisor", None] == list(
                traced.each(RUN, *keys)[0]
            )
            assert [
                "invoke_agent",
                "researcher",
                "researcher",
                "supervisor/researcher",
                "researcher",
                "supervisor",
            ] == list(traced.each(SUB, *keys)[0])

    def test_places_of_agents_without_a_name(self) -> None:
        """They have one in the path all the same, and no `gen_ai.agent.name`."""
        traced = trace(
            started(), text("m", tag="s"), subagent("t", "named", above="s"), done("t"), finished(), agent_name=None
        )
        assert [("agent", None), ("agent/unannounced", None), ("agent/unannounced/named", "named")] == [
            *traced.each("invoke_agent", "graph.node.id", "gen_ai.agent.name"),
            *traced.each("invoke_agent named", "graph.node.id", "gen_ai.agent.name"),
        ]

    def test_a_deep_place_keeps_its_end(self) -> None:
        """Names are the producer's, so their path has a bound."""
        chain = [subagent(f"s{n}", "n" * 100, above=f"s{n - 1}" if n else None) for n in range(20)]
        traced = trace(started(), chain, [done(f"s{n}") for n in reversed(range(20))], finished())
        assert {1024} == {len(path) for path in traced.each("invoke_agent " + "n" * 100, "graph.node.id")[11:]}

    def test_the_name_is_the_callers(self) -> None:
        """Argument before setting; never a message's `name`; none is none."""
        named = [started(), text("m", "x", name="bob"), finished()]
        assert "invoke_agent argument" == trace(named, agent_name="argument").spans[-1].name
        thread = Thread(agent_name=None)
        assert "invoke_agent" == thread.run(named).spans[-1].name
        list(
            trace_events(
                named,
                config=Settings(agent_name="setting"),
                tracer_provider=thread.captured.tracer_provider,
                meter_provider=thread.captured.meter_provider,
            )
        )
        assert "invoke_agent setting" == thread.captured.spans[-1].name

    def test_a_runs_input_and_output(self) -> None:
        """The last user message, and the last message of the run's own agent."""
        asked = given(messages=[said("1", "user", "first"), said("2", "user", "last"), said("3", "assistant", "x")])
        traced = trace(
            started(),
            text("a", "one"),
            text("b", "a user's", role="user"),
            text("c", "sub's", tag="s"),
            text("d", "two"),
            text("e"),
            finished(result={"x": 1}),
            given=asked,
            dialect="openinference",
        )
        assert {"input.value": "last", "output.value": "two"} == traced.some(RUN, "input.value", "output.value")

    def test_a_runs_output_is_its_result_where_it_says_nothing(self) -> None:
        """As JSON, unless it is a string."""
        traced = trace(started(), text("c", "sub's", tag="s"), finished(result={"x": [1]}))
        assert {"output.value": '{"x":[1]}', "output.mime_type": "application/json"} == traced.some(
            RUN, "output.value", "output.mime_type"
        )

    def test_the_last_message_counts_also_where_an_older_one_stays_open(self) -> None:
        """It is closed with the run, but was said before."""
        traced = trace(
            started(),
            event("TEXT_MESSAGE_START", messageId="old"),
            event("TEXT_MESSAGE_CONTENT", messageId="old", delta="old"),
            text("new", "new"),
            finished(),
        )
        assert {"output.value": "new"} == traced.some(RUN, "output.value")

    @pytest.mark.parametrize(
        ("started_", "ended", "input_", "output"),
        [
            (subagent("sub", call="c", description="searches"), done("sub", result="r"), '{"q":1}', "r"),
            (subagent("sub", description="searches"), done("sub"), "searches", "said"),
            (subagent("sub"), done("sub", result={"a": 1}), None, '{"a":1}'),
            (subagent("sub", call="c", metadata={"input": "the task"}), done("sub"), "the task", "said"),
            (subagent("sub", call="c", metadata={"input": {"no": "text"}}), done("sub"), '{"q":1}', "said"),
        ],
    )
    def test_a_subagents_input_and_output(self, started_: Any, ended: Any, input_: Any, output: Any) -> None:
        """What its metadata says, else its parent tool call's arguments, else its description; its result, else what
        it said last.
        """
        traced = trace(
            started(),
            tool("c", "search", '{"q":', "1}"),
            started_,
            text("m", "said", tag="sub"),
            ended,
            result("c"),
            finished(),
        )
        assert [(input_, output)] == traced.each(SUB, "input.value", "output.value")

    def test_arguments_that_come_after_the_subagent(self) -> None:
        """Announced before its call, or before the arguments were whole."""
        start, first, second, end = tool("c", "search", "{", "}")
        for events in (
            [subagent("sub", call="c"), start, first, second, end],
            [start, first, subagent("sub", call="c"), second, end],
        ):
            traced = trace(started(), events, done("sub"), finished())
            assert ["{}"] == traced.each(SUB, "input.value")

    def test_a_failed_subagents_last_words(self) -> None:
        """A message that it never ends is its output."""
        traced = trace(
            started(), subagent("sub"), event("TEXT_MESSAGE_CONTENT", "sub", messageId="m", delta="Looking"),
            event("SUBAGENT_ERROR", "sub", message="429"), finished(),
        )  # fmt: skip
        assert ["Looking"] == traced.each(SUB, "output.value")

    def test_time_to_first_chunk(self) -> None:
        """From the span's start to the first text, reasoning or argument delta that this agent owns."""
        for opener, first in (
            (
                event("TEXT_MESSAGE_START", "sub", messageId="m"),
                event("TEXT_MESSAGE_CONTENT", "sub", messageId="m", delta="x"),
            ),
            (tool("m", tag="sub")[0], event("TOOL_CALL_ARGS", "sub", toolCallId="m", delta="x")),
            (
                event("REASONING_MESSAGE_START", "sub", messageId="m", role="reasoning"),
                event("REASONING_MESSAGE_CONTENT", "sub", messageId="m", delta="x"),
            ),
        ):
            traced = trace(started(), subagent("sub"), opener, first, text("own", "x"), finished(), given=given())
            assert [[2.0], [6.0]] == [traced.each(name, "agui.time_to_first_chunk") for name in (SUB, RUN)]
            labels = {"gen_ai.agent.name": "researcher", "agui.level": "subagent"}
            assert [(labels, 1)] == [p for p in traced.metric("agui.time_to_first_chunk") if p[0] == labels]

    def test_without_a_chunk_there_is_none(self) -> None:
        """An empty delta is none."""
        traced = trace(started(), text("m", ""), finished())
        assert {} == traced.some(RUN, "agui.time_to_first_chunk")
        assert [] == traced.metric("agui.time_to_first_chunk")

    def test_events_are_counted(self) -> None:
        """A subagent's own, the run's all: each once."""
        traced = trace(
            started(),
            {"type": "NEW"},
            subagent("sub"),
            text("m", "a", "b", tag="sub"),
            text("n", "c"),
            done("sub"),
            finished(),
        )
        assert [[6], [12]] == [traced.each(name, "agui.events.count") for name in (SUB, RUN)]

    def test_the_protocols_version(self) -> None:
        """RUN_STARTED's, else the input's; on runs and subagents."""
        for first, asked in ((started(protocolVersion="1.0.0"), None), (started(), given(protocolVersion="1.0.0"))):
            traced = trace(first, subagent("sub"), done("sub"), finished(), given=asked)
            assert [["1.0.0"], ["1.0.0"]] == [traced.each(name, "agui.protocol.version") for name in (RUN, SUB)]

    @pytest.mark.parametrize(
        ("events", "attribution"),
        [
            ([text("m")], "none"),
            ([{**text("m")[0], "subagentRunId": None}], "none"),
            ([text("m", tag="s")], "tags"),
            ([event("RAW", "s", event=1)], "tags"),
            ([text("m", tag="s"), subagent("s"), done("s")], "lifecycle"),
            ([event("SUBAGENT_ERROR", "s", message="x")], "lifecycle"),
        ],
    )
    def test_attribution(self, events: Any, attribution: str) -> None:
        """What the stream had: nothing, tags, or the lifecycle of subagents."""
        assert [attribution] == trace(started(), events, finished()).each(RUN, "agui.attribution")

    def test_run_ids_are_no_agent_ids(self) -> None:
        """`gen_ai.agent.id` is a hosted agent's stable id."""
        assert not any("gen_ai.agent.id" in (span.attributes or {}) for span in trace(EVERYTHING).spans)
