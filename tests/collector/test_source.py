"""collector.yaml seen from its two neighbours: the service that sends, and Prometheus that scrapes."""

from __future__ import annotations

import json
import os
import signal
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from agui_otel import trace_events
from tests.support import monitoring
from tests.support.collectors import Collector, collector, wait_for
from tests.support.load import Load
from tests.support.monitoring import Prometheus
from tests.support.pipeline import service
from tests.support.receivers import http_receiver
from tests.support.servers import eventually, free_port
from tests.support.wire import done, finished, started, subagent

pytestmark = pytest.mark.slow

RUNS = 300


def test_the_host_never_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """While the collector hangs, runs go on; what had no room is dropped, and a metric says how many spans."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "50")
    with http_receiver() as sink, collector(tmp_path, PHOENIX_COLLECTOR_ENDPOINT=sink.url) as running:
        with service("host", running) as handle:
            running.freeze()
            for run in map(str, range(RUNS)):
                events = [started(run, run), subagent(), done(), finished(run, run)]
                traced = trace_events(
                    events, tracer_provider=handle.tracer_provider, meter_provider=handle.meter_provider
                )
                assert events == list(traced)
            hung_all_the_while = [] == sink.traces
            running.thaw()
        assert hung_all_the_while
        wait_for(2 * RUNS, running, "agui_export_spans_total")
        told = {item.labels["agui_result"]: item.value for item in running.series("agui_export_spans_total")}
        eventually(lambda: len(sink.otlp_spans()) == told["exported"])
    assert {"exported", "refused", "dropped"} == told.keys()
    assert 2 * RUNS == told["exported"] + told["refused"] + told["dropped"]
    assert told["dropped"] >= 2 * RUNS - 150 - told["refused"]


def test_prometheus_restarts(tmp_path: Path) -> None:
    """Prometheus is killed under load and started again: its counts are the collector's, and exemplars are there."""
    monitoring.require(monitoring.PROMETHEUS)
    address = f"127.0.0.1:{free_port()}"
    scraped = Prometheus(f"http://{address}")
    with (
        http_receiver() as sink,
        collector(tmp_path, PHOENIX_COLLECTOR_ENDPOINT=sink.url, AGUI_COLLECTOR_FLUSH_INTERVAL="400ms") as running,
    ):
        with Load(running.endpoint, per_second=1000) as sender:
            with _prometheus(tmp_path, running, address) as process:
                eventually(lambda: _counted(scraped) > 500, 30)
                os.kill(process, signal.SIGKILL)
            sender.wait_for(1000)
        with _prometheus(tmp_path, running, address):
            eventually(lambda: _counted(scraped) == len(sender.acknowledged), 30)
            exemplars = scraped.exemplars("agui_spans_duration_seconds_bucket")
        traces = {item.trace_id.hex() for item in sink.otlp_spans()}
    assert {"trace_id", "span_id"} == {label for exemplar in exemplars for label in exemplar["labels"]}
    assert {exemplar["labels"]["trace_id"] for exemplar in exemplars} <= traces


def _prometheus(directory: Path, scraped: Collector, address: str) -> AbstractContextManager[int]:
    """A Prometheus that scrapes twice a flush, and keeps what it has over a restart."""
    target = {
        "job_name": "agui-otel",
        "honor_labels": True,
        "static_configs": [{"targets": [scraped.address("metrics")]}],
    }
    configuration = directory / "prometheus.json"
    configuration.write_text(json.dumps({"global": {"scrape_interval": "200ms"}, "scrape_configs": [target]}))
    command = [
        *(monitoring.PROMETHEUS, f"--config.file={configuration}", f"--storage.tsdb.path={directory}/tsdb"),
        *(f"--web.listen-address={address}", "--enable-feature=exemplar-storage", "--query.lookback-delta=5s"),
    ]
    return monitoring.process(command, directory / "prometheus.log", f"http://{address}/-/ready", {})


def _counted(prometheus: Prometheus) -> float:
    """The spans that Prometheus knows of."""
    found = prometheus.query("sum(agui_spans_calls_total)")
    return float(found[0]["value"][1]) if found else 0.0
