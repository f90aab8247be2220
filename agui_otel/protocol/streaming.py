"""Text messages, reasoning and the arguments of tool calls: what arrives in deltas.

Each handler takes the run's scope, a well-formed event and its time, and returns the agent whose event it was. An id
keeps the owner that its first opener gave it, also when it is opened again. A delta of something that is not open opens
it; an end of something that is not open is dropped.
"""

from __future__ import annotations

from typing import Any

from agui_otel.protocol import quirks
from agui_otel.protocol.entities import Agent, Message, Reasoning, Streamed, ToolCall
from agui_otel.protocol.lineage import owner_of, reopen_tool
from agui_otel.protocol.owners import Owners
from agui_otel.protocol.scope import Scope
from agui_otel.protocol.transitions import Announced

Event = dict[str, Any]


def _begin(scope: Scope, entity: Streamed, owner: Agent, at: int) -> None:
    entity.step = owner.current_step()
    owner.child_failed = False
    scope.opened(entity, at)


def _extend(entity: Streamed, delta: str, at: int) -> None:
    if not delta:
        entity.touched_at = at
        return
    entity.append(delta, at)
    owner = entity.owner
    if owner.first_chunk_at is None:
        owner.first_chunk_at = at


def _dropped(scope: Scope, owners: Owners, ident: str, event: Event) -> Agent:
    """The end of something that is not open: whose it is."""
    return scope.writer(owners.setdefault(ident, event.get("subagentRunId")))


def keep_metadata(entity: Streamed | None, event: Event) -> None:
    """Keep what metadata says of its message or reasoning, last write wins per key; usage is no part of it."""
    metadata = event["metadata"]
    if entity is not None and isinstance(metadata, dict):
        kept = {key: value for key, value in metadata.items() if key != "usage"}
        if kept:
            entity.metadata = {**(entity.metadata or {}), **kept}


def text_start(scope: Scope, event: Event, at: int) -> Agent:
    """TEXT_MESSAGE_START: open a message; one that is open goes on."""
    ident = event["messageId"]
    known = scope.messages.get(ident)
    if known is not None:
        known.touched_at = at
        return known.owner
    owner = owner_of(scope, scope.message_owners, ident, event.get("subagentRunId"), at)
    role = event.get("role")
    message = Message(ident, owner, at, scope.options.text_limit, role if isinstance(role, str) else "assistant")
    scope.messages[ident] = message
    _begin(scope, message, owner, at)
    return owner


def text_content(scope: Scope, event: Event, at: int) -> Agent:
    """TEXT_MESSAGE_CONTENT: more of a message."""
    ident = event["messageId"]
    if ident not in scope.messages:
        text_start(scope, event, at)
    message = scope.messages[ident]
    _extend(message, event["delta"], at)
    return message.owner


def text_end(scope: Scope, event: Event, at: int) -> Agent:
    """TEXT_MESSAGE_END: end a message."""
    message = scope.messages.pop(event["messageId"], None)
    if message is None:
        return _dropped(scope, scope.message_owners, event["messageId"], event)
    close_streamed(scope, message, at)
    return message.owner


def close_streamed(scope: Scope, entity: Streamed, at: int) -> None:
    """End a message or reasoning. What an assistant said last is its agent's answer so far."""
    if isinstance(entity, Message):
        entity.become_answer()
    scope.close(entity, at)


def reasoning_start(scope: Scope, event: Event, at: int) -> Agent:
    """REASONING_START: open a span of reasoning; one that is open goes on."""
    ident = event["messageId"]
    known = scope.reasoning_spans.get(ident)
    if known is not None:
        known.touched_at = at
        return known.owner
    owner = owner_of(scope, scope.reasoning_owners, ident, event.get("subagentRunId"), at)
    span = Reasoning(ident, owner, at, scope.options.text_limit, bracketed=True)
    scope.reasoning_spans[ident] = span
    _begin(scope, span, owner, at)
    return owner


def reasoning_message_start(scope: Scope, event: Event, at: int) -> Agent:
    """REASONING_MESSAGE_START: a message in its owner's latest span of reasoning, or a span by itself."""
    ident = event["messageId"]
    known = scope.reasoning.get(ident)
    if known is not None:
        known.touched_at = at
        return known.owner
    owner = owner_of(scope, scope.reasoning_owners, ident, event.get("subagentRunId"), at)
    span = next((s for s in reversed(scope.reasoning_spans.values()) if s.owner is owner), None)
    if span is None:
        span = Reasoning(ident, owner, at, scope.options.text_limit, bracketed=False)
        _begin(scope, span, owner, at)
    span.inside += 1
    span.touched_at = at
    scope.reasoning[ident] = span
    return owner


