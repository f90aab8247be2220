"""Real collectors of collector/manifest.yaml, on free ports of the loopback interface."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

from tests.support import services
from tests.support.servers import answer_of, eventually, free_port

REPOSITORY = Path(__file__).resolve().parents[2]
CONFIGURATIONS = REPOSITORY / "collector"
DEFAULT = ("collector.yaml",)
SAMPLING = ("collector.yaml", "sampling.yaml")
BALANCER = ("collector.yaml", "gateway/balancer.yaml")
SAMPLER = ("collector.yaml", "sampling.yaml", "gateway/sampler.yaml")

DECIDED = "otelcol_processor_tail_sampling_global_count_traces_sampled_total"
"""The traces that a sampler has decided on, on the page of its own metrics."""

_ADDRESSES = {
    "grpc": "AGUI_COLLECTOR_GRPC",
    "http": "AGUI_COLLECTOR_HTTP",
    "metrics": "AGUI_COLLECTOR_METRICS",
    "health": "AGUI_COLLECTOR_HEALTH",
    "traces": "AGUI_SAMPLER_TRACES",
    "measured": "AGUI_SAMPLER_MEASURED",
}
_SERIES = re.compile(r"^(\w+)(?:\{(.*?)\})? (\S+)(?: # (\{.*?\}))?")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


@functools.cache
def binary() -> Path:
    """The collector's binary, built where it is not cached; skips (fails in CI) where no Go can build it."""
    built = subprocess.run([REPOSITORY / "scripts/build-collector"], capture_output=True, text=True, check=False)
    services.require(built.returncode != 2, f"a Go that builds the collector ({built.stderr.strip()})")
    assert built.returncode == 0, built.stderr
    return Path(built.stdout.strip())


def arguments(configurations: tuple[str, ...]) -> list[str]:
    """The command line's `--config` options, for files of collector/ and for `yaml:…`."""
    return [
        part
        for name in configurations
        for part in ("--config", name if name.startswith("yaml:") else str(CONFIGURATIONS / name))
    ]


@dataclass(frozen=True)
class Series:
    """A sample of a metrics page, with the labels of its exemplar."""

    name: str
    labels: dict[str, str]
    value: float
    exemplar: dict[str, str] | None


class Collector:
    """A collector of some configurations, with ports and a queue's directory of its own, kept over restarts."""

    def __init__(self, directory: Path, configurations: tuple[str, ...], environment: Mapping[str, str]) -> None:
        self._command = [str(binary()), *arguments(configurations)]
        self._ports = {name: free_port() for name in (*_ADDRESSES, "telemetry")}
        self.log = directory / "collector.log"
        self._environment = {
            **os.environ,
            **{variable: f"127.0.0.1:{self._ports[name]}" for name, variable in _ADDRESSES.items()},
            "AGUI_COLLECTOR_TELEMETRY_HOST": "127.0.0.1",
            "AGUI_COLLECTOR_TELEMETRY_PORT": str(self._ports["telemetry"]),
            "AGUI_COLLECTOR_STORAGE": str(directory / "queue"),
            "AGUI_COLLECTOR_RETRY_INTERVAL": "1s",
            **environment,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def address(self, name: str) -> str:
        """`127.0.0.1:PORT` of `grpc`, `http`, `metrics`, `health`, `telemetry`; a sampler's `traces`, `measured`."""
        return f"127.0.0.1:{self._ports[name]}"

    @property
    def endpoint(self) -> str:
        """Where OTLP over HTTP goes."""
        return f"http://{self.address('http')}"

    @property
    def process(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(self._command, env=self._environment, stdout=log, stderr=log)
        self._process = process
        eventually(lambda: process.poll() is not None or self._is_ready(), 30)
        assert process.poll() is None, self.log.read_text()[-4000:]

    def kill(self) -> None:
        """End it as a crash would."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """End it as a service manager would."""
        self._signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Let it hang: its ports take connections, and nothing answers."""
        os.kill(self.process, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        os.kill(self.process, signal.SIGCONT)

    def series(self, name: str, page: str = "metrics") -> list[Series]:
        """The samples of a metric, on the page `metrics` (what it measures) or `telemetry` (its own)."""
        return [found for found in self._parsed(page) if found.name == name]

    def total(self, name: str, page: str = "metrics", **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        return sum(item.value for item in self.series(name, page) if labels.items() <= item.labels.items())

    def page(self, page: str = "metrics") -> str:
        """The text that Prometheus would scrape."""
        with urlopen(Request(f"http://{self.address(page)}/metrics", headers=_OPENMETRICS), timeout=10) as answer:
            return str(answer.read().decode())

    def _parsed(self, page: str) -> Iterator[Series]:
        for line in self.page(page).splitlines():
            if match := _SERIES.match(line):
                name, labels, value, exemplar = match.groups()
                linked = dict(_LABEL.findall(exemplar)) if exemplar else None
                yield Series(name, dict(_LABEL.findall(labels or "")), float(value), linked)

    def _is_ready(self) -> bool:
        answer = answer_of(f"http://{self.address('health')}")
        return answer is not None and json.loads(answer)["status"] == "Server available"

    def _signal(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
            process.wait(30)


@contextmanager
def collector(directory: Path, configurations: tuple[str, ...] = DEFAULT, /, **environment: str) -> Iterator[Collector]:
    """A collector for as long as the block lasts."""
    directory.mkdir(parents=True, exist_ok=True)
    made = Collector(directory, configurations, environment)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def wait_for(total: float, collector: Collector, name: str, page: str = "metrics", **labels: str) -> None:
    """Wait until a metric's samples add up to at least `total`."""
    until = time.monotonic() + 30
    while (seen := collector.total(name, page, **labels)) < total:
        assert time.monotonic() < until, f"{name} is {seen}, not {total}"
        time.sleep(0.2)


def delivered(running: Collector) -> None:
    """Wait until the queue is empty, twice in a row: what a decision lets through comes to it a moment later."""
    for _ in range(2):
        time.sleep(0.5)
        eventually(lambda: running.total("otelcol_exporter_queue_size", "telemetry") == 0)
