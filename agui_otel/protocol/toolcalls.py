"""Results of tool calls, and how a call without one ended (trace model: a tool call's outcome)."""

from __future__ import annotations

from typing import Any

from agui_otel.protocol.entities import Agent, Failure, Outcome, ToolCall, ToolMessage
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
    """TOOL_CALL_RESULT: end a call. The event is its answerer's, which its own tag names, not the call's."""
    ident, tag = event["toolCallId"], event.get("subagentRunId")
    scope.message_owners[event["messageId"]] = tag
    answerer = opener(scope, tag, at)
    tool = find_tool(scope, ident, at)
    if tool is None:
        scope.note("unknown_result", f"a result for tool call {ident!r}, which nobody announced", at)
        return answerer
    if not tool.is_open:
        scope.note("second_result", f"a second result for tool call {ident!r}", at)
        return answerer
    if tag is not None and answerer is not tool.owner:
        tool.answered_by = tag, answerer.name
    record = scope.record.tool_calls.get(ident) if scope.record is not None else None
    if record is not None and tool.continues is not None and ident not in scope.answered_calls:
        scope.answered_calls[ident] = record
        if not tool.announced:
            scope.out.append(ToolCallAnswered(scope.run, record, at))
    tool.result, tool.result_at = event.get("content"), at
    _judge_result(scope, tool)
    scope.open_args.pop(ident, None)
    scope.close(tool, at)
    return answerer


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
        if _restated(scope, message, tag):
            scope.note(
                "owner_restated",
                f"a snapshot gives message {message['id']!r} to another owner than the stream did",
                at,
            )
        if message["role"] == "tool":
            _tool_message(scope, message, at)
    take_owners(scope, event["messages"], restated=True)
    scope.out.append(MessagesRestated(scope.run, len(event["messages"]), by_owner, at))
    return scope.run


def _restated(scope: Scope, message: Event, tag: str | None) -> bool:
    """Whether a message stands with another owner than before. Tool messages are their answerer's, as results are."""
    owners = scope.reasoning_owners if message["role"] == "reasoning" else scope.message_owners
    return message["role"] not in ("tool", "activity") and owners.get(message["id"], tag) != tag


def take_owners(scope: Scope, messages: list[Event], *, restated: bool) -> None:
    """Take the owners that `messages` state for what is opened from now on; a snapshot's replace earlier ones."""
    of_role = {"reasoning": scope.reasoning_owners, "activity": scope.activity_owners}
    for message in messages:
        ident, tag = message["id"], message.get("subagentRunId")
        owners = of_role.get(message["role"], scope.message_owners)
        if restated or ident not in owners:
            owners[ident] = tag
        calls = message.get("toolCalls")
        for call in calls if isinstance(calls, list) else ():
            name = call.get("id") if isinstance(call, dict) else None
            if isinstance(name, str) and (restated or name not in scope.tool_owners):
                scope.tool_owners[name] = tag


def _tool_message(scope: Scope, message: Event, at: int) -> None:
    tool = scope.tools.get(message["toolCallId"])
    if tool is not None and tool.is_open and tool.answer is None:
        tool.answer = ToolMessage(at, message["content"], message.get("error") or None)


def decide(tool: ToolCall, outcome: Outcome, run_ended_at: int) -> tuple[Outcome, int]:
    """How a call without a result ends in a run that ended with `outcome`: its outcome and when.

    The rules are tried in the order of the trace model (a tool call's outcome, 2 to 5).
    """
    agents = (*tool.dispatched, tool.owner)
    last_dispatched = max((_end(subagent, run_ended_at) for subagent in tool.dispatched), default=None)
    if tool.answer is not None:
        end = tool.answer.at if last_dispatched is None else last_dispatched
        if any(agent.outcome in _FAILED for agent in agents):
            return Outcome.ABORTED, end
        return (Outcome.ERROR if tool.answer.error is not None else Outcome.SUCCESS), end
    cuts = [_end(agent, run_ended_at) for agent in agents if agent.outcome in _CUT_OFF]
    if cuts_off(outcome):
        cuts.append(run_ended_at)
    if cuts:
        return Outcome.ABORTED, min(cuts)
    if tool.continues is not None and not tool.announced:
        succeeded = [_end(s, run_ended_at) for s in tool.dispatched if s.outcome is Outcome.SUCCESS]
        if succeeded:
            return Outcome.SUCCESS, max(succeeded)
    own = tool.args_ended_at if tool.args_ended_at is not None else tool.last_event_at
    return Outcome.PENDING, max(own, last_dispatched or 0)


def _end(agent: Agent, run_ended_at: int) -> int:
    """When an agent ended or, where it has not yet, is going to end."""
    if agent.ended_at is not None:
        return agent.ended_at
    return run_ended_at if agent.announced else agent.last_at


def close_without_result(scope: Scope, tool: ToolCall, outcome: Outcome, run_ended_at: int) -> None:
    """Decide and end a call at the end of its run."""
    tool.outcome, end = decide(tool, outcome, run_ended_at)
    answer = tool.answer
    if answer is not None:
        tool.result = answer.content
        if tool.outcome is Outcome.ERROR:
            said = answer.content if isinstance(answer.content, str) else ""
            tool.failure = Failure("agui.tool_error", said or answer.error or "")
    scope.close(tool, end)
