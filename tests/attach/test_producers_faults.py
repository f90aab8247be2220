"""Faults of producers that tracers of agent runs have stumbled over, each by its name; none is one here."""

from __future__ import annotations

import pytest

from tests.support.sources import DONE, FAILED, RUN, Event, custom, result, tool_call
from tests.support.watched import Watched, values


def test_another_run_id_in_run_finished_is_a_note(watched: Watched) -> None:
    """RUN_STARTED's stands."""
    watched.trace([RUN, {**DONE, "runId": "other"}])
    assert (["run_id_mismatch"], "run", 0) == (
        watched.remarks(), values(watched.run)["agui.run.id"], values(watched.run)["agui.violations"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ends", "outcome", "rules"),
    [
        ([], "unfinished", []),
        ([DONE, DONE], "success", ["after_run_finished"]),
        ([DONE, FAILED], "error", []),
        ([FAILED, DONE], "error", ["after_run_error"]),
        ([FAILED, FAILED], "error", ["after_run_error"]),
    ],
)
def test_two_terminal_events_or_none_end_the_run_once(
    watched: Watched, ends: list[Event], outcome: str, rules: list[str]
) -> None:
    """RUN_ERROR after RUN_FINISHED is allowed and wins; what else follows is a violation."""
    watched.trace([RUN, *ends])
    assert (outcome, rules) == (values(watched.run)["agui.outcome"], watched.remarks())


def test_a_failing_tool_s_error_may_be_in_a_snapshot_only(watched: Watched) -> None:
    """Its tool message is the result; no result event came."""
    told = {"id": "t", "role": "tool", "toolCallId": "c", "content": "no such file", "error": "ENOENT"}
    watched.trace([RUN, *tool_call("c"), {"type": "MESSAGES_SNAPSHOT", "messages": [told]}, DONE])
    tool = watched.named("execute_tool f")
    assert ("error", "agui.tool_error", "ERROR", "no such file") == (
        values(tool)["agui.outcome"], values(tool)["error.type"], tool.status.status_code.name, tool.status.description,
    )  # fmt: skip
    assert ("success", "UNSET") == (values(watched.run)["agui.outcome"], watched.run.status.status_code.name)


def test_a_call_whose_start_args_and_end_repeat_is_one_call(watched: Watched) -> None:
    """The outer call is announced again after the inner one: its arguments are taken once."""
    outer = [
        {"type": "TOOL_CALL_START", "toolCallId": "o", "toolCallName": "task"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "o", "delta": '{"a":1}'},
        {"type": "TOOL_CALL_END", "toolCallId": "o"},
    ]
    watched.trace([RUN, *outer, *tool_call("i", "inner"), result("i"), *outer, result("o"), DONE])
    assert [
        "invoke_agent [AGENT] success",
        '  execute_tool task [TOOL] success input.value="{\\"a\\":1}"',
        "  execute_tool inner [TOOL] success",
    ] == watched.tree("input.value")
    assert ["repeated_id"] == watched.remarks()


def test_a_result_for_a_call_that_was_never_announced_here(watched: Watched) -> None:
    """A call that an earlier run left pending is re-opened for it; one that nobody knows is a note."""
    watched.trace([RUN, *tool_call("c", "ask"), DONE])
    second = {"runId": "second"}
    watched.trace([{**RUN, **second}, result("c"), result("unknown"), {**DONE, **second}])
    assert [
        "invoke_agent [AGENT] success",
        "  execute_tool ask [TOOL] pending",
        "invoke_agent [AGENT] success",
        "  execute_tool ask [TOOL] success agui.continued=true",
    ] == watched.tree("agui.continued")
    assert ["unknown_result"] == watched.remarks(1)


def test_one_call_under_two_ids_is_two_calls(watched: Watched) -> None:
    """Ids are opaque: never parsed, never compared by likeness. The suffix of a known producer is a note."""
    watched.trace([RUN, *tool_call("c", "ask"), *tool_call("c::__root__", "ask"), result("c"), DONE])
    assert [
        "invoke_agent [AGENT] success",
        "  execute_tool ask [TOOL] success",
        "  execute_tool ask [TOOL] pending",
    ] == watched.tree()
    assert ["quirk"] == watched.remarks()


def test_a_second_run_started_then_an_error(watched: Watched) -> None:
    """A paused thread that is asked again: the run that was open is unfinished, the next one fails."""
    watched.trace([RUN, custom("on_it"), {**RUN, "runId": "second"}, FAILED])
    assert ["unfinished", "error"] == [values(run)["agui.outcome"] for run in watched.runs]
    assert ["UNSET", "ERROR"] == [run.status.status_code.name for run in watched.runs]
    assert ["run_active"] == watched.remarks(1) + watched.remarks(0)


@pytest.mark.parametrize(
    ("path", "problem"), [("/missing/deep", True), ("/missing", True), ("/a/b", True), ("/a~1b", False)]
)
def test_a_state_delta_that_cannot_be_applied_is_told(watched: Watched, path: str, problem: bool) -> None:
    """A path that is missing, an unescaped `/` in a key: provenance is kept, the run goes on."""
    watched.trace(
        [
            RUN,
            {"type": "STATE_SNAPSHOT", "snapshot": {"a/b": 1}},
            {"type": "STATE_DELTA", "delta": [{"op": "replace", "path": path, "value": 2}]},
            DONE,
        ]
    )
    told = [event.name for event in watched.run.events]
    assert ["agui.state.snapshot", "agui.state.delta"] + ["agui.note"] * problem == told
    assert "success" == values(watched.run)["agui.outcome"]


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{}", "toolCallName": ["x"], "parentMessageId": [1]},
            "execute_tool [TOOL] pending",
        ),
        ({"type": "TOOL_CALL_CHUNK", "toolCallId": None, "delta": "{}"}, "execute_tool [TOOL] pending"),
        ({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "x", "role": {}}, "message assistant [CHAIN]"),
        ({"type": "THINKING_START", "subagentRunId": {"a": 1}}, "reasoning [CHAIN]"),
    ],
    ids=["extra fields", "a null id", "a role that is none", "a tag that is none"],
)
def test_a_field_of_the_wrong_kind_spoils_no_trace(watched: Watched, event: Event, expected: str) -> None:
    """Neither one that its event does not have, nor one that no schema checks."""
    watched.trace([RUN, event, DONE])
    assert ["invoke_agent [AGENT] success", f"  {expected}"] == watched.tree()
