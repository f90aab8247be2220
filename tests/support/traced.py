"""Streams traced for tests: with receive times a second apart, fixed ids, and a thread memory of their own.

An error of the observer's is raised instead of being swallowed. Times are seconds after `START`: the input is read at
0, the first event comes at 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan

from agui_otel import Settings
from agui_otel.testing import Captured, capture, span_tree
from agui_otel.tracing.boundary import Boundary
from agui_otel.tracing.ending import Reason
from agui_otel.tracing.memory import InProcessMemory, ThreadMemory
from agui_otel.tracing.observer import Observer
from agui_otel.tracing.session import Session
from tests.support.wire import Part, flat

START = 1_767_225_600_000_000_000
SECOND = 1_000_000_000

Attributes = dict[str, Any]


@contextmanager
def strict() -> Iterator[None]:
    """Raise what the boundary would swallow."""
    before, Boundary.strict = Boundary.strict, True
    try:
        yield
    finally:
        Boundary.strict = before


class Thread:
    """Runs traced one after another, with one thread memory. `now` is when the next one begins, in seconds."""

    def __init__(
        self,
        *,
        capture_content: bool = True,
        agent_name: str | None = "supervisor",
        memory: ThreadMemory | None = None,
        observer: Attributes | None = None,
        **settings: Any,
    ) -> None:
        self.captured: Captured = capture()
        self.now = 0.0
        self.memory: ThreadMemory = memory if memory is not None else InProcessMemory(clock=self._time)
        self._agent_name = agent_name
        self._observer = Observer(
            Settings(capture="full" if capture_content else "metadata", **settings),
            self.captured.tracer_provider,
            self.captured.meter_provider,
            memory=self.memory,
            **(observer or {}),
        )

    def _time(self) -> float:
        return START / SECOND + self.now

    def run(
        self,
        *events: Part,
        given: Any = None,
        end: Reason = "exhausted",
        error: BaseException | None = None,
        context: Context | None = None,
        attributes: Any = None,
    ) -> Traced:
        """Trace one stream, and return what it exported. `end`: how the stream ended after its last event."""
        before = self.captured.spans
        with strict():
            session = Session(
                self._observer,
                context if context is not None else Context(),
                given=given,
                agent_name=self._agent_name,
                attributes=attributes,
            )
            session.begin(self._at())
            for event in flat(events):
                self.now += 1
                session.feed(event, self._at())
            session.finish(end, error, at_ns=self._at())
        return Traced(self.captured, before, self.captured.spans[len(before) :])

    def _at(self) -> int:
        return START + round(self.now * SECOND)


class Traced:
    """What one stream exported: its spans, in the order of their end. `before` are those of earlier streams."""

    def __init__(self, captured: Captured, before: tuple[ReadableSpan, ...], spans: tuple[ReadableSpan, ...]) -> None:
        self.captured = captured
        self.spans = spans
        self._all = before + spans

    def tree(self, *attributes: str, events: tuple[str, ...] | None = None) -> str:
        """The spans as text, each with these attributes; `events` are the attributes of their events, None: no events.

        A line break stands in front: an expected tree is a literal that starts on its own line.
        """
        lines = span_tree(self._all, attributes=attributes, event_attributes=events or ()).splitlines()
        roots = [index for index, line in enumerate(lines) if not line.startswith(" ")]
        own = sum(span.parent is None for span in self.spans)
        lines = lines[roots[-own] :]
        if events is None:
            lines = [line for line in lines if not line.lstrip().startswith("* ")]
        return "\n".join(["", *lines, ""])

    def span(self, name: str) -> ReadableSpan:
        """The only span of this name."""
        (found,) = (span for span in self.spans if span.name == name)
        return found

    def parent(self, name: str) -> str:
        """The name of the parent of the only span of this name."""
        return self.above(self.span(name))

    def above(self, span: ReadableSpan) -> str:
        """The name of a span's parent, which is of the same stream."""
        return next(other.name for other in self.spans if span.parent is not None and other.context == span.parent)

    def attributes(self, name: str) -> Attributes:
        """The attributes of the only span of this name."""
        return dict(self.span(name).attributes or {})

    def each(self, name: str, *keys: str) -> list[Any]:
        """Of every span of this name, in the order of their start: the attribute, or a tuple of several."""
        found = sorted((span for span in self.spans if span.name == name), key=lambda span: span.start_time or 0)
        values = [tuple((span.attributes or {}).get(key) for key in keys) for span in found]
        return [value[0] for value in values] if len(keys) == 1 else values

    def links(self, name: str) -> list[str]:
        """The names of the spans that the only span of this name links to, also in earlier streams; sorted."""
        names = {span.context.span_id: span.name for span in self._all if span.context is not None}
        return sorted(names[link.context.span_id] for link in self.span(name).links)

    def some(self, name: str, *keys: str) -> Attributes:
        """Of a span's attributes, these; those that are not there are left out."""
        return {key: value for key, value in self.attributes(name).items() if key in keys}

    def events(self, name: str, *only: str) -> list[tuple[str, Attributes]]:
        """The events of the only span of this name, all or those with these names."""
        found = [(event.name, dict(event.attributes or {})) for event in self.span(name).events]
        return [(kind, attributes) for kind, attributes in found if not only or kind in only]

    def rules(self, name: str = "invoke_agent supervisor") -> list[str]:
        """The violations and notes of a run's span, by rule."""
        return [attributes["agui.rule"] for kind, attributes in self.events(name) if "agui.rule" in attributes]

    def times(self, name: str) -> tuple[float, float]:
        """When the only span of this name started and ended, in seconds after `START`."""
        return seconds(self.span(name))

    def metric(self, name: str) -> list[tuple[Attributes, float]]:
        """The points of a metric, over all streams that were traced with the same providers."""
        return self.captured.metrics().get(name, [])


def seconds(span: ReadableSpan) -> tuple[float, float]:
    """When a span started and ended, in seconds after `START`."""
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.start_time - START) / SECOND, (span.end_time - START) / SECOND


def trace(*events: Part, **keywords: Any) -> Traced:
    """One stream, traced: `events`, and the keywords of `Thread` and of its `run`."""
    run = {key: keywords.pop(key) for key in ("given", "end", "error", "context", "attributes") if key in keywords}
    return Thread(**keywords).run(*events, **run)
