"""Trace model, suspension and resumption: what joins the run that asks and the run that is answered."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.resumption import RUN, asking, kept, resuming, told
from tests.support.traced import Thread, trace
from tests.support.wire import (
    answers,
    custom,
    done,
    event,
    finished,
    given,
    interrupted,
    messages,
    result,
    said,
    started,
    subagent,
    suspended,
    text,
    tool,
)


class TestRunThatAnswers:
    """The run links to each run that first opened an interrupt which it answers, and says so in attributes."""

    def test_links_attributes_and_waits(self) -> None:
        """One link a run and one a subagent that asked; arrays, because Phoenix keeps no links."""
        thread = Thread()
        first = asking(thread, "x", "y")
        thread.now += 60
        second = thread.run(started("two"), finished("two"), given=resuming("x", "y"))
        context = first.span(RUN).context
        assert context is not None
        assert ["invoke_agent asker-x", "invoke_agent asker-y", RUN] == second.links(RUN)
        assert {
            "agui.resumes.run_id": ("one",),
            "agui.resumes.trace_id": (f"{context.trace_id:032x}",),
            "agui.resumes.span_id": (f"{context.span_id:016x}",),
        } == second.some(RUN, "agui.resumes.run_id", "agui.resumes.trace_id", "agui.resumes.span_id")
        assert [
            ("agui.interrupt.resolved", "x", "approved", 60.0),
            ("agui.interrupt.resolved", "y", "approved", 60.0),
        ] == told(second)
        assert ["s-x", "s-y"] == [a["agui.subagent.run_id"] for _, a in second.events(RUN)]
        assert None is second.span(RUN).parent

    def test_interrupts_of_several_runs(self) -> None:
        """Each run that first opened one, once."""
        thread = Thread()
        asking(thread, "x")
        thread.run(started("other"), interrupted("y", run="other"))
        third = thread.run(started("two"), finished("two"), given=resuming("x", "y"))
        assert {"agui.resumes.run_id": ("one", "other")} == third.some(RUN, "agui.resumes.run_id")
        assert ["invoke_agent asker-x", RUN, RUN] == third.links(RUN)

    def test_an_unknown_interrupt(self) -> None:
        """Nothing is remembered of it: the answer is told, without a wait or a link, and noted and counted."""
        traced = trace(started(), finished(), given=given(resume=answers("?", payload=False)))
        assert [("agui.interrupt.resolved", {"agui.interrupt.id": "?", "agui.interrupt.decision": "denied"})] == (
            traced.events(RUN, "agui.interrupt.resolved")
        )
        assert ["unknown_interrupt"] == traced.rules()
        assert [({"agui.where": "thread_memory.unknown"}, 1)] == traced.metric("agui.observer.errors")
        assert () == traced.span(RUN).links
        assert [] == traced.metric("agui.interrupt.wait")

    def test_where_nobody_remembers(self) -> None:
        """Threads of many users: what they answer is not expected to be known."""
        traced = trace(
            started(), finished(), given=given(resume=answers("?", payload=False)), anonymous_threads=("thread",)
        )
        assert [] == traced.rules()
        assert [] == traced.metric("agui.observer.errors")

    def test_a_cancelled_entry(self) -> None:
        """`agui.interrupt.cancelled`: nobody decided."""
        thread = Thread()
        asking(thread, "x")
        traced = thread.run(
            started("two"), finished("two"), given=given("two", resume=answers("x", status="cancelled"))
        )
        assert [("agui.interrupt.cancelled", "x", "unknown", 0.0)] == told(traced)
        assert {} == kept(thread)

    def test_an_expired_interrupt(self) -> None:
        """An answer that comes too late."""
        thread = Thread()
        thread.run(
            started("one"), interrupted({"id": "x", "reason": "r", "expiresAt": "2026-01-01T00:00:30Z"}, run="one")
        )
        thread.now = 31
        assert [("agui.interrupt.resolved", "x", "expired", 29.0)] == told(
            thread.run(started("two"), finished("two"), given=resuming("x"))
        )

    def test_very_many_answers_are_counted(self) -> None:
        """Links and arrays are bounded like events."""
        thread = Thread()
        for number in range(100):
            thread.run(started(f"r{number}"), interrupted(f"i{number}", run=f"r{number}"))
        many = [f"i{number}" for number in range(200)]
        traced = thread.run(started("two"), finished("two"), given=resuming(*many))
        assert (64, 127) == (len(traced.attributes(RUN)["agui.resumes.run_id"]), len(traced.events(RUN)))
        assert {"agui.omitted.resumes": 36, "agui.omitted.answers": 75} == traced.some(
            RUN, "agui.omitted.resumes", "agui.omitted.answers"
        )


class TestContinuation:
    """A subagent that reuses its id is a continuation: never a duplicate start, never a violation."""

    def test_under_the_same_parent(self) -> None:
        """The call that dispatched it is re-opened, and updated when it is announced after its subagent."""
        thread = Thread()
        asking(thread, "x")
        second = thread.run(
            started("two"),
            subagent("s-x", "asker-x", call="c-x"),
            text("m", "done", tag="s-x"),
            done("s-x"),
            tool("c-x", "task", "{}"),
            result("c-x", "all done"),
            finished("two"),
            given=resuming("x"),
        )
        assert """
