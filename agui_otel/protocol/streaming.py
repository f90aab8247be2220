"""Text messages, reasoning and the arguments of tool calls: what arrives in deltas.

Each handler takes the run's scope, a well-formed event and its time, and returns the agent whose event it was.
"""

from __future__ import annotations

from typing import Any

from agui_otel.protocol import quirks
from agui_otel.protocol.entities import Agent, Message, Reasoning, Streamed, ToolCall
from agui_otel.protocol.lineage import find_tool, opener
from agui_otel.protocol.scope import Scope
from agui_otel.protocol.transitions import Announced
from agui_otel.protocol.usage import read_usage, summed

Event = dict[str, Any]


def _begin(scope: Scope, entity: Streamed, owner: Agent, at: int) -> None:
    entity.step = owner.current_step()
    owner.child_failed = False
    scope.opened(entity, at)


def _extend(entity: Streamed, delta: str, at: int) -> None:
    if not delta:
        entity.last_at = at
        return
    entity.append(delta, at)
    owner = entity.owner
    if owner.first_chunk_at is None:
        owner.first_chunk_at = at


def merge_metadata(entity: Streamed | None, event: Event, owner: Agent) -> None:
    """Keep a message's metadata, last write wins per key; usage in it counts under the event's owner."""
    metadata = event.get("metadata")
    if not isinstance(metadata, dict):
        return
    if "usage" in metadata:
        for usage in summed([*owner.usage.values(), *read_usage(metadata["usage"])]).values():
            owner.usage[usage.key] = usage
    kept = {key: value for key, value in metadata.items() if key != "usage"}
    if entity is not None and kept:
        entity.metadata = {**(entity.metadata or {}), **kept}


def text_start(scope: Scope, event: Event, at: int) -> Agent:
    ident = event["messageId"]
    known = scope.messages.get(ident)
    if known is not None:
        scope.note("repeated_id", f"message {ident!r} is opened again while it is open", at)
        return known.owner
    owner = opener(scope, event.get("subagentRunId"), at)
    role = event.get("role")
    message = Message(
        ident, owner, at, scope.options.text_limit, role if isinstance(role, str) else "assistant"
    )
    scope.messages[ident] = message
    scope.message_owners[ident] = owner
    _begin(scope, message, owner, at)
    return owner


def text_content(scope: Scope, event: Event, at: int) -> Agent:
    ident = event["messageId"]
    if ident not in scope.messages:
        if ident in scope.message_owners:
            return scope.message_owners[ident]
        text_start(scope, event, at)
    message = scope.messages[ident]
    _extend(message, event["delta"], at)
    return message.owner


def text_end(scope: Scope, event: Event, at: int) -> Agent:
    message = scope.messages.pop(event["messageId"], None)
    if message is None:
        return scope.message_owners.get(event["messageId"], scope.run)
    message.last_at = at
    close_streamed(scope, message, at)
    return message.owner


def close_streamed(scope: Scope, entity: Streamed, at: int) -> None:
    """End a message or reasoning. What an assistant said last is its agent's answer so far."""
    if isinstance(entity, Message):
        entity.become_answer()
    scope.close(entity, at)


def reasoning_start(scope: Scope, event: Event, at: int) -> Agent:
    ident = event["messageId"]
    known = scope.reasoning_spans.get(ident)
    if known is not None:
        scope.note("repeated_id", f"reasoning {ident!r} is opened again while it is open", at)
        return known.owner
    owner = opener(scope, event.get("subagentRunId"), at)
    span = Reasoning(ident, owner, at, scope.options.text_limit, bracketed=True)
    scope.reasoning_spans[ident] = span
    _begin(scope, span, owner, at)
    return owner


def reasoning_message_start(scope: Scope, event: Event, at: int) -> Agent:
    ident = event["messageId"]
    known = scope.reasoning.get(ident)
    if known is not None:
        scope.note("repeated_id", f"reasoning message {ident!r} is opened again while it is open", at)
        return known.owner
    owner = opener(scope, event.get("subagentRunId"), at)
    span = next((s for s in reversed(scope.reasoning_spans.values()) if s.owner is owner), None)
    if span is None:
        span = Reasoning(ident, owner, at, scope.options.text_limit, bracketed=False)
        _begin(scope, span, owner, at)
    span.inside += 1
    scope.reasoning[ident] = span
    scope.message_owners.setdefault(ident, owner)
    return owner


