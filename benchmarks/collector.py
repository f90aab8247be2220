"""Spans a second through the collector and through the gateway tier, against a counting sink that is sent to directly.

    python -m benchmarks.collector

What is sent are the spans of a recorded run with all its content, many times, with ids of their own; a round ends when
the sink has counted them all. Senders, collectors and sink share the machine's cores, so the ratios say what the way
through a collector costs there, not what a collector alone can do; the processor time a span says more about that.
"""

from __future__ import annotations

import gzip
import http.client
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agui_otel import Settings, trace_events
from benchmarks.timing import report
from benchmarks.tree import recorded
from tests.support.collectors import BALANCER, DEFAULT, SAMPLER, Collector, collector

TRACES, TRACES_A_REQUEST, CONNECTIONS, ROUNDS = 400, 4, 4, 5
UNREDACTED = "yaml:service::pipelines::traces::processors: [memory_limiter]"


def requests() -> list[bytes]:
    """The bodies of a round."""
    exporter, provider, events = InMemorySpanExporter(), TracerProvider(), recorded()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    bodies = []
    for _ in range(TRACES // TRACES_A_REQUEST):
        for _ in range(TRACES_A_REQUEST):
            list(trace_events(events, tracer_provider=provider, config=Settings(capture="full")))
        bodies.append(encode_spans(exporter.get_finished_spans()).SerializeToString())
        exporter.clear()
    return bodies


def spans_in(body: bytes) -> int:
    """How many spans a request has."""
    resources = ExportTraceServiceRequest.FromString(body).resource_spans
    return sum(len(scope.spans) for resource in resources for scope in resource.scope_spans)


def count(port: Synchronized[int], counted: Synchronized[int]) -> None:
    """A sink, in a process of its own: it tells its port, and counts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            spans = spans_in(body)
            with counted.get_lock():
                counted.value += spans
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Nothing on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    port.value = server.server_port
    server.serve_forever()


def send(address: str, bodies: Sequence[bytes]) -> None:
    """Send the requests one after another; raises where one is refused."""
    connection = http.client.HTTPConnection(address, timeout=60)
    for body in bodies:
        connection.request("POST", "/v1/traces", body, {"content-type": "application/x-protobuf"})
        answer = connection.getresponse()
        answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{address} refused with status {answer.status}")
    connection.close()


def processor_seconds(collectors: Sequence[Collector]) -> float:
    """What these processes have used of the processors so far."""
    ticks = 0
    for one in collectors:
        fields = Path(f"/proc/{one.process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def round_through(address: str, bodies: Sequence[bytes], wait: Callable[[], None]) -> float:
    """Send all over some connections, wait until the sink has them, and return the seconds."""
    began = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as senders:
        list(senders.map(lambda part: send(address, list(islice(bodies, part, None, CONNECTIONS))), range(CONNECTIONS)))
    wait()
    return time.perf_counter() - began


def renewed(bodies: Sequence[bytes]) -> list[bytes]:
    """The same requests with other trace ids: a sampler remembers what it decided."""
    made = []
    for body in bodies:
        request, mask = ExportTraceServiceRequest.FromString(body), os.urandom(16)
        for resource in request.resource_spans:
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                span.trace_id = bytes(a ^ b for a, b in zip(span.trace_id, mask, strict=True))
        made.append(request.SerializeToString())
    return made


def until(holds: Callable[[], bool]) -> None:
    """Wait for it, a minute at most."""
    end = time.monotonic() + 60
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError("the sink has not counted all spans after a minute")
        time.sleep(0.002)


def main() -> None:
    """Measure and report."""
    context = multiprocessing.get_context("spawn")
    port, counted = context.Value("i", 0), context.Value("q", 0)
    sink = context.Process(target=count, args=(port, counted), daemon=True)
    sink.start()
    bodies = requests()
    spans = sum(map(spans_in, bodies))
    until(lambda: port.value != 0)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))

        def started(name: str, configurations: tuple[str, ...], **environment: str) -> Collector:
            settings = {"PHOENIX_COLLECTOR_ENDPOINT": f"http://127.0.0.1:{port.value}", **environment}
            return stack.enter_context(collector(directory / name, configurations, **settings))

        keep = {"AGUI_SAMPLING_PERCENT": "100", "AGUI_SAMPLING_WAIT_AFTER_ROOT": "1s"}
        samplers = [started(f"sampler {number}", SAMPLER, **keep) for number in (1, 2)]
        balancer = started(
            "balancer",
            BALANCER,
            AGUI_SAMPLERS=f"[{','.join(one.address('traces') for one in samplers)}]",
            AGUI_SAMPLERS_MEASURED=f"[{','.join(one.address('measured') for one in samplers)}]",
        )
        keeping = started("keeping", DEFAULT)
        unredacted = started("unredacted", (*DEFAULT, UNREDACTED))
        ways: dict[str, tuple[str, list[Collector]]] = {
            "the sink itself": (f"127.0.0.1:{port.value}", []),
            "the collector": (keeping.address("http"), [keeping]),
            "the collector without redaction": (unredacted.address("http"), [unredacted]),
            "a balancer and two samplers": (balancer.address("http"), [balancer, *samplers]),
        }
        seconds = dict.fromkeys(ways, float("inf"))
        used = dict.fromkeys(ways, float("inf"))
        for _ in range(ROUNDS):
            for name, (address, collectors) in ways.items():
                fresh, expected = renewed(bodies), counted.value + spans
                taken = sum(_taken(one) for one in samplers) + spans
                before = processor_seconds(collectors)

                def is_through(tier: bool = balancer in collectors, taken: float = taken, all_: int = expected) -> bool:
                    return sum(_taken(one) for one in samplers) >= taken if tier else counted.value >= all_

                seconds[name] = min(seconds[name], round_through(address, fresh, lambda: until(is_through)))
                until(lambda expected=expected: counted.value >= expected)  # type: ignore[misc]
                used[name] = min(used[name], processor_seconds(collectors) - before)
        for name in ways:
            rate, cost = spans / seconds[name], used[name] / spans * 1e6
            detail = f"{rate:,.0f} spans/s, {cost:.0f} µs of processor time a span"
            report(
                f"the sink's rate / that of {name}", seconds[name] / seconds["the sink itself"], "1 is the sink", detail
            )
    sink.terminate()


def _taken(sampler: Collector) -> float:
    """The spans that a sampler has been given."""
    return sampler.total("otelcol_receiver_accepted_spans_total", "telemetry", receiver="otlp/traces")


if __name__ == "__main__":
    main()
