"""`agui-otel doctor --compose`: each thing that can be wrong with the services has its sentence and its remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agui_otel.cli import stack
from agui_otel.cli.probes import Problem
from tests.support.command import Command
from tests.support.receivers import http_receiver
from tests.support.servers import free_port
from tests.support.stack import answering

TRACE = "0" * 32
RULES = {"data": {"groups": [{"rules": [{"name": "AGUISubagentFailed"}]}]}}
WELL: dict[str, Any] = {
    "/": {"status": "Server available"},
    "/v1/projects": {"data": []},
    "/v1/projects/default/spans": {"data": [{}], "next_cursor": None},
    "/api/v1/targets": {"data": {"activeTargets": [{"health": "up", "labels": {"instance": "collector:8889"}}]}},
    "/api/v1/rules": RULES,
    "/api/v1/alertmanagers": {"data": {"activeAlertmanagers": [{"url": "a"}]}},
    "/api/v2/status": {"config": {"original": "receivers: []"}},
    "/api/health": {"database": "ok"},
}
DOWN = {"health": "down", "lastError": "connection refused", "labels": {"instance": "sampler-1:8889"}}


def examined(answers: dict[str, Any]) -> list[str]:
    """What is found where one server answers for all services."""
    with answering(answers) as url:
        at = dict.fromkeys(stack.PORTS, url)
        return [line.replace(url, "URL") for line in stack.examine(at, "default", TRACE)]


def test_all_is_well() -> None:
    """Each service says its piece, in the order of an alert's way."""
    assert [
        "the collector is ready: URL",
        f"the test span went through the collector to Phoenix: URL/redirects/traces/{TRACE}",
        "Prometheus reads 1 targets: URL",
        "it evaluates 1 alerts, and tells 1 Alertmanager",
        "Alertmanager is ready: URL",
        "Grafana is ready: URL/dashboards",
    ] == examined(WELL)


def test_the_examples_receivers_are_nobody() -> None:
    """That notifications still go to the example's webhooks is said."""
    answers = {**WELL, "/api/v2/status": {"config": {"original": f"url: http://{stack.EXAMPLE_WEBHOOK}/page"}}}
    assert "put your receivers in their place" in examined(answers)[4]


@pytest.mark.parametrize(
    ("path", "answer", "found", "fix"),
    [
        ("/", {"status": "Server not available"}, "is not ready: Server not available", "logs collector"),
        ("/", ["?"], "is no collector", "choose another in .env"),
        ("/v1/projects", None, "Phoenix does not answer", "logs phoenix"),
        ("/v1/projects/default/spans", {"data": []}, "does not arrive in Phoenix", "logs collector"),
        ("/api/v1/targets", {"data": {"activeTargets": [DOWN]}}, "cannot read sampler-1:8889", "COMPOSE_PROFILES"),
        ("/api/v1/targets", {"data": {"activeTargets": []}}, "reads no collector", "targets/"),
        ("/api/v1/rules", {"data": {"groups": []}}, "none of the alerts", "rules.yaml"),
        ("/api/v1/alertmanagers", {"data": {"activeAlertmanagers": []}}, "knows no Alertmanager", "targets/"),
        ("/api/v2/status", None, "alertmanager answers 404", "logs alertmanager"),
        ("/api/health", {"database": "failing"}, "has no database", "logs grafana"),
    ],
)
def test_what_is_wrong(monkeypatch: pytest.MonkeyPatch, path: str, answer: Any, found: str, fix: str) -> None:
    """The first service that is not as it should be is named, with what to do."""
    monkeypatch.setattr(stack, "_ARRIVE_SECONDS", 0.2)
    answers = {name: value for name, value in {**WELL, path: answer}.items() if value is not None}
    with pytest.raises(Problem) as problem:
        examined(answers)
    assert found in problem.value.found
    assert fix in problem.value.fix


def test_nobody_is_there() -> None:
    """A service that does not run is to be started."""
    at = dict.fromkeys(stack.PORTS, f"http://127.0.0.1:{free_port()}")
    with pytest.raises(Problem, match="collector does not answer") as problem:
        list(stack.examine(at, "default", TRACE))
    assert "docker compose up -d, and see: docker compose ps collector" == problem.value.fix


def test_ports_are_composes(tmp_path: Path) -> None:
    """The environment, then .env, then the usual port, as Compose has it."""
    (tmp_path / ".env").write_text(
        "# a note\nPHOENIX_PORT=1\nGRAFANA_PORT='2'\n#ALERTMANAGER_PORT=4\nPROMETHEUS_PORT=\n"
    )
    found = stack.addresses({"PHOENIX_PORT": "3"}, tmp_path)
    assert {
        "OTLP_HTTP_PORT": "http://localhost:4318",
        "COLLECTOR_HEALTH_PORT": "http://localhost:13133",
        "PHOENIX_PORT": "http://localhost:3",
        "PROMETHEUS_PORT": "http://localhost:9090",
        "ALERTMANAGER_PORT": "http://localhost:9093",
        "GRAFANA_PORT": "http://localhost:2",
    } == found
    with pytest.raises(Problem, match="GRAFANA_PORT is 'x'"):
        stack.addresses({"GRAFANA_PORT": "x"}, tmp_path)


def test_they_are_the_files(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables are those of docker-compose.yml, and the command stops at the first thing that is wrong."""
    text = (Path(__file__).parents[2] / "docker-compose.yml").read_text()
    assert {} == {name: port for name, port in stack.PORTS.items() if f"${{{name}:-{port}}}" not in text}
    with http_receiver() as received:
        monkeypatch.setenv("OTLP_HTTP_PORT", received.url.rpartition(":")[2])
        monkeypatch.setenv("COLLECTOR_HEALTH_PORT", str(free_port()))
        ran = command("doctor", "--compose")
    assert 1 == ran.status
    assert ran.out.splitlines()[-2].startswith("wrong  collector does not answer at http://localhost:")


def test_nothing_is_up(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not even the collector listens, the services are to be started."""
    monkeypatch.setenv("OTLP_HTTP_PORT", str(free_port()))
    ran = command("doctor", "--compose")
    wrong, fix = ran.out.splitlines()[-2:]
    assert (1, "fix    docker compose up -d") == (ran.status, fix)
    assert wrong.startswith("wrong  nobody listens at localhost:")
