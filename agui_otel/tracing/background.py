"""A shared store off the host's path: reads that nobody waits for, writes in order, streams that ended before a read.

What blocks is done on a few daemon threads of this module, started when they are first needed, shared by all stores of
the process. Everything is bounded: a read has its time, a queue its length, and at the exit all have some time
together. A forked child begins with empty queues: what waits in them is its parent's.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

from agui_otel.protocol.thread import ThreadChange, ThreadRecord
from agui_otel.tracing.boundary import Boundary, tell
from agui_otel.tracing.memory import ThreadMemory

READERS = 4
MAX_READS = 1024
MAX_WRITES = 4096
MAX_ENDS = 4096
PAUSES = (0.05, 0.25)
"""Seconds before a write is tried again, while the store had answered before."""

Job = Callable[[], None]
Key = tuple[int, str]
"""A thread: its store's identity, and its id."""
T = TypeVar("T")

_logger = logging.getLogger("agui_otel")
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
        """Have `job` done; false where too many wait already, or no thread can be had. Never blocks."""
        with self._lock:
            if self._unfinished >= self._limit:
                return False
            self._unfinished += 1
            if not self._has_threads(self._unfinished):
                self._unfinished -= 1
                return False
        self._jobs.put(job)
        return True

    def get_ready(self) -> None:
        """Have a thread before there is a job: at its exit a Python may start none any more (3.12 does not)."""
        if not self._threads:
            with self._lock:
                self._has_threads(1)

    def settle(self, due: float) -> bool:
        """Wait until everything was done, or `due` (monotonic seconds) has come; whether it was done."""
        while self._unfinished:
            if time.monotonic() >= due:
                return False
            if any(thread.is_alive() for thread in list(self._threads)):
                time.sleep(_LOOK_AGAIN)
            elif not self._do_one():  # no thread could be started: the interpreter is on its way out
                return not self._unfinished
        return True

    def _has_threads(self, jobs: int) -> bool:
        """Start one more where it is wanted; whether there is any. At the exit there need be none: see `settle`."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) < min(self._wanted, jobs):
            thread = threading.Thread(target=self._work, args=(self._jobs,), name=self._name, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # at the interpreter's exit, or where the system gives no more
                return bool(self._threads) or not threading.main_thread().is_alive()
            self._threads.append(thread)
        return True

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
        except BaseException as error:  # noqa: BLE001 - a job tells its errors itself, but for what stops a host
            _raised.append(error)
            tell("thread_memory.background", error, "what was traced or written there may be incomplete")
        finally:
            del job
            with self._lock:
                self._unfinished -= 1


class Reading:
    """A thread's record on its way, for so many seconds."""

    __slots__ = ("__weakref__", "_done", "before", "due", "error", "notes", "record", "store", "thread_id")

    def __init__(self, store: ThreadMemory, thread_id: str, seconds: float) -> None:
        self.store = store
        self.thread_id = thread_id
        self.due = time.monotonic() + seconds
        self.record: ThreadRecord | None = None
        self.notes: list[str] = []
        self.error: Exception | None = None
        self.before = 0
        """How many streams of the thread are yet to be traced, before it is read."""
        self._done = threading.Event()

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
            self._done.set()

    @property
    def answered(self) -> bool:
        """Whether the store has answered."""
        return self._done.is_set() and self.error is None

    def result(self, boundary: Boundary) -> ThreadRecord | None:
        """The record, once it is over; what went wrong is told to `boundary`."""
        error = self.error
        if isinstance(error, SlowError) or (error is None and not self._done.is_set()):
            boundary.swallow("thread_memory.slow", SlowError())
        elif error is not None:
            boundary.swallow("thread_memory.read", error)
        else:
            for note in self.notes:
                boundary.swallow("thread_memory.record", ValueError(note))
            return self.record
        return None

    def begin(self) -> None:
        """Have it read."""
        if not _readers.submit(self._read):
            self.give_up(OverloadError())

    def _read(self) -> None:
        try:
            if time.monotonic() >= self.due:
                return
            changes = _waiting_to_be_written.get((id(self.store), self.thread_id), ())
            record = self.store.read(self.thread_id, self.notes)
            for change in changes:
                record = change.apply(record)
            self.record = record
        except Exception as error:  # noqa: BLE001 - told where it is wanted
            self.error = self.error or error
        self._done.set()


class End:
    """A stream of a thread that is yet to be traced, and the reads that are to see what it leaves."""

    __slots__ = ("followers",)

    def __init__(self) -> None:
        self.followers: list[Reading] = []


def read(store: ThreadMemory, thread_id: str, seconds: float) -> Reading:
    """Begin to read a thread. It is as the runs of this process that have ended until now left it."""
    reading = Reading(store, thread_id, seconds)
    for worker in (_ender, _writer):
        worker.get_ready()
    mine = getattr(_now, "end", None)
    with _keeping:
        _readings.add(reading)
        before = [end for end in _ends.get((id(store), thread_id), ()) if end is not mine]
        reading.before = len(before)
        for end in before:
            end.followers.append(reading)
    if _exiting:
        reading.give_up(SlowError())
    elif not before:
        reading.begin()
    return reading


