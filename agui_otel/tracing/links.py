"""Links: to spans of this stream, and to spans that an earlier run left behind."""

from __future__ import annotations

from opentelemetry.trace import Link, SpanContext, TraceFlags

from agui_otel.protocol.entities import Entity
from agui_otel.protocol.thread import SpanRef


def link_to(target: Entity | SpanRef) -> Link:
    """A link to an entity's span, or to a remembered one."""
    if isinstance(target, SpanRef):
        return Link(remote_context(target))
    return Link(target.handle.span.get_span_context())


def remote_context(ref: SpanRef) -> SpanContext:
    """The context of a span that is only known by its ids."""
    return SpanContext(int(ref.trace_id, 16), int(ref.span_id, 16), is_remote=True, trace_flags=TraceFlags(1))


def reference(entity: Entity, run_id: str) -> SpanRef:
    """An entity's span as thread memory keeps it."""
    context = entity.handle.span.get_span_context()
    return SpanRef(trace_id=f"{context.trace_id:032x}", span_id=f"{context.span_id:016x}", run_id=run_id)