def reasoning_content(scope: Scope, event: Event, at: int) -> Agent:
    """REASONING_MESSAGE_CONTENT: more of a reasoning message."""
    ident = event["messageId"]
    if ident not in scope.reasoning:
        reasoning_message_start(scope, event, at)
    entity = scope.reasoning[ident]
    _extend(entity, event["delta"], at)
    return entity.owner


def reasoning_message_end(scope: Scope, event: Event, at: int) -> Agent:
    """REASONING_MESSAGE_END: end a reasoning message, and its span where nothing else holds that open."""
    span = scope.reasoning.pop(event["messageId"], None)
    if span is None:
        return _dropped(scope, scope.reasoning_owners, event["messageId"], event)
    span.inside -= 1
    span.touched_at = at
    if not span.inside and not span.bracketed:
        close_streamed(scope, span, at)
    return span.owner


def reasoning_end(scope: Scope, event: Event, at: int) -> Agent:
    """REASONING_END: end a span of reasoning, or let the messages in it that are open end it."""
    span = scope.reasoning_spans.pop(event["messageId"], None)
    if span is None:
        return _dropped(scope, scope.reasoning_owners, event["messageId"], event)
    span.bracketed = False
    span.touched_at = at
    if not span.inside:
        close_streamed(scope, span, at)
    return span.owner


def tool_start(scope: Scope, event: Event, at: int) -> Agent:
    """TOOL_CALL_START: open a call; one that has no result yet goes on."""
    ident, name = event["toolCallId"], event.get("toolCallName") or None
    known = scope.tools.get(ident)
    if known is not None and known.is_open:
        return _again(scope, known, name, at)
    tag = event.get("subagentRunId")
    if tag is None and "parentMessageId" in event:
        tag = scope.message_owners.get(event["parentMessageId"])
    owner = owner_of(scope, scope.tool_owners, ident, tag, at)
    tool = ToolCall(ident, owner, at, scope.options.text_limit, name)
    remembered = scope.record.tool_calls.get(ident) if scope.record is not None and known is None else None
    if remembered is not None:
        tool.continue_from(remembered.span)
        scope.continued_calls.add(ident)
    tool.late_children = tuple(scope.late.pop(ident, ()))
    for subagent in tool.late_children:
        tool.link(subagent)
        subagent.be_dispatched_by(tool)
    tool.announced = "toolCallName" in event
    scope.tools[ident] = scope.open_args[ident] = tool
    _begin(scope, tool, owner, at)
    if quirks.is_reannounced_at_root(ident):
        scope.note("quirk", "ag-ui-langgraph announces an inner tool call again at the root", at)
    if tool.late_children:
        scope.note("late_tool_call", f"tool call {ident!r} came after a subagent that names it as its parent", at)
    return owner


def _again(scope: Scope, tool: ToolCall, name: str | None, at: int) -> Agent:
    """A call without a result is opened again: re-opened from memory, it is announced now; else this is a repetition.

    Its arguments are taken once: where they have ended, those of the repetition are left out.
    """
    tool.touched_at = at
    if not tool.announced:
        tool.announced = True
        scope.open_args[tool.id] = tool
        tool.name = name or tool.name
        tool.step = tool.owner.current_step()
        tool.owner.child_failed = False
        scope.out.append(Announced(tool, at))
    elif tool.args_ended_at is not None:
        scope.note("repeated_id", f"tool call {tool.id!r} is opened again while it is open", at)
    return tool.owner


def tool_args(scope: Scope, event: Event, at: int) -> Agent:
    """TOOL_CALL_ARGS: more of a call's arguments."""
    ident = event["toolCallId"]
    tool = scope.tools.get(ident)
    if tool is None:
        tool = reopen_tool(scope, ident, at)
    if tool is None or (not tool.is_open and tool.args_ended_at is not None):
        own: Event = {key: event[key] for key in ("toolCallId", "subagentRunId") if key in event}
        tool_start(scope, own, at)  # an extra field was not checked
        tool = scope.tools[ident]
    if tool.is_open and tool.args_ended_at is None:
        scope.open_args[ident] = tool
        _extend(tool, event["delta"], at)
    return tool.owner


def tool_end(scope: Scope, event: Event, at: int) -> Agent:
    """TOOL_CALL_END: the arguments are complete; the call goes on until its result."""
    ident = event["toolCallId"]
    tool = scope.tools.get(ident)
    if tool is None:
        return _dropped(scope, scope.tool_owners, ident, event)
    if scope.open_args.pop(ident, None) is tool:
        tool.args_ended_at = tool.touched_at = at
    return tool.owner
