"""Trace model, thread memory: what a run leaves to its thread, and when that is forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from agui_otel.protocol.thread import PendingToolCall, SpanRef, SuspendedSubagent, ThreadChange
from agui_otel.tracing.memory import InProcessMemory
from tests.support.resumption import RUN, asking, kept, resuming, told
from tests.support.traced import START, Thread
from tests.support.wire import (
    custom,
    done,
    failed,
    finished,
    given,
    interrupted,
    result,
    started,
    state,
    subagent,
    suspended,
    text,
    tool,
)


class TestMemory:
    """What thread memory keeps, and when it leaves."""

    def test_what_it_keeps(self) -> None:
        """Interrupts, suspended subagents and pending calls, each with its span and its place."""
        thread = Thread()
        first = thread.run(
            started("one"),
            subagent("s", "asker", above=None, message="m", description="mails"),
            tool("f", "send", tag="s"),
            suspended("s", "x"),
            interrupted({"id": "x", "reason": "approval", "toolCallId": "f", "expiresAt": "2030"}, run="one"),
        )
        record = thread.memory.read("thread")
        assert record is not None

        def ref(name: str) -> SpanRef:
            context = first.span(name).context
            assert context is not None
            return SpanRef(trace_id=f"{context.trace_id:032x}", span_id=f"{context.span_id:016x}", run_id="one")

        asker = ref("invoke_agent asker")
        assert {
            "id": "x", "owner": "s", "owner_name": "asker", "tool_call": "f", "run": ref(RUN), "span": asker,
            "since": START / 1e9 + 6, "reason": "approval", "expires_at": "2030", "legacy": False, "answered": False,
        } == dict(record.interrupts["x"])  # fmt: skip
        assert SuspendedSubagent(
            id="s", name="asker", description="mails", parent_message="m", span=asker, interrupt_ids=("x",),
            since=START / 1e9 + 5,
        ) == record.subagents["s"]  # fmt: skip
        assert (
            PendingToolCall(id="f", name="send", owner="s", span=ref("execute_tool send"), since=START / 1e9 + 4)
            == record.tool_calls["f"]
        )

    @pytest.mark.parametrize(
        ("settings", "description"),
        [({"capture_content": False}, None), ({"hide_inputs": True}, None), ({"hide_outputs": True}, "mails")],
    )
    def test_descriptions_are_content(self, settings: Any, description: str | None) -> None:
        """They are kept only where they may be exported."""
        thread = Thread(**settings)
        thread.run(started(), subagent("s", description="mails"), suspended("s", "x"), interrupted("x"))
        record = thread.memory.read("thread")
        assert record is not None
        assert description == record.subagents["s"].description

    @pytest.mark.parametrize(
        ("last", "end"),
        [(failed(), "exhausted"), ([], "exhausted"), ([], "disconnected"), ([], "cancelled"), ([], "error")],
    )
    def test_after_any_other_outcome_all_stays(self, last: Any, end: Any) -> None:
        """For a retry, which repeats event and link, not the metric."""
        thread = Thread()
        asking(thread, "x")
        before = kept(thread)
        for run in ("two", "three"):
            traced = thread.run(
                started(run), subagent("s-x", "asker-x", call="c-x"), last, given=resuming("x", run=run), end=end
            )
            assert before == kept(thread)
            assert ["agui.interrupt.resolved"] == [name for name, *_ in told(traced, "agui.interrupt.resolved")]
            assert ["invoke_agent asker-x", RUN] == traced.links(RUN)
        finished_well = thread.run(
            started("four"), subagent("s-x", "asker-x"), done("s-x"), finished("four"), given=resuming("x", run="four")
        )
        assert {} == kept(thread)
        assert [1] == [count for _, count in finished_well.metric("agui.interrupt.wait")]

    def test_a_run_error_after_run_finished(self) -> None:
        """Memory is written at RUN_FINISHED."""
        thread = Thread()
        asking(thread, "x")
        thread.run(started("two"), finished("two"), failed(), given=resuming("x"))
        assert {} == kept(thread)

    def test_asking_again_keeps_the_first_owner_run_and_time(self) -> None:
        """A run without a resume re-emits its interrupts: the same entries, not new waits, and no subagent spans."""
        thread = Thread()
        asking(thread, "x")
        record = thread.memory.read("thread")
        thread.now += 100
        restated = {"id": "x", "reason": "approval", "subagentRunId": "someone above"}
        again = thread.run(
            started("two"),
            custom("on_interrupt", tag="someone above"),
            interrupted(restated, run="two"),
            given=given("two"),
        )
        assert [RUN] == [span.name for span in again.spans]
        assert [{"agui.interrupt.id": "x", "agui.interrupt.reason": "approval", "agui.subagent.run_id": "s-x"}] == [
            a for _, a in again.events(RUN, "agui.interrupt")
        ]
        after = thread.memory.read("thread")
        assert record is not None
        assert after is not None
        assert (record.interrupts, record.subagents, record.tool_calls) == (
            after.interrupts,
            after.subagents,
            after.tool_calls,
        )
        thread.now += 100
        third = thread.run(started("three"), finished("three"), given=resuming("x", run="three"))
        assert [("agui.interrupt.resolved", "x", "approved", 203.0)] == told(third)
        assert {"agui.resumes.run_id": ("one",)} == third.some(RUN, "agui.resumes.run_id")

    def test_a_partial_resumption(self) -> None:
        """Resuming one of two starts and suspends the other one again: its interrupt keeps its first run and time."""
        thread = Thread()
        asking(thread, "x", "y")
        second = thread.run(
            started("two"),
            subagent("s-x", "asker-x", call="c-x"),
            subagent("s-y", "asker-y", call="c-y"),
            done("s-x"),
            suspended("s-y", "y"),
            interrupted("y", run="two"),
            given=resuming("x"),
        )
        assert {"interrupts": ["y"], "subagents": ["s-y"], "tool_calls": ["c-y"]} == kept(thread)
        record = thread.memory.read("thread")
        assert record is not None
        assert ("one", "two", "two") == (
            record.interrupts["y"].run.run_id,
            record.subagents["s-y"].span.run_id,
            record.tool_calls["c-y"].span.run_id,
        )
        assert [("success", True), ("pending", True)] == second.each(
            "execute_tool task", "agui.outcome", "agui.continued"
        )
        third = thread.run(
            started("three"),
            subagent("s-y", "asker-y"),
            done("s-y"),
            finished("three"),
            given=resuming("y", run="three"),
        )
        assert {"agui.continues.run_id": "two"} == third.some("invoke_agent asker-y", "agui.continues.run_id")
        assert {"agui.resumes.run_id": ("one",)} == third.some(RUN, "agui.resumes.run_id")
        assert {} == kept(thread)

    def test_an_answer_that_is_asked_for_again(self) -> None:
        """The run that answered raises the same interrupt: it waits on, and so does who waits for it."""
        thread = Thread()
        asking(thread, "x")
        thread.run(started("two"), interrupted("x", run="two"), given=resuming("x"))
        assert {"interrupts": ["x"], "subagents": ["s-x"], "tool_calls": ["c-x"]} == kept(thread)
        third = thread.run(started("three"), finished("three"), given=resuming("x", run="three"))
        assert 2 == sum(count for _, count in third.metric("agui.interrupt.wait"))

    def test_who_is_remembered_has_a_name(self) -> None:
        """Where a suspended subagent's id stands in an event that opens nothing, its name stands beside it."""
        thread = Thread()
        asking(thread, "x")
        traced = thread.run(started("two"), state({"a": 1}, tag="s-x"), finished("two"), given=given("two"))
        assert [("s-x", "asker-x")] == [
            (a["agui.subagent.run_id"], a["agui.subagent.name"]) for _, a in traced.events(RUN, "agui.state.snapshot")
        ]
        assert [RUN] == [span.name for span in traced.spans]

    def test_anonymous_threads_have_none(self) -> None:
        """Many users share them."""
        thread = Thread(anonymous_threads=("thread",))
        asking(thread, "x")
        assert {} == kept(thread)

    def test_a_record_that_goes_round_in_circles(self) -> None:
        """Whatever a store holds: each is re-opened once, and every span ends."""
        ref = SpanRef(trace_id="1" * 32, span_id="2" * 16, run_id="one")
        memory = InProcessMemory(clock=lambda: START / 1e9)
        memory.write(
            ThreadChange(
                thread_id="thread",
                at=START / 1e9,
                subagents=tuple(
                    SuspendedSubagent(id=a, name=a, parent_subagent=b, parent_tool_call=f"c-{b}", span=ref, since=1.0)
                    for a, b in ("ab", "bc", "ca")
                ),
                tool_calls=tuple(
                    PendingToolCall(id=f"c-{a}", name=f"c-{a}", owner=a, span=ref, since=1.0) for a in "abc"
                ),
            )
        )
        traced = Thread(memory=memory).run(started(), text("m", "x", tag="a"), result("c-b"), finished())
        names = [span.name for span in traced.spans]
        assert len(names) == len(set(names))
        assert {"invoke_agent a", "execute_tool c-b", RUN} <= set(names)

    def test_a_very_long_chain(self) -> None:
        """Ancestors beyond a depth hang from the run."""
        ref = SpanRef(trace_id="1" * 32, span_id="2" * 16, run_id="one")
        memory = InProcessMemory(clock=lambda: START / 1e9)
        chain = [
            SuspendedSubagent(id=str(n), name=f"n{n}", parent_subagent=str(n + 1), span=ref, since=1.0)
            for n in range(200)
        ]
        memory.write(ThreadChange(thread_id="thread", at=START / 1e9, subagents=tuple(chain)))
        traced = Thread(memory=memory).run(started(), subagent("0", "n0"), done("0"), finished())
        assert 50 < len(traced.spans) < 100
