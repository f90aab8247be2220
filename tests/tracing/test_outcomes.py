"""Trace model, outcomes: how runs and subagents end, and the status that follows."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from tests.support.traced import Thread, Traced, seconds, trace
from tests.support.wire import (
    broke,
    custom,
    done,
    event,
    failed,
    finished,
    interrupted,
    started,
    step,
    subagent,
    suspended,
    text,
    tool,
)

RUN = "invoke_agent supervisor"
SUB = "invoke_agent researcher"
SENTINEL = "<object object at 0x7f04d82b1230>"


def ended(traced: Traced, name: str) -> tuple[Any, StatusCode, str | None]:
    """A span's outcome, status and description."""
    span = traced.span(name)
    return (span.attributes or {}).get("agui.outcome"), span.status.status_code, span.status.description


@pytest.mark.parametrize(
    ("last", "outcome"),
    [
        (finished(), "success"),
        (finished(outcome={"type": "success"}), "success"),
        (finished(outcome={"type": "success", "pendingToolCallIds": ["c"]}), "success"),
        (finished(outcome={"type": "of tomorrow"}), "success"),
        (finished(outcome={"type": "cancelled"}), "cancelled"),
        (interrupted("i"), "interrupt"),
        ([custom("on_interrupt", "{}"), finished()], "interrupt"),
        ([custom("on_interrupt", "{}"), {**finished(), "outcome": None}], "interrupt"),
        ([custom("on_interrupt", "{}"), finished(outcome={"type": "success"})], "success"),
    ],
)
def test_a_run_that_finished(last: Any, outcome: str) -> None:
    """Its outcome is what RUN_FINISHED says; none of them is an ERROR."""
    assert (outcome, StatusCode.UNSET, None) == ended(trace(started(), last), RUN)


def test_an_unknown_outcome_is_noted() -> None:
    """Of a run, and of a subagent: it counts as success."""
    unknown = {"type": "of tomorrow"}
    traced = trace(started(), subagent(), done(outcome=unknown), finished(outcome=unknown))
    assert ["ill_typed_field", "ill_typed_field"] == traced.rules()
    assert ("success", StatusCode.UNSET, None) == ended(traced, SUB)


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [("exhausted", "unfinished"), ("cancelled", "cancelled"), ("disconnected", "disconnected")],
)
def test_a_run_without_a_terminal_event(reason: Any, outcome: str) -> None:
    """Its outcome is how the stream ended; none of these is an ERROR."""
    traced = trace(started(), text("m", "x"), end=reason)
    assert (outcome, StatusCode.UNSET, None) == ended(traced, RUN)
    assert [] == traced.events(RUN)


@pytest.mark.parametrize("reason", ["exhausted", "cancelled", "disconnected"])
def test_a_run_that_had_its_terminal_event_keeps_its_outcome(reason: Any) -> None:
    """How the stream ends afterwards says nothing, unless it broke."""
    assert ("success", StatusCode.UNSET, None) == ended(trace(started(), finished(), end=reason), RUN)


@pytest.mark.parametrize(
    ("first", "second", "outcome"),
    [(finished(), finished(outcome={"type": "cancelled"}), "success"), (failed("one"), failed("two"), "error")],
)
def test_the_first_terminal_event_counts(first: Any, second: Any, outcome: str) -> None:
    """Two terminal events: the second one counts only when it is RUN_ERROR after RUN_FINISHED."""
    traced = trace(started(), first, second)
    description = "one" if outcome == "error" else None
    assert (outcome, description) == (ended(traced, RUN)[0], ended(traced, RUN)[2])


