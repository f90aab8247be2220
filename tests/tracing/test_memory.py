"""Thread memory in the process: bounded, timed, shared between threads."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_otel.errors import ConfigurationError
from agui_otel.protocol.thread import OpenInterrupt, SpanRef, ThreadChange
from agui_otel.tracing.memory import Figure, InProcessMemory, ThreadMemory, Waiting, open_memory

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


def test_what_was_written_is_read_until_it_was_answered() -> None:
    """A record lives from the interrupt to its answer, and an empty one is deleted."""
    memory: ThreadMemory = InProcessMemory()
    memory.write(waits("t", "i"))
    record = memory.read("t")
    assert record is not None
    assert ["i"] == list(record.interrupts)
    memory.write(answers("t", "i"))
    assert memory.read("t") is None


def test_an_unknown_thread_is_none() -> None:
    """Nothing is remembered of a thread that was never written."""
    assert InProcessMemory().read("t") is None


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


def test_the_figure_counts_interrupts_by_reason() -> None:
    """Each reason has a count and its oldest time, over all threads; expired interrupts are left out."""
    memory = InProcessMemory(clock=Clock().read)
    memory.write(waits("a", "i", "j", since=300.0))
    memory.write(waits("b", "i", since=200.0))
    memory.write(waits("c", "i", reason="form"))
    memory.write(waits("d", "i", reason="form", expires_at="1970-01-01T00:16:40Z"))
    memory.write(waits("e", "i", reason="form", expires_at="1970-01-01T00:16:41Z"))
    memory.write(waits("f", "i", reason="gone"))
    memory.write(answers("f", "i"))
    assert {"approval": Waiting(3, 200.0), "form": Waiting(2, 100.0)} == memory.figure().reasons


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


def test_threads_that_write_at_once_lose_nothing() -> None:
    """Every interrupt that eight threads wrote into one record is there."""
    memory = InProcessMemory()
    start = threading.Barrier(8)

    def work(worker: int) -> None:
        start.wait()
        for number in range(30):
            memory.write(waits("t", f"{worker}-{number}"))
            memory.figure()

    workers = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    record = memory.read("t")
    assert record is not None
    assert {f"{worker}-{number}" for worker in range(8) for number in range(30)} == set(record.interrupts)


def test_one_url_is_one_memory_of_the_process() -> None:
    """Everything in a process that names the same URL shares it."""
    memory = open_memory("memory://")
    assert memory is open_memory("memory://", ttl=1.0, size=1)
    assert ("process", True) == (memory.scope, memory.immediate)


@pytest.mark.parametrize("url", ["memory", "", "memory://other", "postgres://host/db"])
def test_another_url_is_a_configuration_error(url: str) -> None:
    """The error says what was given and what is supported."""
    with pytest.raises(ConfigurationError, match=r"thread_memory='.*memory:// \(in-process\)"):
        open_memory(url)