def reasoning_content(scope: Scope, event: Event, at: int) -> Agent:
    ident = event["messageId"]
    if ident not in scope.reasoning:
        if ident in scope.message_owners:
            return scope.message_owners[ident]
        reasoning_message_start(scope, event, at)
    entity = scope.reasoning[ident]
    _extend(entity, event["delta"], at)
    return entity.owner


def reasoning_message_end(scope: Scope, event: Event, at: int) -> Agent:
    span = scope.reasoning.pop(event["messageId"], None)
    if span is None:
        return scope.message_owners.get(event["messageId"], scope.run)
    span.inside -= 1
    span.last_at = at
    if not span.inside and not span.bracketed:
        close_streamed(scope, span, at)
    return span.owner


def reasoning_end(scope: Scope, event: Event, at: int) -> Agent:
    span = scope.reasoning_spans.pop(event["messageId"], None)
    if span is None:
        return scope.message_owners.get(event["messageId"], scope.run)
    span.bracketed = False
    span.last_at = at
    if not span.inside:
        close_streamed(scope, span, at)
    return span.owner


def tool_start(scope: Scope, event: Event, at: int) -> Agent:
    ident, name = event["toolCallId"], event.get("toolCallName")
    known = scope.tools.get(ident)
    if known is not None and known.is_open:
        return _again(scope, known, name, at)
    owner = _tool_owner(scope, event, at)
    tool = ToolCall(ident, owner, at, scope.options.text_limit, name)
    remembered = scope.record.tool_calls.get(ident) if scope.record is not None and known is None else None
    if remembered is not None:
        tool.continues = remembered.span
        tool.links.append(remembered.span)
        scope.continued_calls.add(ident)
    tool.late_children = scope.late.pop(ident, [])
    tool.dispatched.extend(tool.late_children)
    tool.links.extend(tool.late_children)
    tool.announced = name is not None
    scope.tools[ident] = scope.open_args[ident] = tool
    _begin(scope, tool, owner, at)
    if quirks.is_reannounced_at_root(ident):
        scope.note("quirk", "ag-ui-langgraph announces an inner tool call again at the root", at)
    if tool.late_children:
        scope.note(
            "late_tool_call", f"tool call {ident!r} came after a subagent that names it as its parent", at
        )
    return owner


def _again(scope: Scope, tool: ToolCall, name: str | None, at: int) -> Agent:
    """A call that is open is opened again: a call of an earlier run is now announced; else the start is a repetition."""
    if not tool.announced:
        tool.announced = True
        scope.open_args[tool.id] = tool
        tool.name = name or tool.name
        tool.step = tool.owner.current_step()
        tool.owner.child_failed = False
        scope.out.append(Announced(tool, at))
    else:
        scope.open_args.pop(tool.id, None)
        scope.note("repeated_id", f"tool call {tool.id!r} is opened again while it is open", at)
    return tool.owner


def _tool_owner(scope: Scope, event: Event, at: int) -> Agent:
    tag = event.get("subagentRunId")
    if tag is None:
        inherited = scope.message_owners.get(event.get("parentMessageId") or "")
        if inherited is not None and event.get("parentMessageId") is not None:
            return inherited
    return opener(scope, tag, at)


def tool_args(scope: Scope, event: Event, at: int) -> Agent:
    tool = find_tool(scope, event["toolCallId"], at)
    if tool is None:
        tool_start(scope, event, at)
        tool = scope.tools[event["toolCallId"]]
    if tool.id in scope.open_args:
        _extend(tool, event["delta"], at)
    return tool.owner


def tool_end(scope: Scope, event: Event, at: int) -> Agent:
    tool = scope.tools.get(event["toolCallId"])
    if tool is None:
        return scope.writer(event.get("subagentRunId"))
    if tool.is_open and tool.args_ended_at is None:
        tool.args_ended_at = tool.last_at = at
        scope.open_args.pop(tool.id, None)
    return tool.owner
