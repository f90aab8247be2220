"""The services of docker-compose.yml, asked one after the other: what `agui-otel doctor --compose` examines."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

from agui_otel.cli.probes import Problem
from agui_otel.config import variable
from agui_otel.phoenix import PhoenixClient, PhoenixError, trace_url

PORTS = {
    "OTLP_HTTP_PORT": 4318,
    "COLLECTOR_HEALTH_PORT": 13133,
    "PHOENIX_PORT": 6006,
    "PROMETHEUS_PORT": 9090,
    "ALERTMANAGER_PORT": 9093,
    "GRAFANA_PORT": 3000,
}
"""The variables of docker-compose.yml that move its ports, and where they are by default."""
EXAMPLE_WEBHOOK = "host.docker.internal:9095"
"""Where the example of Alertmanager's configuration sends notifications: nobody's."""

START = "docker compose up -d"
"""What starts the services."""

_SECONDS = 5.0
_ARRIVE_SECONDS = 20.0
_direct = build_opener(ProxyHandler({}))


def addresses(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The base URL of each port, by its variable: as Compose does, from `environ`, else from `.env` in `folder`.

    Raises `Problem` where one is no port.
    """
    values = {**_env_file(folder / ".env"), **environ}
    found = {}
    for name, usual in PORTS.items():
        text = variable(name, values) or str(usual)
        if not text.isdecimal():
            raise Problem(f"{name} is {text!r}", "give a port number, as in .env.example")
        found[name] = f"http://localhost:{text}"
    return found


def examine(at: Mapping[str, str], project: str, trace_id: str) -> Iterator[str]:
    """What is right, in the order of an alert's way, after a test span was sent. Raises `Problem`."""
    yield _collector(at["COLLECTOR_HEALTH_PORT"])
    yield _phoenix(at["PHOENIX_PORT"], project, trace_id)
    yield from _prometheus(at["PROMETHEUS_PORT"])
    yield _alertmanager(at["ALERTMANAGER_PORT"])
    yield _grafana(at["GRAFANA_PORT"])


def _collector(url: str) -> str:
    status = _json("collector", url).get("status")
    if status != "Server available":
        raise Problem(f"the collector at {url} is not ready: {status}", _logs("collector"))
    return f"the collector is ready: {url}"


def _phoenix(url: str, project: str, trace_id: str) -> str:
    client = PhoenixClient(url, api_key=variable("PHOENIX_API_KEY", os.environ))
    try:
        client.ping()
    except PhoenixError as error:
        raise Problem(f"Phoenix does not answer: {error}", _logs("phoenix")) from None
    try:
        client.wait_for_spans(project, 1, trace_ids=[trace_id], timeout=_ARRIVE_SECONDS)
    except PhoenixError as error:
        raise Problem(
            f"the collector took the test span, but it does not arrive in Phoenix: {error}", _logs("collector")
        ) from None
    return f"the test span went through the collector to Phoenix: {trace_url(url, trace_id)}"


def _prometheus(url: str) -> Iterator[str]:
    targets = _json("prometheus", f"{url}/api/v1/targets?state=active")["data"]["activeTargets"]
    for target in targets:
        if target["health"] != "up":
            raise Problem(
                f"Prometheus cannot read {target['labels'].get('instance')}: {target['lastError'] or 'not asked yet'}",
                "start what is there; COMPOSE_PROFILES in .env says which collectors there should be",
            )
    if not targets:
        raise Problem("Prometheus reads no collector", "see targets/ beside its prometheus.yml")
    yield f"Prometheus reads {len(targets)} targets: {url}"
    groups = _json("prometheus", f"{url}/api/v1/rules?type=alert")["data"]["groups"]
    alerts = [rule["name"] for group in groups for rule in group["rules"] if rule["name"].startswith("AGUI")]
    if not alerts:
        raise Problem("Prometheus has none of the alerts", "add collector/alerts/rules.yaml to its rule_files")
    told = _json("prometheus", f"{url}/api/v1/alertmanagers")["data"]["activeAlertmanagers"]
    if not told:
        raise Problem("Prometheus knows no Alertmanager, so nobody is told", "see targets/ beside its prometheus.yml")
    yield f"it evaluates {len(alerts)} alerts, and tells {len(told)} Alertmanager"


def _alertmanager(url: str) -> str:
    configuration = _json("alertmanager", f"{url}/api/v2/status")["config"]["original"]
    if EXAMPLE_WEBHOOK in configuration:
        return f"Alertmanager is ready, and notifies the example's webhooks; put your receivers in their place: {url}"
    return f"Alertmanager is ready: {url}"


def _grafana(url: str) -> str:
    if _json("grafana", f"{url}/api/health").get("database") != "ok":
        raise Problem(f"Grafana at {url} has no database", _logs("grafana"))
    return f"Grafana is ready: {url}/dashboards"


def _json(service: str, url: str) -> Any:
    try:
        with _direct.open(url, timeout=_SECONDS) as answer:
            value = json.loads(answer.read())
    except HTTPError as error:
        with error:
            raise Problem(f"{service} answers {error.code} at {url}", _logs(service)) from None
    except ValueError:
        raise Problem(
            f"what answers at {url} is no {service}", "another program has that port: choose another in .env"
        ) from None
    except (URLError, OSError, http.client.HTTPException) as error:
        raise Problem(
            f"{service} does not answer at {url}: {getattr(error, 'reason', error)}",
            f"{START}, and see: docker compose ps {service}",
        ) from None
    if not isinstance(value, dict):
        raise Problem(f"what answers at {url} is no {service}", "another program has that port: choose another in .env")
    return value


def _logs(service: str) -> str:
    return f"see: docker compose logs {service}"


def _env_file(path: Path) -> dict[str, str]:
    """The variables of a `.env`, as far as ports are written; none where there is no such file."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return {}
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip().strip("\"'") for name, value in pairs}