class TestError:
    """`error`: status ERROR, the message as description, `error.type`, and one exception event."""

    @pytest.mark.parametrize("code", ["rate_limit", None])
    def test_of_a_run(self, code: str | None) -> None:
        """RUN_ERROR: its code is the type, else `agui.run_error`."""
        traced = trace(started(), failed("no model", code=code))
        kind = code or "agui.run_error"
        assert ("error", StatusCode.ERROR, "no model") == ended(traced, RUN)
        assert {"error.type": kind} == traced.some(RUN, "error.type")
        assert [("exception", {"exception.type": kind, "exception.message": "no model"})] == traced.events(RUN)

    @pytest.mark.parametrize("code", ["rate_limit", None])
    def test_of_a_subagent(self, code: str | None) -> None:
        """SUBAGENT_ERROR: its code is the type, else `agui.subagent_error`. What is above it has not failed."""
        traced = trace(
            started(), tool("c", "task"), subagent("mid", "mid", call="c"), subagent("s", above="mid"),
            broke("s", "429", code=code), done("mid"), finished(),
        )  # fmt: skip
        kind = code or "agui.subagent_error"
        assert ("error", StatusCode.ERROR, "429") == ended(traced, SUB)
        assert [("exception", {"exception.type": kind, "exception.message": "429"})] == traced.events(SUB)
        assert {StatusCode.UNSET} == {span.status.status_code for span in traced.spans if span.name != SUB}
        assert [] == [event for span in traced.spans for event in span.events if span.name != SUB]

    def test_of_a_source_that_raised(self) -> None:
        """The exception's class is the type."""
        traced = trace(started(), end="error", error=RuntimeError("no route"))
        ((name, told),) = traced.events(RUN)
        assert ("error", StatusCode.ERROR, "no route") == ended(traced, RUN)
        assert ("exception", "RuntimeError", "no route") == (name, told["exception.type"], told["exception.message"])
        assert told["exception.stacktrace"].startswith("RuntimeError: no route")

    def test_of_a_source_that_raised_after_the_run(self) -> None:
        """The run's time stays that of its terminal event."""
        traced = trace(started(), finished(), custom(), end="error", error=RuntimeError("in the clean-up"))
        assert ("error", StatusCode.ERROR, "in the clean-up") == ended(traced, RUN)
        assert (1, 2) == traced.times(RUN)

    @pytest.mark.parametrize("message", ["", "said"])
    def test_without_content_the_description_is_the_type(self, message: str) -> None:
        """With capture=metadata, and where there is no message."""
        traced = trace(started(), failed(message, code="x"), capture_content=message == "")
        assert ("error", StatusCode.ERROR, "x") == ended(traced, RUN)
        assert [("exception", {"exception.type": "x"})] == traced.events(RUN)


class TestCancelled:
    """A cancelled subagent has not failed."""

    @pytest.mark.parametrize(
        ("message", "code", "told"),
        [
            ("the user left", "cancelled", "the user left"),
            (SENTINEL, None, "cancelled because another subagent failed"),
            (SENTINEL, "cancelled", "cancelled because another subagent failed"),
        ],
    )
    def test_by_code_or_by_its_quirk(self, message: str, code: str | None, told: str) -> None:
        """SUBAGENT_ERROR with code `cancelled`, or whose message is only a bare object's repr, which is replaced."""
        traced = trace(started(), subagent(), broke("sub", message, code), finished())
        assert ("cancelled", StatusCode.UNSET, None) == ended(traced, SUB)
        assert {"agui.message": told} == traced.some(SUB, "agui.message", "error.type", "agui.cause")
        assert [] == traced.events(SUB)
        assert {0.0} == {value for _, value in traced.metric("agui.subagent.errors")}

    @pytest.mark.parametrize("message", [f"wrapped {SENTINEL}", "<object object at 0x>", "cancelled"])
    def test_nothing_else_is_taken_for_it(self, message: str) -> None:
        """Only the whole message, only this form."""
        assert "error" == ended(trace(started(), subagent(), broke("sub", message), finished()), SUB)[0]


class TestWithoutAnEnd:
    """What is open when its run ends."""

    @pytest.mark.parametrize(
        ("last", "reason", "outcome"),
        [
            (finished(), "exhausted", "unfinished"),
            (interrupted("i"), "exhausted", "unfinished"),
            (finished(outcome={"type": "cancelled"}), "exhausted", "aborted"),
            (failed(), "exhausted", "aborted"),
            ([], "exhausted", "aborted"),
            ([], "cancelled", "aborted"),
            ([], "disconnected", "aborted"),
            ([], "error", "aborted"),
        ],
    )
    def test_a_subagent(self, last: Any, reason: Any, outcome: str) -> None:
        """Announced: unfinished at RUN_FINISHED, aborted where the run was cut off. It ends with the run."""
        traced = trace(started(), subagent(), last, end=reason)
        assert (outcome, StatusCode.UNSET, None) == ended(traced, SUB)
        assert seconds(traced.span(RUN))[1] == seconds(traced.span(SUB))[1]

    @pytest.mark.parametrize("last", [finished(), failed(), []])
    def test_a_subagent_that_was_not_announced(self, last: Any) -> None:
        """Unreported, whatever the run's end: its span ends at its last event."""
        traced = trace(started(), text("m", "x", tag="s"), custom(), last)
        assert ("unreported", StatusCode.UNSET, None) == ended(traced, "invoke_agent")
        assert (2, 4) == traced.times("invoke_agent")

    def test_at_run_finished_that_is_a_violation_too(self) -> None:
        """For a subagent that was announced."""
        assert ["unclosed_subagents"] == trace(started(), subagent(), finished()).rules()

    def test_messages_and_reasoning(self) -> None:
        """They end at their own last event."""
        traced = trace(
            started(),  # 1
            event("TEXT_MESSAGE_START", messageId="m"),
            event("REASONING_START", messageId="r"),
            event("TEXT_MESSAGE_CONTENT", messageId="m", delta="x"),  # 4
            event("REASONING_MESSAGE_START", messageId="t", role="reasoning"),  # 5
            event("TEXT_MESSAGE_CONTENT", messageId="m", delta=""),  # 6
            custom(),
            failed(),
        )
        assert {"message assistant": (2, 6), "reasoning": (3, 5)} == {
            name: traced.times(name) for name in ("message assistant", "reasoning")
        }
        assert [True, True] == [
            traced.attributes(name).get("agui.unclosed") for name in ("message assistant", "reasoning")
        ]

    def test_what_has_its_end_is_not_marked(self) -> None:
        """`agui.unclosed` is on nothing that was closed."""
        traced = trace(started(), text("m"), step(), event("STEP_FINISHED", stepName="plan"), finished())
        assert {} == traced.some("message assistant", "agui.unclosed")
        assert [None] == [told.get("agui.unclosed") for _, told in traced.events(RUN)]