invoke_agent supervisor [AGENT] success
  > invoke_agent asker-x
  > invoke_agent supervisor
  execute_tool task [TOOL] success agui.continued=true gen_ai.tool.call.id="c-x"
    > execute_tool task
    invoke_agent asker-x [AGENT] success agui.continued=true
      > invoke_agent asker-x
      message assistant [CHAIN]
""" == second.tree("agui.continued", "gen_ai.tool.call.id")
        assert [] == second.rules()
        assert [second.times(RUN)[0] + 2] * 2 == [
            second.times(name)[0] for name in ("execute_tool task", "invoke_agent asker-x")
        ]
        assert {"input.value": "{}", "output.value": "all done"} == second.some(
            "execute_tool task", "input.value", "output.value"
        )
        assert {} == kept(thread)

    def test_it_names_what_it_continues(self) -> None:
        """As attributes and in the event `agui.subagent.resumed`, on the subagent."""
        thread = Thread()
        first = asking(thread, "x")
        second = thread.run(
            started("two"), subagent("s-x", "asker-x", call="c-x"), done("s-x"), finished("two"), given=resuming("x")
        )
        context = first.span("invoke_agent asker-x").context
        assert context is not None
        names = {
            "agui.continues.trace_id": f"{context.trace_id:032x}",
            "agui.continues.span_id": f"{context.span_id:016x}",
            "agui.continues.run_id": "one",
        }
        assert names == second.some("invoke_agent asker-x", *names)
        assert [("agui.subagent.resumed", names)] == second.events("invoke_agent asker-x")

    @pytest.mark.parametrize("named", [{}, {"call": "c-x"}])
    def test_a_parent_that_is_dropped_on_resumption(self, named: dict[str, Any]) -> None:
        """It is where it was: under its own remembered parents, recursively; their ids are recorded."""
        thread = Thread()
        thread.run(
            started("one"),
            *(tool("c", "outer"), subagent("lead", "lead", call="c")),
            *(tool("c-x", "inner", tag="lead"), subagent("s-x", "asker-x", call="c-x", above="lead")),
            *(suspended("s-x", "x"), suspended("lead")),
            interrupted("x", run="one"),
        )
        second = thread.run(
            started("two"), subagent("s-x", "asker-x", **named), done("s-x"), finished("two"), given=resuming("x")
        )
        assert """
invoke_agent supervisor [AGENT] success
  > invoke_agent asker-x
  > invoke_agent supervisor
  execute_tool outer [TOOL] pending agui.continued=true gen_ai.tool.call.id="c"
    > execute_tool outer
    invoke_agent lead [AGENT] unreported agui.continued=true
      > invoke_agent lead
      execute_tool inner [TOOL] success agui.continued=true gen_ai.tool.call.id="c-x"
        > execute_tool inner
        invoke_agent asker-x [AGENT] success agui.continued=true
          > invoke_agent asker-x
