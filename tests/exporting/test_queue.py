"""The queue: limits in bytes and seconds, and every span accounted for."""

from __future__ import annotations

import collections
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry import context as context_api
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import Link, SpanContext, Tracer

from agui_otel.exporting import queue as queue_module
from agui_otel.exporting.queue import REQUEST_BYTES, Limits, Result, SpanQueue, span_size

GRPC_LIMIT = 4 * 1024 * 1024


class Recorder(SpanExporter):
    """Keeps its batches; `answer` is called with each batch and gives the result."""

    def __init__(self, answer: Callable[[Sequence[ReadableSpan]], SpanExportResult] | None = None) -> None:
        self.batches: list[list[str]] = []
        self.bytes: list[int] = []
        self.answer = answer
        self.shutdowns = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep the names and the encoded size."""
        self.batches.append([span.name for span in spans])
        if self.answer is not None:
            return self.answer(spans)
        self.bytes.append(encode_spans(spans).ByteSize())
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Count the calls."""
        self.shutdowns += 1

    @property
    def names(self) -> list[str]:
        """The names of all spans in order."""
        return [name for batch in self.batches for name in batch]


class Stuck(Recorder):
    """Does not return from its first export before it is told to."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()
        super().__init__(self._wait)

    def _wait(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002
        self.entered.set()
        self.release.wait(10)
        return SpanExportResult.SUCCESS


class Line:
    """A tracer, its queue and the counts of what became of the spans."""

    def __init__(self, exporter: SpanExporter, limits: Limits) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.queue = SpanQueue(exporter, limits, self._count)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(self.queue)
        self.tracer: Tracer = provider.get_tracer("test")

    def _count(self, result: Result, spans: int) -> None:
        self.counts[result] += spans

    def end(self, *names: str, **attributes: str) -> None:
        """Start and end a span of each name."""
        for name in names:
            self.tracer.start_span(name, attributes=attributes).end()


@contextmanager
def line(exporter: SpanExporter, limits: Limits | None = None) -> Iterator[Line]:
    """A line that is closed at the end, without a wait for a stuck exporter; it sends when it is told to."""
    made = Line(exporter, limits or Limits(delay=60))
    try:
        yield made
    finally:
        made.queue.close(0.2)


def test_spans_arrive_in_order() -> None:
    """What ended is exported in the order of its end, each span once."""
    exporter = Recorder()
    with line(exporter, Limits(max_batch=3, delay=60)) as made:
        names = [str(number) for number in range(10)]
        made.end(*names)
        assert made.queue.force_flush(5000) is True
        assert names == exporter.names
        assert max(map(len, exporter.batches)) == 3
        assert made.counts == {"exported": 10}


def test_a_span_waits_no_longer_than_the_delay() -> None:
    """A single span is exported after the delay, with nobody asking for it."""
    exporter = Stuck()
    with line(exporter, Limits(delay=0.05)) as made:
        made.end("a")
        assert exporter.entered.wait(5)
        exporter.release.set()


def test_spans_wait_for_each_other() -> None:
    """Within the delay nothing is sent unless a batch is full."""
    exporter = Recorder()
    with line(exporter, Limits(max_batch=100)) as made:
        made.end("a", "b")
        time.sleep(0.05)
        assert exporter.batches == []
        made.queue.force_flush()
        assert exporter.batches == [["a", "b"]]


def test_what_is_not_sampled_is_not_taken() -> None:
    """A span that the sampler left out is neither exported nor counted."""
    exporter = Recorder()
    with line(exporter) as made:
        provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
        provider.add_span_processor(made.queue)
        provider.get_tracer("test").start_span("a").end()
        assert made.queue.force_flush() is True
        assert (exporter.batches, dict(made.counts)) == ([], {})


def test_a_request_is_bounded_in_bytes() -> None:
    """Spans full of content are sent in requests below half of gRPC's limit, whatever their number."""
    exporter = Recorder()
    content = {f"value_{number}": "x" * 16_384 for number in range(20)}
    with line(exporter) as made:
        made.end(*map(str, range(30)), **content)
        assert made.queue.force_flush() is True
        assert len(exporter.names) == 30
        assert max(exporter.bytes) <= REQUEST_BYTES < GRPC_LIMIT
        assert len(exporter.batches) == 5


