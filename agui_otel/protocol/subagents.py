"""The life of a subagent: SUBAGENT_STARTED, SUBAGENT_FINISHED, SUBAGENT_ERROR (trace model: parents, outcomes).

Each handler takes the run's scope, a well-formed event and its time, and returns the agent whose event it was.
"""

from __future__ import annotations

from typing import Any

from agui_otel.protocol import quirks
from agui_otel.protocol.entities import Agent, Failure, Outcome, Subagent, ToolCall
from agui_otel.protocol.lineage import (
    continue_subagent,
    find_subagent,
    name_parents,
    named_parents,
    new_subagent,
    open_subagent,
)
from agui_otel.protocol.scope import Scope
from agui_otel.protocol.transitions import Announced, InterruptAnswered, Linked, Resumes, Suspended

Event = dict[str, Any]
Named = tuple[str | None, str | None, str | None]
"""What SUBAGENT_STARTED names as parents: a tool call, a subagent, a message."""


def subagent_started(scope: Scope, event: Event, at: int) -> Agent:
    """SUBAGENT_STARTED: open a subagent, or announce one that is open; one that has ended is opened anew."""
    ident = event["subagentRunId"]
    named: Named = event.get("parentToolCallId"), event.get("parentSubagentRunId"), event.get("parentMessageId")
    earlier = scope.subagents.get(ident)
    known = _remembered(scope, ident, named, at) if earlier is None else earlier if earlier.is_open else None
    if known is None:
        subagent = _start(scope, event, named, at)
        if earlier is not None:
            subagent.link(earlier)
    elif known.announced:
        return known
    else:
        subagent = known
        _announce(scope, subagent, event, named, at)
    _check_parents(scope, subagent, named, at)
    return subagent


def _start(scope: Scope, event: Event, named: Named, at: int) -> Subagent:
    ident = event["subagentRunId"]
    parents = named_parents(scope, ident, *named, at)
    parent = parents[0] if parents else scope.run
    subagent = new_subagent(scope, ident, parent, at)
    _describe(subagent, event)
    name_parents(subagent, *named)
    if isinstance(parent, ToolCall):
        subagent.be_dispatched_by(parent)
    return open_subagent(scope, subagent, at, announced=True)


def _describe(subagent: Subagent, event: Event) -> None:
    subagent.name = event["name"]
    subagent.description = event.get("description") or subagent.description
    subagent.timestamp = event.get("timestamp")
    metadata = event.get("metadata")
    asked = metadata.get("input") if isinstance(metadata, dict) else None
    subagent.asked = asked if isinstance(asked, str) else subagent.asked


def _remembered(scope: Scope, ident: str, named: Named, at: int) -> Subagent | None:
    """A suspended subagent starts again under its own id: the same parent as before, unless the event names another."""
    record = scope.record.subagents.get(ident) if scope.record is not None else None
    if record is None:
        return None
    before = record.parent_tool_call, record.parent_subagent, record.parent_message
    names_another = any(now is not None and now != then for now, then in zip(named, before, strict=True))
    parents = named_parents(scope, ident, *named, at) if names_another else []
    return continue_subagent(scope, ident, parents[0], at) if parents else find_subagent(scope, ident, at)


def _announce(scope: Scope, subagent: Subagent, event: Event, named: Named, at: int) -> None:
    """An open subagent is announced after all. Its span stays where it is; the parents it names become links."""
    parents = named_parents(scope, subagent.id, *named, at)
    subagent.announced = True
    _describe(subagent, event)
    subagent.restarted = subagent.continues is not None
    name_parents(subagent, *named)
    for parent in parents:
        if isinstance(parent, ToolCall):
            subagent.be_dispatched_by(parent)
    scope.out.append(Announced(subagent, at))
    scope.out.extend(
        Linked(subagent, parent) for parent in parents if parent not in (subagent.parent, subagent.parent_agent)
    )
    if subagent.restarted and scope.run.input is None:
        _answer_by_restart(scope, subagent, at)


def _answer_by_restart(scope: Scope, subagent: Subagent, at: int) -> None:
    """Where no input is known, a suspended subagent that starts again shows that its interrupts were answered."""
    assert scope.record is not None
    listed = scope.record.subagents[subagent.id].interrupt_ids
    for interrupt in scope.record.interrupts.values():
        if (interrupt.owner == subagent.id or interrupt.id in listed) and interrupt.id not in scope.answered:
            scope.answered[interrupt.id] = interrupt
            if interrupt.run not in scope.run.resumes:
                scope.run.resumes.append(interrupt.run)
                scope.out.append(Resumes(scope.run, (interrupt.run,)))
            scope.out.append(InterruptAnswered(scope.run, interrupt.id, interrupt, "resolved", {}, at))


def _check_parents(scope: Scope, subagent: Subagent, named: Named, at: int) -> None:
    tool_call, above, _ = named
    if tool_call is None:
        return
    tool = scope.tools.get(tool_call)
    if tool is None:
        scope.late.setdefault(tool_call, []).append(subagent)
    elif above is not None and tool.owner.tag != above:
        scope.note("parent_mismatch", f"tool call {tool_call!r} is not {above!r}'s: the tool call is the parent", at)


def subagent_finished(scope: Scope, event: Event, at: int) -> Agent:
    """SUBAGENT_FINISHED: the subagent succeeded, or waits."""
    subagent = scope.subagents.get(event["subagentRunId"])
    if subagent is None or not subagent.is_open:
        return subagent or scope.writer(event["subagentRunId"])
    subagent.result = event.get("result")
    subagent.outcome = Outcome.SUCCESS
    outcome = event.get("outcome")
    if outcome is not None and outcome["type"] == "suspended":
        subagent.outcome = Outcome.SUSPENDED
        subagent.interrupt_ids = tuple(outcome.get("interruptIds") or ())
        scope.out.append(Suspended(subagent, at))
    close_subagent(scope, subagent, at)
    return subagent


def subagent_error(scope: Scope, event: Event, at: int) -> Agent:
    """SUBAGENT_ERROR: the subagent failed, or was cancelled. Its parent has not failed by that."""
    subagent = scope.subagents.get(event["subagentRunId"])
    if subagent is None or not subagent.is_open:
        return subagent or scope.writer(event["subagentRunId"])
    message, code = event["message"], event.get("code")
    if quirks.is_cancelled_sibling(message):
        subagent.outcome = Outcome.CANCELLED
        subagent.failure = Failure("cancelled", quirks.CANCELLED_SIBLING)
    elif code == "cancelled":
        subagent.outcome = Outcome.CANCELLED
        subagent.failure = Failure("cancelled", message)
    else:
        subagent.outcome = Outcome.ERROR
        subagent.failure = Failure(code or "agui.subagent_error", message)
        subagent.cause = "subagent" if subagent.child_failed else "own"
        if subagent.parent_agent is not None:
            subagent.parent_agent.child_failed = True
    close_subagent(scope, subagent, at)
    return subagent


def close_subagent(scope: Scope, subagent: Subagent, at: int) -> None:
    """End a subagent. What it is still saying is its answer; steps it leaves open are told on the run."""
    for message in scope.messages.values():
        if message.owner is subagent:
            message.become_answer()
    scope.close(subagent, at)
