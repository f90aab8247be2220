"""What a run does with the span that is current where it starts (trace model: ambient context)."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from opentelemetry.context import Context, attach, detach
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from agui_otel import Settings, trace_events
from agui_otel.tracing.ambient import place
from tests.support.sources import DONE, INPUT, RUN, WHOLE
from tests.support.watched import Watched, trace_id, values

Mode = Literal["auto", "child", "link", "ignore"]
Parent = Literal["local", "unsampled", "remote", "none"]

TRACE, SPAN = 0xABC, 0xDEF


def ambient(parent: Parent) -> Context:
    """A context with such a current span."""
    if parent == "none":
        return Context()
    flags = TraceFlags(0 if parent == "unsampled" else 1)
    return set_span_in_context(NonRecordingSpan(SpanContext(TRACE, SPAN, parent == "remote", flags)), Context())


PLACES: list[tuple[Mode, bool, Parent, str]] = [
    ("auto", False, "local", "child"),
    ("auto", False, "unsampled", "child"),
    ("auto", False, "remote", "link"),
    ("auto", True, "local", "link"),
    ("auto", True, "remote", "link"),
    ("child", False, "local", "child"),
    ("child", True, "local", "child"),
    ("child", True, "remote", "child"),
    ("link", False, "local", "link"),
    ("link", False, "remote", "link"),
    ("ignore", False, "local", "root"),
    ("ignore", True, "remote", "root"),
    *((mode, phoenix, "none", "root") for mode in ("auto", "child", "link", "ignore") for phoenix in (True, False)),
]


@pytest.mark.parametrize(("mode", "phoenix", "parent", "expected"), PLACES)
def test_a_run_hangs_where_the_mode_says(mode: Mode, phoenix: bool, parent: Parent, expected: str) -> None:
    """Every mode, with and without an export to Phoenix, under every kind of parent."""
    context = ambient(parent)
    placed = place(context, mode, phoenix=phoenix)
    assert (expected == "child") == (placed.context is context and parent != "none")
    assert (expected == "link") == bool(placed.links)
    if expected == "link":
        assert (TRACE, SPAN) == (placed.links[0].context.trace_id, placed.links[0].context.span_id)
        assert {"agui.ambient.trace_id": f"{TRACE:032x}", "agui.ambient.span_id": f"{SPAN:016x}"} == placed.attributes
    else:
        assert ({}, []) == (placed.attributes, placed.links)


@pytest.mark.parametrize(("mode", "traces"), [("child", 1), ("link", 3), ("auto", 1), ("ignore", 3)])
def test_the_runs_of_a_stream_are_placed_alike(watched: Watched, mode: Mode, traces: int) -> None:
    """Under `child` they share the ambient trace; as links each has its own."""
    events = [event for n in range(3) for event in ({**RUN, "runId": str(n)}, {**DONE, "runId": str(n)})]
    keywords = {**watched.keywords, "config": Settings(ambient=mode)}
    with watched.tracer.start_as_current_span("server") as server:
        list(trace_events(events, **keywords))
    context = server.get_span_context()
    assert traces == len({trace_id(run) for run in watched.runs})
    for run in watched.runs:
        linked = [link.context.span_id for link in run.links]
        parent = run.parent.span_id if run.parent is not None else None
        expected = (context.span_id, []) if traces == 1 else (None, [context.span_id] if mode == "link" else [])
        assert expected == (parent, linked)
    watched.check()


def test_the_host_s_sampling_decision_holds() -> None:
    """A run under a span that is not recorded is not recorded either, and the events come out."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with provider.get_tracer("server").start_as_current_span("request"):
        assert list(WHOLE) == list(trace_events(WHOLE, input=INPUT, tracer_provider=provider))
    assert () == exporter.get_finished_spans()


def test_an_unsampled_run_is_counted(watched: Watched) -> None:
    """Metrics are recorded whether or not the span is sampled."""
    provider = TracerProvider(sampler=ALWAYS_OFF)
    list(trace_events(WHOLE, tracer_provider=provider, meter_provider=watched.captured.meter_provider))
    assert {1} == {count for _, count in watched.captured.metrics()["gen_ai.invoke_agent.duration"]}


def test_a_stream_starts_where_it_is_first_pulled(watched: Watched) -> None:
    """Not where it was made: tracing starts at the first pull."""
    stream = trace_events(WHOLE, **watched.keywords)
    token = attach(ambient("remote"))
    try:
        next(stream)
    finally:
        detach(token)
    list(stream)
    assert [TRACE] == [link.context.trace_id for link in watched.run.links]


def test_a_remote_parent_is_no_parent_by_default(watched: Watched) -> None:
    """Gateways add traceparent headers that nobody exports: a root, with a link that its attributes repeat."""
    token = attach(ambient("remote"))
    try:
        list(trace_events(WHOLE, **watched.keywords))
    finally:
        detach(token)
    found: Any = values(watched.run)
    assert (None, f"{TRACE:032x}") == (watched.run.parent, found["agui.ambient.trace_id"])
    watched.check()
