"""Thread memory: bounded, timed, shared between threads and, where it is a file or a server, between processes."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_otel.errors import ConfigurationError
from agui_otel.protocol.thread import (
    OpenInterrupt,
    PendingToolCall,
    SeenRun,
    SpanRef,
    SuspendedSubagent,
    ThreadChange,
    ThreadRecord,
)
from agui_otel.tracing.memory import Figure, InProcessMemory, ThreadMemory, Waiting, _make, open_memory
from agui_otel.tracing.sqlite_memory import SQLiteMemory
from tests.support.stores import KINDS, SHARED, RedisServer, in_processes, open_files, opened

RUN = SpanRef(trace_id="1" * 32, span_id="1" * 16, run_id="run-1")


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def read(self) -> float:
        """Seconds since the epoch."""
        return self.now


def waits(
    thread: str, *idents: str, since: float = 100.0, reason: str = "approval", expires_at: str | None = None
) -> ThreadChange:
    """A run of `thread` that was interrupted."""
    opened = tuple(
        OpenInterrupt(id=ident, run=RUN, since=since, reason=reason, expires_at=expires_at) for ident in idents
    )
    return ThreadChange(thread_id=thread, at=since, interrupts=opened)


def answers(thread: str, *idents: str) -> ThreadChange:
    """A run of `thread` that answered and ended well."""
    return ThreadChange(thread_id=thread, at=200.0, forget_interrupts=frozenset(idents))


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """A server for this module."""
    with RedisServer() as server:
        yield server


Make = Callable[..., ThreadMemory]


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """What makes the only store of a test, of each kind."""
    with ExitStack() as stack:
        server = request.getfixturevalue("redis") if request.param == "redis" else None
        yield lambda **options: stack.enter_context(opened(request.param, tmp_path, server, **options))


def idents(memory: ThreadMemory, thread: str = "t") -> list[str] | None:
    """The interrupts that a thread has; None where nothing is remembered of it."""
    record = memory.read(thread)
    return None if record is None else sorted(record.interrupts)


class TestEveryStore:
    """What holds for all of them."""

    def test_what_was_written_is_read_until_it_was_answered(self, make: Make) -> None:
        """A record lives from the interrupt to its answer, and an empty one is deleted."""
        memory = make()
        memory.write(waits("t", "i"))
        assert ["i"] == idents(memory)
        memory.write(answers("t", "i"))
        assert None is idents(memory)
        assert [] == list(memory.waiting(10))

    def test_an_unknown_thread_is_none(self, make: Make) -> None:
        """Nothing is remembered of a thread that was never written."""
        assert make().read("t") is None

    def test_a_whole_record_comes_back(self, make: Make) -> None:
        """All that a change holds, and ids that hold anything."""
        memory = make()
        thread = "t\0:é\ud800"
        ref = SpanRef(trace_id="2" * 32, span_id="3" * 16, run_id="r:\ud800")
        change = ThreadChange(
            thread_id=thread,
            at=100.0,
            interrupts=(OpenInterrupt(id="12:i\0", run=ref, since=100.0, reason="a:b\ud800", owner="s"),),
            subagents=(SuspendedSubagent(id="s", name="asker", span=ref, since=100.0),),
            tool_calls=(PendingToolCall(id="c", name="send", span=ref, since=90.0),),
        )
        memory.write(change)
        assert change.apply(None) == memory.read(thread)
        figure = memory.figure()
        assert figure is not None
        assert {"a:b\ud800": Waiting(1, 100.0)} == figure.reasons
        assert [thread] == [record.thread_id for record in memory.waiting(10)]

    def test_a_thread_is_forgotten_after_its_time(self, make: Make) -> None:
        """The time runs from the last write, not from the last read."""
        clock = Clock()
        memory = make(ttl=60.0, clock=clock.read)
        memory.write(waits("t", "i"))
        clock.now += 59.0
        assert ["i"] == idents(memory)
        assert Figure({"approval": Waiting(1, 100.0)}) == memory.figure()
        clock.now += 1.0
        assert Figure() == memory.figure()
        memory.write(waits("u", "i"))
        assert ["u"] == [record.thread_id for record in memory.waiting(10)]

    def test_the_figure_counts_interrupts_by_reason(self, make: Make) -> None:
        """Each reason has a count and its oldest time, over all threads; expired interrupts are left out."""
        memory = make(clock=Clock().read)
        memory.write(waits("a", "i", "j", since=300.0))
        memory.write(waits("b", "i", since=200.0))
        memory.write(waits("c", "i", reason="form"))
        memory.write(waits("d", "i", reason="form", expires_at="1970-01-01T00:16:40Z"))
        memory.write(waits("e", "i", reason="form", expires_at="1970-01-01T00:16:41Z"))
        memory.write(waits("f", "i", reason="form", expires_at="1970-01-01T00:00:00Z"))
        memory.write(waits("f", "i", reason="gone"))
        memory.write(answers("f", "i"))
        assert Figure({"approval": Waiting(3, 200.0), "form": Waiting(2, 100.0)}) == memory.figure()

    def test_an_interrupt_that_expires_leaves_the_figure(self, make: Make) -> None:
        """But not its thread: an answer that comes too late finds it."""
        clock = Clock()
        memory = make(clock=clock.read)
        memory.write(waits("t", "i", expires_at="1970-01-01T00:20:00Z"))
        assert Figure({"approval": Waiting(1, 100.0)}) == memory.figure()
        clock.now = 1300.0
        assert Figure() == memory.figure()
        assert ["i"] == idents(memory)

    def test_it_holds_no_more_than_its_size(self, make: Make) -> None:
        """What has to leave before its time is counted, and leaves the figure and the list, too."""
        clock = Clock()
        memory = make(size=3, clock=clock.read)
        evicted = 0
        for number in range(10):
            clock.now += 1
            evicted += memory.write(waits(f"t{number}", "i", since=float(number)))
        assert 7 == evicted
        assert ["t7", "t8", "t9"] == [record.thread_id for record in memory.waiting(10)]
        assert Figure({"approval": Waiting(3, 7.0)}) == memory.figure()

    def test_who_waits_longest_comes_first(self, make: Make) -> None:
        """Whatever it waits for, and as many as are asked for."""
        memory = make()
        memory.write(waits("new", "i", since=300.0))
        pending = PendingToolCall(id="c", name="pick", span=RUN, since=200.0)
        memory.write(ThreadChange(thread_id="call", at=200.0, tool_calls=(pending,)))
        memory.write(waits("old", "i", since=100.0))
        assert ["old", "call", "new"] == [record.thread_id for record in memory.waiting(3)]
        assert ["old", "call"] == [record.thread_id for record in memory.waiting(2)]

    def test_threads_that_write_at_once_lose_nothing(self, make: Make) -> None:
        """Every interrupt that eight threads wrote into one record is there."""
        memory = make()
        start = threading.Barrier(8)

        def work(worker: int) -> None:
            start.wait()
            for number in range(12):
                memory.write(waits("t", f"{worker}-{number}"))
                memory.figure()

        workers = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert sorted(f"{worker}-{number}" for worker in range(8) for number in range(12)) == idents(memory)


class TestSharedStores:
    """What other processes see."""

    @pytest.fixture(params=SHARED)
    def url(self, request: pytest.FixtureRequest, tmp_path: Path) -> str:
        """An empty store of each kind."""
        if request.param == "sqlite":
            return f"sqlite:///{tmp_path / 'threads.db'}"
        server: RedisServer = request.getfixturevalue("redis")
        server.ask("FLUSHALL")
        return server.url

    def test_processes_that_write_one_thread_lose_nothing(self, url: str) -> None:
        """Sixteen at once, each with interrupts of its own: all are there, and counted."""
        start = time.time() + 0.5

        def work(number: int) -> None:
            memory = _make(url, 3600.0, 100, 10.0)
            time.sleep(max(0.0, start - time.time()))
            for count in range(10):
                memory.write(waits("t", f"{number}-{count}"))

        assert [0] * 16 == in_processes(16, work)
        memory = _make(url, 3600.0, 100, 10.0)
        assert sorted(f"{number}-{count}" for number in range(16) for count in range(10)) == idents(memory)
        assert Figure({"approval": Waiting(160, 100.0)}) == memory.figure()
        memory.close()

    def test_a_store_that_many_open_at_once(self, tmp_path: Path) -> None:
        """A file that is not there yet is made by one of them, and used by all."""
        for number in range(30):
            path = tmp_path / f"{number}.db"
            memories = [SQLiteMemory(path, timeout=10.0) for _ in range(8)]
            start = threading.Barrier(len(memories))

            def work(memory: SQLiteMemory, ident: str, start: threading.Barrier = start) -> None:
                start.wait()
                memory.write(waits("t", ident))

            workers = [threading.Thread(target=work, args=(each, str(i))) for i, each in enumerate(memories)]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
            assert [str(i) for i in range(len(memories))] == idents(memories[0])
            for each in memories:
                each.close()

    def test_a_file_is_closed_with_the_last_who_holds_it(self, tmp_path: Path) -> None:
        """Also where that is a cycle of objects. From Python 3.13 on, a connection that nobody closes is a warning."""

        class Holder:
            def __init__(self) -> None:
                self.memory, self.itself = SQLiteMemory(tmp_path / "threads.db"), self

        Holder().memory.write(waits("t", "x"))
        assert open_files(tmp_path)
        gc.collect()
        assert set() == open_files(tmp_path)

    def test_which_runs_were_seen_outlives_what_waited(self, url: str) -> None:
        """For a shorter time: a thread in which nothing waits leaves earlier."""
        memory = _make(url, 3600.0, 100, 10.0)
        run = SeenRun(id="run-1", span=RUN, at=100.0)
        memory.write(ThreadChange(thread_id="t", at=100.0, runs=(run,)))
        record = memory.read("t")
        assert record is not None
        assert {"run-1": run} == record.runs
        assert [] == list(memory.waiting(10))
        memory.close()

    def test_a_record_of_another_version_is_ignored_with_a_note(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As is garbage; the next write replaces it."""
        memory = _make(url, 3600.0, 100, 10.0)
        for data in (b'{"version": 99}', b"\x00garbage"):
            with monkeypatch.context() as patch:
                patch.setattr(ThreadRecord, "encode", lambda _, data=data: data)
                memory.write(waits("t", "i"))
            notes: list[str] = []
            assert None is memory.read("t", notes)
            assert 1 == len(notes)
            assert [] == list(memory.waiting(10))
        memory.write(waits("t", "i"))
        assert ["i"] == idents(memory)
        memory.close()


