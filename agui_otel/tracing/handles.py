"""What the span writer keeps on each entity: its span, the context of its children, and how many events it has."""

from __future__ import annotations

from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, set_span_in_context

from agui_otel.tracing.gauges import Open
from agui_otel.tracing.semconv import MAX_SPAN_EVENTS, OMITTED

Attributes = dict[str, Any]

_ROOT = Context()

RESERVED = 24
"""Span events kept free for what must not be left out: interrupts, answers, errors."""


class SpanHandle:
    """A span with the context in which its children start; contexts carry the span and nothing else."""

    __slots__ = ("context", "recording", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.recording = span.is_recording()
        self.context = set_span_in_context(span, _ROOT)


class StateFold:
    """State updates of one producer beyond the cap: how many, from where to where, and what they wrote."""

    __slots__ = ("count", "first_seq", "last_seq", "name", "omitted", "paths")

    def __init__(self, name: str | None, seq: int) -> None:
        self.name = name
        self.count = 0
        self.first_seq = seq
        self.last_seq = seq
        self.paths: dict[str, None] = {}
        self.omitted = 0


class AgentHandle(SpanHandle):
    """An agent's span: also its place in the graph, its token in the metrics, and its events by kind."""

    __slots__ = ("folds", "omitted", "path", "token", "total", "used")

    def __init__(self, span: Span, path: str, token: Open) -> None:
        super().__init__(span)
        self.path = path
        self.token = token
        self.used: dict[str, int] = {}
        self.omitted: dict[str, int] = {}
        self.total = 0
        self.folds: dict[str | None, StateFold] = {}

    def may_add(self, kind: str, cap: int | None) -> bool:
        """Whether one more event of `kind` may be added; one that may not is counted. No cap: what must be told."""
        used = self.used.get(kind, 0)
        limit = MAX_SPAN_EVENTS if cap is None else MAX_SPAN_EVENTS - RESERVED
        if self.total < limit and (cap is None or used < cap):
            self.used[kind] = used + 1
            self.total += 1
            return True
        self.omitted[kind] = self.omitted.get(kind, 0) + 1
        return False

    def omissions(self) -> Attributes:
        """How many events of each kind were left out."""
        return {OMITTED + kind: count for kind, count in self.omitted.items()}
