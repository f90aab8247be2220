"""Thread memory that other processes share: the host never waits for it, and the trace is the same as with any other.

Trace model, thread memory.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from ag_ui.core import RunStartedEvent
from opentelemetry.context import Context
from opentelemetry.sdk.trace import Span, SpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from agui_otel import Settings
from agui_otel.testing import Captured, capture
from agui_otel.tracing import background, boundary, holding
from agui_otel.tracing.boundary import Boundary
from agui_otel.tracing.memory import ThreadMemory
from agui_otel.tracing.observer import Observer
from agui_otel.tracing.redis_memory import RedisMemory
from agui_otel.tracing.session import Session
from agui_otel.tracing.sqlite_memory import SQLiteMemory
from tests.support import golden
from tests.support.stores import SHARED, RedisServer, opened
from tests.support.wire import (
    Event,
    answers,
    done,
    finished,
    flat,
    given,
    interrupted,
    result,
    started,
    subagent,
    suspended,
    text,
    tool,
)

LONG = 30.0
"""Seconds that a store has where the test itself decides when it answers."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """A Redis for this module."""
    with RedisServer() as started_:
        yield started_


@pytest.fixture
def redis(server: RedisServer) -> Iterator[RedisServer]:
    """A Redis that is empty, whatever the test before has done to it."""
    server.go_on()
    server.kill()
    server.start()
    yield server
    server.go_on()


@pytest.fixture(params=SHARED)
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ThreadMemory]:
    """A shared store of each kind."""
    used = request.getfixturevalue("redis") if request.param == "redis" else None
    with opened(request.param, tmp_path, used) as store:
        yield store


@pytest.fixture
def harmless() -> Iterator[None]:
    """Errors are swallowed, as in a host."""
    boundary._told.clear()
    Boundary.strict = False
    yield
    assert background.settle(LONG)


class Host:
    """A server's process: streams, one after another or at once, with providers of its own."""

    def __init__(self, memory: ThreadMemory, timeout: float = LONG) -> None:
        self.captured: Captured = capture()
        self.captured.tracer_provider.id_generator = RandomIdGenerator()  # two processes have no id in common
        self._observer = Observer(
            Settings(capture="full", thread_memory_timeout=timeout),
            self.captured.tracer_provider,
            self.captured.meter_provider,
            memory=memory,
        )

    def begin(self, asked: Any = None) -> Session:
        """A stream that has begun."""
        session = Session(self._observer, Context(), given=asked, agent_name="supervisor")
        session.begin()
        return session

    def run(self, *events: Any, asked: Any = None) -> None:
        """A whole stream; what it leaves to its thread is written when this returns."""
        session = self.begin(asked)
        for event in flat(events):
            session.feed(event)
        session.finish("exhausted")
        assert background.settle(LONG)

    def tree(self, *attributes: str) -> str:
        """What was exported."""
        return self.captured.tree(attributes=attributes, event_attributes=("agui.interrupt.decision",))

    def errors(self) -> dict[str, float]:
        """What the observer kept to itself, by place."""
        points = self.captured.metrics().get("agui.observer.errors", [])
        return {labels["agui.where"]: count for labels, count in points}


ASKS = [
    started("one"), tool("c", "task", "{}"), subagent("s", "asker", call="c"), suspended("s", "x"),
    interrupted("x", run="one"),
]  # fmt: skip
ANSWERED = [started("two"), subagent("s", "asker"), text("m", "done", tag="s"), done("s"), finished("two")]
ANSWER = given("two", resume=answers("x", payload=True))

RESUMED = """\
invoke_agent supervisor [AGENT] success agui.resumes.run_id=["one"]
  * agui.interrupt.resolved agui.interrupt.decision="approved"
  > elsewhere
  > elsewhere
  execute_tool task [TOOL] success agui.continued=true
    > elsewhere
    invoke_agent asker [AGENT] success agui.continued=true
      * agui.subagent.resumed
      > elsewhere
      message assistant [CHAIN]"""

UNJOINED = """\
invoke_agent supervisor [AGENT] success
  * agui.interrupt.resolved agui.interrupt.decision="approved"
  invoke_agent asker [AGENT] success
    message assistant [CHAIN]"""


