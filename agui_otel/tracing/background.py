"""A shared store off the host's path: reads that nobody waits for, writes in order, streams that ended before a read.

What blocks is done on a few daemon threads of this module, started when they are first needed, shared by all stores of
the process. Everything is bounded: a read has its time, a queue its length, and at the exit all have some time
together. A forked child begins with empty queues: what waits in them is its parent's.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

from agui_otel.protocol.thread import ThreadChange, ThreadRecord
from agui_otel.tracing.boundary import Boundary
from agui_otel.tracing.memory import ThreadMemory

READERS = 4
MAX_READS = 1024
MAX_WRITES = 4096
MAX_ENDS = 4096
PAUSES = (0.05, 0.25)
"""Seconds before a write is tried again, while the store had answered before."""

Job = Callable[[], None]

_LOOK_AGAIN = 0.002


class OverloadError(RuntimeError):
    """There is more to be read or written than the store takes."""


class SlowError(TimeoutError):
    """The store did not answer in its time."""


class Worker:
    """Does jobs one after another, in the order they came, on so many daemon threads; at most `limit` may wait."""

    def __init__(self, name: str, threads: int, limit: int) -> None:
        self._name = name
        self._wanted = threads
        self._limit = limit
        self._begin()
        _workers.add(self)

    def _begin(self) -> None:
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()  # its put may be interrupted by a collection
        self._threads: list[threading.Thread] = []
        self._lock = threading.RLock()  # a collection in here may end a stream
        self._unfinished = 0

    def submit(self, job: Job) -> bool:
        """Have `job` done; false where too many wait already. Never blocks."""
        with self._lock:
            if self._unfinished >= self._limit:
                return False
            self._unfinished += 1
        self._jobs.put(job)
        if len(self._threads) < self._wanted:
            self._start_one()
        return True

    def settle(self, due: float) -> bool:
        """Wait until everything was done, or `due` (monotonic seconds) has come; whether it was done."""
        while self._unfinished:
            if time.monotonic() >= due:
                return False
            if self._threads:
                time.sleep(_LOOK_AGAIN)
            elif not self._do_one():  # no thread could be started: the interpreter is on its way out
                return not self._unfinished
        return True

    def _start_one(self) -> None:
        with self._lock:
            if len(self._threads) >= min(self._wanted, self._unfinished):
                return
            thread = threading.Thread(target=self._work, args=(self._jobs,), name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # at the interpreter's exit
                return
            self._threads.append(thread)

    def _work(self, jobs: queue.SimpleQueue[Job]) -> None:
        while True:
            self._do(jobs.get())

    def _do_one(self) -> bool:
        try:
            job = self._jobs.get_nowait()
        except queue.Empty:
            return False
        self._do(job)
        return True

    def _do(self, job: Job) -> None:
        try:
            job()
        except Exception as error:  # noqa: BLE001 - a job tells its errors itself, but for those of this package's tests
            _raised.append(error)
        finally:
            del job
            with self._lock:
                self._unfinished -= 1


class Reading:
    """A thread's record on its way, for so many seconds."""

    __slots__ = ("_before", "_done", "due", "error", "notes", "record", "store", "thread_id")

    def __init__(self, store: ThreadMemory, thread_id: str, seconds: float) -> None:
        self.store = store
        self.thread_id = thread_id
        self.due = time.monotonic() + seconds
        self.record: ThreadRecord | None = None
        self.notes: list[str] = []
        self.error: Exception | None = None
        self._done = threading.Event()
        mine = getattr(_now, "end", None)
        ends = _ends.get((id(store), thread_id), ())
        self._before = [end for end in ends if end is not mine]  # streams of the thread that are yet to be traced

    @property
    def over(self) -> bool:
        """Whether the record is there, or not to come any more."""
        return self._done.is_set() or time.monotonic() >= self.due

    def wait(self) -> None:
        """Wait until it is over."""
        self._done.wait(max(0.0, self.due - time.monotonic()))

    def give_up(self, error: Exception) -> None:
        """Nobody wants it any more."""
        if not self._done.is_set():
            self.error, self.due = error, 0.0

    @property
    def answered(self) -> bool:
        """Whether the store has answered."""
        return self._done.is_set() and self.error is None

    def result(self, boundary: Boundary) -> ThreadRecord | None:
        """The record, once it is over; what went wrong is told to `boundary`."""
        error = self.error
        if not self._done.is_set() and error is None:
            boundary.swallow("thread_memory.slow", SlowError())
        elif error is not None:
            boundary.swallow("thread_memory.read", error)
        else:
            for note in self.notes:
                boundary.swallow("thread_memory.record", ValueError(note))
            return self.record
        return None

    def _read(self) -> None:
        try:
            for end in self._before:
                end.wait(max(0.0, self.due - time.monotonic()))
            if time.monotonic() >= self.due:
                return
            changes = _waiting_to_be_written.get((id(self.store), self.thread_id), ())
            record = self.store.read(self.thread_id, self.notes)
            for change in changes:
                record = change.apply(record)
            self.record = record
        except Exception as error:  # noqa: BLE001 - told where it is wanted
            self.error = error
        self._done.set()


