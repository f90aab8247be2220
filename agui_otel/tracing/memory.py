"""Thread memory: where records wait for the run that answers (trace model: thread memory).

Every store keeps the same `ThreadRecord` per thread, for a time and up to a number of threads, and beside
them a `Figure` for the interrupt gauges. A store that is down costs links and gauges, never a run.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from agui_otel.config import SQLITE, memory_kind, without_password
from agui_otel.errors import ConfigurationError
from agui_otel.protocol.thread import OpenInterrupt, ThreadChange, ThreadRecord
from agui_otel.tracing.forking import renewed
from agui_otel.tracing.runs import SeenRuns

DEFAULT_TTL = 7 * 24 * 3600.0
DEFAULT_SIZE = 10_000
DEFAULT_TIMEOUT = 0.25


class Waiting(NamedTuple):
    """Open interrupts of one reason: how many, and since when the oldest waits (seconds since the epoch)."""

    open: int
    oldest: float


@dataclass(frozen=True, slots=True)
class Figure:
    """The open interrupts of a whole store by reason, without those that have expired.

    An interrupt that was answered counts until the run that answers it has ended well: until then it can be
    answered again.
    """

    reasons: Mapping[str, Waiting] = field(default_factory=dict)

    @classmethod
    def of(cls, interrupts: Iterable[OpenInterrupt], now: float) -> Figure:
        """The figure of `interrupts` at the time `now`, for stores that compute it from their records."""
        reasons: dict[str, Waiting] = {}
        for interrupt in interrupts:
            expiry = interrupt.expiry
            if expiry is not None and expiry <= now:
                continue
            count, oldest = reasons.get(interrupt.reason, (0, interrupt.since))
            reasons[interrupt.reason] = Waiting(count + 1, min(oldest, interrupt.since))
        return cls(reasons)


class ThreadMemory(Protocol):
    """A store of thread records, shared by all sessions that use it, from any thread.

    `seen` are the runs that this process traced with it, whatever their end. `scope` says whose interrupts
    its figure counts: this process's or those of all that share the store.
    Where `immediate` is true no method ever blocks; else `read`, `write` and `figure` may block for as long
    as the store's own time limit and belong off the host's path. A store that cannot answer raises from
    `read` and `write`; the session counts that and goes on without. `figure` never raises.
    """

    @property
    def seen(self) -> SeenRuns:
        """The runs that this process traced last."""

    @property
    def scope(self) -> Literal["process", "shared"]:
        """`process`: a process counts its own interrupts; `shared`: those of the whole store."""

    @property
    def immediate(self) -> bool:
        """Whether no method ever blocks."""

    def read(self, thread_id: str, notes: list[str] | None = None, /) -> ThreadRecord | None:
        """The thread's record or None. One that cannot be understood is None, with a sentence in `notes`."""

    def write(self, change: ThreadChange) -> int:
        """Apply a run's change to what is stored now, in one step; a record left empty is deleted.

        Returns how many threads were forgotten before their time to make room.
        """

    def waiting(self, limit: int) -> Iterator[ThreadRecord]:
        """Threads in which something waits, the one that waits longest first; at most `limit` of them."""

    def figure(self) -> Figure | None:
        """The open interrupts of the store, or None when it cannot say."""

    def close(self) -> None:
        """Give back what the store holds open."""


