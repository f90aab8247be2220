"""Trace model, parents: who is whose child, because the stream said so."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from agui_otel.protocol.thread import ThreadChange
from agui_otel.tracing.memory import InProcessMemory
from tests.support.traced import Thread, trace
from tests.support.wire import (
    broke,
    done,
    finished,
    given,
    messages,
    result,
    said,
    started,
    subagent,
    text,
    tool,
)

RUN = "invoke_agent supervisor"


class TestSubagent:
    """A subagent's parent is the first of its tool call, its subagent, its message's owner and the run."""

    @pytest.mark.parametrize(("call", "above", "message"), list(product((True, False), repeat=3)))
    def test_the_first_that_can_be_named(self, call: bool, above: bool, message: bool) -> None:
        """Each of the eight combinations; what is named is always recorded."""
        named = {"call": "c" if call else None, "above": "mid" if above else None, "message": "m" if message else None}
        traced = trace(
            started(),
            subagent("mid", "mid"),
            subagent("side", "side"),
            tool("c", "task", tag="mid"),
            text("m", "x", tag="side"),
            subagent("s", "sub", **named),
            *(done("s"), done("mid"), done("side")),
            finished(),
        )
        parent = (
            "execute_tool task" if call else "invoke_agent mid" if above else "invoke_agent side" if message else RUN
        )
        assert parent == traced.parent("invoke_agent sub")
        recorded = {
            "agui.parent_tool_call.id": "c",
            "agui.parent_subagent.run_id": "mid",
            "agui.parent_message.id": "m",
        }
        assert {
            key: value
            for (key, value), is_named in zip(recorded.items(), (call, above, message), strict=True)
            if is_named
        } == traced.some("invoke_agent sub", *recorded)

    def test_a_named_id_that_nobody_knows_is_passed_over(self) -> None:
        """The next one that can be named counts; the id is recorded all the same."""
        traced = trace(
            started(),
            subagent("mid", "mid"),
            subagent("s", "sub", call="?", above="mid"),
            done("s"),
            done("mid"),
            finished(),
        )
        assert "invoke_agent mid" == traced.parent("invoke_agent sub")
        assert {"agui.parent_tool_call.id": "?"} == traced.some("invoke_agent sub", "agui.parent_tool_call.id")

    def test_a_finished_subagent_is_a_parent(self) -> None:
        """Also a failed one, and a call that has its result."""
        traced = trace(
            started(),
            subagent("a", "ended"),
            done("a"),
            subagent("b", "of-ended", above="a"),
            done("b"),
            subagent("c", "broken"),
            broke("c"),
            subagent("d", "of-broken", above="c"),
            done("d"),
            tool("t", "task"),
            result("t"),
            subagent("e", "of-answered", call="t"),
            done("e"),
            finished(),
        )
        assert ["invoke_agent ended", "invoke_agent broken", "execute_tool task"] == [
            traced.parent(f"invoke_agent of-{what}") for what in ("ended", "broken", "answered")
        ]

    def test_when_the_ids_name_different_owners_the_tool_call_wins(self) -> None:
        """And a note is recorded."""
        traced = trace(
            started(),
            subagent("mid", "mid"),
            tool("c", "task"),
            subagent("s", "sub", call="c", above="mid"),
            *(done("s"), done("mid")),
            finished(),
        )
        assert "execute_tool task" == traced.parent("invoke_agent sub")
        assert ["parent_mismatch"] == traced.rules()

    def test_ids_that_agree_leave_no_note(self) -> None:
        """The call is the named subagent's."""
        traced = trace(
            started(),
            subagent("mid", "mid"),
            tool("c", "task", tag="mid"),
            subagent("s", "sub", call="c", above="mid"),
            *(done("s"), done("mid")),
            finished(),
        )
        assert [] == traced.rules()

    def test_a_tool_call_that_comes_later_links(self) -> None:
        """The parent stays as chosen; the tool span links to the subagent and names its span."""
        traced = trace(started(), subagent("s", "sub", call="c"), done("s"), tool("c", "task"), result("c"), finished())
        assert """
invoke_agent supervisor [AGENT] success
  * agui.note agui.rule="late_tool_call"
  invoke_agent sub [AGENT] success
  execute_tool task [TOOL] success
    > invoke_agent sub
""" == traced.tree(events=("agui.rule",))
        context = traced.span("invoke_agent sub").context
        assert context is not None
        assert {"agui.late_child.span_id": (f"{context.span_id:016x}",)} == traced.some(
            "execute_tool task", "agui.late_child.span_id"
        )

    def test_it_never_is_its_own_parent(self) -> None:
        """Whatever it names."""
        traced = trace(
            started(),
            messages(said("m", subagentRunId="s")),
            subagent("s", "sub", above="s", message="m"),
            done("s"),
            finished(),
        )
        assert RUN == traced.parent("invoke_agent sub")

    def test_started_twice_it_goes_on(self) -> None:
        """Rule subagent_already_active: the open one goes on, under the name that it had."""
        traced = trace(started(), subagent("s", "one"), subagent("s", "two"), done("s"), finished())
        assert ["subagent_already_active"] == traced.rules()
        assert ["invoke_agent one", RUN] == [span.name for span in traced.spans]

    def test_started_again_after_its_end_it_has_a_second_span(self) -> None:
        """Rule subagent_restarted: it is active again. What it opens from now on is the second one's."""
        traced = trace(
            started(),
            *(subagent("s", "sub"), text("a", tag="s"), done("s")),
            *(subagent("s", "sub"), text("b", tag="s"), done("s")),
            finished(),
        )
        assert """
invoke_agent supervisor [AGENT] success
  * agui.violation agui.rule="subagent_restarted"
  invoke_agent sub [AGENT] success
    message assistant [CHAIN] agui.message.id="a"
  invoke_agent sub [AGENT] success
    > invoke_agent sub
    message assistant [CHAIN] agui.message.id="b"
""" == traced.tree("agui.message.id", events=("agui.rule",))
        assert [(4, 4)] == [tuple(traced.each("invoke_agent sub", "agui.events.count"))]
        assert [10] == traced.each(RUN, "agui.events.count")