def read(store: ThreadMemory, thread_id: str, seconds: float) -> Reading:
    """Begin to read a thread. It is as the runs of this process that have ended until now left it."""
    reading = Reading(store, thread_id, seconds)
    if not _readers.submit(reading._read):
        reading.give_up(OverloadError())
    return reading


def write(store: ThreadMemory, change: ThreadChange, boundary: Boundary) -> None:
    """Have `change` written, after what was to be written before. What goes wrong is told to `boundary`."""
    key = id(store), change.thread_id
    with _keeping:
        _waiting_to_be_written[key] = (*_waiting_to_be_written.get(key, ()), change)
    if not _writer.submit(lambda: _write(store, change, boundary)):
        _written(key, change)
        boundary.swallow("thread_memory.write", OverloadError())


def end_later(reading: Reading, end: Job) -> bool:
    """Have `end` done once `reading` is over: a stream whose host has gone on. False where too many wait."""
    key = id(reading.store), reading.thread_id
    done = threading.Event()

    def job() -> None:
        try:
            reading.wait()
            _now.end = done
            end()
        finally:
            _now.end = None
            with _keeping:
                _ends[key] = tuple(other for other in _ends.get(key, ()) if other is not done)
                if not _ends[key]:
                    del _ends[key]
            done.set()

    with _keeping:
        _ends[key] = (*_ends.get(key, ()), done)
    if _ender.submit(job):
        return True
    with _keeping:
        _ends[key] = tuple(other for other in _ends.get(key, ()) if other is not done)
    done.set()
    return False


def settle(seconds: float) -> bool:
    """Wait until all streams that ended are traced and all is written, for so many seconds at most; whether it is."""
    due = time.monotonic() + seconds
    if Boundary.strict and _raised:
        raise _raised.popleft()
    done = [worker.settle(due) for worker in (_readers, _ender, _writer)]
    return all(done)


def _write(store: ThreadMemory, change: ThreadChange, boundary: Boundary) -> None:
    global _answers  # noqa: PLW0603 - there is one writer a process
    key = id(store), change.thread_id
    try:
        for pause in (*(PAUSES if _answers else ()), None):
            try:
                evicted = store.write(change)
            except Exception as error:  # noqa: BLE001 - a store may raise anything
                if pause is None:
                    _answers = False
                    boundary.swallow("thread_memory.write", error)
                    return
                time.sleep(pause)
            else:
                _answers = True
                boundary.count("thread_memory.evicted", evicted)
                return
    finally:
        _written(key, change)


def _written(key: tuple[int, str], change: ThreadChange) -> None:
    with _keeping:
        left = tuple(other for other in _waiting_to_be_written.get(key, ()) if other is not change)
        if left:
            _waiting_to_be_written[key] = left
        else:
            _waiting_to_be_written.pop(key, None)


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()
_raised: deque[Exception] = deque(maxlen=16)
_keeping = threading.RLock()  # a collection in here may end a stream
_waiting_to_be_written: dict[tuple[int, str], tuple[ThreadChange, ...]] = {}
_ends: dict[tuple[int, str], tuple[threading.Event, ...]] = {}
_now = threading.local()
"""``end``: which of them this thread is tracing."""
_answers = True
_readers = Worker("agui-otel-memory-read", READERS, MAX_READS)
_ender = Worker("agui-otel-memory-end", 1, MAX_ENDS)
_writer = Worker("agui-otel-memory-write", 1, MAX_WRITES)


def _begin_anew() -> None:
    """In a forked child: what waits is the parent's to do, and its threads are not here."""
    global _keeping, _answers  # noqa: PLW0603
    _keeping = threading.RLock()
    _answers = True
    _waiting_to_be_written.clear()
    _ends.clear()
    for worker in list(_workers):
        worker._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