class InProcessMemory:
    """Threads in a dictionary of this process, the default.

    A thread is forgotten `ttl` seconds after its last write, or when it is the least recently used of more
    than `size` threads: `evicted` counts those that were lost so before their time. `clock` gives seconds
    since the epoch.
    """

    scope: Literal["process", "shared"] = "process"
    immediate = True

    def __init__(
        self, ttl: float = DEFAULT_TTL, size: int = DEFAULT_SIZE, clock: Callable[[], float] = time.time
    ) -> None:
        self.evicted = 0
        self.seen = SeenRuns()
        self._ttl = ttl
        self._size = size
        self._clock = clock
        self._lock = renewed(self, "_lock", threading.RLock)  # a collection in here may end a stream
        self._threads: OrderedDict[str, tuple[float, ThreadRecord]] = OrderedDict()
        self._interrupted: dict[str, tuple[float, ThreadRecord]] = {}

    def __len__(self) -> int:
        return len(self._threads)

    def read(self, thread_id: str, _notes: list[str] | None = None, /) -> ThreadRecord | None:
        """The thread's record, or None."""
        with self._lock:
            return self._current(thread_id, self._clock())

    def write(self, change: ThreadChange) -> int:
        """Apply a run's change to the thread's record. What a thread has but runs is not kept: `seen` has those."""
        with self._lock:
            now, evicted = self._clock(), self.evicted
            record = change.apply(self._current(change.thread_id, now))
            if record.empty:
                self._drop(change.thread_id)
                return 0
            entry = self._threads[change.thread_id] = now + self._ttl, record
            self._threads.move_to_end(change.thread_id)
            if record.interrupts:
                self._interrupted[change.thread_id] = entry
            else:
                self._interrupted.pop(change.thread_id, None)
            while len(self._threads) > self._size:
                oldest, (until, _) = next(iter(self._threads.items()))
                self.evicted += until > now
                self._drop(oldest)
            return self.evicted - evicted

    def waiting(self, limit: int) -> Iterator[ThreadRecord]:
        """Threads in which something waits."""
        with self._lock:
            now = self._clock()
            records = [record for until, record in self._threads.values() if until > now]
        return iter(sorted(records, key=ThreadRecord.since)[:limit])

    def figure(self) -> Figure:
        """The open interrupts of all threads."""
        with self._lock:
            entries = list(self._interrupted.values())
        now = self._clock()
        return Figure.of(
            (interrupt for until, record in entries if until > now for interrupt in record.interrupts.values()),
            now,
        )

    def close(self) -> None:
        """Forget every thread."""
        with self._lock:
            self._threads.clear()
            self._interrupted.clear()
            self.seen.clear()

    def _current(self, thread_id: str, now: float) -> ThreadRecord | None:
        entry = self._threads.get(thread_id)
        if entry is None:
            return None
        until, record = entry
        if until <= now:
            self._drop(thread_id)
            return None
        self._threads.move_to_end(thread_id)
        return record

    def _drop(self, thread_id: str) -> None:
        self._threads.pop(thread_id, None)
        self._interrupted.pop(thread_id, None)


_opened: dict[str, ThreadMemory] = {}
_opening = renewed(sys.modules[__name__], "_opening", threading.RLock)  # a collection in here may end a stream


def open_memory(
    url: str, *, ttl: float = DEFAULT_TTL, size: int = DEFAULT_SIZE, timeout: float = DEFAULT_TIMEOUT
) -> ThreadMemory:
    """The thread memory that `url` names: one per URL and process, made with the bounds of the first who
    asks. Nothing is opened or connected before it is used.

    `memory://` is in-process, `sqlite:///path` a file, `redis://…` a server. A shared store waits `timeout`
    seconds at most for an answer. Raises `ConfigurationError` for any other URL.
    """
    memory = _opened.get(url)
    if memory is not None:
        return memory
    with _opening:
        memory = _opened.get(url)
        if memory is None:
            memory = _opened[url] = _make(url, ttl, size, timeout)
        return memory


def _make(url: str, ttl: float, size: int, timeout: float) -> ThreadMemory:
    kind = memory_kind(url)
    if kind == "memory":
        return InProcessMemory(ttl, size)
    if kind == "sqlite":
        from agui_otel.tracing.sqlite_memory import SQLiteMemory

        return SQLiteMemory(Path(url.removeprefix(SQLITE)), ttl=ttl, size=size, timeout=timeout)
    try:
        from agui_otel.tracing.redis_memory import RedisMemory

        return RedisMemory(url, ttl=ttl, size=size, timeout=timeout)
    except ImportError as error:
        raise ConfigurationError(f"thread_memory: redis-py cannot be imported ({error})") from None
    except (ValueError, TypeError) as error:  # what they say may quote a password
        shown = without_password(url)
        raise ConfigurationError(f"thread_memory={shown!r}: redis-py cannot read it ({type(error).__name__})") from None
