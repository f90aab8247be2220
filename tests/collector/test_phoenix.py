"""The collector in front of a real Phoenix: everything arrives there, and is stored once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from agui_otel.phoenix import EmbeddedPhoenix, PhoenixClient
from tests.support import services
from tests.support.collectors import DECIDED, SAMPLING, collector, delivered, wait_for
from tests.support.load import Load, Sender, agent_trace
from tests.support.servers import free_port

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPhoenix]:
    """A Phoenix on SQLite that a test may stop and start again: it keeps its ports and its database."""
    services.require(find_spec("phoenix") is not None, "arize-phoenix")
    directory = tmp_path_factory.mktemp("phoenix")
    with EmbeddedPhoenix(directory, port=free_port(), grpc_port=free_port()) as running:
        yield running


def test_phoenix_down(phoenix: EmbeddedPhoenix, tmp_path: Path) -> None:
    """While Phoenix is down the collector takes spans, also over a kill; afterwards Phoenix has each of them once."""
    with collector(tmp_path, PHOENIX_COLLECTOR_ENDPOINT=phoenix.url) as running:
        with Load(running.endpoint, per_second=80, project="down") as sender:
            sender.wait_for(100)
            phoenix.stop()
            sender.wait_for(300)
            running.kill()
            running.start()
            sender.wait_for(300)
        phoenix.start()
        PhoenixClient(phoenix.url).wait_for_spans("down", len(sender.acknowledged), timeout=180)
        delivered(running)
        stored = Counter(item["context"]["span_id"] for item in PhoenixClient(phoenix.url).spans("down"))
    assert sender.acknowledged <= {bytes.fromhex(span_id) for span_id in stored}
    assert {1} == set(stored.values())


def test_stored_once(phoenix: EmbeddedPhoenix, tmp_path: Path) -> None:
    """A failing span goes two ways to Phoenix, which stores it once."""
    trace = agent_trace(3)
    trace[0].status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message="failed"))
    waits = {"AGUI_SAMPLING_WAIT_AFTER_ROOT": "1s"}
    with collector(tmp_path, SAMPLING, PHOENIX_COLLECTOR_ENDPOINT=phoenix.url, **waits) as running:
        sender = Sender(running.endpoint, project="once")
        assert sender.send(trace)
        sender.close()
        wait_for(1, running, DECIDED, "telemetry")
        delivered(running)
        assert 4 == running.total("otelcol_exporter_sent_spans_total", "telemetry")
        PhoenixClient(phoenix.url).wait_for_spans("once", 3)
        stored = PhoenixClient(phoenix.url).spans("once")
    assert sorted(item.span_id.hex() for item in trace) == sorted(item["context"]["span_id"] for item in stored)
