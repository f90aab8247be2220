"""Trace model, streams that come again: the same thread and run, seen before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as over
from hypothesis import strategies as st

from agui_otel.protocol.again import MAX_MARKS
from agui_otel.tracing import background
from agui_otel.tracing.sqlite_memory import SQLiteMemory
from tests.support.recordings import events as recorded
from tests.support.resumption import RUN, asking, kept, resuming, told
from tests.support.traced import Thread, Traced, trace
from tests.support.wire import (
    answers,
    done,
    event,
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

WORK = [
    started(), text("m1", "a"), tool("c", "task", "{}"), subagent("s", "helper", call="c"), text("m2", "b", tag="s"),
    done("s"), result("c"),
]  # fmt: skip
END = finished(usage=[{"model": "model", "inputTokens": 1, "outputTokens": 2}])
INVOCATIONS = (
    "gen_ai.invoke_agent.duration",
    "gen_ai.execute_tool.duration",
    "agui.time_to_first_chunk",
    "agui.run.errors",
    "agui.subagent.errors",
    "agui.tool.errors",
    "agui.tokens",
    "agui.violations",
    "agui.interrupt.wait",
)


def measured(traced: Traced) -> dict[str, float]:
    """What the metrics of invocations add up to."""
    return {name: sum(count for _, count in traced.metric(name)) for name in INVOCATIONS}


def how(traced: Traced) -> dict[str, Any]:
    """What a run says of an earlier one with its ids."""
    return traced.some(RUN, "agui.replayed", "agui.continued", "agui.continues.run_id", "agui.partial")


def repeats(traced: Traced, earlier: Traced) -> bool:
    """Whether the run says, as attributes and by a link, that the other had its ids."""
    context = earlier.span(RUN).context
    assert context is not None
    ids = {"agui.repeats.trace_id": f"{context.trace_id:032x}", "agui.repeats.span_id": f"{context.span_id:016x}"}
    links = [link.context.span_id for link in traced.span(RUN).links]
    return ids == traced.some(RUN, *ids) and context.span_id in links


class TestSentOnceMore:
    """A run that had ended, and whose stream is sent again (`connect`, history)."""

    @pytest.mark.parametrize("end", [END, interrupted("x"), failed(), finished(outcome={"type": "cancelled"})])
    def test_it_is_replayed(self, end: Any) -> None:
        """Whatever its end was. It has its tree, every span says so, and nothing of it is measured twice."""
        thread = Thread()
        first = thread.run(WORK, end)
        before, memory = measured(first), kept(thread)
        second = thread.run(WORK, end)
        assert {"agui.replayed": True} == how(second)
        assert repeats(second, first)
        assert before == measured(second)
        assert memory == kept(thread)
        assert {True} == {(span.attributes or {}).get("agui.replayed") for span in second.spans}
        assert [] == [name for name in second.rules() if name == "repeated_run"]

    def test_its_tokens_count_once(self) -> None:
        """There is no usage span in what is sent once more: Phoenix sums them."""
        thread = Thread(usage_spans="on")
        assert "usage model" in [span.name for span in thread.run(WORK, END).spans]
        assert "usage model" not in [span.name for span in thread.run(WORK, END).spans]

    def test_a_wait_that_was_answered_is_not_opened_again(self) -> None:
        """The history of a thread that waited once."""
        thread = Thread()
        ask = [started("one"), text("m", "x"), interrupted("x", run="one")]
        thread.run(ask)
        thread.run(started("two"), finished("two"), given=resuming("x"))
        assert {} == kept(thread)
        again = thread.run(ask)
        assert {"agui.replayed": True} == how(again)
        assert {} == kept(thread)

    def test_the_one_after_it_counts_again(self) -> None:
        """History and then the run that goes on, in one stream."""
        thread = Thread()
        thread.run(WORK, END)
        second = thread.run(WORK, END, started("new"), text("n", "x"), finished("new"))
        assert [(True,), (None,)] == [(value,) for value in second.each(RUN, "agui.replayed")]
        runs = [
            count for labels, count in second.metric("gen_ai.invoke_agent.duration") if labels["agui.level"] == "run"
        ]
        assert [2] == runs

    def test_a_third_time(self) -> None:
        """It is still the first that it repeats."""
        thread = Thread()
        first = thread.run(WORK, END)
        thread.run(WORK, END)
        third = thread.run(WORK, END)
        assert {"agui.replayed": True} == how(third)
        assert repeats(third, first)

    def test_from_the_middle_on(self) -> None:
        """A client that attaches late to a run that is over hears its end only."""
        thread = Thread()
        thread.run(WORK, END)
        second = thread.run(started(), text("m2", "b"), END)
        assert {"agui.replayed": True} == how(second)

    def test_an_interrupt_alone(self) -> None:
        """Where nothing else was opened, what it waits for tells that it is the same."""
        thread = Thread()
        first = thread.run(started(), interrupted("x"))
        second = thread.run(started(), interrupted("x"))
        assert {"agui.replayed": True} == how(second)
        assert measured(first) == measured(second)


class TestAnotherRun:
    """Two real runs with the same ids: two traces, linked."""

    def test_it_opens_what_was_never_seen(self) -> None:
        """Its ids tell."""
        thread = Thread()
        first = thread.run(WORK, END)
        before = measured(first)
        second = thread.run(started(), text("new", "a"), tool("new", "search"), result("new"), finished())
        assert {} == how(second)
        assert repeats(second, first)
        assert ["repeated_run"] == second.rules()
        assert before["gen_ai.invoke_agent.duration"] + 1 == measured(second)["gen_ai.invoke_agent.duration"]
        assert first.span(RUN).context != second.span(RUN).context

    def test_it_opens_nothing(self) -> None:
        """A run that fails at once, twice, has failed twice."""
        thread = Thread()
        first = thread.run(started(), failed())
        second = thread.run(started(), state({"a": 1}), failed())
        assert {} == how(second)
        assert repeats(second, first)
        assert 2 == measured(second)["agui.run.errors"]

    def test_it_answers(self) -> None:
        """A client that resumes under the id of the run that asked: what it opens was seen, but it is another run."""
        thread = Thread()
        first = asking(thread, "x")
        second = thread.run(
            started("one"), subagent("s-x", "asker-x", call="c-x"), done("s-x"), result("c-x"), finished("one"),
            given=resuming("x", run="one"),
        )  # fmt: skip
        assert {} == how(second)
        assert repeats(second, first)
        assert [("agui.interrupt.resolved", "x", "approved", 0.0)] == told(second, "agui.interrupt.resolved")
        assert {"agui.continued": True} == second.some("invoke_agent asker-x", "agui.continued")
        assert {} == kept(thread)

    def test_it_answers_and_nobody_says_so(self) -> None:
        """Where no input is known, who waited and starts again is no proof that it is the same run."""
        thread = Thread()
        asking(thread, "x")
        second = thread.run(
            started("one"), subagent("s-x", "asker-x", call="c-x"), text("new", "x", tag="s-x"), done("s-x"),
            result("c-x"), finished("one"),
        )  # fmt: skip
        assert {} == how(second)
        assert {} == kept(thread)

    def test_another_thread(self) -> None:
        """Run ids need not be unique."""
        thread = Thread()
        thread.run(WORK, END)
        second = thread.run(started(thread="other"), text("m1", "a"), finished(thread="other"))
        assert {} == second.some(RUN, "agui.replayed", "agui.repeats.trace_id")


class TestAttachedAgain:
    """A run whose stream broke off, and goes on in another."""

    CUT = WORK[:-2]

    @pytest.mark.parametrize("end", ["disconnected", "exhausted", "cancelled"])
    def test_it_goes_on(self, end: Any) -> None:
        """The second part links to the first, and is counted as its own."""
        thread = Thread()
        first = thread.run(started(), text("m1", "a"), end=end)
        second = thread.run(started(), text("m2", "b"), finished())
        assert {"agui.continued": True, "agui.continues.run_id": "run"} == how(second)
        assert [RUN] == second.links(RUN)
        assert first.span(RUN).context != second.span(RUN).context
        assert [] == second.rules()

    def test_what_was_open_is_open_again(self) -> None:
        """In the shape that it had: who was at work hangs below the call that dispatched it."""
        thread = Thread()
        thread.run(self.CUT, end="disconnected")
        second = thread.run(text("m3", "c", tag="s"), done("s"), result("c"), finished(), given=given())
        assert """
