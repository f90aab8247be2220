"""The queue between ended spans and an exporter: a batch span processor whose limits are bytes and seconds.

It does what the SDK's `BatchSpanProcessor` does, and three things that spans full of content need:

- **A request is bounded in bytes.** A gRPC receiver refuses more than 4 MiB, and a refused request loses
  every span in it. A batch is cut where its estimated size would pass `REQUEST_BYTES`; a span that is larger
  by itself goes alone, so it takes no other with it.
- **What is not exported is counted**: `refused` by the exporter, or `dropped` because the queue was full
  (`max_spans`, `QUEUE_BYTES`) or closed.
- **Flushing and closing keep their time limit**, also where nobody listens at the endpoint.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from opentelemetry import context as context_api
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.util.types import Attributes

_logger = logging.getLogger(__name__)

Result = Literal["exported", "refused", "dropped"]
RESULTS: tuple[Result, ...] = ("exported", "refused", "dropped")

REQUEST_BYTES = 2 * 1024 * 1024
"""A request's size at most, estimated, when it has more than one span: half of what gRPC servers take."""
QUEUE_BYTES = 64 * 1024 * 1024
"""The size at most, estimated, of the spans that wait beyond the first batch."""

_GRACE = 0.25
"""Seconds that an exporter has to return once it was told to stop."""


@dataclass(frozen=True)
class Limits:
    """Spans that may wait, spans of one request, and seconds that a span waits for others at most."""

    max_spans: int = 2048
    max_batch: int = 512
    delay: float = 1.0


