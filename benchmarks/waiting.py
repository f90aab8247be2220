"""Threads that are interrupted and never resumed: what each store of thread memory needs for so many of them.

    python -m benchmarks.waiting [threads] [memory|sqlite|redis …]

Each thread leaves an interrupt, who asked and the call that dispatched it. First the store may keep all of them;
then a tenth of them come to one that may keep ten thousand. The Redis is started here (redis-server), the file is in a
temporary directory. Times are of this machine; what one thread needs, and that more threads need no more time each, is
what to read.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from agui_otel.protocol.thread import OpenInterrupt, PendingToolCall, SeenRun, SpanRef, SuspendedSubagent, ThreadChange
from agui_otel.tracing.memory import InProcessMemory, ThreadMemory
from agui_otel.tracing.redis_memory import RedisMemory
from agui_otel.tracing.sqlite_memory import SQLiteMemory
from tests.support.stores import RedisServer

DAY = 24 * 3600.0


def asked(number: int) -> ThreadChange:
    """What a run leaves that waits for an approval."""
    at = time.time()
    run = SpanRef(trace_id=f"{number:032x}", span_id=f"{number:016x}", run_id=f"run-{number:032x}")
    subagent, call = f"tools:{number:036x}", f"call_{number:024x}"
    return ThreadChange(
        thread_id=f"thread-{number:036x}",
        at=at,
        interrupts=(
            OpenInterrupt(
                id=f"{number:032x}", owner=subagent, owner_name="mailer", run=run, span=run, since=at, reason="approval"
            ),
        ),
        subagents=(SuspendedSubagent(id=subagent, name="mailer", parent_tool_call=call, span=run, since=at),),
        tool_calls=(PendingToolCall(id=call, name="task", span=run, since=at),),
        runs=(SeenRun(id=run.run_id, span=run, at=at, marks=("0123abcd",) * 5),),
    )


def _milliseconds(work: Callable[[], object], times: int = 20) -> float:
    shortest = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - began)
    return shortest * 1e3


def measure(name: str, memory: ThreadMemory, threads: int, size: Callable[[], int]) -> None:
    """Fill the store, and print what that has cost."""
    before = size()
    tenth = max(1, threads // 10)
    parts, evicted = [], 0
    for part in range(10):
        began = time.perf_counter()
        for number in range(part * tenth, (part + 1) * tenth):
            evicted += memory.write(asked(number))
        parts.append((time.perf_counter() - began) / tenth * 1e6)
    figure = memory.figure()
    assert figure is not None
    kept = sum(reason.open for reason in figure.reasons.values())
    last = f"thread-{10 * tenth - 1:036x}"
    print(
        f"{name:28} {kept:9} wait, {evicted:9} gone: {(size() - before) / 1e6:8.1f} MB, "
        f"{(size() - before) / kept:6.0f} B a thread; a write {parts[0]:5.0f} µs at first, {parts[-1]:5.0f} at last, "
        f"a read {_milliseconds(lambda: memory.read(last)):.3f} ms, "
        f"the figure {_milliseconds(memory.figure):.3f} ms, "
        f"the oldest ten {_milliseconds(lambda: list(memory.waiting(10))):.3f} ms",
        flush=True,
    )
    memory.close()


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _stored(directory: Path) -> int:
    return sum(file.stat().st_size for file in directory.iterdir())


def main() -> None:
    """Measure each store, unbounded and bounded."""
    many = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    kinds = sys.argv[2:] or ["memory", "sqlite", "redis"]
    for threads, bound in ((many, many), (max(many // 10, 20_000), 10_000)):
        if "memory" in kinds:
            measure(f"memory://, size {bound}", InProcessMemory(DAY, bound), threads, _resident)
        if "sqlite" in kinds:
            with tempfile.TemporaryDirectory() as directory:
                path = Path(directory)
                store = SQLiteMemory(path / "threads.db", ttl=DAY, size=bound, timeout=10)
                measure(f"sqlite://, size {bound}", store, threads, partial(_stored, path))
        if "redis" in kinds:
            with RedisServer() as server:

                def used() -> int:
                    lines = server.ask("INFO", "memory").splitlines()
                    return int(next(line for line in lines if line.startswith("used_memory:")).partition(":")[2])

                measure(
                    f"redis://, size {bound}", RedisMemory(server.url, ttl=DAY, size=bound, timeout=10), threads, used
                )


if __name__ == "__main__":
    main()
