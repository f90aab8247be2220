"""Prometheus and Alertmanager as installed on the machine, and what they notify: real processes, real sockets."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import ProxyHandler, build_opener

from tests.support import services
from tests.support.servers import answer_of, free_port, in_background

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "collector" / "alerts"
PROMETHEUS, PROMTOOL = "prometheus", "promtool"
ALERTMANAGER, AMTOOL = "prometheus-alertmanager", "amtool"

_DURATION = re.compile(r"\b(\d+)([smhd])\b")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_direct = build_opener(ProxyHandler({}))


def require(*commands: str) -> None:
    """Skip the test, or fail it where services are required, when one of these commands is missing."""
    for command in commands:
        services.require(shutil.which(command) is not None, command)


def quicker(text: str, factor: int) -> str:
    """A configuration with all its durations divided, but for those in links."""
    return "\n".join(
        line if "timeRangeKey" in line else _DURATION.sub(lambda found: _divided(found, factor), line)
        for line in text.splitlines()
    )


def _divided(found: re.Match[str], factor: int) -> str:
    return f"{max(1, int(found[1]) * _SECONDS[found[2]] * 1000 // factor)}ms"


def get(url: str) -> Any:
    """What is answered, as JSON."""
    with _direct.open(url, timeout=10) as answer:
        return json.loads(answer.read())


def wait_for(what: str, holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until it gives something; that."""
    until = time.monotonic() + seconds
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < until, f"{what} did not come"
        time.sleep(0.1)


@contextmanager
def process(command: Sequence[str | Path], log: Path, ready: str, environment: Mapping[str, str]) -> Iterator[int]:
    """A process that has answered at `ready` with a status below 400, until the block ends; its id."""
    with log.open("wb") as output:
        running = subprocess.Popen(
            [str(part) for part in command], stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment}
        )
    try:
        wait_for(f"{command[0]}: {ready}", lambda: _answers(running, ready, log))
        yield running.pid
    finally:
        running.terminate()
        running.wait(30)


def _answers(running: subprocess.Popen[bytes], url: str, log: Path) -> bool:
    assert running.poll() is None, log.read_text("utf-8", "replace")[-3000:]
    return answer_of(url) is not None


@dataclass
class Webhook:
    """What Alertmanager notified: the path it was sent to, and its body, in order of arrival."""

    url: str = ""
    notifications: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def alerts(self, path: str, status: str) -> list[dict[str, Any]]:
        """The alerts of this status in the notifications of this path."""
        return [
            alert
            for sent_to, body in list(self.notifications)
            for alert in body["alerts"]
            if sent_to == path and alert["status"] == status
        ]


@contextmanager
def webhook(host: str = "127.0.0.1", port: int = 0) -> Iterator[Webhook]:
    """A receiver of Alertmanager's webhooks."""
    heard = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            heard.notifications.append((self.path, body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Nothing on standard error."""

    server = ThreadingHTTPServer((host, port), Handler)
    server.daemon_threads = True
    heard.url = f"http://127.0.0.1:{server.server_port}"
    with in_background(server):
        yield heard


@contextmanager
def alertmanager(directory: Path, to: str, factor: int) -> Iterator[str]:
    """Alertmanager with the example's routes, `factor` times as quick, whose webhooks are at `to`; its address."""
    text = quicker((ALERTS / "alertmanager.yaml").read_text(), factor)
    (directory / "alertmanager.yaml").write_text(text.replace("http://host.docker.internal:9095", to))
    address = f"127.0.0.1:{free_port()}"
    command = [
        *(ALERTMANAGER, f"--config.file={directory}/alertmanager.yaml", f"--storage.path={directory}/silences"),
        *(f"--web.listen-address={address}", "--cluster.listen-address="),
    ]
    with process(command, directory / "alertmanager.log", f"http://{address}/-/ready", {}):
        yield address


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that runs."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query: series with their value. Fails where the expression is refused."""
        answer = get(f"{self.url}/api/v1/query?{urlencode({'query': expression})}")
        assert "success" == answer["status"], answer
        result = answer["data"]["result"]
        assert isinstance(result, list)
        return result

    def exemplars(self, expression: str) -> list[dict[str, Any]]:
        """The exemplars of the last hour."""
        now = time.time()
        parameters = urlencode({"query": expression, "start": now - 3600, "end": now + 60})
        data = get(f"{self.url}/api/v1/query_exemplars?{parameters}")["data"]
        return [exemplar for series in data for exemplar in series["exemplars"]]

    def firing(self) -> list[dict[str, str]]:
        """The labels of the alerts that fire."""
        alerts = get(f"{self.url}/api/v1/alerts")["data"]["alerts"]
        return [alert["labels"] for alert in alerts if alert["state"] == "firing"]


@contextmanager
def prometheus(
    directory: Path, collectors: Sequence[str], alertmanager: str, phoenix_project: str, factor: int
) -> Iterator[Prometheus]:
    """Prometheus with this project's configuration and rules, `factor` times as quick, and every second at its work."""
    (directory / "targets").mkdir()
    (directory / "targets" / "collectors.yaml").write_text(json.dumps([{"targets": list(collectors)}]))
    (directory / "targets" / "alertmanagers.yaml").write_text(json.dumps([{"targets": [alertmanager]}]))
    (directory / "rules.yaml").write_text(quicker((ALERTS / "rules.yaml").read_text(), factor))
    configuration = re.sub(
        r"(scrape|evaluation)_interval: 10s", r"\1_interval: 1s", (ALERTS / "prometheus.yml").read_text()
    )
    (directory / "prometheus.yml").write_text(configuration)
    address = f"127.0.0.1:{free_port()}"
    command = [
        *(PROMETHEUS, f"--config.file={directory}/prometheus.yml", f"--storage.tsdb.path={directory}/tsdb"),
        *(f"--web.listen-address={address}", f"--web.external-url=http://{address}", f"--web.user-assets={ROOT}/docs"),
        *("--query.lookback-delta=10s", "--enable-feature=exemplar-storage,expand-external-labels"),
    ]
    environment = {"AGUI_PHOENIX_PROJECT": phoenix_project, "AGUI_RUNBOOKS": ""}
    with process(command, directory / "prometheus.log", f"http://{address}/-/ready", environment):
        made = Prometheus(f"http://{address}")
        wait_for("what is scraped", lambda: len(made.query("up == 1")) == len(collectors))
        yield made
