"""What the span writer keeps on each entity: its span, the context of its children, and how many events it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, set_span_in_context

from agui_otel.protocol.entities import PathSum
from agui_otel.tracing.gauges import Open
from agui_otel.tracing.semconv import MAX_SPAN_EVENTS, OMITTED, TRUNCATED

Attributes = dict[str, Any]

_ROOT = Context()

RESERVED = 24
"""Span events kept free for what must not be left out: interrupts, answers, what was folded."""


class SpanHandle:
    """A span, and the context in which its children start; that carries the span and nothing else.

    `attributes` are those it was started with.
    """

    __slots__ = ("_context", "_truncated", "span")

    def __init__(self, span: Span, attributes: Attributes) -> None:
        self.span = span
        self._context: Context | None = None
        self._truncated: list[str] = attributes.get(TRUNCATED, [])

    @property
    def context(self) -> Context:
        """Made when it is first needed: most spans have no children."""
        if self._context is None:
            self._context = set_span_in_context(self.span, _ROOT)
        return self._context

    def set(self, attributes: Attributes) -> None:
        """Set attributes. What was cut of those set before, and is not set again, stays said."""
        if self._truncated:
            kept = [entry for entry in self._truncated if entry.rpartition("=")[0] not in attributes]
            attributes[TRUNCATED] = [*kept, *attributes.get(TRUNCATED, ())]
        self._truncated = attributes.get(TRUNCATED, [])
        self.span.set_attributes(attributes)

    def end(self, at: int | None) -> None:
        """End the span at `at`; of an ended one only its context is kept, for children and links that come later."""
        self.span.end(at)
        self.span = NonRecordingSpan(self.span.get_span_context())
        self._context = None


class StateFold:
    """State updates of one producer beyond the cap: how many, from where to where, and what they wrote."""

    __slots__ = ("count", "first_seq", "last_seq", "name", "paths")

    def __init__(self, name: str | None, seq: int, max_paths: int) -> None:
        self.name = name
        self.count = 0
        self.first_seq = seq
        self.last_seq = seq
        self.paths = PathSum(max_paths)


class AgentHandle(SpanHandle):
    """An agent's span: also its place in the graph, its token in the metrics, its links and its events by kind.

    ``told_input``: characters of a subagent's input that its span was started with.
    """

    __slots__ = ("_linked", "_total", "_used", "folds", "omitted", "path", "token", "told_input")

    def __init__(self, span: Span, attributes: Attributes, path: str, token: Open, links: Sequence[Link]) -> None:
        super().__init__(span, attributes)
        self.path = path
        self.token = token
        self.omitted: dict[str, int] = {}
        self.folds: dict[str | None, StateFold] = {}
        self.told_input = 0
        self._used: dict[str, int] = {}
        self._total = 0
        self._linked = {(link.context.trace_id, link.context.span_id) for link in links}

    def may_add(self, kind: str, cap: int | None) -> bool:
        """Whether one more event of `kind` may be added; one that may not is counted. No cap: what must be told.

        One event is always left for the exception.
        """
        used = self._used.get(kind, 0)
        limit = MAX_SPAN_EVENTS - (1 if cap is None else RESERVED)
        if self._total < limit and (cap is None or used < cap):
            self._used[kind] = used + 1
            self._total += 1
            return True
        self.omit(kind)
        return False

    def add(self, kind: str, cap: int | None, name: str, attributes: Attributes, at: int) -> bool:
        """Add an event if one more of `kind` may be added: see `may_add`."""
        may_add = self.may_add(kind, cap)
        if may_add:
            self.span.add_event(name, attributes, at)
        return may_add

    def omit(self, kind: str, count: int = 1) -> None:
        """So many of a kind are left out."""
        self.omitted[kind] = self.omitted.get(kind, 0) + count

    def link(self, link: Link) -> None:
        """Add a link, once; beyond what the SDK keeps they are counted."""
        target = link.context.trace_id, link.context.span_id
        if target in self._linked:
            return
        if len(self._linked) < MAX_SPAN_EVENTS:
            self._linked.add(target)
            self.span.add_link(link.context, link.attributes)
        else:
            self.omit("links")

    def omissions(self) -> Attributes:
        """How many of each kind were left out."""
        return {OMITTED + kind: count for kind, count in self.omitted.items() if count}