""" == second.tree("agui.continued", "gen_ai.tool.call.id")
        assert {"agui.parent_tool_call.id": "c-x", "agui.parent_subagent.run_id": "lead"} == second.some(
            "invoke_agent asker-x", "agui.parent_tool_call.id", "agui.parent_subagent.run_id"
        )
        assert "supervisor/lead/asker-x" == second.attributes("invoke_agent asker-x")["graph.node.id"]

    def test_another_parent_that_is_named(self) -> None:
        """What the stream says now counts."""
        thread = Thread()
        asking(thread, "x")
        second = thread.run(
            started("two"), tool("new", "other"), subagent("s-x", "asker-x", call="new"), done("s-x"), result("new"),
            finished("two"), given=resuming("x"),
        )  # fmt: skip
        assert "execute_tool other" == second.parent("invoke_agent asker-x")
        assert {"agui.continued": True, "agui.parent_tool_call.id": "new"} == second.some(
            "invoke_agent asker-x", "agui.continued", "agui.parent_tool_call.id"
        )

    def test_its_own_events_reopen_it(self) -> None:
        """A remembered tag is no stranger; SUBAGENT_STARTED updates the span instead of opening a second one."""
        thread = Thread()
        asking(thread, "x")
        second = thread.run(
            started("two"), text("m", "again", tag="s-x"), subagent("s-x", "asker-x"), done("s-x"), finished("two"),
            given=resuming("x"),
        )  # fmt: skip
        assert 1 == len(second.each("invoke_agent asker-x", "agui.outcome"))
        assert {"agui.continued": True, "agui.subagent.announced": True} == second.some(
            "invoke_agent asker-x", "agui.continued", "agui.subagent.announced"
        )

    def test_without_an_input_it_answers(self) -> None:
        """Only where no input is known does restarting a suspended subagent answer its interrupts."""
        thread = Thread()
        asking(thread, "x", "y")
        thread.now += 10
        second = thread.run(started("two"), subagent("s-x", "asker-x"), done("s-x"), finished("two"))
        assert [("agui.interrupt.resolved", "x", "unknown", 12.0)] == told(second)
        assert {"agui.resumes.run_id": ("one",)} == second.some(RUN, "agui.resumes.run_id")
        assert {"interrupts": ["y"], "subagents": ["s-y"], "tool_calls": ["c-y"]} == kept(thread)

    def test_with_an_input_it_does_not(self) -> None:
        """The input says what is answered; here nothing."""
        thread = Thread()
        asking(thread, "x")
        second = thread.run(
            started("two"), subagent("s-x", "asker-x"), done("s-x"), finished("two"), given=given("two")
        )
        assert [] == told(second)
        assert {"interrupts": ["x"]} == kept(thread)

    def test_the_input_may_be_echoed(self) -> None:
        """RUN_STARTED's `input` is the RunAgentInput where no other is known."""
        thread = Thread()
        asking(thread, "x")
        second = thread.run(started("two", input=resuming("x")), finished("two"))
        assert [("agui.interrupt.resolved", "x", "approved", 1.0)] == told(second)


