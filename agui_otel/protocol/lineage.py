"""Who is whose child: subagents, their parents, and what an earlier run of the thread left behind.

A parent link exists because the stream stated it with an id, or because an earlier run of the same thread did; never
because two things overlapped in time. What is remembered is re-opened in this run's tree: nothing is ever parented
into another run's.
"""

from __future__ import annotations

from typing import Any

from agui_otel.protocol import quirks
from agui_otel.protocol.entities import Agent, Failure, Outcome, Subagent, ToolCall
from agui_otel.protocol.scope import Scope
from agui_otel.protocol.transitions import Announced, InterruptAnswered, Linked, Resumes, Suspended

Event = dict[str, Any]
Named = tuple[str | None, str | None, str | None]
"""What SUBAGENT_STARTED names as parents: a tool call, a subagent, a message."""


def opener(scope: Scope, tag: str | None, at: int) -> Agent:
    """The owner of something that is opened now. An id never seen opens a subagent that was not announced."""
    known = scope.agent_named(tag)
    if known is not None:
        return known
    assert tag is not None
    return _reopen_subagent(scope, tag, at) or _open(scope, Subagent(tag, scope.run, at), at, announced=False)


def find_tool(scope: Scope, ident: str, at: int) -> ToolCall | None:
    """The call of this run, else the one an earlier run of the thread left pending, re-opened here."""
    return scope.tools.get(ident) or _reopen_tool(scope, ident, at)


def find_subagent(scope: Scope, ident: str, at: int) -> Subagent | None:
    """The subagent of this run, open or finished, else a suspended one of the thread, re-opened here."""
    return scope.subagents.get(ident) or _reopen_subagent(scope, ident, at)


def _open(scope: Scope, subagent: Subagent, at: int, *, announced: bool) -> Subagent:
    subagent.announced = announced
    parent_agent = subagent.parent_agent
    subagent.step = parent_agent.current_step() if parent_agent is not None else None
    scope.subagents[subagent.id] = subagent
    scope.strangers.pop(subagent.id, None)
    scope.opened(subagent, at)
    return subagent


def _reopen_tool(scope: Scope, ident: str, at: int) -> ToolCall | None:
    remembered = scope.record.tool_calls.get(ident) if scope.record is not None else None
    if remembered is None or len(scope.reopening) > MAX_REOPENED_DEPTH:
        return None
    owner: Agent | None = scope.run
    if remembered.owner is not None:
        owner = find_subagent(scope, remembered.owner, at)
    tool = ToolCall(ident, owner or scope.run, at, scope.options.text_limit, remembered.name)
    tool.announced = False
    tool.continues = remembered.span
    tool.links.append(remembered.span)
    scope.continued_calls.add(ident)
    scope.tools[ident] = tool
    scope.opened(tool, at)
    return tool


MAX_REOPENED_DEPTH = 64
"""Remembered ancestors that are re-opened one above the other; a longer chain hangs from the run."""


def _reopen_subagent(scope: Scope, ident: str, at: int) -> Subagent | None:
    remembered = scope.record.subagents.get(ident) if scope.record is not None else None
    if remembered is None or ident in scope.reopening or len(scope.reopening) > MAX_REOPENED_DEPTH:
        return None
    scope.reopening.add(ident)
    parents = _named_parents(
        scope, ident, remembered.parent_tool_call, remembered.parent_subagent, remembered.parent_message, at
    )
    scope.reopening.discard(ident)
    subagent = Subagent(ident, parents[0] if parents else scope.run, at)
    subagent.name, subagent.description = remembered.name, remembered.description
    _name_parents(
        subagent, remembered.parent_tool_call, remembered.parent_subagent, remembered.parent_message
    )
    subagent.continues = remembered.span
    subagent.links.append(remembered.span)
    scope.continued_subagents.add(ident)
    _open(scope, subagent, at, announced=False)
    _dispatch(subagent)
    return subagent


def _dispatch(subagent: Subagent) -> None:
    if isinstance(subagent.parent, ToolCall):
        subagent.parent.dispatched.append(subagent)


def _named_parents(
    scope: Scope, ident: str, tool_call: str | None, subagent: str | None, message: str | None, at: int
) -> list[Agent | ToolCall]:
    """What the ids name, first choice first (trace model: parents). The run, which is always there, is left out."""
    found: list[Agent | ToolCall] = []
    tool = find_tool(scope, tool_call, at) if tool_call is not None else None
    if tool is not None:
        found.append(tool)
    if subagent is not None and subagent != ident:
        above = find_subagent(scope, subagent, at)
        if above is not None:
            found.append(above)
    if message is not None and message in scope.message_owners:
        found.append(scope.message_owners[message])
    return found


