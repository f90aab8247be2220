"""What a whole recorded run costs, against its spans made by hand with the SDK.

    python -m benchmarks.tree

The hand-made spans have the same names, parents, attributes, events, links and times, all known beforehand; to their
time one microsecond an event is added, for a loop that looks at each. Nothing is exported.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ag_ui.core import Event
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span, Status, set_span_in_context
from pydantic import TypeAdapter

from agui_otel import Settings, trace_events
from benchmarks.timing import best, report

RECORDING = Path(__file__).parents[1] / "tests" / "fixtures" / "streams" / "nested.jsonl"
ROUNDS = 60


def recorded() -> list[Any]:
    """The recording's events as objects."""
    adapter: TypeAdapter[Any] = TypeAdapter(Event)
    return [adapter.validate_json(line) for line in RECORDING.read_bytes().splitlines()]


def spans_of(events: list[Any], settings: Settings) -> list[ReadableSpan]:
    """The spans that tracing makes of `events`, parents before children."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    list(trace_events(events, tracer_provider=provider, config=settings))
    spans = exporter.get_finished_spans()
    depth: dict[int, int] = {}
    by_id = {span.context.span_id: span for span in spans if span.context is not None}

    def depth_of(span: ReadableSpan) -> int:
        assert span.context is not None
        if span.context.span_id not in depth:
            parent = by_id.get(span.parent.span_id) if span.parent is not None else None
            depth[span.context.span_id] = 0 if parent is None else depth_of(parent) + 1
        return depth[span.context.span_id]

    return sorted(spans, key=depth_of)


def by_hand(spans: list[ReadableSpan], provider: TracerProvider) -> None:
    """Make the same spans, with the least that the SDK's interface allows."""
    tracer = provider.get_tracer("by hand")
    contexts: dict[int, Any] = {}
    made: list[tuple[Span, ReadableSpan]] = []
    for span in spans:
        parent = contexts.get(span.parent.span_id) if span.parent is not None else None
        new = tracer.start_span(
            span.name, context=parent, attributes=span.attributes, links=span.links, start_time=span.start_time
        )
        assert span.context is not None
        contexts[span.context.span_id] = set_span_in_context(new)
        made.append((new, span))
    for new, span in reversed(made):
        for event in span.events:
            new.add_event(event.name, event.attributes, event.timestamp)
        new.set_status(Status(span.status.status_code, span.status.description))
        new.end(span.end_time)


def main() -> None:
    """Time both."""
    events = recorded()
    settings = Settings(capture="full", steps="spans", metrics=False)
    spans = spans_of(events, settings)
    provider = TracerProvider()
    traced, hand = best(
        ROUNDS,
        lambda: list(trace_events(events, tracer_provider=provider, config=settings)),
        lambda: by_hand(spans, provider),
    )
    allowed = hand + len(events) * 1e-6
    detail = f"{traced * 1e6:.0f} µs for {len(events)} events and {len(spans)} spans, by hand {hand * 1e6:.0f} µs"
    report("nested.jsonl traced / its spans by hand + 1 µs an event", traced / allowed, "<= 1.3", detail)


if __name__ == "__main__":
    main()
