"""Trace model, spans: runs, the streams that hold them, and how these begin and end."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.context import Context

from agui_otel import Settings
from agui_otel.protocol.events import Unreadable
from agui_otel.testing import capture
from agui_otel.tracing.memory import InProcessMemory
from agui_otel.tracing.observer import Observer
from agui_otel.tracing.session import Session
from tests.support.traced import seconds, trace
from tests.support.wire import (
    answers,
    custom,
    event,
    failed,
    finished,
    given,
    interrupted,
    said,
    started,
    step,
    subagent,
    text,
    tool,
)


class TestRun:
    """The run's span starts as early as the run is known, and belongs to the stream's first run."""

    def test_it_starts_with_its_input(self) -> None:
        """Where the input is known, the span starts when that was read."""
        assert (0, 2) == trace(started(), finished(), given=given()).times("invoke_agent supervisor")

    def test_it_starts_at_run_started_without_an_input(self) -> None:
        """Else at RUN_STARTED."""
        assert (1, 2) == trace(started(), finished()).times("invoke_agent supervisor")

    def test_the_runs_id_is_that_of_run_started(self) -> None:
        """RUN_STARTED's runId becomes the id; a differing one of the input is kept, with a note."""
        traced = trace(started(run="r-2"), text("m", "x"), finished(run="r-2"), given=given(run="r-1"))
        assert {"agui.run.id": "r-2", "agui.input.run_id": "r-1"} == traced.some(
            "invoke_agent supervisor", "agui.run.id", "agui.input.run_id"
        )
        assert {"agui.run.id": "r-2"} == traced.some("message assistant", "agui.run.id", "agui.input.run_id")
        assert ["input_run_id"] == traced.rules()

    def test_later_runs_get_only_the_thread(self) -> None:
        """Input, resume entries and attributes are the first run's; any later one has the thread and the user."""
        one = given("a", "th", messages=[said("u", "user", "Hi")], resume=answers("i"))
        traced = trace(
            *(started("a", "th"), finished("a", "th")),
            *(started("b", "other"), finished("b", "other")),
            given=one,
            attributes={"tenant": "x"},
            user_id="ann",
            dialect="openinference",
        )
        keys = ("agui.run.id", "agui.thread.id", "session.id", "user.id", "tenant", "input.value")
        assert [("a", "th", "th", "ann", "x", "Hi"), ("b", "th", "th", "ann", None, None)] == traced.each(
            "invoke_agent supervisor", *keys
        )
        assert [["agui.interrupt.resolved", "agui.note"], ["agui.note"]] == [
            [e.name for e in span.events] for span in traced.spans
        ]

    def test_runs_of_one_stream_are_trees_of_their_own(self) -> None:
        """A replayed thread: several runs follow each other."""
        traced = trace(
            *(started("a"), text("m", "one"), finished("a")), *(started("b"), text("n", "two"), finished("b"))
        )
        assert """
invoke_agent supervisor [AGENT] success
  message assistant [CHAIN] agui.message.id="m"
invoke_agent supervisor [AGENT] success
  message assistant [CHAIN] agui.message.id="n"
""" == traced.tree("agui.message.id")
        assert 2 == len({span.context.trace_id for span in traced.spans if span.context is not None})
        assert [] == [event for span in traced.spans for event in span.events]

    def test_a_run_started_inside_a_run_ends_that_unfinished(self) -> None:
        """The open run ends, the next one begins."""
        traced = trace(started("a"), tool("c", "search"), started("b"), finished("b"))
        assert """
invoke_agent supervisor [AGENT] unfinished agui.run.id="a"
  execute_tool search [TOOL] aborted agui.run.id="a"
invoke_agent supervisor [AGENT] success agui.run.id="b"
""" == traced.tree("agui.run.id")
        assert [(1, 4), (4, 5)] == [seconds(span) for span in traced.spans if span.name == "invoke_agent supervisor"]

    def test_at_its_terminal_event_a_run_is_over_but_its_span_waits(self) -> None:
        """Thread memory is written, and the run is no longer active; span, histogram and error count come later."""
        captured, memory = capture(), InProcessMemory()
        observer = Observer(Settings(), captured.tracer_provider, captured.meter_provider, memory=memory)
        session = Session(observer, Context(), agent_name="supervisor")
        active, seen = [], []
        for one in (started(), interrupted("i"), custom(), started("two"), failed()):
            session.feed(one)
            active.append([value for _, value in captured.metrics()["agui.active"]])
            seen.append((memory.read("thread") is not None, len(captured.spans)))
        assert [[1], [0], [0], [1], [0]] == active
        assert [(False, 0), (True, 0), (True, 0), (True, 1), (True, 1)] == seen
        assert [1] == [count for _, count in captured.metrics()["gen_ai.invoke_agent.duration"]]
        session.finish("exhausted")
        assert 2 == sum(count for _, count in captured.metrics()["gen_ai.invoke_agent.duration"])
        assert [1] == [value for _, value in captured.metrics()["agui.run.errors"] if value]

    def test_a_run_error_after_run_finished_makes_it_an_error(self) -> None:
        """The span waits for what follows; its time stays RUN_FINISHED's."""
        traced = trace(started(), finished(), custom(), failed("late"))
        assert (1, 2) == traced.times("invoke_agent supervisor")
        assert '\ninvoke_agent supervisor [AGENT] error !ERROR "late"\n' == traced.tree()
        assert [({"agui.cause": "own", "gen_ai.agent.name": "supervisor"}, 1.0)] == [
            point for point in traced.metric("agui.run.errors") if point[1]
        ]

    def test_what_comes_after_the_end_belongs_to_the_run_that_ended(self) -> None:
        """Between a terminal event and the next RUN_STARTED no new run begins."""
        traced = trace(started("a"), finished("a"), text("m", "late"), custom("late"), started("b"), finished("b"))
        assert """
invoke_agent supervisor [AGENT] success agui.run.id="a"
  * agui.violation agui.rule="after_run_finished"
  * agui.custom
  message assistant [CHAIN] agui.run.id="a"
invoke_agent supervisor [AGENT] success agui.run.id="b"
""" == traced.tree("agui.run.id", events=("agui.rule",))
        assert (3, 5) == traced.times("message assistant")

    def test_a_stream_that_only_announces_itself_is_unfinished(self) -> None:
        """A run whose input was read and that says nothing still has its span."""
        assert "\ninvoke_agent supervisor [AGENT] unfinished\n" == trace(given=given()).tree()

    def test_a_stream_without_anything_leaves_nothing(self) -> None:
        """No input and no event: no run."""
        assert () == trace().spans