class TestNewId:
    """A producer that mints a new id."""

    def test_the_entry_names_the_interrupt(self) -> None:
        """The new subagent is a new one; the run links to the span that owned the interrupt, and the wait is closed."""
        thread = Thread()
        asking(thread, "x")
        second = thread.run(
            started("two"), tool("new", "task"), subagent("fresh", "asker-x", call="new"), done("fresh"), result("new"),
            finished("two"), given=resuming("x"),
        )  # fmt: skip
        assert """
invoke_agent supervisor [AGENT] success
  > invoke_agent asker-x
  > invoke_agent supervisor
  execute_tool task [TOOL] success gen_ai.tool.call.id="new"
    invoke_agent asker-x [AGENT] success
""" == second.tree("agui.continued", "gen_ai.tool.call.id")
        assert [("agui.interrupt.resolved", "x", "approved", 0.0)] == told(second)

    def test_everything_that_was_answered_leaves(self) -> None:
        """Also the subagents and calls that waited for the interrupt, and those above them, under their old ids."""
        thread = Thread()
        thread.run(
            started("one"),
            *(tool("c", "outer"), subagent("lead", "lead", call="c")),
            *(tool("d", "inner", tag="lead"), subagent("s", "asker", call="d", above="lead")),
            tool("send", "send_email", tag="s"),
            *(suspended("s", "x"), suspended("lead")),
            interrupted({"id": "x", "reason": "r", "toolCallId": "send"}, run="one"),
        )
        assert {"interrupts": ["x"], "subagents": ["lead", "s"], "tool_calls": ["c", "d", "send"]} == kept(thread)
        thread.run(started("two"), text("m", "done"), finished("two"), given=resuming("x"))
        assert {} == kept(thread)

    def test_what_waits_for_another_interrupt_stays(self) -> None:
        """Of two siblings below one lead, the answer to one lets the lead and the other wait on."""
        thread = Thread()
        thread.run(
            started("one"),
            *(tool("c", "outer"), subagent("lead", "lead", call="c")),
            [[tool(f"c-{i}", "inner", tag="lead"), subagent(f"s-{i}", call=f"c-{i}", above="lead")] for i in "xy"],
            *(suspended("s-x", "x"), suspended("s-y", "y"), suspended("lead")),
            interrupted("x", "y", run="one"),
        )
        thread.run(started("two"), text("m", "done"), interrupted("y", run="two"), given=resuming("x"))
        assert {"interrupts": ["y"], "subagents": ["lead", "s-y"], "tool_calls": ["c", "c-y"]} == kept(thread)


