"""OTLP receivers on the loopback interface: real sockets, the protocol's own messages."""

from __future__ import annotations

import gzip
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.servers import in_background


@dataclass
class Received:
    """What a receiver was sent: one entry a request, in order of arrival."""

    url: str = ""
    paths: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    traces: list[ExportTraceServiceRequest] = field(default_factory=list)
    metrics: list[ExportMetricsServiceRequest] = field(default_factory=list)

    def otlp_spans(self) -> list[Span]:
        """All spans as they were sent, in order of arrival."""
        return [
            span
            for request in list(self.traces)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def spans(self) -> list[dict[str, Any]]:
        """All spans as `ReadableSpan.to_json()` has them, and with the name of their `scope`, in order of arrival."""
        return [
            {**_as_json(span), "scope": scope.scope.name}
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def span_names(self) -> list[str]:
        """The names of all spans, in order of arrival."""
        return [span.name for span in self.otlp_spans()]

    def resource(self) -> dict[str, str]:
        """The resource attributes of the first trace request."""
        attributes = self.traces[0].resource_spans[0].resource.attributes
        return {item.key: item.value.string_value for item in attributes}

    def counter(self, name: str) -> dict[str, int]:
        """The latest values of a counter with one label: value of the label -> count."""
        latest: dict[str, int] = {}
        for request in self.metrics:
            for resource in request.resource_metrics:
                for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                    for point in metric.sum.data_points if metric.name == name else ():
                        latest[point.attributes[0].value.string_value] = point.as_int
        return latest


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is nothing to tell of."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def _as_json(span: Span) -> dict[str, Any]:
    return {
        "name": span.name,
        "context": {"trace_id": span.trace_id.hex(), "span_id": span.span_id.hex()},
        "parent_id": span.parent_span_id.hex() or None,
        "start_time": _iso(span.start_time_unix_nano),
        "end_time": _iso(span.end_time_unix_nano),
        "status": {"status_code": ("UNSET", "OK", "ERROR")[span.status.code], "description": span.status.message},
        "attributes": _attributes(span.attributes),
        "events": [
            {
                "name": event.name,
                "timestamp": _iso(event.time_unix_nano),
                "attributes": _attributes(event.attributes),
            }
            for event in span.events
        ],
        "links": [
            {
                "context": {"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex()},
                "attributes": _attributes(link.attributes),
            }
            for link in span.links
        ],
    }


def _iso(nanoseconds: int) -> str:
    return datetime.fromtimestamp(nanoseconds / 1e9, timezone.utc).isoformat()


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind is not None else None


@contextmanager
def http_receiver(*, status: int = 200, delay: float = 0.0) -> Iterator[Received]:
    """An OTLP/HTTP receiver that answers `status` after `delay` seconds."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers["content-encoding"] == "gzip":
                body = gzip.decompress(body)
            received.paths.append(self.path)
            received.headers.append({name.lower(): value for name, value in self.headers.items()})
            received.sizes.append(len(body))
            if self.path.endswith("/v1/traces"):
                received.traces.append(ExportTraceServiceRequest.FromString(body))
            else:
                received.metrics.append(ExportMetricsServiceRequest.FromString(body))
            time.sleep(delay)
            self.send_response(status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Nothing on standard error."""

    server = _Server(("127.0.0.1", 0), Handler)
    received.url = f"http://127.0.0.1:{server.server_port}"
    with in_background(server):
        yield received


@contextmanager
def grpc_receiver() -> Iterator[Received]:
    """An OTLP/gRPC receiver with gRPC's own limits: it refuses a message over 4 MiB."""
    import grpc
    from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc

    received = Received()

    class Traces(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:  # noqa: N802
            received.headers.append(dict(context.invocation_metadata()))
            received.sizes.append(request.ByteSize())
            received.traces.append(request)
            return ExportTraceServiceResponse()

    class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request: ExportMetricsServiceRequest, _: Any) -> ExportMetricsServiceResponse:  # noqa: N802
            received.metrics.append(request)
            return ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    for add, servicer in (
        (trace_service_pb2_grpc.add_TraceServiceServicer_to_server, Traces()),
        (metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server, Metrics()),
    ):
        add(servicer, server)  # type: ignore[no-untyped-call]
    received.url = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield received
    finally:
        server.stop(None).wait()
