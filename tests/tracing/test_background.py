"""What is traced in the background is lost to nothing that a host's callable, or the machine, does there."""

from __future__ import annotations

import contextvars
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.context import Context

from agui_otel import Settings
from agui_otel.protocol.thread import ThreadRecord
from agui_otel.testing import Captured, capture
from agui_otel.tracing import background, boundary, holding
from agui_otel.tracing.boundary import Boundary
from agui_otel.tracing.memory import InProcessMemory
from agui_otel.tracing.observer import Observer
from agui_otel.tracing.session import Session
from tests.support.wire import finished, flat, given, result, started, text, tool

LONG = 30.0


class PanicError(BaseException):
    """What an extension module may raise: no ``Exception``."""


class Late(InProcessMemory):
    """A store that answers a moment later."""

    immediate = False

    def read(self, thread_id: str, notes: list[str] | None = None, /) -> ThreadRecord | None:
        """Wait, then read."""
        time.sleep(0.02)
        return super().read(thread_id, notes)


@pytest.fixture(autouse=True)
def harmless(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Errors are swallowed, as in a host."""
    boundary._told.clear()
    monkeypatch.setattr(Boundary, "strict", False)
    yield
    assert background.settle(LONG)
    background._raised.clear()


def trace(memory: InProcessMemory, thread: str = "thread", attributes: Any = None, **callables: Any) -> Captured:
    """A run with a text and a tool call, of a host that goes on."""
    captured = capture()
    observer = Observer(
        Settings(capture="full", thread_memory_timeout=LONG), captured.tracer_provider, captured.meter_provider,
        memory=memory, **callables,
    )  # fmt: skip
    session = Session(observer, Context(), given=given("run", thread), attributes=attributes)
    session.begin()
    for event in flat([started("run", thread), text("m", "x"), tool("c", "t", "{}"), result("c", "r")]):
        session.feed(event)
    session.feed(finished("run", thread))
    session.finish("exhausted")
    return captured


def names(captured: Captured) -> list[str]:
    """The spans' names."""
    return sorted(span.name for span in captured.spans)


WHOLE = ["execute_tool t", "invoke_agent", "message assistant"]


def panic(*_: Any) -> Any:
    """A callable that fails as badly as one can."""
    raise PanicError


def stop(*_: Any) -> Any:
    """A callable that wants the process to end."""
    raise SystemExit


@pytest.mark.parametrize("memory", [InProcessMemory(), Late()], ids=["at once", "later"])
@pytest.mark.parametrize("name", ["redact", "tool_failed", "decision", "attributes"])
def test_a_callable_that_panics(memory: InProcessMemory, name: str) -> None:
    """Nothing of it reaches the host, and the trace is whole."""
    memory.close()
    callables: Any = {name: panic}
    captured = trace(memory, **callables)
    assert background.settle(LONG)
    assert names(captured) == WHOLE


def test_the_worker_outlives_what_would_end_a_thread() -> None:
    """Streams that come after one whose callable raised SystemExit are traced."""
    memory = Late()
    trace(memory, redact=stop)
    assert background.settle(LONG)
    captured = trace(memory)
    assert background.settle(LONG)
    assert names(captured) == WHOLE


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, PanicError, ValueError])
def test_a_worker_survives_its_jobs(error: type[BaseException]) -> None:
    """Whatever a job raises, the next one is done."""

    def fail() -> None:
        raise error

    worker = background.Worker("test", 1, 10)
    done = threading.Event()
    assert worker.submit(fail)
    assert worker.submit(done.set)
    assert worker.settle(time.monotonic() + LONG)
    assert done.is_set()


def test_a_dead_thread_is_replaced() -> None:
    """A job is done by another one."""
    worker = background.Worker("test", 1, 10)
    dead = threading.Thread(target=int)
    dead.start()
    dead.join()
    worker._threads = [dead]
    done = threading.Event()
    assert worker.submit(done.set)
    assert done.wait(LONG)


def test_where_no_thread_can_be_had_nothing_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job is refused, and the caller does without."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    worker = background.Worker("test", 1, 10)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        assert not worker.submit(threading.Event().set)
    assert worker.settle(time.monotonic())
    assert worker.submit(threading.Event().set)
    assert worker.settle(time.monotonic() + LONG)


def test_whoever_reads_can_end_and_write_without_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a stream leaves at the exit, where none can be started, is done on those that are there."""
    workers = {name: background.Worker("test", 1, 10) for name in ("_ender", "_writer")}
    for name, worker in workers.items():
        monkeypatch.setattr(background, name, worker)
    trace(Late())
    assert background.settle(LONG)
    assert [1, 1] == [len(worker._threads) for worker in workers.values()]


def test_callables_see_the_context_of_their_stream() -> None:
    """What a host keeps in context variables is there, wherever the stream is traced."""
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="none")
    seen: set[str] = set()

    def redact(value: str) -> str:
        seen.add(tenant.get())
        return value

    def host() -> None:
        tenant.set("acme")
        trace(Late(), redact=redact)

    contextvars.copy_context().run(host)
    assert background.settle(LONG)
    assert {"acme"} == seen


def test_reads_that_wait_for_ends_take_nobodys_place() -> None:
    """More threads than there are readers have a second run at once: none comes too late for another's."""
    captured = [trace(Late(), thread) for _ in range(2) for thread in map(str, range(2 * background.READERS))]
    assert background.settle(LONG)
    assert [{}] * len(captured) == [errors(each) for each in captured]


def errors(captured: Captured) -> dict[str, float]:
    """What the observer kept to itself, by place."""
    return {labels["agui.where"]: count for labels, count in captured.metrics().get("agui.observer.errors", [])}


def test_what_is_held_counts_its_keys() -> None:
    """They may be as long as values."""
    assert holding._size({"k" * 1000: 1}) >= 1000


PROGRAM = """
import sys, threading
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from agui_otel.config import Settings
from agui_otel.attach.stream import observed
from agui_otel.tracing.memory import InProcessMemory
from agui_otel.tracing.observer import Observer
from tests.support.wire import finished, started
def forever(*_): threading.Event().wait()
class Hung(InProcessMemory):
    immediate = False
Hung.read = forever if sys.argv[1] == "read" else InProcessMemory.read
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter(formatter=lambda span: span.name + "\\n")))
how = Observer(
    Settings(thread_memory_timeout=60, capture="metadata"), provider, memory=Hung(),

)
if sys.argv[1] == "end":
    from agui_otel.tracing import session
    session.Session._complete = forever
for thread in "ab":
    list(observed(iter([started("r", thread), finished("r", thread)]), how, None, thread, None))
"""


def leave(what: str) -> tuple[str, str]:
    """What a program prints that exits while this hangs."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, what], cwd=Path(__file__).parents[2],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return done.stdout, done.stderr


def test_at_the_exit_streams_are_traced_without_their_threads() -> None:
    """A read that hangs has half of the time."""
    printed, _ = leave("read")
    assert ["invoke_agent a", "invoke_agent b"] == sorted(printed.split("\n")[:2])


def test_what_is_lost_at_the_exit_is_told() -> None:
    """Nothing is lost silently."""
    assert "the exit came before 2 streams were traced" in leave("end")[1]