def write(store: ThreadMemory, change: ThreadChange, boundary: Boundary) -> None:
    """Have `change` written, after what was to be written before. What goes wrong is told to `boundary`."""
    key = id(store), change.thread_id
    with _keeping:
        _add(_waiting_to_be_written, key, change)
    _owe(boundary, 1)
    if not _writer.submit(lambda: _write(store, change, boundary)):
        _written(key, change, boundary)
        boundary.swallow("thread_memory.write", OverloadError())


def end_later(reading: Reading, end: Job, boundary: Boundary) -> bool:
    """Have `end` done, in this context, once `reading` is over: a stream whose host has gone on.

    False where too many wait.
    """
    key = id(reading.store), reading.thread_id
    this, context = End(), copy_context()

    def job() -> None:
        try:
            reading.wait()
            _now.end = this
            context.run(end)
        finally:
            _now.end = None
            _traced(key, this, boundary)

    with _keeping:
        _add(_ends, key, this)
    _owe(boundary, 1)
    if _ender.submit(job):
        return True
    _traced(key, this, boundary)
    return False


def _traced(key: Key, this: End, boundary: Boundary) -> None:
    """A stream was traced: reads of its thread, which waited for that, may begin."""
    _owe(boundary, -1)
    with _keeping:
        _remove(_ends, key, this)
        for reading in this.followers:
            reading.before -= 1
        ready = [reading for reading in this.followers if not reading.before]
    for reading in ready:
        reading.begin()


def _add(table: dict[Key, tuple[T, ...]], key: Key, item: T) -> None:
    table[key] = (*table.get(key, ()), item)


def _remove(table: dict[Key, tuple[T, ...]], key: Key, item: T) -> None:
    left = tuple(other for other in table.get(key, ()) if other is not item)
    if left:
        table[key] = left
    else:
        table.pop(key, None)


def _owe(boundary: Boundary, more: int) -> None:
    with _keeping:
        _owed[boundary] = _owed.get(boundary, 0) + more
        if not _owed[boundary]:
            del _owed[boundary]


def settle(seconds: float) -> bool:
    """Wait until all streams that ended are traced and all is written, for so many seconds at most; whether it is."""
    due = time.monotonic() + seconds
    if Boundary.strict and _raised:
        raise _raised.popleft()
    done = [worker.settle(due) for worker in (_readers, _ender, _readers, _writer)]
    return all(done)


def settle_at_exit(seconds: float) -> None:
    """`settle`, at the interpreter's exit: from half of the time on no read is waited for. What is left is counted."""
    global _exiting  # noqa: PLW0603
    if settle(seconds / 2):
        return
    _exiting = True
    with _keeping:
        readings = list(_readings)
    for reading in readings:
        reading.give_up(SlowError())
    due = time.monotonic() + seconds / 2
    if all([worker.settle(due) for worker in (_ender, _writer)]):  # noqa: C419 - each has its time
        return
    with _keeping:
        owed = dict(_owed)
    for boundary, times in owed.items():
        boundary.count("thread_memory.exit", times)
    if owed:
        _logger.warning(
            "agui-otel: the exit came before %d streams were traced, or changes of thread memory written",
            sum(owed.values()),
        )


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
        _written(key, change, boundary)


def _written(key: Key, change: ThreadChange, boundary: Boundary) -> None:
    _owe(boundary, -1)
    with _keeping:
        _remove(_waiting_to_be_written, key, change)


_workers: weakref.WeakSet[Worker] = weakref.WeakSet()
_raised: deque[BaseException] = deque(maxlen=16)
_keeping = threading.RLock()  # a collection in here may end a stream
_waiting_to_be_written: dict[Key, tuple[ThreadChange, ...]] = {}
_ends: dict[Key, tuple[End, ...]] = {}
_readings: weakref.WeakSet[Reading] = weakref.WeakSet()
_owed: dict[Boundary, int] = {}
"""Streams that are yet to be traced, and changes that are yet to be written."""
_exiting = False
_now = threading.local()
"""``end``: which of them this thread is tracing."""
_answers = True
_readers = Worker("agui-otel-memory-read", READERS, MAX_READS)
_ender = Worker("agui-otel-memory-end", 1, MAX_ENDS)
_writer = Worker("agui-otel-memory-write", 1, MAX_WRITES)


def _begin_anew() -> None:
    """In a forked child: what waits is the parent's to do, and its threads are not here."""
    global _keeping, _answers, _readings, _exiting  # noqa: PLW0603
    _keeping = threading.RLock()
    _answers = True
    _waiting_to_be_written.clear()
    _ends.clear()
    _owed.clear()
    _readings, _exiting = weakref.WeakSet(), False
    for worker in list(_workers):
        worker._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
