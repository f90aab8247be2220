"""Spans sent through a collector, as they leave it."""

from __future__ import annotations

from pathlib import Path

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.collectors import collector
from tests.support.load import Sender
from tests.support.receivers import http_receiver
from tests.support.servers import eventually


def through(directory: Path, spans: list[Span], **environment: str) -> list[Span]:
    """The spans as they leave a collector, in their order."""
    with (
        http_receiver() as sink,
        collector(directory, PHOENIX_COLLECTOR_ENDPOINT=sink.url, **environment) as running,
    ):
        sender = Sender(running.endpoint)
        assert sender.send(spans)
        sender.close()
        eventually(lambda: len(sink.otlp_spans()) == len(spans))
        order = {item.span_id: place for place, item in enumerate(spans)}
        return sorted(sink.otlp_spans(), key=lambda item: order[item.span_id])
