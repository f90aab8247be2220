"""collector.yaml: every span that the collector acknowledged arrives, whatever is killed or down."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

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
        eventually(lambda: {item.span_id for item in sink.otlp_spans()} >= sender.acknowledged, 60)
