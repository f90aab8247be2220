"""A forked child has none of the locks that its parent's threads had, and leaves its parent's connections alone."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

from agui_otel.tracing.sqlite_memory import SQLiteMemory
from tests.support.stores import in_processes, open_files

PROGRAM = """
import gc, os, signal, sys, threading, _thread
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
import agui_otel.exporting.handle, agui_otel.exporting.providers, agui_otel.tracing.sqlite_memory
from agui_otel import trace_events
from agui_otel.config import Settings
from agui_otel.tracing import background, gauges, memory
from tests.support.sources import HALF

KINDS = (_thread.LockType, type(threading.RLock()))
STREAMS = {"Session", "Held", "TracingSubscriber"}  # those of a parent's streams are the parent's

def locks():
    holders = [module for name, module in sys.modules.items() if name.split(".")[0] == "agui_otel"]
    holders += [
        each for each in gc.get_objects()
        if type(each).__module__.startswith("agui_otel.") and hasattr(each, "__dict__")
        and type(each).__name__ not in STREAMS
    ]
    return {
        (getattr(holder, "__name__", type(holder).__name__), id(holder), name): value
        for holder in holders for name, value in list(vars(holder).items()) if isinstance(value, KINDS)
    }

def trace(run):
    config = Settings(thread_memory=f"sqlite:///{sys.argv[1]}/threads.db")
    made = MeterProvider([InMemoryMetricReader()])
    list(trace_events(iter(HALF), config=config, tracer_provider=TracerProvider(), meter_provider=made))

trace("one")
memory.open_memory("memory://")
watched = gauges.Watched(memory.open_memory("memory://"), 1.0, 1.0)
assert background.settle(30)
held, go = threading.Event(), threading.Event()
def hold():
    for lock in locks().values():
        lock.acquire()
    held.set()
    go.wait()
threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    found = locks()
    taken = sorted(f"{key[0]}.{key[2]}" for key, lock in found.items() if not lock.acquire(blocking=False))
    for key, lock in found.items():
        if f"{key[0]}.{key[2]}" not in taken:
            lock.release()
    print(len(found) > 12, taken, flush=True)
    trace("two")
    print(background.settle(10), flush=True)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os._exit(0)
"""


def test_a_child_waits_for_no_thread_that_is_not_there(tmp_path: Path) -> None:
    """All locks of the process are had by a thread when it forks: the child has others, and traces."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "True []\nTrue\n0\n" == done.stdout, done.stderr


def test_a_child_closes_no_connection_of_its_parent(tmp_path: Path) -> None:
    """SQLite has it neither used nor closed there, and Python would close what nothing holds any more."""
    memory = SQLiteMemory(tmp_path / "threads.db")
    memory.read("thread")
    inherited = open_files(tmp_path)

    def work(_: int) -> None:
        memory.read("thread")
        memory.close()
        gc.collect()
        assert inherited <= open_files(tmp_path)

    assert inherited
    assert [0] == in_processes(1, work)
    memory.close()
    assert set() == open_files(tmp_path)
