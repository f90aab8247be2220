"""Spans as OTLP, made and sent as fast as a test needs them; what was acknowledged is remembered."""

from __future__ import annotations

import hashlib
import http.client
import itertools
import random
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.support.servers import eventually

_random = random.Random()


def attributes(values: Mapping[str, Any]) -> list[KeyValue]:
    """Attributes of strings, booleans, whole numbers, and lists of strings."""
    return [KeyValue(key=key, value=_any(value)) for key, value in values.items()]


def _any(value: Any) -> AnyValue:
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    if isinstance(value, int):
        return AnyValue(int_value=value)
    if isinstance(value, list):
        made = AnyValue()
        made.array_value.values.extend(map(_any, value))
        return made
    return AnyValue(string_value=str(value))


def span(
    trace_id: bytes | None = None,
    values: Mapping[str, Any] | None = None,
    *,
    parent: bytes = b"",
    name: str = "invoke_agent researcher",
    failed: bool = False,
    seconds: float = 1.0,
) -> Span:
    """A span that ended now, with new ids where none are given; `values` are its attributes."""
    now = time.time_ns()
    return Span(
        trace_id=trace_id or _random.randbytes(16),
        span_id=_random.randbytes(8),
        parent_span_id=parent,
        name=name,
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=now - round(seconds * 1e9),
        end_time_unix_nano=now,
        status=Status(code=Status.STATUS_CODE_ERROR, message="failed") if failed else Status(),
        attributes=attributes(values or {}),
    )


_RUN = {"gen_ai.operation.name": "invoke_agent", "openinference.span.kind": "AGENT", "agui.run.id": "r"}


def _subagent(name: str) -> dict[str, str]:
    return {**_RUN, "gen_ai.agent.name": name, "graph.node.parent_id": "agent"}


def part(trace_id: bytes, service: str, *, failed: bool = False) -> list[Span]:
    """What one service adds to a trace: a run where it is `web`, below it three subagents."""
    root = hashlib.sha256(trace_id).digest()[:8]
    spans = [span(trace_id, _subagent(service), parent=root, failed=failed) for _ in range(3)]
    if service == "web":
        spans.append(span(trace_id, _RUN, name="invoke_agent"))
        spans[-1].span_id = root
    return spans


def send_parts(endpoint: str, service: str, traces: Sequence[bytes], failed: bool) -> set[bytes]:
    """Send what `service` adds to these traces, a request a trace; the span ids that were acknowledged."""
    sender = Sender(endpoint, service)
    for trace_id in traces:
        sender.send(part(trace_id, service, failed=failed))
    sender.close()
    return sender.acknowledged


def agent_trace(spans: int) -> list[Span]:
    """A trace of so many spans: a run, below it subagents."""
    root = span(None, {**_RUN, "agui.outcome": "success"}, name="invoke_agent")
    below = (span(root.trace_id, _subagent("researcher"), parent=root.span_id) for _ in range(spans - 1))
    return [*below, root]


def request(spans: Iterable[Span], service: str = "load", project: str = "default") -> bytes:
    """The body of an OTLP request."""
    made = ExportTraceServiceRequest()
    resource = made.resource_spans.add()
    resource.resource.attributes.extend(attributes({"service.name": service, "openinference.project.name": project}))
    resource.scope_spans.add().spans.extend(spans)
    return made.SerializeToString()


class Sender:
    """Sends requests over one connection at a time, and remembers which spans were acknowledged."""

    def __init__(self, endpoint: str, service: str = "load", project: str = "default") -> None:
        self._host = endpoint.removeprefix("http://")
        self._names = service, project
        self._connection: http.client.HTTPConnection | None = None
        self.acknowledged: set[bytes] = set()
        self.refused = 0
        """Requests that were not acknowledged: no connection, an error, or a connection that broke."""

    def send(self, spans: Sequence[Span]) -> bool:
        """Send spans once; whether they were acknowledged."""
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(self._host, timeout=10)
            headers = {"content-type": "application/x-protobuf"}
            self._connection.request("POST", "/v1/traces", request(spans, *self._names), headers)
            answer = self._connection.getresponse()
            answer.read()
            taken = answer.status == 200
        except (OSError, http.client.HTTPException):
            self.close()
            taken = False
        if taken:
            self.acknowledged.update(item.span_id for item in spans)
        else:
            self.refused += 1
        return taken

    def wait_for(self, more: int) -> None:
        """Wait until so many more spans were acknowledged."""
        until = len(self.acknowledged) + more
        eventually(lambda: len(self.acknowledged) >= until, 60)

    def close(self) -> None:
        """Close the connection; the next request opens one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Load:
    """A thread that sends traces without a pause until the block ends."""

    def __init__(
        self,
        endpoint: str,
        *,
        spans: int = 20,
        per_second: float = 1e9,
        service: str = "load",
        project: str = "default",
    ) -> None:
        self.sender = Sender(endpoint, service, project)
        self._spans = spans
        self._interval = spans / per_second
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sender:
        self._thread.start()
        return self.sender

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.sender.close()

    def _run(self) -> None:
        began = time.monotonic()
        for sent in itertools.count(1):
            if self._ended.is_set():
                return
            if not self.sender.send(agent_trace(self._spans)):
                self._ended.wait(0.01)
            self._ended.wait(max(0.0, began + sent * self._interval - time.monotonic()))