class SpanQueue(SpanProcessor):
    """Hands ended, sampled spans to `exporter` from its own thread, and tells `count` what became of them."""

    def __init__(self, exporter: SpanExporter, limits: Limits, count: Callable[[Result, int], None]) -> None:
        self._exporter = exporter
        self._limits = limits
        self._count = count
        self._closed = False
        self._start()
        if hasattr(os, "register_at_fork"):
            restart = weakref.WeakMethod(self._start)
            os.register_at_fork(after_in_child=lambda: (again := restart()) and again())

    def _start(self) -> None:
        """Begin empty, with a thread; in a forked child too, whose parent exports what was waiting."""
        self._changed = threading.Condition()
        self._waiting: deque[tuple[ReadableSpan, int]] = deque()  # with their sizes, where they count
        self._bytes = 0
        self._entered = 0
        self._left = 0
        self._wanted = 0
        self._gave_up = False
        self._dropped_unsaid = 0
        self._worker = threading.Thread(target=self._work, name="agui-otel-export", daemon=True)
        self._worker.start()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing: a span is taken when it ends."""

    def on_end(self, span: ReadableSpan) -> None:
        """Take an ended span, or count it as dropped. Never waits for the exporter."""
        if span.context is None or not span.context.trace_flags.sampled:
            return
        # Less than a batch is no backlog: sizing it is left to the exporting thread.
        size = _size(span) if len(self._waiting) >= self._limits.max_batch else 0
        with self._changed:
            taken = not self._closed and self._has_room(size)
            if taken:
                self._waiting.append((span, size))
                self._bytes += size
                self._entered += 1
                if len(self._waiting) == 1 or self._is_batch():
                    self._changed.notify_all()
            else:
                self._dropped_unsaid += 1
        if not taken:
            self._count("dropped", 1)

    def _has_room(self, size: int) -> bool:
        return len(self._waiting) < self._limits.max_spans and self._bytes + size <= QUEUE_BYTES

    def _is_batch(self) -> bool:
        return len(self._waiting) >= self._limits.max_batch

    def force_flush(self, timeout_millis: float = 30_000) -> bool:
        """Export what has ended until now; False when that took longer than the limit, in milliseconds."""
        with self._changed:
            target = self._wanted = self._entered
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._gave_up or self._left >= target, timeout_millis / 1000)
            return self._left >= target

    def shutdown(self) -> None:
        """As `close`, in the SDK's 30 seconds."""
        self.close(30.0)

    def close(self, timeout: float) -> bool:
        """Export what waits, then end. False when `timeout` seconds were too short: the rest is dropped.

        Returns after `timeout` seconds and a moment at the latest. A second call does nothing.
        """
        with self._changed:
            if self._closed:
                return True
            self._closed = True
            self._changed.notify_all()
        self._worker.join(timeout)
        done = not self._worker.is_alive()
        if not done:
            self._give_up()
        try:
            self._exporter.shutdown()
        except Exception:
            _logger.warning("The exporter could not be shut down", exc_info=True)
        if not done:
            self._worker.join(_GRACE)
        return done

    def _give_up(self) -> None:
        with self._changed:
            self._gave_up = True
            rest = len(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        if rest:
            self._count("dropped", rest)
        _logger.warning("Exporting did not end in time: %d spans that were waiting are dropped", rest)

    def _work(self) -> None:
        # Our own requests must not be traced by an instrumented HTTP or gRPC client.
        context_api.attach(context_api.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        while batch := self._next_batch():
            for request in requests(batch):
                self._export(request)
                with self._changed:
                    self._left += len(request)
                    self._changed.notify_all()

    def _next_batch(self) -> list[ReadableSpan]:
        """Wait for a batch of spans, or for whatever there is when it is time; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            due = time.monotonic() + self._limits.delay
            while not (self._closed or self._is_batch() or self._wanted > self._left):
                remaining = due - time.monotonic()
                if remaining <= 0 or not self._changed.wait(remaining):
                    break
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._limits.max_batch))]
            self._bytes -= sum(size for _, size in taken)
            return [span for span, _ in taken]

    def _export(self, batch: Sequence[ReadableSpan]) -> None:
        if self._gave_up:
            self._count("dropped", len(batch))
            return
        try:
            exported = self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception:
            _logger.warning("The exporter failed on %d spans", len(batch), exc_info=True)
            exported = False
        self._count("exported" if exported else "refused", len(batch))
        with self._changed:
            dropped, self._dropped_unsaid = self._dropped_unsaid, 0
        if dropped:
            _logger.warning("%d spans were dropped: the export queue was full", dropped)


def requests(batch: Iterable[ReadableSpan]) -> Iterator[list[ReadableSpan]]:
    """Cut a batch where a request would be larger than `REQUEST_BYTES`; a larger span is alone in its own."""
    request: list[ReadableSpan] = []
    total = 0
    for span in batch:
        size = _size(span)
        if request and total + size > REQUEST_BYTES:
            yield request
            request, total = [], 0
        request.append(span)
        total += size
    if request:
        yield request


def _size(span: ReadableSpan) -> int:
    """The span's size; where it cannot be encoded, a whole request's, so that it takes no other with it."""
    try:
        return span_size(span)
    except Exception:  # noqa: BLE001 - a foreign span may hold anything, and this runs where spans end
        return REQUEST_BYTES


def span_size(span: ReadableSpan) -> int:
    """The span's size in an OTLP request, in bytes: an estimate that is not below the real one.

    Raises `UnicodeEncodeError` where a text has a lone surrogate, which OTLP cannot carry.
    """
    size = 160 + _text_size(span.name) + _attributes_size(span.attributes)
    for event in span.events:
        size += 32 + _text_size(event.name) + _attributes_size(event.attributes)
    for link in span.links:
        size += 64 + _attributes_size(link.attributes)
    if span.status.description:
        size += _text_size(span.status.description)
    return size


def _attributes_size(attributes: Attributes) -> int:
    if not attributes:
        return 0
    return sum(_text_size(key) + _value_size(value) + 16 for key, value in attributes.items())


def _value_size(value: object) -> int:
    if isinstance(value, str):
        return _text_size(value) + 12
    if isinstance(value, bytes):
        return len(value) + 12
    if isinstance(value, Mapping):
        return 12 + sum(_text_size(key) + _value_size(inner) + 16 for key, inner in value.items())
    if isinstance(value, Sequence):
        return 12 + sum(_value_size(inner) for inner in value)
    return 16


def _text_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