UNKNOWN = UNJOINED.replace("\n  invoke_agent asker", "\n  * agui.note\n  invoke_agent asker")
"""A store that answers, and does not know what is answered: that is noted, and counted."""


def test_a_run_is_resumed_by_another_process(memory: ThreadMemory) -> None:
    """The second process knows nothing but what is in the store."""
    Host(memory).run(ASKS)
    memory.seen.clear()
    other = Host(memory)
    other.run(ANSWERED, asked=ANSWER)
    assert RESUMED == other.tree("agui.continued", "agui.resumes.run_id")
    assert [1] == [count for _, count in other.captured.metrics()["agui.interrupt.wait"]]
    record = memory.read("thread")
    assert record is not None
    assert record.empty


@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize("name", golden.names())
def test_recordings(kind: str, name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Every recording has the tree that it has with the process's own memory."""
    with ExitStack() as stack:
        used = request.getfixturevalue("server") if kind == "redis" else None
        store = stack.enter_context(opened(kind, tmp_path, used, clock=golden.clock))
        expected = (golden.STREAMS / f"{name}.tree").read_text(encoding="utf-8")
        assert expected == golden.tree(name, memory=store)


class Gate:
    """A store of which the test decides when it answers: real ones, stopped or locked, and let go."""

    def __init__(self, memory: ThreadMemory, close: Callable[[], None], open_: Callable[[], None]) -> None:
        self.memory = memory
        self.close = close
        self.open = open_


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    """A file that somebody else has locked whole."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture
def stopped(redis: RedisServer) -> Iterator[Gate]:
    """A Redis that is stopped (it accepts and does not answer), and goes on when the test says so."""
    memory = RedisMemory(redis.url, timeout=LONG)
    yield Gate(memory, redis.stop, redis.go_on)
    redis.go_on()
    assert background.settle(LONG)
    memory.close()


class TestTheHostDoesNotWait:
    """All events are out before the store has answered at all."""

    def test_while_the_store_is_silent(self, stopped: Gate) -> None:
        """The host's whole stream passes; its trace is made when the answer comes, by nobody the host waits for."""
        Host(stopped.memory).run(ASKS)
        host = Host(stopped.memory)
        stopped.close()
        session = host.begin(ANSWER)
        for event in flat(ANSWERED):
            session.feed(event)
        session.finish("exhausted")
        assert "" == host.tree()
        stopped.open()
        assert background.settle(LONG)
        assert RESUMED == host.tree("agui.continued", "agui.resumes.run_id")
        assert {} == host.errors()

    def test_the_run_is_there_from_the_start(self, stopped: Gate) -> None:
        """Its span is open and current before the store has answered: what runs inside lands under it."""
        host = Host(stopped.memory)
        stopped.close()
        session = host.begin(ANSWER)
        assert session.span_context is not None
        stopped.open()
        session.finish("exhausted")
        assert background.settle(LONG)
        assert [session.span_context.span_id] == [span.context.span_id for span in host.captured.spans if span.context]

    def test_events_have_their_own_times(self, stopped: Gate) -> None:
        """Not those at which they were traced."""
        host = Host(stopped.memory)
        stopped.close()
        session = host.begin(given("run"))
        before = time.time_ns()
        for event in flat([started(), text("m", "a", "b")]):
            session.feed(event)
        after = time.time_ns()
        stopped.open()
        while not session._held or not session._held.reading.over:
            time.sleep(0.001)
        session.feed(finished())
        session.finish("exhausted")
        assert background.settle(LONG)
        (message,) = (span for span in host.captured.spans if span.name == "message assistant")
        assert message.start_time is not None
        assert message.end_time is not None
        assert before <= message.start_time <= message.end_time <= after

    def test_what_the_host_changes_later_does_not_show(self, stopped: Gate) -> None:
        """Events are kept as they were when they passed."""
        host = Host(stopped.memory)
        stopped.close()
        session = host.begin(given("run"))
        event: Event = {"type": "STATE_SNAPSHOT", "snapshot": {"a": {"b": 1}}}
        mine: list[Event] = [started(), event, {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "t"}]
        for each in mine:
            session.feed(each)
        event["snapshot"]["z"] = 1
        mine[2]["toolCallName"] = "changed"
        stopped.open()
        session.finish("exhausted")
        assert background.settle(LONG)
        assert {"invoke_agent supervisor", "execute_tool t"} == {span.name for span in host.captured.spans}
        (run,) = (span for span in host.captured.spans if span.parent is None)
        (written,) = (each for each in run.events if each.name == "agui.state.snapshot")
        assert ("/a",) == (written.attributes or {})["agui.state.paths"]

    def test_a_stream_that_is_dropped(self, stopped: Gate) -> None:
        """Nobody ends it: it is disconnected, and traced when the answer comes."""
        host = Host(stopped.memory)
        stopped.close()
        session = host.begin(given("run"))
        session.feed(started())
        del session
        stopped.open()
        assert background.settle(LONG)
        assert "invoke_agent supervisor [AGENT] disconnected" == host.tree()

    def test_several_runs_of_a_stream(self, stopped: Gate) -> None:
        """Each is held until its own thread was read."""
        host = Host(stopped.memory)
        stopped.close()
        session = host.begin()
        threads = ("a", "b", "a")
        for number, thread in enumerate(threads):
            for event in flat([started(f"r{number}", thread), text("m", "x"), finished(f"r{number}", thread)]):
                session.feed(event)
        session.finish("exhausted")
        stopped.open()
        assert background.settle(LONG)
        runs = [span for span in host.captured.spans if span.parent is None]
        assert [("r0", "a"), ("r1", "b"), ("r2", "a")] == [
            ((run.attributes or {})["agui.run.id"], (run.attributes or {})["agui.thread.id"]) for run in runs
        ]
        assert 6 == len(host.captured.spans)

    def test_an_interrupt_that_is_answered_before_it_is_written(self, stopped: Gate) -> None:
        """In one process there is no race: a read sees what waits to be written, and what waits to be traced."""
        host = Host(stopped.memory)
        stopped.close()
        for events, asked in ((ASKS, given("one")), (ANSWERED, ANSWER)):
            session = host.begin(asked)
            for event in flat(events):
                session.feed(event)
            session.finish("exhausted")
        assert "" == host.tree()
        stopped.open()
        assert background.settle(LONG)
        *_, last = host.captured.spans
        assert ("one",) == (last.attributes or {})["agui.resumes.run_id"]

    @pytest.mark.usefixtures("harmless")
    def test_very_long_streams(self, stopped: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is held is bounded; beyond that the run goes on without its thread, counted."""
        monkeypatch.setattr(holding, "MAX_EVENTS", 3)
        host = Host(stopped.memory)
        stopped.close()
        session = host.begin(ANSWER)
        for event in flat(ANSWERED):
            session.feed(event)
        session.finish("exhausted")
        assert UNJOINED == host.tree("agui.resumes.run_id")
        assert {"thread_memory.read": 1} == host.errors()


def _file_gone(_: RedisServer | None, path: Path) -> Iterator[ThreadMemory]:
    yield SQLiteMemory(path / "nowhere" / "threads.db", timeout=0.05)


def _corrupt(_: RedisServer | None, path: Path) -> Iterator[ThreadMemory]:
    memory = SQLiteMemory(path / "threads.db", timeout=0.05)
    Host(memory).run(ASKS)
    memory.close()
    for file in path.iterdir():
        file.write_bytes(b"no database at all" * 1000)
    yield memory


def _locked(_: RedisServer | None, path: Path) -> Iterator[ThreadMemory]:
    memory = SQLiteMemory(path / "threads.db", timeout=0.05)
    Host(memory).run(ASKS)
    memory.close()
    with locked(path / "threads.db"):
        yield memory


def _elsewhere(_: RedisServer | None, path: Path) -> Iterator[ThreadMemory]:
    with sqlite3.connect(path / "threads.db") as other:
        other.execute("CREATE TABLE somebody_elses (x)")
    other.close()
    yield SQLiteMemory(path / "threads.db", timeout=0.05)


def _killed(redis: RedisServer | None, _: Path) -> Iterator[ThreadMemory]:
    assert redis is not None
    memory = RedisMemory(redis.url, timeout=0.2)
    Host(memory).run(ASKS)
    redis.kill()
    yield memory


def _read_only(redis: RedisServer | None, _: Path) -> Iterator[ThreadMemory]:
    assert redis is not None
    redis.ask("REPLICAOF", "127.0.0.1", "1")
    yield RedisMemory(redis.url, timeout=0.2)


def _full(redis: RedisServer | None, _: Path) -> Iterator[ThreadMemory]:
    assert redis is not None
    redis.ask("CONFIG", "SET", "maxmemory", "1")
    yield RedisMemory(redis.url, timeout=0.2)


READ, WRITE = "thread_memory.read", "thread_memory.write"
FAULTS: dict[str, tuple[Any, set[str]]] = {
    "directory gone": (_file_gone, {READ, WRITE}),
    "file corrupt": (_corrupt, {READ, WRITE}),
    "file locked": (_locked, {READ, WRITE}),
    "file of something else": (_elsewhere, {READ, WRITE}),
    "server killed": (_killed, {READ, WRITE}),
    "server read-only": (_read_only, {WRITE}),
    "server full": (_full, {WRITE}),
}


@pytest.mark.usefixtures("harmless")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_store_that_fails_costs_the_links(fault: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """And an error of the observer for what was lost; the run has its tree."""
    make, places = FAULTS[fault]
    used = request.getfixturevalue("redis") if fault.startswith("server") else None
    broken = contextmanager(make)
    with broken(used, tmp_path) as memory:
        memory.seen.clear()
        host = Host(memory, timeout=5.0)
        host.run(ASKS)
        assert places == set(host.errors())
        memory.seen.clear()
        host.captured.clear()
        host.run(ANSWERED, asked=ANSWER)
        assert (UNJOINED if READ in places else UNKNOWN) == host.tree("agui.resumes.run_id")
        assert (memory.figure() is None) == (READ in places)


@pytest.mark.usefixtures("harmless")
class TestAStoreThatComesBack:
    """Nothing has to be started anew."""

    def test_a_redis_that_was_killed_in_mid_run(self, redis: RedisServer) -> None:
        """The run that it was killed in is whole, but not remembered; once it is there again, all is joined."""
        memory = RedisMemory(redis.url, timeout=1.0)
        host = Host(memory)
        session = host.begin(given("one"))
        session.feed(started("one"))
        while session._held is not None and not session._held.reading.over:
            time.sleep(0.001)
        redis.kill()
        for event in flat(ASKS[1:]):
            session.feed(event)
        session.finish("exhausted")
        assert background.settle(LONG)
        assert {WRITE: 1} == host.errors()
        redis.start()
        memory.seen.clear()
        host = Host(memory)
        host.run(ASKS)
        host.captured.clear()
        host.run(ANSWERED, asked=ANSWER)
        assert RESUMED == host.tree("agui.continued", "agui.resumes.run_id")
        memory.close()

    def test_a_redis_that_answers_after_two_seconds(self, redis: RedisServer) -> None:
        """It is waited for as long as the setting says, and by nobody of the host's."""
        memory = RedisMemory(redis.url, timeout=LONG)
        host = Host(memory, timeout=0.05)
        redis.stop()
        session = host.begin(ANSWER)
        for event in flat(ANSWERED[:-1]):
            session.feed(event)
        while session._held is not None and not session._held.reading.over:
            time.sleep(0.005)
        session.feed(ANSWERED[-1])
        session.finish("exhausted")
        assert UNJOINED == host.tree("agui.resumes.run_id")
        assert {"thread_memory.slow": 1} == host.errors()
        time.sleep(max(0.0, 2.0 - 0.05))
        redis.go_on()
        assert background.settle(LONG)
        memory.close()

    def test_a_file_that_is_replaced(self, tmp_path: Path) -> None:
        """The new one is used, without an error."""
        memory = SQLiteMemory(tmp_path / "threads.db")
        host = Host(memory)
        host.run(ASKS)
        for file in tmp_path.iterdir():
            file.unlink()
        memory.seen.clear()
        assert None is memory.read("thread")
        host.run(ASKS)
        assert {} == host.errors()
        assert memory.read("thread") is not None
        memory.close()


def test_a_run_without_interrupts_costs_one_read_and_no_write(redis: RedisServer) -> None:
    """As the server counts its commands."""
    memory = RedisMemory(redis.url, timeout=LONG)
    host = Host(memory)
    redis.ask("CONFIG", "RESETSTAT")
    host.run(started(), text("m", "x"), tool("c", "search"), result("c"), finished(), asked=given())
    lines = [line for line in redis.ask("INFO", "commandstats").splitlines() if line.startswith("cmdstat_h")]
    assert ["cmdstat_hget:calls=1"] == [line.partition(",")[0] for line in lines if "hello" not in line]
    memory.close()


class TestAskedWhileItIsHeld:
    """Who asks a session what it has seen is told right, whatever of it has been traced."""

    @pytest.mark.parametrize("form", ["wire", "object"])
    def test_a_run_that_has_started_does_not_serve_others(self, stopped: Gate, form: str) -> None:
        """An observer without an input, inside a run whose RUN_STARTED is held, is of another run."""
        host = Host(stopped.memory)
        stopped.close()
        session = host.begin(given("run"))
        assert session.serves(None)
        session.feed(started("run") if form == "wire" else RunStartedEvent(thread_id="thread", run_id="run"))
        assert (True, False) == (session.has_started, session.serves(None))
        stopped.open()
        session.finish("exhausted")
        assert background.settle(LONG)

    def test_spans_are_there_once_the_thread_was_read(self, memory: ThreadMemory) -> None:
        """No further event is needed, and what follows is traced once, in order."""
        host = Host(memory)
        session = host.begin(given("run"))
        session.feed(started("run"))
        session.feed({"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "t"})
        while session._held is not None and not session._held.reading.over:
            time.sleep(0.001)
        found: list[Any] = []
        asking = threading.Thread(target=lambda: found.append(session.span_of(None, "c")))
        asking.start()
        asking.join()
        assert [True] == [span is not None for span in found]
        session.feed({"type": "TOOL_CALL_END", "toolCallId": "c"})
        session.feed(result("c", "r"))
        session.feed(finished("run"))
        session.finish("exhausted")
        assert background.settle(LONG)
        assert "invoke_agent supervisor [AGENT] success\n  execute_tool t [TOOL] success" == host.tree()

    def test_the_end_waits_for_who_traces_what_is_held(self, stopped: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        """A stream that ended while its thread was being read, and is traced by who asks: its end comes after that."""
        at_it, go = threading.Event(), threading.Event()

        class Slow(SpanProcessor):
            def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002 - the SDK's
                if span.name.startswith("execute_tool"):
                    at_it.set()
                    go.wait(LONG)

        def wait(reading: background.Reading, original: Any = background.Reading.wait) -> None:
            original(reading)
            at_it.wait(LONG)

        def ask() -> None:
            while not at_it.is_set():
                session.span_of(None, "c")

        monkeypatch.setattr(background.Reading, "wait", wait)
        host = Host(stopped.memory)
        host.captured.tracer_provider.add_span_processor(Slow())
        stopped.close()
        session = host.begin(given("run"))
        for event in flat([started("run"), tool("c", "t", "{}"), result("c", "r"), finished("run")]):
            session.feed(event)
        session.finish("exhausted")
        asking = threading.Thread(target=ask)
        asking.start()
        stopped.open()
        assert at_it.wait(LONG)
        assert not background.settle(0.2)
        go.set()
        asking.join()
        assert background.settle(LONG)
        assert "invoke_agent supervisor [AGENT] success\n  execute_tool t [TOOL] success" == host.tree()

    def test_no_event_is_lost_to_who_asks(self, memory: ThreadMemory) -> None:
        """Threads ask while events come: each event is traced, whenever the store answers."""
        host = Host(memory)
        stop = threading.Event()
        sessions: list[Session] = []

        def ask() -> None:
            while not stop.is_set():
                for session in sessions[-1:]:
                    session.span_of(None, "c")

        asking = threading.Thread(target=ask)
        asking.start()
        for number in range(20):
            run = f"r{number}"
            sessions.append(host.begin(given(run, f"t{number}")))
            calls = [tool(f"c{each}", "t", "{}") for each in range(30)]
            for event in flat([started(run, f"t{number}"), calls, finished(run, f"t{number}")]):
                sessions[-1].feed(event)
            sessions[-1].finish("exhausted")
        assert background.settle(LONG)
        stop.set()
        asking.join()
        assert 20 * 31 == len(host.captured.spans)
        assert {} == host.errors()