class TestResult:
    """TOOL_CALL_RESULT is attributed on its own."""

    def test_who_answered_is_told(self) -> None:
        """A tag that differs from the call's owner: the call stays where it is."""
        traced = trace(started(), subagent("s", "sub"), tool("c", "task"), result("c", tag="s"), done("s"), finished())
        assert RUN == traced.parent("execute_tool task")
        assert {"agui.tool_call.answered_by": "s", "agui.tool_call.answered_by_name": "sub"} == traced.some(
            "execute_tool task", "agui.tool_call.answered_by", "agui.tool_call.answered_by_name"
        )
        assert [3] == traced.each("invoke_agent sub", "agui.events.count")

    @pytest.mark.parametrize("tag", ["s", None])
    def test_an_owners_or_untagged_result_says_nothing(self, tag: str | None) -> None:
        """The owner answered itself, or nothing is said."""
        traced = trace(
            started(), subagent("s"), tool("c", "task", tag="s"), result("c", tag=tag), done("s"), finished()
        )
        assert {} == traced.some("execute_tool task", "agui.tool_call.answered_by", "agui.tool_call.answered_by_name")


class TestParentRun:
    """`parentRunId` is a link to that run's span when it is known, and an attribute always."""

    def test_in_the_same_process(self) -> None:
        """From RUN_STARTED or from the input; once."""
        thread = Thread(agent_name="parent")
        thread.run(started("parent-1", "t"), finished("parent-1", "t"))
        for ident, said_by in (("child-1", {"parentRunId": "parent-1"}), ("child-2", {})):
            traced = thread.run(
                started(ident, "t", **said_by), finished(ident, "t"), given=given(ident, "t", parentRunId="parent-1")
            )
            (span,) = traced.spans
            assert [thread.captured.spans[0].context] == [link.context for link in span.links]
            assert None is span.parent
            assert {"agui.parent_run.id": "parent-1"} == traced.some("invoke_agent parent", "agui.parent_run.id")

    def test_in_another_thread_the_only_one_of_that_id(self) -> None:
        """A run may be spawned by one of another thread; an id that two threads use names neither."""
        thread = Thread(agent_name="agent")
        thread.run(started("spawner", "x"), finished("spawner", "x"))
        assert 1 == len(thread.run(started("s1", "z", parentRunId="spawner"), finished("s1", "z")).spans[0].links)
        thread.run(started("spawner", "y"), finished("spawner", "y"))
        assert 0 == len(thread.run(started("s2", "z", parentRunId="spawner"), finished("s2", "z")).spans[0].links)

    def test_in_thread_memory(self) -> None:
        """Where only memory knows the run: see test_resumption.py for what it keeps."""
        thread = Thread(agent_name="agent")
        waiting = {"type": "interrupt", "interrupts": [{"id": "i", "reason": "approval"}]}
        thread.run(started("kept", "th"), finished("kept", "th", outcome=waiting))
        record = thread.memory.read("th")
        assert record is not None
        elsewhere = record.interrupts["i"].run.model_copy(update={"run_id": "elsewhere", "span_id": "f" * 16})
        changed = record.interrupts["i"].model_copy(update={"run": elsewhere})

        memory = InProcessMemory(clock=lambda: record.updated)
        memory.write(ThreadChange(thread_id="th", at=record.updated, interrupts=(changed,)))
        traced = Thread(agent_name="agent", memory=memory).run(
            started("child-3", "th", parentRunId="elsewhere"), finished("child-3", "th")
        )
        assert [int("f" * 16, 16)] == [link.context.span_id for link in traced.spans[0].links]

    def test_unknown_it_is_an_attribute_only(self) -> None:
        """And a run that names itself does not link to itself."""
        for ident in ("nobody's", "run"):
            traced = trace(started(parentRunId=ident), finished())
            assert {"agui.parent_run.id": ident} == traced.some(RUN, "agui.parent_run.id")
            assert () == traced.span(RUN).links


