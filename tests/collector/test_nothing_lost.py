"""collector.yaml: every span that the collector acknowledged arrives, whatever is killed or down."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from agui_otel.phoenix import EmbeddedPhoenix, PhoenixClient
from tests.support.collectors import collector
from tests.support.load import Load
from tests.support.receivers import http_receiver
from tests.support.servers import eventually

pytestmark = pytest.mark.slow


def test_three_kills(tmp_path: Path) -> None:
    """Killed three times under load and started again, it delivers all that it acknowledged."""
    with http_receiver() as sink, collector(tmp_path, PHOENIX_COLLECTOR_ENDPOINT=sink.url) as running:
        with Load(running.endpoint) as sender:
            for _ in range(3):
                sender.wait_for(3000)
                running.kill()
                time.sleep(0.2)
                running.start()
        assert sender.refused > 0
        eventually(lambda: {item.span_id for item in sink.spans()} >= sender.acknowledged, 60)


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
        eventually(lambda: running.total("otelcol_exporter_queue_size", "telemetry") == 0, 60)
        stored = Counter(item["context"]["span_id"] for item in PhoenixClient(phoenix.url).spans("down"))
    assert sender.acknowledged <= {bytes.fromhex(span_id) for span_id in stored}
    assert {1} == set(stored.values())