invoke_agent supervisor [AGENT] success agui.continued=true
  > invoke_agent supervisor
  execute_tool task [TOOL] success agui.continued=true
    > execute_tool task
    invoke_agent helper [AGENT] success agui.continued=true
      > invoke_agent helper
      message assistant [CHAIN]
""" == second.tree("agui.continued")

    def test_what_waits_in_the_thread_is_not_touched(self) -> None:
        """What was open there is known to that run only."""
        thread = Thread()
        thread.run(self.CUT, end="disconnected")
        assert {} == kept(thread)
        other = thread.run(started("other"), text("m3", "c", tag="s"), finished("other"))
        assert {} == other.some("invoke_agent", "agui.continued")

    def test_a_third_part(self) -> None:
        """It goes on with the first as well; when the run had ended, its stream is a replay of all of them."""
        thread = Thread()
        first = thread.run(started(), text("m1", "a"), end="disconnected")
        thread.run(started(), text("m2", "b"), end="disconnected")
        third = thread.run(started(), text("m3", "c"), finished())
        context = first.span(RUN).context
        assert context is not None
        assert {"agui.continues.span_id": f"{context.span_id:016x}"} == third.some(RUN, "agui.continues.span_id")
        for ident in ("m1", "m2", "m3"):
            assert {"agui.replayed": True} == how(thread.run(started(), text(ident, "a"), finished()))


class TestInMidstOfAnUnknownRun:
    """A stream that opens in the middle of a run of which nothing is known."""

    def test_it_is_a_partial_implicit_run(self) -> None:
        """With one root, under which all is that it says."""
        traced = trace(
            event("TEXT_MESSAGE_CONTENT", messageId="m", delta="b"),
            event("TEXT_MESSAGE_END", messageId="m"),
            event("TEXT_MESSAGE_CONTENT", "s", messageId="n", delta="b"),
            result("c"),
            event("SUBAGENT_FINISHED", subagentRunId="s"),
            finished(),
        )
        assert {"agui.partial": True, "agui.run.implicit": True} == traced.some(
            RUN, "agui.partial", "agui.run.implicit"
        )
        assert [None] == [span.parent for span in traced.spans if span.name == RUN]
        assert 1 == sum(span.parent is None for span in traced.spans)

    def test_a_run_that_is_never_announced_is_not_partial(self) -> None:
        """Where it opens all that it says."""
        assert {} == how(trace(text("m", "x"), finished()))

    def test_with_an_input_that_nobody_knows(self) -> None:
        """The input names the run; it was not seen."""
        traced = trace(event("TEXT_MESSAGE_CONTENT", messageId="m", delta="b"), finished(), given=given())
        assert {"agui.partial": True} == how(traced)


class TestOtherProcesses:
    """What is known of runs that another process has traced."""

    def other(self, path: Path) -> Thread:
        """A process of its own."""
        return Thread(memory=SQLiteMemory(path / "threads.db", clock=lambda: 1_767_225_600.0), thread_memory_timeout=20)

    def run(self, path: Path, *events: Any, **options: Any) -> Traced:
        """A stream in a process of its own; what it leaves is written."""
        thread = self.other(path)
        before = len(thread.captured.spans)
        traced = thread.run(*events, **options)
        assert background.settle(20)
        thread.memory.close()
        return Traced(traced.captured, (), thread.captured.spans[before:])

    def test_a_run_that_broke_off(self, tmp_path: Path) -> None:
        """It goes on in another process, in the shape that it had."""
        self.run(tmp_path, TestAttachedAgain.CUT, end="disconnected")
        second = self.run(tmp_path, text("m3", "c", tag="s"), done("s"), result("c"), finished(), given=given())
        assert {"agui.continued": True, "agui.continues.run_id": "run"} == how(second)
        assert "execute_tool task" == second.parent("invoke_agent helper")

    def test_a_run_that_waited_and_was_answered(self, tmp_path: Path) -> None:
        """Its history opens nothing again."""
        ask = [started("one"), subagent("s", "asker"), suspended("s", "x"), interrupted("x", run="one")]
        self.run(tmp_path, ask, given=given("one"))
        self.run(tmp_path, started("two"), subagent("s", "asker"), done("s"), finished("two"), given=resuming("x"))
        again = self.run(tmp_path, ask, given=given("other"))
        assert {"agui.replayed": True} == how(again)
        memory = self.other(tmp_path).memory
        assert [] == list(memory.waiting(10))
        memory.close()

    def test_a_plain_run(self, tmp_path: Path) -> None:
        """One that simply ended is known to its own process only: it has cost one read, and no write."""
        self.run(tmp_path, WORK, END)
        assert {} == how(self.run(tmp_path, WORK, END))


@over(st.integers(1, 3 * MAX_MARKS), st.data())
def test_any_part_of_what_began_a_run_is_known(count: int, data: st.DataObject) -> None:
    """A stream that begins with any of the first ids of a run is that run; with any other, it is another."""
    thread = Thread()
    thread.run(started(), [text(f"m{number}", "x") for number in range(count)], finished())
    begin = data.draw(st.integers(0, count))
    second = thread.run(started(), text(f"m{begin}", "x"), finished())
    assert (begin < min(count, MAX_MARKS)) == second.attributes(RUN).get("agui.replayed", False)


@pytest.mark.parametrize("name", ["nested", "parallel", "approve_1", "error_tool", "error_model_recovered", "single"])
def test_a_recording_that_comes_twice(name: str) -> None:
    """Real streams, sent once more: known, and measured once."""
    thread = Thread()
    first = thread.run(recorded(name))
    second = thread.run(recorded(name))
    assert {"agui.replayed": True} == how(second)
    assert measured(first) == measured(second)


def test_answers_of_a_retry() -> None:
    """A client that repeats its whole request after the stream broke off."""
    thread = Thread()
    asking(thread, "x")
    thread.run(started("two"), end="disconnected", given=resuming("x"))
    second = thread.run(
        started("two"), subagent("s-x", "asker-x"), done("s-x"), finished("two"),
        given=given("two", resume=answers("x")),
    )  # fmt: skip
    assert {"agui.continued": True, "agui.continues.run_id": "two"} == how(second)
    assert {} == kept(thread)
    assert [1] == [count for _, count in second.metric("agui.interrupt.wait")]
