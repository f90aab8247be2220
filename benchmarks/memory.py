"""What a shared thread memory costs a run without interrupts, against the process's own memory.

    python -m benchmarks.memory

The recorded run `single` in a stream of its own each time: in the host's path (from the first pull to the last), and in
all (until what was put off is traced as well). The Redis is started here, the file is in a temporary directory.
"""

from __future__ import annotations

import gc
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from agui_otel import Settings, trace_events
from agui_otel.protocol.events import parse
from agui_otel.tracing import background
from benchmarks.timing import report
from tests.support.stores import RedisServer

RECORDING = Path(__file__).parents[1] / "tests" / "fixtures" / "streams" / "single.jsonl"
ROUNDS = 150


def main() -> None:
    """Time a run with each store in turn."""
    events: list[Any] = [parse(line) for line in RECORDING.read_bytes().splitlines()]
    numbers = itertools.count()
    provider = TracerProvider()

    def run(url: str) -> tuple[float, float]:
        thread = f"thread-{next(numbers)}"
        stream = [{**event, "threadId": thread} if "threadId" in event else event for event in events]
        settings = Settings(thread_memory=url, thread_memory_timeout=10, metrics=False, capture="full")
        began = time.perf_counter()
        for _ in trace_events(stream, input={"threadId": thread}, tracer_provider=provider, config=settings):
            pass
        host = time.perf_counter() - began
        background.settle(10)
        return host, time.perf_counter() - began

    with RedisServer() as server, tempfile.TemporaryDirectory() as directory:
        urls = {"memory": "memory://", "sqlite": f"sqlite:///{directory}/threads.db", "redis": server.url}
        took = _best(run, urls)
    for kind in ("sqlite", "redis"):
        for index, what in enumerate(("in the host's path", "in all")):
            ratio = took[kind][index] / took["memory"][index]
            detail = f"{took[kind][index] * 1e3:.2f} ms, with memory:// {took['memory'][index] * 1e3:.2f} ms"
            report(f"a run of {len(events)} events with {kind} / with memory://, {what}", ratio, "one read", detail)


def _best(run: Callable[[str], tuple[float, float]], urls: dict[str, str]) -> dict[str, tuple[float, float]]:
    best = {kind: (float("inf"), float("inf")) for kind in urls}
    for number in range(ROUNDS + 3):
        for kind, url in urls.items():
            gc.collect()
            gc.disable()
            host, all_ = run(url)
            gc.enable()
            if number >= 3:
                best[kind] = min(best[kind][0], host), min(best[kind][1], all_)
    return best


if __name__ == "__main__":
    main()
