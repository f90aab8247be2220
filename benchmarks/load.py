"""Many streams asked for at once, and what the processes that answer spend on them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from uuid import uuid4

from tests.support.servers import free_port, listens

MARK = b"data: {"
"""Each event begins so."""

EMPTY: dict[str, Any] = {"state": {}, "messages": [], "tools": [], "context": [], "forwardedProps": {}}
"""A RunAgentInput without its ids."""

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Server:
    """A process that answers at a port."""

    port: int
    pid: int

    def cpu(self) -> float:
        """Seconds of processor time that all its threads have used."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def memory(self) -> int:
        """Its resident memory in bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Measured:
    """What one round took: events a second, the median time to first byte (s), processor time an event (s)."""

    rate: float
    first_byte: float
    cpu: float


@contextmanager
def process(*arguments: str, port: int, environment: dict[str, str] | None = None) -> Iterator[Server]:
    """A Python process that listens at `port`, until the block ends."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "AGUI_", "PHOENIX_"))}
    command = [sys.executable, *arguments]
    started = subprocess.Popen(command, cwd=ROOT, env={**kept, **(environment or {})}, stderr=subprocess.DEVNULL)
    try:
        while not listens(port):
            time.sleep(0.05)
        yield Server(port, started.pid)
    finally:
        started.terminate()
        started.wait()


@contextmanager
def receiver() -> Iterator[str]:
    """The URL of `benchmarks.receiver`."""
    port = free_port()
    with process("-m", "benchmarks.receiver", str(port), port=port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def agent(way: str, receiver: str) -> Iterator[Server]:
    """`benchmarks.agents`."""
    port = free_port()
    with process("-m", "benchmarks.agents", way, str(port), receiver, port=port) as server:
        yield server


@contextmanager
def proxy(upstream: Server, receiver: str, *, traced: bool) -> Iterator[Server]:
    """`agui-otel proxy` before a server."""
    port = free_port()
    place = ("--upstream", f"http://127.0.0.1:{upstream.port}", "--listen", f"127.0.0.1:{port}")
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver, "OTEL_METRICS_EXPORTER": "none"}
    if not traced:
        environment["AGUI_OTEL_DISABLED"] = "true"
    with process("-m", "agui_otel.cli.main", "proxy", *place, port=port, environment=environment) as server:
        yield server


def measure(server: Server, path: str, streams: int, over: float = 0.0) -> Measured:
    """Ask for so many streams, which begin `over` so many seconds, and read them to their end."""
    before = server.cpu()
    began = time.perf_counter()
    read = asyncio.run(_all(server.port, path, streams, over))
    lasted = time.perf_counter() - began
    events = sum(number for number, _ in read)
    return Measured(events / lasted, median(first for _, first in read), (server.cpu() - before) / events)


async def _all(port: int, path: str, streams: int, over: float) -> list[tuple[int, float]]:
    return list(await asyncio.gather(*(_one(port, path, number, over * number / streams) for number in range(streams))))


async def _one(port: int, path: str, number: int, wait: float) -> tuple[int, float]:
    """The events of a stream that begins after a while, and how long its first byte took."""
    await asyncio.sleep(wait)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({**EMPTY, "threadId": f"t{number}", "runId": str(uuid4())}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    began = time.perf_counter()
    part = await reader.read(65536)
    while b"data: " not in part:
        part += await reader.read(65536)
    first = time.perf_counter() - began
    events, tail = 0, b""
    while part:
        data = tail + part
        events += data.count(MARK)
        tail = data[max(data.rfind(MARK) + len(MARK), len(data) - len(MARK) + 1) :]
        part = await reader.read(65536)
    writer.close()
    return events, first
