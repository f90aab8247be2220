"""Trace model, a tool call's outcome: the first rule that matches, and when the call ends."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from tests.support.traced import Traced, trace
from tests.support.wire import (
    broke,
    custom,
    done,
    event,
    failed,
    finished,
    interrupted,
    messages,
    result,
    said,
    started,
    subagent,
    suspended,
    tool,
)

CALL = "execute_tool task"


def verdict(traced: Traced, name: str = CALL) -> tuple[Any, float, Any]:
    """A call's outcome, when it ended, and its result."""
    attributes = traced.attributes(name)
    return attributes["agui.outcome"], traced.times(name)[1], attributes.get("output.value")


def answer(content: Any = "from the snapshot", **fields: Any) -> Any:
    """MESSAGES_SNAPSHOT with a tool message for call `c`."""
    return messages(said("u", "user"), said("answer", "tool", content, toolCallId="c", **fields))


class TestResult:
    """1. A result event: success, ending there."""

    def test_success(self) -> None:
        """Whatever else happened to its subagents and its run."""
        traced = trace(started(), tool("c", "task"), subagent("s", call="c"), broke("s"), result("c", "ok"), failed())
        assert ("success", 6, "ok") == verdict(traced)

    def test_parts(self) -> None:
        """A result may be a list of parts."""
        parts = [{"type": "text", "text": "a"}]
        traced = trace(started(), tool("c", "task"), result("c", parts), finished())
        assert '[{"type":"text","text":"a"}]' == verdict(traced)[2]

    @pytest.mark.parametrize(
        ("said_by_host", "kind"), [(True, "agui.tool_error"), ("timeout", "timeout"), (False, None), ("", None)]
    )
    def test_a_host_may_call_it_an_error(self, said_by_host: Any, kind: str | None) -> None:
        """`tool_failed(name, result)`; a string is its type. AG-UI has no error flag on results."""
        asked: list[Any] = []

        def tool_failed(name: str, content: Any) -> Any:
            asked.append((name, content))
            return said_by_host

        traced = trace(
            started(), tool("c", "task"), result("c", "500"), finished(), observer={"tool_failed": tool_failed}
        )
        status = traced.span(CALL).status
        assert [("task", "500")] == asked
        if kind is None:
            assert ("success", StatusCode.UNSET) == (verdict(traced)[0], status.status_code)
        else:
            assert ("error", StatusCode.ERROR, "500") == (verdict(traced)[0], status.status_code, status.description)
            assert kind == traced.attributes(CALL)["error.type"]
            assert [("exception", {"exception.type": kind, "exception.message": "500"})] == traced.events(CALL)


class TestSnapshot:
    """2. No result event, but a tool message of its id in a later MESSAGES_SNAPSHOT."""

    def test_its_content_is_the_result(self) -> None:
        """It ends at the snapshot; the first one counts."""
        traced = trace(started(), tool("c", "task"), answer(), answer("again"), custom(), finished())
        assert ("success", 4, "from the snapshot") == verdict(traced)

    def test_it_ends_with_its_last_subagent(self) -> None:
        """Where it dispatched some."""
        traced = trace(
            started(), tool("c", "task"), subagent("s", call="c"), subagent("t", call="c"), done("s"), custom(),
            done("t"), custom(), answer(), finished(),
        )  # fmt: skip
        assert ("success", 8, "from the snapshot") == verdict(traced)

    @pytest.mark.parametrize(("content", "description"), [("no such file", "no such file"), ("", "E42")])
    def test_an_error(self, content: str, description: str) -> None:
        """With `error` set: described by the content, else by the error."""
        traced = trace(started(), tool("c", "task"), answer(content, error="E42"), finished())
        assert "error" == verdict(traced)[0]
        assert (StatusCode.ERROR, description) == (
            traced.span(CALL).status.status_code,
            traced.span(CALL).status.description,
        )
        assert "agui.tool_error" == traced.attributes(CALL)["error.type"]
        assert [({"gen_ai.tool.name": "task", "gen_ai.agent.name": "supervisor"}, 1.0)] == traced.metric(
            "agui.tool.errors"
        )

    @pytest.mark.parametrize("end", [broke("s"), broke("s", "x", "cancelled")])
    def test_a_failure_of_a_subagent_is_the_subagents(self, end: Any) -> None:
        """Where the owner or a dispatched subagent ended in error or cancelled it is aborted, and counted there."""
        traced = trace(
            started(), tool("c", "task"), subagent("s", call="c"), end, custom(), answer("429", error="429"), finished()
        )
        assert ("aborted", 5, "429") == verdict(traced)
        assert StatusCode.UNSET is traced.span(CALL).status.status_code
        assert {0.0} == {value for _, value in traced.metric("agui.tool.errors")}

    def test_of_its_owner(self) -> None:
        """An owner that failed takes its calls with it."""
        traced = trace(
            started(), subagent("s"), tool("c", "task", tag="s"), broke("s"), answer("x", error="x"), finished()
        )
        assert ("aborted", 6) == verdict(traced)[:2]

    def test_a_message_from_before_says_nothing(self) -> None:
        """A snapshot that came before the call was opened."""
        assert "pending" == verdict(trace(started(), answer(), tool("c", "task"), finished()))[0]

    def test_a_result_event_wins(self) -> None:
        """Rule 1 comes first, whichever came first."""
        traced = trace(started(), tool("c", "task"), answer("x", error="x"), result("c", "ok"), finished())
        assert ("success", 5, "ok") == verdict(traced)


