"""Results of tool calls, and how a call without one ended (trace model: a tool call's outcome)."""

from __future__ import annotations

from typing import Any

from agui_otel.protocol.entities import Agent, Failure, Outcome, Subagent, ToolCall, ToolMessage
from agui_otel.protocol.lineage import find_tool, opener
from agui_otel.protocol.scope import Scope
from agui_otel.protocol.transitions import MessagesRestated, ToolCallAnswered

Event = dict[str, Any]

_FAILED = frozenset({Outcome.ERROR, Outcome.CANCELLED})
_CUT_OFF = _FAILED | {Outcome.ABORTED}
_RUN_CUT_OFF = frozenset({Outcome.ERROR, Outcome.CANCELLED, Outcome.DISCONNECTED, Outcome.UNFINISHED})


def cuts_off(outcome: Outcome | None) -> bool:
    """Whether a run that ended so left what was open in it aborted."""
    return outcome in _RUN_CUT_OFF


def tool_result(scope: Scope, event: Event, at: int) -> Agent:
    ident, tag = event["toolCallId"], event.get("subagentRunId")
    tool = find_tool(scope, ident, at)
    if tool is None:
        scope.note("unknown_result", f"a result for tool call {ident!r}, which nobody announced", at)
        return opener(scope, tag, at)
    owner = tool.owner
    if not tool.is_open:
        scope.note("second_result", f"a second result for tool call {ident!r}", at)
        return owner
    if tag is not None and tag != owner.tag:
        answerer = opener(scope, tag, at)
        tool.answered_by = (tag, answerer.name)
    record = scope.record.tool_calls.get(ident) if scope.record is not None else None
    if record is not None and tool.continues is not None and ident not in scope.answered_calls:
        scope.answered_calls[ident] = record
        if not tool.announced:
            scope.out.append(ToolCallAnswered(scope.run, record, at))
    tool.result, tool.result_at, tool.last_at = event.get("content"), at, at
    _judge_result(scope, tool)
    scope.open_args.pop(ident, None)
    scope.close(tool, at)
    return owner


def _judge_result(scope: Scope, tool: ToolCall) -> None:
    failed = scope.options.tool_failed
    verdict = failed(tool.name or "", tool.result) if failed is not None else False
    if verdict:
        kind = verdict if isinstance(verdict, str) else "agui.tool_error"
        tool.outcome = Outcome.ERROR
        tool.failure = Failure(kind, tool.result if isinstance(tool.result, str) else "")
    else:
        tool.outcome = Outcome.SUCCESS


def messages_snapshot(scope: Scope, event: Event, at: int) -> Agent:
    """A restated conversation: who owns how much of it, and the tool messages that stand in for missing results."""
    by_owner: dict[str | None, int] = {}
    for message in event["messages"]:
        tag = message.get("subagentRunId")
        by_owner[tag] = by_owner.get(tag, 0) + 1
        ident = message.get("id")
        owner = scope.message_owners.get(ident)
        if owner is not None and owner.tag != tag and message.get("role") != "tool":
            scope.note(
                "owner_restated",
                f"a snapshot gives message {ident!r} to another owner than the stream did",
                at,
            )
        elif owner is None and isinstance(ident, str):
            named = scope.agent_named(tag)
            if named is not None:
                scope.message_owners[ident] = named
        if message.get("role") == "tool":
            _tool_message(scope, message, at)
    scope.out.append(MessagesRestated(scope.run, len(event["messages"]), by_owner, at))
    return scope.run


def _tool_message(scope: Scope, message: dict[str, Any], at: int) -> None:
    tool = scope.tools.get(message.get("toolCallId", ""))
    if tool is not None and tool.is_open and tool.answer is None and tool.announced:
        error = message.get("error")
        tool.answer = ToolMessage(
            at, message.get("content"), error if isinstance(error, str) and error else None
        )


def decide(tool: ToolCall, outcome: Outcome, run_ended_at: int) -> tuple[Outcome, int]:
    """How a call without a result ends in a run that ended with `outcome`: its outcome and when.

    `outcome` is the run's. The rules are tried in the order of the trace model (a tool call's outcome, 2 to 5).
    """
    owner = tool.owner
    dispatched = tool.dispatched
    last_dispatched = max((_end(s, run_ended_at) for s in dispatched), default=None)
    if tool.answer is not None:
        end = tool.answer.at if last_dispatched is None else last_dispatched
        if any(agent.outcome in _FAILED for agent in (*dispatched, owner)):
            return Outcome.ABORTED, end
        return (Outcome.ERROR if tool.answer.error is not None else Outcome.SUCCESS), end
    cuts = [_end(agent, run_ended_at) for agent in (*dispatched, owner) if agent.outcome in _CUT_OFF]
    if cuts_off(outcome):
        cuts.append(run_ended_at)
    if cuts:
        return Outcome.ABORTED, min(cuts)
    if tool.continues is not None and not tool.announced:
        succeeded = [_end(s, run_ended_at) for s in dispatched if s.outcome is Outcome.SUCCESS]
        if succeeded:
            return Outcome.SUCCESS, max(succeeded)
    own = tool.args_ended_at if tool.args_ended_at is not None else tool.last_at
    return Outcome.PENDING, max(own, last_dispatched or 0)


def _end(agent: Agent | Subagent, run_ended_at: int) -> int:
    return agent.ended_at if agent.ended_at is not None else run_ended_at


def close_without_result(scope: Scope, tool: ToolCall, outcome: Outcome, run_ended_at: int) -> None:
    """Decide and end a call at the end of its run."""
    tool.outcome, end = decide(tool, outcome, run_ended_at)
    if tool.answer is not None:
        tool.result = tool.answer.content
        if tool.outcome is Outcome.ERROR:
            content = tool.answer.content
            shown = content if isinstance(content, str) and content else tool.answer.error
            tool.failure = Failure("agui.tool_error", shown or "")
    scope.close(tool, end)