def test_suspended() -> None:
    """SUBAGENT_FINISHED with outcome suspended; an ancestor that lists no interrupts waits for a descendant."""
    traced = trace(
        started(),
        subagent("mid", "mid"),
        subagent("s", above="mid"),
        suspended("s", "i"),
        suspended("mid"),
        interrupted("i"),
    )
    assert {("suspended", StatusCode.UNSET, None)} == {ended(traced, SUB), ended(traced, "invoke_agent mid")}
    assert [("agui.subagent.suspended", {"agui.interrupt.ids": ("i",)})] == traced.events(SUB)
    assert [("agui.subagent.suspended", {})] == traced.events("invoke_agent mid")


class TestCause:
    """Metrics, cause: only the invocation that failed first failed by itself."""

    def test_a_failure_that_climbs(self) -> None:
        """`subagent` where an invocation directly below ended in error and nothing was opened afterwards."""
        traced = trace(
            started(),
            *(subagent("a", "outer"), subagent("b", "inner", above="a")),
            *(broke("b"), broke("a"), failed()),
        )
        assert ["own", "subagent", "subagent"] == [
            traced.attributes(name)["agui.cause"] for name in ("invoke_agent inner", "invoke_agent outer", RUN)
        ]
        assert {("run", "subagent"), ("inner", "own"), ("outer", "subagent")} == {
            (
                "run" if labels["gen_ai.agent.name"] == "supervisor" else labels["gen_ai.agent.name"],
                labels["agui.cause"],
            )
            for name in ("agui.run.errors", "agui.subagent.errors")
            for labels, value in traced.metric(name)
            if value
        }

    @pytest.mark.parametrize(
        ("afterwards", "cause"),
        [
            (step(), "own"),
            (text("m"), "own"),
            (event("REASONING_START", messageId="r"), "own"),
            (tool("c"), "own"),
            (custom(), "subagent"),
            ([subagent("t", "third"), text("m", tag="t"), done("t")], "subagent"),
        ],
    )
    def test_what_opens_something_goes_on(self, afterwards: Any, cause: str) -> None:
        """A step, message, reasoning or tool call of its own shows that it had recovered."""
        traced = trace(started(), subagent(), broke(), afterwards, failed())
        assert cause == traced.attributes(RUN)["agui.cause"]

    def test_a_grandchilds_failure_is_not_a_childs(self) -> None:
        """Directly below: a child that recovered stands between."""
        traced = trace(
            started(), subagent("a", "outer"), subagent("b", "inner", above="a"), broke("b"), done("a"), failed()
        )
        assert "own" == traced.attributes(RUN)["agui.cause"]

    def test_a_cancelled_child_is_no_cause(self) -> None:
        """It has not failed."""
        traced = trace(started(), subagent(), broke("sub", "x", "cancelled"), failed())
        assert "own" == traced.attributes(RUN)["agui.cause"]

    def test_an_exception_has_a_cause_too(self) -> None:
        """A source that raises because a subagent failed."""
        traced = trace(started(), subagent(), broke(), end="error", error=RuntimeError("x"))
        assert "subagent" == traced.attributes(RUN)["agui.cause"]

    def test_zero_is_recorded_for_each_cause(self) -> None:
        """The first time a name is seen: an alert on the increase sees the first error."""
        traced = Thread().run(started(), subagent(), done(), finished())
        assert {("own", 0), ("subagent", 0), ("refused", 0)} == {
            (labels["agui.cause"], value) for labels, value in traced.metric("agui.run.errors")
        }
        assert {("own", 0), ("subagent", 0)} == {
            (labels["agui.cause"], value) for labels, value in traced.metric("agui.subagent.errors")
        }