class TestImplicitRun:
    """An event outside a run opens an implicit run."""

    def test_without_an_input(self) -> None:
        """The run has no ids; RUN_STARTED after it ends it unfinished."""
        traced = trace(text("m", "x"), started("b"), finished("b"))
        assert """
invoke_agent supervisor [AGENT] unfinished agui.run.implicit=true
  message assistant [CHAIN]
invoke_agent supervisor [AGENT] success agui.run.id="b"
""" == traced.tree("agui.run.i*")
        assert [["first_event"], []] == [
            [(e.attributes or {})["agui.rule"] for e in span.events] for span in traced.spans if "invoke" in span.name
        ]

    def test_with_an_input(self) -> None:
        """The input's run is it, with the input's ids."""
        traced = trace(text("m", "x"), finished("r", "t"), given=given("r", "t"))
        assert """
invoke_agent supervisor [AGENT] success agui.run.id="r" agui.run.implicit=true agui.thread.id="t"
  message assistant [CHAIN] agui.run.id="r" agui.thread.id="t"
""" == traced.tree("agui.run.i*", "agui.thread.id")

    def test_a_run_started_after_it_begins_another(self) -> None:
        """Also where the input announced the implicit one, under another id."""
        for asked in (None, given("earlier")):
            traced = trace(text("m", "x"), started("r"), finished("r"), given=asked)
            assert ["unfinished", "success"] == traced.each("invoke_agent supervisor", "agui.outcome")

    def test_the_run_that_the_input_announced_may_start_late(self) -> None:
        """Events before its RUN_STARTED are its own: one run, not an implicit one and another of the same id."""
        traced = trace(text("m", "x"), started("r"), finished("r"), given=given("r"))
        assert """
invoke_agent supervisor [AGENT] success agui.violations=1
  message assistant [CHAIN]
""" == traced.tree("agui.run.implicit", "agui.violations")

    def test_a_lone_run_error_is_one(self) -> None:
        """RUN_ERROR may come first; it is an implicit run that failed."""
        traced = trace(failed("no model", code="config"))
        assert {"agui.run.implicit": True, "agui.outcome": "error", "error.type": "config", "agui.violations": 0} == (
            traced.some("invoke_agent supervisor", "agui.run.implicit", "agui.outcome", "error.type", "agui.violations")
        )
        assert (1, 1) == traced.times("invoke_agent supervisor")

    @pytest.mark.parametrize("early", [Unreadable("not JSON"), {"type": "FUTURE_EVENT"}, {"type": "CUSTOM"}])
    def test_what_is_malformed_or_unknown_opens_none(self, early: Any) -> None:
        """It is told on the first run."""
        traced = trace(early, started(), finished())
        assert [("agui.unknown_event" if early == {"type": "FUTURE_EVENT"} else "agui.violation")] == [
            name for name, _ in traced.events("invoke_agent supervisor")
        ]
        assert {} == traced.some("invoke_agent supervisor", "agui.run.implicit")

    @pytest.mark.parametrize("early", [Unreadable("not JSON"), {"type": "FUTURE_EVENT"}])
    def test_a_stream_of_nothing_else_has_one(self, early: Any) -> None:
        """When the stream ends without a run, there is an implicit one to tell it on."""
        traced = trace(early, early)
        assert {"agui.run.implicit": True, "agui.outcome": "unfinished"} == traced.some(
            "invoke_agent supervisor", "agui.run.implicit", "agui.outcome"
        )
        assert 2 == len(traced.events("invoke_agent supervisor"))

    def test_much_that_came_early_is_counted(self) -> None:
        """What is not kept is in the counts all the same."""
        traced = trace([Unreadable("no")] * 10, [{"type": "NEW"}] * 10, [Unreadable("no")] * 10, started(), finished())
        assert {
            "agui.violations": 20,
            "agui.omitted.notes": 10,
            "agui.omitted.unknown": 4,
            "agui.events.count": 12,
        } == traced.some(
            "invoke_agent supervisor",
            *("agui.violations", "agui.omitted.notes", "agui.omitted.unknown", "agui.events.count"),
        )
        assert [({"agui.rule": "malformed_event"}, 20)] == traced.metric("agui.violations")


def test_the_end_of_the_stream_closes_everything() -> None:
    """Every span that was opened is ended exactly once, whatever ends the stream."""
    traced = trace(
        started(),
        subagent("s"),
        event("TEXT_MESSAGE_START", "s", messageId="m"),
        event("REASONING_START", messageId="r"),
        event("TOOL_CALL_START", toolCallId="c", toolCallName="search"),
        step("plan"),
        end="disconnected",
        given=given(),
    )
    assert """
invoke_agent supervisor [AGENT] disconnected
  invoke_agent researcher [AGENT] aborted
    message assistant [CHAIN]
  reasoning [CHAIN]
  execute_tool search [TOOL] aborted
""" == traced.tree()