def test_the_least_recently_used_thread_is_evicted_and_counted() -> None:
    """Reading a thread keeps it; the one that leaves before its time is counted."""
    memory = InProcessMemory(size=2)
    memory.write(waits("a", "i"))
    memory.write(waits("b", "i"))
    memory.read("a")
    memory.write(waits("c", "i"))
    assert (None, 2, 1) == (memory.read("b"), len(memory), memory.evicted)


def test_a_thread_is_forgotten_after_its_time() -> None:
    """The time runs from the last write, not from the last read."""
    clock = Clock()
    memory = InProcessMemory(ttl=60.0, clock=clock.read)
    memory.write(waits("t", "i"))
    clock.now += 59.0
    assert memory.read("t") is not None
    assert {"approval": Waiting(1, 100.0)} == memory.figure().reasons
    clock.now += 1.0
    assert Figure() == memory.figure()
    assert (None, 0, 0) == (memory.read("t"), len(memory), memory.evicted)


def test_an_expired_thread_that_makes_room_is_no_eviction() -> None:
    """Only what is lost before its time counts as evicted."""
    clock = Clock()
    memory = InProcessMemory(ttl=60.0, size=1, clock=clock.read)
    memory.write(waits("a", "i"))
    clock.now += 61.0
    memory.write(waits("b", "i"))
    assert (1, 0) == (len(memory), memory.evicted)


