"""Who is whose child: owners, parents, and what an earlier run of the thread left behind.

A parent link exists because the stream stated it with an id, or because an earlier run of the same thread did; never
because two things overlapped in time. What is remembered is re-opened in this run's tree: nothing is ever parented
into another run's.
"""

from __future__ import annotations

from agui_otel.protocol.entities import Agent, Subagent, ToolCall
from agui_otel.protocol.owners import Owners
from agui_otel.protocol.scope import Scope

MAX_REOPENED_DEPTH = 64
"""Remembered ancestors that are re-opened one above the other; a longer chain hangs from the run."""


def opener(scope: Scope, tag: str | None, at: int) -> Agent:
    """The owner of something that is opened now. An id never seen opens a subagent that was not announced."""
    if tag is None:
        return scope.run
    known = scope.subagents.get(tag)
    if known is not None:
        return known
    remembered = _reopen_subagent(scope, tag, at)
    return remembered or open_subagent(scope, new_subagent(scope, tag, scope.run, at), at, announced=False)


def owner_of(scope: Scope, owners: Owners, ident: str, tag: str | None, at: int) -> Agent:
    """The owner of the entity `ident`: whom its first opener named, else whom `tag` names."""
    return opener(scope, owners.setdefault(ident, tag), at)


def find_tool(scope: Scope, ident: str, at: int) -> ToolCall | None:
    """The call of this run, else the one an earlier run of the thread left pending, re-opened here."""
    return scope.tools.get(ident) or reopen_tool(scope, ident, at)


def find_subagent(scope: Scope, ident: str, at: int) -> Subagent | None:
    """The subagent of this run, open or finished, else a suspended one of the thread, re-opened here."""
    return scope.subagents.get(ident) or _reopen_subagent(scope, ident, at)


def new_subagent(scope: Scope, ident: str, parent: Agent | ToolCall, at: int) -> Subagent:
    """A subagent that begins now; who was known by this id only is the same one."""
    stranger = scope.strangers.pop(ident, None)
    if stranger is None:
        return Subagent(ident, parent, at)
    stranger.place(parent, at)
    return stranger


def open_subagent(scope: Scope, subagent: Subagent, at: int, *, announced: bool) -> Subagent:
    """Say that `subagent` began."""
    subagent.announced = announced
    parent_agent = subagent.parent_agent
    subagent.step = parent_agent.current_step() if parent_agent is not None else None
    scope.agents.append(subagent)
    scope.subagents[subagent.id] = subagent
    scope.opened(subagent, at)
    return subagent


def named_parents(
    scope: Scope, ident: str, tool_call: str | None, subagent: str | None, message: str | None, at: int
) -> list[Agent | ToolCall]:
    """What the ids name, first choice first (trace model: parents). The run, which is always there, is left out."""
    found: list[Agent | ToolCall] = []
    tool = find_tool(scope, tool_call, at) if tool_call is not None else None
    if tool is not None:
        found.append(tool)
    above = find_subagent(scope, subagent, at) if subagent is not None and subagent != ident else None
    if above is not None:
        found.append(above)
    owner = scope.message_owners.get(message, ident) if message is not None else ident
    if owner != ident:
        whose = scope.run if owner is None else find_subagent(scope, owner, at)
        if whose is not None:
            found.append(whose)
    return found


def name_parents(subagent: Subagent, tool_call: str | None, above: str | None, message: str | None) -> None:
    """Record the ids that `subagent` names; what is not named now stays as it was named before."""
    subagent.parent_tool_call_id = tool_call if tool_call is not None else subagent.parent_tool_call_id
    subagent.parent_subagent_id = above if above is not None else subagent.parent_subagent_id
    subagent.parent_message_id = message if message is not None else subagent.parent_message_id


def reopen_tool(scope: Scope, ident: str, at: int) -> ToolCall | None:
    """A call that an earlier run of the thread left pending, under the owner that it had there."""
    remembered = scope.record.tool_calls.get(ident) if scope.record is not None else None
    if remembered is None or len(scope.reopening) > MAX_REOPENED_DEPTH:
        return None
    owner = find_subagent(scope, remembered.owner, at) if remembered.owner is not None else None
    known = scope.tools.get(ident)
    if known is not None:
        return known
    tool = ToolCall(ident, owner or scope.run, at, scope.options.text_limit, remembered.name or None)
    tool.announced = False
    tool.continue_from(remembered.span)
    scope.continued_calls.add(ident)
    scope.tool_owners.setdefault(ident, tool.owner.tag)
    scope.tools[ident] = tool
    scope.opened(tool, at)
    return tool


def _reopen_subagent(scope: Scope, ident: str, at: int) -> Subagent | None:
    remembered = scope.record.subagents.get(ident) if scope.record is not None else None
    if remembered is None or ident in scope.reopening or len(scope.reopening) > MAX_REOPENED_DEPTH:
        return None
    named = remembered.parent_tool_call, remembered.parent_subagent, remembered.parent_message
    scope.reopening.add(ident)
    parents = named_parents(scope, ident, *named, at)
    scope.reopening.discard(ident)
    subagent = continue_subagent(scope, ident, parents[0] if parents else scope.run, at)
    name_parents(subagent, *named)
    return subagent


def continue_subagent(scope: Scope, ident: str, parent: Agent | ToolCall, at: int) -> Subagent:
    """Open a suspended subagent of the thread again, under `parent`."""
    assert scope.record is not None
    remembered = scope.record.subagents[ident]
    subagent = new_subagent(scope, ident, parent, at)
    subagent.name, subagent.description = remembered.name, remembered.description
    subagent.continue_from(remembered.span)
    scope.continued_subagents.add(ident)
    open_subagent(scope, subagent, at, announced=False)
    if isinstance(parent, ToolCall):
        subagent.be_dispatched_by(parent)
    return subagent