def test_an_oversized_span_goes_alone() -> None:
    """A span that is larger than a request by itself shares its request with no other."""
    exporter = Recorder()
    with line(exporter) as made:
        made.end("before")
        made.end("huge", content="x" * (GRPC_LIMIT + 1))
        made.end("after")
        assert made.queue.force_flush() is True
        assert exporter.batches == [["before"], ["huge"], ["after"]]


def test_a_span_that_cannot_be_encoded_goes_alone() -> None:
    """A lone surrogate in a foreign span's name refuses that span, and no other."""

    def encode(spans: Sequence[ReadableSpan]) -> SpanExportResult:
        encode_spans(spans).SerializeToString()
        return SpanExportResult.SUCCESS

    exporter = Recorder(encode)
    with line(exporter) as made:
        made.end("before")
        made.end("poison\ud800")
        made.end("after")
        assert made.queue.force_flush() is True
        assert exporter.batches == [["before"], ["poison\ud800"], ["after"]]
        assert made.counts == {"exported": 2, "refused": 1}


@pytest.mark.parametrize("fails", ["raises", "says so"])
def test_what_the_exporter_refuses_is_counted(fails: str) -> None:
    """An export that fails or raises refuses its spans, and the next batch is exported all the same."""

    def answer(spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if spans[0].name != "bad":
            return SpanExportResult.SUCCESS
        if fails == "raises":
            raise RuntimeError("no")
        return SpanExportResult.FAILURE

    with line(Recorder(answer)) as made:
        made.end("bad", "bad")
        made.queue.force_flush()
        made.end("good")
        made.queue.force_flush()
        assert made.counts == {"refused": 2, "exported": 1}


def test_a_full_queue_drops_and_counts(caplog: pytest.LogCaptureFixture) -> None:
    """Over `max_spans` new spans are dropped at once; that is counted and logged, not by the span."""
    exporter = Stuck()
    with line(exporter, Limits(max_spans=3, max_batch=1)) as made:
        made.end("first")
        exporter.entered.wait(5)
        made.end("a", "b", "c", "d", "e")
        assert made.counts == {"dropped": 2}
        exporter.release.set()
        assert made.queue.force_flush() is True
        assert exporter.names == ["first", "a", "b", "c"]
        assert made.counts == {"dropped": 2, "exported": 4}
        assert caplog.messages == ["2 spans were dropped: the export queue was full"]


def test_the_queue_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog, what waits beyond a batch, holds no more than `QUEUE_BYTES`."""
    monkeypatch.setattr(queue_module, "QUEUE_BYTES", 5000)
    exporter = Stuck()
    with line(exporter, Limits(max_batch=1)) as made:
        made.end("first")
        exporter.entered.wait(5)
        made.end("a", "b", "c", "d", content="x" * 2000)
        assert made.counts == {"dropped": 1}
        exporter.release.set()
        assert made.queue.force_flush(5000) is True
        assert exporter.names == ["first", "a", "b", "c"]
        made.end("again", content="x" * 2000)
        assert made.counts == {"dropped": 1, "exported": 4}


def test_flushing_keeps_its_limit() -> None:
    """A flush returns False in time though the exporter does not return."""
    exporter = Stuck()
    with line(exporter) as made:
        made.end("a")
        start = time.monotonic()
        assert made.queue.force_flush(100) is False
        assert time.monotonic() - start < 1
        exporter.release.set()
        assert made.queue.force_flush(5000) is True


def test_closing_keeps_its_limit() -> None:
    """Closing returns False in time though the exporter does not return; what waited is dropped."""
    exporter = Stuck()
    made = Line(exporter, Limits(max_batch=1))
    made.end("first")
    exporter.entered.wait(5)
    made.end("a", "b")
    start = time.monotonic()
    assert made.queue.close(0.1) is False
    assert time.monotonic() - start < 1
    assert made.counts == {"dropped": 2}
    exporter.release.set()


def test_closing_exports_what_waits_once() -> None:
    """Closing exports the rest and shuts the exporter down; a second time does nothing; later spans drop."""
    exporter = Recorder()
    made = Line(exporter, Limits(delay=60))
    made.end("a", "b")
    assert made.queue.close(5) is True
    assert made.queue.close(5) is True
    made.queue.shutdown()
    made.end("late")
    assert exporter.names == ["a", "b"]
    assert exporter.shutdowns == 1
    assert made.counts == {"exported": 2, "dropped": 1}


def test_an_exporter_that_cannot_stop_harms_nobody() -> None:
    """An error in the exporter's own shutdown stays inside."""

    class Unstoppable(Recorder):
        def shutdown(self) -> None:
            raise RuntimeError("no")

    assert Line(Unstoppable(), Limits()).queue.close(5) is True


def test_our_own_requests_are_not_traced() -> None:
    """The exporter runs where instrumented HTTP clients know to be silent."""
    seen: list[object] = []

    def answer(spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG001
        seen.append(context_api.get_value(_SUPPRESS_INSTRUMENTATION_KEY))
        return SpanExportResult.SUCCESS

    with line(Recorder(answer)) as made:
        made.end("a")
        made.queue.force_flush()
        assert seen == [True]


@settings(max_examples=10, deadline=None)
@given(
    limits=st.builds(Limits, max_spans=st.integers(1, 50), max_batch=st.integers(1, 60), delay=st.just(0.001)),
    sizes=st.lists(st.integers(0, 3 * REQUEST_BYTES // 2), max_size=5),
    threads=st.integers(1, 4),
)
def test_every_span_is_accounted_for(limits: Limits, sizes: list[int], threads: int) -> None:
    """From several threads and with any limits: ended = exported + refused + dropped, and no span twice."""
    flaky = iter([SpanExportResult.SUCCESS, SpanExportResult.FAILURE] * 1000)
    exporter = Recorder(lambda _: next(flaky))
    made = Line(exporter, limits)

    def work(thread: int) -> None:
        for number, size in enumerate(sizes * 5):
            made.end(f"{thread}.{number}", content="x" * size)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert made.queue.close(10) is True
    assert sum(made.counts.values()) == threads * len(sizes) * 5
    assert len(exporter.names) == len(set(exporter.names)) == made.counts["exported"] + made.counts["refused"]


_scalars = st.one_of(st.text(max_size=40), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats())
_values = st.one_of(
    _scalars,
    st.binary(max_size=40),
    st.lists(st.text(max_size=20), max_size=4),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
)
_attributes = st.dictionaries(st.text(min_size=1, max_size=20), _values, max_size=8)


@settings(max_examples=200)
@given(
    name=st.text(max_size=30),
    attributes=_attributes,
    events=st.lists(st.tuples(st.text(max_size=20), _attributes), max_size=3),
    links=st.lists(_attributes, max_size=3),
)
def test_the_estimate_is_not_too_small(name: str, attributes: dict, events: list, links: list) -> None:  # type: ignore[type-arg]
    """A span's estimated size is at least what it adds to an OTLP request."""
    context = SpanContext(2**128 - 1, 2**64 - 1, is_remote=True)
    span = (
        TracerProvider(shutdown_on_exit=False)
        .get_tracer("t")
        .start_span(name, attributes=attributes, links=[Link(context, described) for described in links])
    )
    for event, described in events:
        span.add_event(event, described)
    span.end()
    assert isinstance(span, ReadableSpan)
    empty = encode_spans([]).ByteSize()
    scope = encode_spans([span]).resource_spans[0]
    overhead = scope.resource.ByteSize() + scope.scope_spans[0].scope.ByteSize() + 64
    assert encode_spans([span]).ByteSize() - empty - overhead <= span_size(span)


FORK = """
import os, sys
from agui_otel.exporting.queue import Limits, SpanQueue
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

class Printer(SpanExporter):
    def export(self, spans):
        for span in spans:
            print("child" if os.getpid() != parent else "parent", span.name, flush=True)
        return SpanExportResult.SUCCESS

parent = os.getpid()
queue = SpanQueue(Printer(), Limits(delay=60), lambda result, spans: None)
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(queue)
tracer = provider.get_tracer("test")
tracer.start_span("before").end()
child = os.fork()
if child:
    os.waitpid(child, 0)
tracer.start_span("after").end()
queue.close(5)
os._exit(0)
"""


def test_a_forked_child_exports_its_own_spans() -> None:
    """A child process exports what ends in it, and leaves what was waiting to its parent."""
    done = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines() == ["child after", "parent before", "parent after"]
