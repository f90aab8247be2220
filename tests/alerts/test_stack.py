"""`agui-otel doctor --compose` beside the services that the compose file names."""

from __future__ import annotations

import pytest

from tests.support.command import Command
from tests.support.pipeline import Pipeline
from tests.support.stack import answering

pytestmark = pytest.mark.slow


def test_all_is_well(running: Pipeline, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of an alert, service by service; the test span is found in Phoenix. Only Grafana is not real."""
    with answering({"/api/health": {"database": "ok"}}) as grafana:
        for name, url in {
            "OTLP_HTTP_PORT": running.collector.endpoint,
            "COLLECTOR_HEALTH_PORT": running.collector.address("health"),
            "PHOENIX_PORT": running.phoenix.url,
            "PROMETHEUS_PORT": running.prometheus.url,
            "ALERTMANAGER_PORT": running.alertmanager,
            "GRAFANA_PORT": grafana,
        }.items():
            monkeypatch.setenv(name, url.rpartition(":")[2])
        ran = Command(capsys, monkeypatch)("doctor", "--compose")
    assert (0, "") == (ran.status, ran.err)
    found = [line.removeprefix("ok     ") for line in ran.out.splitlines()]
    assert [
        "the collector is ready",
        "the test span went through the collector to Phoenix",
        "Prometheus reads 3 targets",
        "it evaluates 16 alerts, and tells 1 Alertmanager",
        "Alertmanager is ready",
        "Grafana is ready",
    ] == [line.partition(":")[0] for line in found[4:10]]