@examples(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"),
            st.sampled_from((None, "abcd"[0], "b", "c")),
            st.sampled_from((None, "t-a", "t-b", "t-c")),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_trees_are_forests_within_one_trace(said: list[tuple[str, str | None, str | None, bool]]) -> None:
    """Whatever is named, in whatever order: every span ends, under a parent of the same trace, and no cycle."""
    events: list[Any] = [started()]
    for ident, above, call, opens in said:
        events.append(subagent(ident, ident, above=above, call=call))
        events.append(tool(f"t-{ident}", f"t-{ident}", tag=ident) if opens else done(ident))
    traced = trace(*events, finished())
    by_id = {span.context.span_id: span for span in traced.spans if span.context is not None}
    (root,) = (span for span in traced.spans if span.parent is None)
    for span in traced.spans:
        current, above_it = span, 0
        while current.parent is not None:
            current = by_id[current.parent.span_id]
            above_it += 1
            assert above_it <= len(by_id)
        assert root is current


def test_children_beyond_the_links_are_counted() -> None:
    """A call that comes after very many of its subagents links to as many as the SDK keeps, and says how many more."""
    children = [subagent(f"s{number}", "scout", call="call") for number in range(200)]
    traced = trace(started(), *children, tool("call", "delegate"), *[done(f"s{n}") for n in range(200)], finished())
    told = traced.attributes("execute_tool delegate")
    links = len(traced.span("execute_tool delegate").links)
    assert (128, 128, 72) == (links, len(told["agui.late_child.span_id"]), told["agui.omitted.links"])