def test_an_expired_thread_is_not_the_base_of_a_change() -> None:
    """A thread that is written again after its time starts anew."""
    clock = Clock()
    memory = InProcessMemory(ttl=60.0, clock=clock.read)
    memory.write(waits("t", "old"))
    clock.now += 61.0
    memory.write(waits("t", "new"))
    record = memory.read("t")
    assert record is not None
    assert ["new"] == list(record.interrupts)


def test_a_closed_memory_has_forgotten() -> None:
    """Closing empties it."""
    memory = InProcessMemory()
    memory.write(waits("t", "i"))
    memory.close()
    assert (None, Figure()) == (memory.read("t"), memory.figure())


operations = st.lists(
    st.tuples(st.sampled_from(["wait", "answer", "read", "tick"]), st.sampled_from("abcde"), st.sampled_from("ij")),
    max_size=60,
)


def perform(memory: InProcessMemory, clock: Clock, step: str, thread: str, ident: str) -> None:
    """One operation on the memory, or four seconds of waiting."""
    if step == "tick":
        clock.now += 4.0
    elif step == "read":
        memory.read(thread)
    else:
        memory.write(waits(thread, ident) if step == "wait" else answers(thread, ident))


@given(operations, st.integers(1, 3))
def test_it_never_holds_more_than_its_bound(steps: list[tuple[str, str, str]], size: int) -> None:
    """For any use there are at most `size` threads, and the figure counts what they hold."""
    clock = Clock()
    memory = InProcessMemory(ttl=10.0, size=size, clock=clock.read)
    for step in steps:
        perform(memory, clock, *step)
        assert len(memory) <= size
    found = [record for record in map(memory.read, "abcde") if record is not None]
    figure = memory.figure()
    assert sum(len(record.interrupts) for record in found) == sum(each.open for each in figure.reasons.values())


