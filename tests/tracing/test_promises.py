"""Trace model, promises: what holds on every stream, told by random ones, legal and wild."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import given as examples
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from agui_otel.protocol.chunks import Expander, Refused
from agui_otel.protocol.deltas import Deltas
from agui_otel.protocol.events import EVENT_TYPES
from agui_otel.protocol.rules import RULES, Judge
from tests.support.defects import write
from tests.support.traced import Thread, Traced
from tests.support.wire import given

REASONS = ("exhausted", "error", "cancelled", "disconnected")
streams = st.builds(write, st.integers(0, 10**9), st.sampled_from([None, None, *RULES]))
inputs = st.sampled_from(
    [None, given("r", "t"), given("other", "t", state={"a": 1}, messages=[{"id": "a", "role": "user"}])]
)


class Lives(SpanProcessor):
    """Counts how often each span starts and ends."""

    def __init__(self) -> None:
        self.started: Counter[int] = Counter()
        self.ended: Counter[int] = Counter()

    def on_start(self, span: Span, parent_context: Any = None) -> None:  # noqa: ARG002
        """Count a start."""
        self.started[span.get_span_context().span_id] += 1

    def on_end(self, span: ReadableSpan) -> None:
        """Count an end."""
        assert span.context is not None
        self.ended[span.context.span_id] += 1


def breaches(stream: list[Any]) -> list[str]:
    """The rules that the stream breaks, as the rules' own modules say."""
    expander, judge, found = Expander(), Judge(), []
    for sent in (event for event in stream if event["type"] in EVENT_TYPES):
        try:
            parts = expander.expand(sent)
        except Refused as refused:
            found.append(refused.rule)
            parts = refused.recovered
        found += [breach.rule for breach in map(judge.judge, parts) if breach is not None]
    return found


def traced_whole(stream: list[Any], asked: Any, reason: Any, **settings: Any) -> tuple[Traced, Lives]:
    """The stream, traced, with the lives of its spans."""
    thread, lives = Thread(**settings), Lives()
    thread.captured.tracer_provider.add_span_processor(lives)
    return thread.run(stream, given=asked, end=reason), lives


@hypothesis_settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@examples(
    streams, inputs, st.sampled_from(REASONS), st.sampled_from(["spans", "events"]), st.sampled_from(["spans", "off"])
)
def test_every_stream_is_survived(stream: list[Any], asked: Any, reason: Any, steps: str, messages: str) -> None:
    """Every span is ended exactly once, in one trace a run, within the SDK's limits; every violation is counted."""
    traced, lives = traced_whole(stream, asked, reason, steps=steps, messages=messages)
    assert lives.started == lives.ended
    assert {1} >= set(lives.started.values())
    by_id = {span.context.span_id: span for span in traced.spans if span.context is not None}
    for span in traced.spans:
        assert (0, 0, 0) == (span.dropped_attributes, span.dropped_events, span.dropped_links)
        assert len(span.attributes or {}) < 100
        assert len(span.events) <= 128
        assert (span.start_time or 0) <= (span.end_time or 0)
        if span.parent is not None:
            above = by_id[span.parent.span_id]
            assert above.context is not None
            assert span.context is not None
            assert above.context.trace_id == span.context.trace_id
    assert len(breaches(stream)) == sum(traced.each("invoke_agent supervisor", "agui.violations"))


@hypothesis_settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@examples(streams, inputs)
def test_the_short_cut_for_deltas_changes_nothing(stream: list[Any], asked: Any) -> None:
    """A delta that is only counted leaves the same trace as one that goes all the way."""
    short = traced_whole(stream, asked, "exhausted")[0]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Deltas, "take", _never)
        long = traced_whole(stream, asked, "exhausted")[0]
    assert everything(long) == everything(short)
    assert sorted(map(str, long.metric("agui.events"))) == sorted(map(str, short.metric("agui.events")))


def everything(traced: Traced) -> list[Any]:
    """What the spans say."""
    return [
        (span.name, span.start_time, span.end_time, dict(span.attributes or {}), [e.name for e in span.events])
        for span in traced.spans
    ]


def _never(_deltas: Deltas, _raw: Any, _at: int) -> bool:
    return False


@hypothesis_settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@examples(st.lists(st.tuples(streams, st.sampled_from(REASONS), st.booleans()), min_size=2, max_size=4))
def test_runs_of_one_thread_survive_each_other(runs: list[tuple[list[Any], Any, bool]]) -> None:
    """Whatever was remembered: each run is a tree of its own, and nothing hangs from another run's."""
    thread, lives = Thread(), Lives()
    thread.captured.tracer_provider.add_span_processor(lives)
    for stream, reason, answers in runs:
        entries = [{"interruptId": "i", "status": "resolved", "payload": True}] if answers else []
        traced = thread.run(stream, given=given("r", "t", resume=entries), end=reason)
        own = {span.context.span_id for span in traced.spans if span.context is not None}
        assert {span.parent.span_id for span in traced.spans if span.parent is not None} <= own
    assert lives.started == lives.ended