def _name_parents(subagent: Subagent, tool_call: str | None, above: str | None, message: str | None) -> None:
    subagent.parent_tool_call_id = tool_call if tool_call is not None else subagent.parent_tool_call_id
    subagent.parent_subagent_id = above if above is not None else subagent.parent_subagent_id
    subagent.parent_message_id = message if message is not None else subagent.parent_message_id


def subagent_started(scope: Scope, event: Event, at: int) -> Agent:
    ident = event["subagentRunId"]
    named: Named = (
        event.get("parentToolCallId"),
        event.get("parentSubagentRunId"),
        event.get("parentMessageId"),
    )
    known = scope.subagents.get(ident) or _remembered(scope, ident, named, at)
    if known is None:
        parents = _named_parents(scope, ident, *named, at)
        known = Subagent(ident, parents[0] if parents else scope.run, at)
        known.name, known.description = event["name"], event.get("description")
        known.timestamp = event.get("timestamp")
        _name_parents(known, *named)
        _open(scope, known, at, announced=True)
        _dispatch(known)
    elif known.announced or not known.is_open:
        scope.note("repeated_id", f"subagent {ident!r} is started again", at)
        return known
    else:
        parents = _named_parents(scope, ident, *named, at)
        _announce(scope, known, event, named, parents, at)
    _check_parents(scope, known, named, at)
    return known


def _remembered(scope: Scope, ident: str, named: Named, at: int) -> Subagent | None:
    """A suspended subagent starts again under its own id: the same parent as before, unless the event names another."""
    record = scope.record.subagents.get(ident) if scope.record is not None else None
    if record is None:
        return None
    before = (record.parent_tool_call, record.parent_subagent, record.parent_message)
    if all(now is None or now == then for now, then in zip(named, before, strict=True)):
        return _reopen_subagent(scope, ident, at)
    parents = _named_parents(scope, ident, *named, at)
    if not parents:
        return _reopen_subagent(scope, ident, at)
    subagent = Subagent(ident, parents[0], at)
    subagent.name, subagent.continues = record.name, record.span
    subagent.links.append(record.span)
    scope.continued_subagents.add(ident)
    _open(scope, subagent, at, announced=False)
    _name_parents(subagent, *named)
    _dispatch(subagent)
    return subagent


def _announce(
    scope: Scope, subagent: Subagent, event: Event, named: Named, parents: list[Any], at: int
) -> None:
    """An open subagent is announced after all. Its span stays where it is; the parents it names become links."""
    subagent.announced = True
    subagent.name = event["name"]
    subagent.description = event.get("description") or subagent.description
    subagent.timestamp = event.get("timestamp")
    subagent.restarted = subagent.continues is not None
    _name_parents(subagent, *named)
    scope.out.append(Announced(subagent, at))
    for parent in parents:
        if parent is not subagent.parent and parent is not subagent and parent is not subagent.parent_agent:
            scope.out.append(Linked(subagent, parent))
        if isinstance(parent, ToolCall) and subagent not in parent.dispatched:
            parent.dispatched.append(subagent)
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
        scope.note(
            "parent_mismatch", f"tool call {tool_call!r} is not {above!r}'s: the tool call is the parent", at
        )


def subagent_finished(scope: Scope, event: Event, at: int) -> Agent:
    subagent = scope.subagents.get(event["subagentRunId"])
    if subagent is None or not subagent.is_open:
        return subagent or scope.writer(event["subagentRunId"])
    subagent.result = event.get("result")
    subagent.outcome = Outcome.SUCCESS
    outcome = event.get("outcome")
    kind = outcome.get("type") if isinstance(outcome, dict) else None
    if isinstance(outcome, dict) and kind == "suspended":
        subagent.outcome = Outcome.SUSPENDED
        ids = outcome.get("interruptIds")
        subagent.interrupt_ids = tuple(i for i in ids if isinstance(i, str)) if isinstance(ids, list) else ()
        scope.out.append(Suspended(subagent, at))
    elif outcome is not None and kind != "success":
        scope.note("unknown_outcome", f"outcome {kind!r} of a subagent is not known; read as success", at)
    close_subagent(scope, subagent, at)
    return subagent


def subagent_error(scope: Scope, event: Event, at: int) -> Agent:
    subagent = scope.subagents.get(event["subagentRunId"])
    if subagent is None or not subagent.is_open:
        return subagent or scope.writer(event["subagentRunId"])
    message, code = event["message"], event.get("code")
    if code == "cancelled" or quirks.is_cancelled_sibling(message):
        subagent.outcome = Outcome.CANCELLED
    else:
        subagent.outcome = Outcome.ERROR
        subagent.failure = Failure(code if isinstance(code, str) and code else "agui.subagent_error", message)
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