class TestToolCalls:
    """Calls that ended pending, and their answers."""

    def test_a_frontend_tool_answered_in_the_next_input(self) -> None:
        """The event, its link and its wait; no span: the call is over."""
        thread = Thread()
        thread.run(started("one"), tool("f", "pick_colour", "{}"), finished("one"))  # pending since 4
        thread.now = 64
        second = thread.run(
            started("two"), finished("two"), given=given("two", messages=[said("t", "tool", "red", toolCallId="f")])
        )
        assert [
            (
                "agui.tool_call.answered",
                {"gen_ai.tool.call.id": "f", "gen_ai.tool.name": "pick_colour", "agui.tool_call.wait": 60.0},
            )
        ] == second.events(RUN)
        assert ["execute_tool pick_colour"] == second.links(RUN)
        assert [RUN] == [span.name for span in second.spans]
        assert {} == kept(thread)

    def test_a_tool_message_for_another_call_is_no_answer(self) -> None:
        """History repeats what was answered long ago."""
        thread = Thread()
        thread.run(started("one"), tool("f", "pick_colour"), finished("one"))
        old = [said("t", "tool", "x", toolCallId="g"), said("u", "user", "x", toolCallId="f"), said("v", "tool")]
        assert [] == thread.run(started("two"), finished("two"), given=given("two", messages=old)).events(RUN)
        assert {"tool_calls": ["f"]} == kept(thread)

    def test_a_result_for_a_call_that_is_not_announced_again(self) -> None:
        """It is re-opened, under its remembered owner, and gets its result here."""
        thread = Thread()
        thread.run(
            started("one"),
            *(tool("c", "outer"), subagent("s", "asker", call="c"), tool("f", "send", "{}", tag="s")),
            suspended("s", "x"),
            interrupted("x", run="one"),
        )
        second = thread.run(started("two"), result("f", "sent", tag="s"), finished("two"), given=resuming("x"))
        assert """
invoke_agent supervisor [AGENT] success
  > invoke_agent asker
  > invoke_agent supervisor
  > execute_tool send
  execute_tool outer [TOOL] pending agui.continued=true gen_ai.tool.call.id="c"
    > execute_tool outer
    invoke_agent asker [AGENT] unreported agui.continued=true
      > invoke_agent asker
      execute_tool send [TOOL] success agui.continued=true gen_ai.tool.call.id="f"
        > execute_tool send
""" == second.tree("agui.continued", "gen_ai.tool.call.id")
        assert [] == second.rules()
        assert {"output.value": "sent"} == second.some("execute_tool send", "output.value")

    def test_a_call_that_is_announced_again(self) -> None:
        """Is continued too; the owner is what the stream says now."""
        thread = Thread()
        thread.run(started("one"), tool("f", "send"), finished("one"))
        second = thread.run(started("two"), tool("f", "send"), result("f"), finished("two"))
        assert {"agui.continued": True, "agui.continues.run_id": "one"} == second.some(
            "execute_tool send", "agui.continued", "agui.continues.run_id"
        )
        assert {} == kept(thread)

    def test_arguments_of_a_call_that_is_not_announced_again(self) -> None:
        """They re-open it, and are its arguments (rule tool_call_not_open); a start updates it."""
        thread = Thread()
        thread.run(started("one"), tool("f", "send", tag="s"), finished("one"))
        args, start = tool("f", "send", "{}")[1], tool("f", "send")[0]
        second = thread.run(started("two"), args, start, result("f"), finished("two"))
        assert {"agui.continued": True, "input.value": "{}"} == second.some(
            "execute_tool send", "agui.continued", "input.value"
        )
        assert ["tool_call_not_open", "tool_call_already_open"] == second.rules()[:2]

    def test_a_tool_message_in_a_snapshot_reopens_nothing(self) -> None:
        """Nor does it answer."""
        thread = Thread()
        thread.run(started("one"), tool("f", "send"), finished("one"))
        second = thread.run(
            started("two"), messages(said("t", "tool", toolCallId="f")), finished("two"), given=given("two")
        )
        assert [RUN] == [span.name for span in second.spans]
        assert {"tool_calls": ["f"]} == kept(thread)

    def test_but_of_a_call_that_is_open_again_it_is_the_result(self) -> None:
        """A tool call's outcome, 2, before 4."""
        thread = Thread()
        asking(thread, "x")
        second = thread.run(
            started("two"), subagent("s-x", "asker-x"), done("s-x"),
            messages(said("t", "tool", "said later", toolCallId="c-x")), finished("two"), given=resuming("x"),
        )  # fmt: skip
        assert {"agui.outcome": "success", "output.value": "said later"} == second.some(
            "execute_tool task", "agui.outcome", "output.value"
        )

    def test_a_continued_call_without_a_result(self) -> None:
        """4: success where a subagent it dispatched succeeded, ending with it; 3 comes first."""
        for end, outcome in ((done("s-x"), "success"), (event("SUBAGENT_ERROR", "s-x", message="x"), "aborted")):
            thread = Thread()
            asking(thread, "x")
            begin = thread.now
            second = thread.run(
                started("two"), subagent("s-x", "asker-x"), end, custom(), finished("two"), given=resuming("x")
            )
            assert (outcome, begin + 3) == (
                second.attributes("execute_tool task")["agui.outcome"],
                second.times("execute_tool task")[1],
            )

    def test_a_call_under_another_id_is_another_call(self) -> None:
        """Ids are never compared by likeness: ag-ui-langgraph's `<id>::__root__` is a span of its own, and a note."""
        thread = Thread()
        asking(thread, "x")
        second = thread.run(
            started("two"), subagent("s-x", "asker-x"), done("s-x"), tool("c-x::__root__", "task"),
            result("c-x::__root__"), finished("two"), given=resuming("x"),
        )  # fmt: skip
        assert [("c-x", True), ("c-x::__root__", None)] == second.each(
            "execute_tool task", "gen_ai.tool.call.id", "agui.continued"
        )
        assert ["quirk"] == second.rules()


def test_an_interrupt_that_is_answered_twice_at_once_waited_once() -> None:
    """A resume that names an interrupt twice is one answer."""
    thread = Thread()
    thread.run(started("a"), interrupted("i", run="a"))
    traced = thread.run(started("b"), finished("b"), given=given("b", resume=answers("i", "i")))
    assert [1] == [count for _, count in traced.metric("agui.interrupt.wait")]