class TestCutOff:
    """3. Something else's end cut it off: aborted, ending at the first of these ends."""

    @pytest.mark.parametrize("end", [broke("s"), broke("s", "x", "cancelled")])
    def test_by_a_dispatched_subagent(self, end: Any) -> None:
        """That ended in error or cancelled."""
        traced = trace(
            started(),
            tool("c", "task"),
            subagent("s", call="c"),
            subagent("t", call="c"),
            end,  # 6
            done("t"),
            finished(),
        )
        assert ("aborted", 6, None) == verdict(traced)

    @pytest.mark.parametrize("end", [broke("s"), broke("s", "x", "cancelled")])
    def test_by_its_owner(self, end: Any) -> None:
        """That ended in error or cancelled."""
        traced = trace(started(), subagent("s"), tool("c", "task", tag="s"), end, custom(), finished())
        assert ("aborted", 5, None) == verdict(traced)

    @pytest.mark.parametrize(
        ("last", "reason"),
        [
            (failed(), "exhausted"),
            (finished(outcome={"type": "cancelled"}), "exhausted"),
            ([custom()], "exhausted"),
            ([custom()], "cancelled"),
            ([custom()], "disconnected"),
            ([custom()], "error"),
        ],
    )
    def test_by_its_run(self, last: Any, reason: Any) -> None:
        """That errored, was cancelled, disconnected or unfinished."""
        assert ("aborted", 4, None) == verdict(trace(started(), tool("c", "task"), last, end=reason))

    def test_the_first_of_these_ends(self) -> None:
        """Of subagent, owner and run."""
        traced = trace(
            started(),
            subagent("o", "owner"),
            tool("c", "task", tag="o"),
            subagent("s", call="c"),
            broke("s"),  # 6
            broke("o"),
            failed(),
        )
        assert ("aborted", 6, None) == verdict(traced)

    def test_not_before_it_began(self) -> None:
        """A call that is opened after its subagent's failure ends when it began."""
        traced = trace(started(), subagent("s", call="c"), broke("s"), tool("c", "task"), finished())
        assert ("aborted", 4, None) == verdict(traced)

    @pytest.mark.parametrize("end", [done("s"), suspended("s", "i")])
    def test_success_and_suspension_cut_nothing_off(self, end: Any) -> None:
        """Nor does a subagent that stays unfinished."""
        traced = trace(started(), tool("c", "task"), subagent("s", call="c"), end, finished())
        assert "pending" == verdict(traced)[0]


class TestPending:
    """5. Else pending, ending at the later of TOOL_CALL_END and the end of its dispatched subagents."""

    def test_a_frontend_tool(self) -> None:
        """TOOL_CALL_END ends the arguments; the call waits."""
        traced = trace(started(), tool("c", "task", "{}"), custom(), finished())
        assert ("pending", 4, None) == verdict(traced)
        assert {"agui.tool_call.args_ms": 2000.0} == traced.some(CALL, "agui.tool_call.args_ms")

    def test_with_subagents(self) -> None:
        """That suspend for an interrupt, say."""
        traced = trace(
            started(), tool("c", "task"), subagent("s", call="c"), suspended("s", "i"), custom(), interrupted("i")
        )
        assert ("pending", 5, None) == verdict(traced)

    def test_with_subagents_that_never_end(self) -> None:
        """One that was announced ends with the run, one that was not at its last event."""
        traced = trace(started(), tool("c", "task"), subagent("s", call="c"), custom(), finished())
        assert ("pending", 6, None) == verdict(traced)

    def test_without_its_end(self) -> None:
        """Arguments that never ended: at their last one."""
        opener = event("TOOL_CALL_START", toolCallId="c", toolCallName="task")
        args = event("TOOL_CALL_ARGS", toolCallId="c", delta="{")
        assert ("pending", 3, None) == verdict(trace(started(), opener, args, custom(), finished()))

    @pytest.mark.parametrize("last", [finished(), interrupted("i"), finished(outcome={"type": "success"})])
    def test_in_a_run_that_finished(self, last: Any) -> None:
        """Success or interrupt."""
        assert "pending" == verdict(trace(started(), tool("c", "task"), last))[0]


def test_the_arguments_end_at_tool_call_end() -> None:
    """`agui.tool_call.args_ms` is START to END; the duration metric is END to result."""
    traced = trace(started(), tool("c", "task", "{", "}"), custom(), result("c"), finished())
    assert {"agui.tool_call.args_ms": 3000.0} == traced.some(CALL, "agui.tool_call.args_ms")
    labels = {"gen_ai.tool.name": "task", "gen_ai.agent.name": "supervisor", "agui.outcome": "success"}
    assert [(labels, 1)] == traced.metric("gen_ai.execute_tool.duration")


@pytest.mark.parametrize(
    "events",
    [
        [tool("c", "task")],
        [
            event("TOOL_CALL_START", toolCallId="c", toolCallName="task"),
            result("c"),
            event("TOOL_CALL_END", toolCallId="c"),
        ],
        [tool("c", "task"), answer()],
    ],
)
def test_without_both_there_is_no_duration(events: Any) -> None:
    """TOOL_CALL_END and the result, where both were seen in this run and in this order."""
    assert [] == trace(started(), events, finished()).metric("gen_ai.execute_tool.duration")
