"""A provider that is watched: what was started and ended, what was logged, and what must be true of any trace."""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import SpanContext, Tracer

from agui_otel import Settings, trace_events
from agui_otel.testing import Captured, capture
from agui_otel.tracing.ending import open_sessions
from agui_otel.tracing.inside import OPEN_RUNS, SCOPE

FULL = Settings(capture="full")
"""Content captured: the most that a span can say."""


class Alarm(logging.Handler):
    """Keeps what OpenTelemetry and this package log from warnings on: the SDK says so what is set on an ended span."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        self.messages.append(record.getMessage())


@contextmanager
def alarm() -> Iterator[Alarm]:
    """An alarm that is on for as long as the block runs."""
    handler = Alarm()
    loggers = [logging.getLogger(name) for name in ("opentelemetry", "agui_otel", "asyncio")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield handler
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


class _Ledger(SpanProcessor):
    def __init__(self) -> None:
        self.started: Counter[int] = Counter()
        self.ended: Counter[int] = Counter()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002
        self.started[span.get_span_context().span_id] += 1

    def on_end(self, span: ReadableSpan) -> None:
        self.ended[_context(span).span_id] += 1


class Watched:
    """Fresh providers with fixed ids, and checks that hold for whatever was traced with them."""

    def __init__(self) -> None:
        self.captured: Captured = capture()
        self.provider = self.captured.tracer_provider
        self._ledger = _Ledger()
        self.provider.add_span_processor(self._ledger)

    @property
    def keywords(self) -> dict[str, Any]:
        """What `trace_events` and `TracingSubscriber` are to be called with."""
        return {
            "tracer_provider": self.provider, "meter_provider": self.captured.meter_provider, "config": FULL,
        }  # fmt: skip

    @property
    def spans(self) -> list[ReadableSpan]:
        """This package's spans that have ended, in the order of their end."""
        return [span for span in self.captured.spans if _is_ours(span)]

    @property
    def runs(self) -> list[ReadableSpan]:
        """The spans of runs, in the order of their end."""
        return [span for span in self.spans if "agui.violations" in values(span)]

    @property
    def run(self) -> ReadableSpan:
        """The span of the only run."""
        (run,) = self.runs
        return run

    def named(self, name: str) -> ReadableSpan:
        """The only ended span of this name, anybody's."""
        (span,) = [span for span in self.captured.spans if span.name == name]
        return span

    @property
    def tracer(self) -> Tracer:
        """The tracer of somebody else: user code, or another instrumentation."""
        return self.provider.get_tracer("somebody else")

    def trace(self, events: Iterable[Any], **keywords: Any) -> None:
        """Trace a stream to its end, and check what holds for every trace."""
        for _ in trace_events(events, **self.keywords, **keywords):
            pass
        self.check()

    def tree(self, *attributes: str) -> list[str]:
        """The lines of the spans as text, without span events and links."""
        text = self.captured.tree(attributes=attributes, links=False)
        return [line for line in text.splitlines() if not line.lstrip().startswith("*")]

    def remarks(self, number: int = 0) -> list[Any]:
        """The rules of all violations and notes on a run."""
        told = [event for event in self.runs[number].events if event.name in ("agui.violation", "agui.note")]
        return [(event.attributes or {})["agui.rule"] for event in told]

    def outcomes(self) -> list[tuple[str, Any]]:
        """Name and outcome of each run, subagent and tool call, in the order of their end."""
        told = [(span.name, values(span).get("agui.outcome")) for span in self.spans]
        return [(name, outcome) for name, outcome in told if outcome is not None]

    def check(self) -> None:
        """What is true of any trace: see the functions below."""
        assert self._ledger.started == self._ledger.ended
        assert set(self._ledger.started.values()) <= {1}
        check_trees(self.captured.spans)
        for span in self.spans:
            check_limits(span)
        check_export(self.spans)
        assert (0, 0) == (len(OPEN_RUNS), open_sessions())

    def close(self) -> None:
        """Give back what the providers hold."""
        self.provider.shutdown()
        self.captured.meter_provider.shutdown()


def values(span: ReadableSpan) -> Mapping[str, Any]:
    """A span's attributes."""
    return span.attributes or {}


def parent_id(span: ReadableSpan) -> int | None:
    """The id of a span's parent, None for a root."""
    return span.parent.span_id if span.parent is not None else None


def span_id(span: ReadableSpan) -> int:
    """A span's own id."""
    return _context(span).span_id


def trace_id(span: ReadableSpan) -> int:
    """The id of a span's trace."""
    return _context(span).trace_id


def exceptions(span: ReadableSpan) -> list[str]:
    """The types of the exceptions recorded on a span."""
    return [str((event.attributes or {})["exception.type"]) for event in span.events if event.name == "exception"]


def check_trees(spans: tuple[ReadableSpan, ...]) -> None:
    """Only runs are roots, every parent of ours exists in the same trace, and starts and ends are in order."""
    ids = {(trace_id(span), span_id(span)) for span in spans}
    assert len(ids) == len({ident for _, ident in ids})
    for span in spans:
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time
        if _is_ours(span) and span.parent is not None:
            assert (trace_id(span), span.parent.span_id) in ids
        elif _is_ours(span):
            assert ("AGENT", None) == (
                values(span)["openinference.span.kind"], values(span).get("agui.subagent.announced"),
            )  # fmt: skip


def check_limits(span: ReadableSpan) -> None:
    """A span has fewer attributes and no more events than the SDK keeps, which evicts the oldest."""
    assert len(values(span)) < 128
    assert len(span.events) <= 128
    assert (0, 0, 0) == (span.dropped_attributes, span.dropped_events, span.dropped_links)
    for event in span.events:
        assert event.attributes is None or event.attributes.dropped == 0  # type: ignore[attr-defined]


def check_export(spans: list[ReadableSpan]) -> None:
    """OTLP can carry every value, and nothing is lost on the way."""
    message = encode_spans(spans)
    assert spans == [] or message.SerializeToString()
    encoded = [span for group in message.resource_spans for scope in group.scope_spans for span in scope.spans]
    assert sorted(len(values(span)) for span in spans) == sorted(len(span.attributes) for span in encoded)


def collected() -> None:
    """Whatever is garbage is gone."""
    for _ in range(3):
        gc.collect()


def _context(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def _is_ours(span: ReadableSpan) -> bool:
    scope = span.instrumentation_scope
    return scope is not None and scope.name == SCOPE