@given(operations)
def test_it_remembers_each_thread_for_its_time(steps: list[tuple[str, str, str]]) -> None:
    """Within its size, each thread has what was written to it since it last was empty or too old."""
    clock = Clock()
    memory = InProcessMemory(ttl=10.0, size=5, clock=clock.read)
    model: dict[str, tuple[float, frozenset[str]]] = {}
    for step, thread, ident in steps:
        perform(memory, clock, step, thread, ident)
        if step in ("wait", "answer"):
            until, idents = model.get(thread, (0.0, frozenset[str]()))
            idents = idents if until > clock.now else frozenset()
            model[thread] = clock.now + 10.0, idents | {ident} if step == "wait" else idents - {ident}
    expected = {thread: idents for thread, (until, idents) in model.items() if until > clock.now and idents}
    found = {thread: record for thread in "abcde" if (record := memory.read(thread)) is not None}
    assert expected == {thread: set(record.interrupts) for thread, record in found.items()}


def test_one_url_is_one_memory_of_the_process() -> None:
    """Everything in a process that names the same URL shares it."""
    memory = open_memory("memory://")
    assert memory is open_memory("memory://", ttl=1.0, size=1)
    assert ("process", True) == (memory.scope, memory.immediate)


@pytest.mark.parametrize("url", ["memory", "", "memory://other", "postgres://host/db", "sqlite:///", "redis://"])
def test_another_url_is_a_configuration_error(url: str) -> None:
    """The error says what is supported."""
    with pytest.raises(ConfigurationError, match=r"it should be memory://, sqlite:///path"):
        open_memory(url)
