"""Finished spans as trees, wherever they come from: the SDK's objects, their JSON, or Phoenix's REST API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from agui_otel.tracing.semconv import SPAN_KIND

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(slots=True)
class SpanEvent:
    """A span event; `at` in nanoseconds since the epoch."""

    name: str
    at: int
    attributes: dict[str, Any]


@dataclass(slots=True)
class SpanLink:
    """A link to the span `span_id` (16 hex digits) of the trace `trace_id` (32 hex digits)."""

    trace_id: str
    span_id: str
    attributes: dict[str, Any]


@dataclass(slots=True)
class Node:
    """A span with the spans below it; times in nanoseconds since the epoch, ids in hex digits."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str | None
    start: int
    end: int
    status: str
    """`UNSET`, `OK` or `ERROR`."""
    description: str
    kind: str | None
    """The OpenInference span kind."""
    attributes: dict[str, Any]
    events: list[SpanEvent]
    links: list[SpanLink]
    children: list[Node] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """This span and all below it, parents first."""
        pending = [self]
        while pending:
            node = pending.pop()
            yield node
            pending.extend(reversed(node.children))


AnySpan = ReadableSpan | Mapping[str, Any] | Node


def read_span(span: AnySpan) -> Node:
    """Read one span, alone; the `end` of one that has not ended is 0.

    A mapping is the parsed form of `ReadableSpan.to_json()`, or a span of Phoenix's REST API; a node is copied.
    """
    if isinstance(span, Node):
        return replace(span, children=[])
    return _from_json(span) if isinstance(span, Mapping) else _from_sdk(span)


def forest(spans: Iterable[AnySpan]) -> list[Node]:
    """The trees that the spans make, in the order of their start; children likewise, then by name.

    A span whose parent is not among them is a root, as in Phoenix.
    """
    nodes = sorted(map(read_span, spans), key=lambda node: (node.start, node.name))
    known = {(node.trace_id, node.span_id): node for node in nodes}
    roots: list[Node] = []
    for node in nodes:
        parent = known.get((node.trace_id, node.parent_id)) if node.parent_id is not None else None
        (roots if parent is None else parent.children).append(node)
    return roots


def _from_sdk(span: ReadableSpan) -> Node:
    context = span.get_span_context()
    attributes = _plain(span.attributes)
    return Node(
        name=span.name,
        trace_id=f"{context.trace_id:032x}" if context else "",
        span_id=f"{context.span_id:016x}" if context else "",
        parent_id=f"{span.parent.span_id:016x}" if span.parent else None,
        start=span.start_time or 0,
        end=span.end_time or 0,
        status=span.status.status_code.name,
        description=span.status.description or "",
        kind=attributes.get(SPAN_KIND),
        attributes=attributes,
        events=[SpanEvent(event.name, event.timestamp, _plain(event.attributes)) for event in span.events],
        links=[
            SpanLink(f"{link.context.trace_id:032x}", f"{link.context.span_id:016x}", _plain(link.attributes))
            for link in span.links
        ],
    )


def _from_json(span: Mapping[str, Any]) -> Node:
    attributes = _plain(span.get("attributes"))
    status = span.get("status") or {}
    parent = span.get("parent_id")
    return Node(
        name=span["name"],
        trace_id=_hex(span["context"]["trace_id"]),
        span_id=_hex(span["context"]["span_id"]),
        parent_id=_hex(parent) if parent else None,
        start=_time(span.get("start_time")),
        end=_time(span.get("end_time")),
        status=status.get("status_code") or span.get("status_code") or "UNSET",
        description=status.get("description") or span.get("status_message") or "",
        kind=attributes.get(SPAN_KIND) or span.get("span_kind"),
        attributes=attributes,
        events=[
            SpanEvent(event["name"], _time(event.get("timestamp")), _plain(event.get("attributes")))
            for event in span.get("events") or ()
        ],
        links=[
            SpanLink(
                _hex(link["context"]["trace_id"]),
                _hex(link["context"]["span_id"]),
                _plain(link.get("attributes")),
            )
            for link in span.get("links") or ()
        ],
    )


def _hex(value: str) -> str:
    return value.removeprefix("0x")


def _time(value: str | None) -> int:
    if not value:
        return 0
    passed = datetime.fromisoformat(value.replace("Z", "+00:00")) - _EPOCH
    return passed // timedelta(microseconds=1) * 1000


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: _listed(value) for key, value in (attributes or {}).items()}


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else value
