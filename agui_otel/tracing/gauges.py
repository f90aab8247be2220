"""What the observable gauges report: open invocations by name, and interrupts that wait in thread memory.

The callbacks run on the thread of the metric reader. They take no lock that the host's path holds for long,
do no I/O and raise nothing.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol

from agui_otel.tracing import semconv as s
from agui_otel.tracing.content import clean
from agui_otel.tracing.forking import renewed
from agui_otel.tracing.memory import Figure, ThreadMemory, Waiting

Level = Literal["run", "subagent"]
Labels = dict[str, Any]

OTHER = "other"
UNANNOUNCED = "unannounced"
MAX_LABEL = 256
"""Characters of a label."""

REFRESH_SECONDS = 15.0
"""How often a store that may block is asked for its figure."""
STALE_SECONDS = 120.0
"""From what age on such a figure is not reported."""

_NONE = Waiting(0, float("inf"))


class Heard(Protocol):
    """What knows when its stream was last heard. It is held weakly, so it must allow that."""

    last_event_ns: int
    """When its last event was received, in nanoseconds since the epoch."""


class Names:
    """Labels of one kind, bounded: the first `limit` distinct names keep theirs, the others share `other`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._labels: dict[str, str] = {}
        self._lock = renewed(self, "_lock", threading.RLock)  # a collection in here may end a stream

    def label(self, name: str) -> str:
        """The label of `name`: itself, without what exporters refuse and not too long, or `other`."""
        known = self._labels.get(name)
        if known is not None:
            return known
        if len(self._labels) >= self._limit or len(name) > MAX_LABEL * 4:
            return OTHER
        with self._lock:
            if len(self._labels) >= self._limit:
                return OTHER
            return self._labels.setdefault(name, clean(name)[:MAX_LABEL])


class Group:
    """Invocations of one level and name: their labels, and those that are open, oldest first."""

    __slots__ = ("labels", "level", "name", "open")

    def __init__(self, level: Level, name: str | None) -> None:
        self.level = level
        self.name = name
        self.labels: Labels = {s.LEVEL: level}
        if name is not None:
            self.labels[s.GEN_AI_AGENT_NAME] = name
        self.open: dict[Open, None] = {}

    def living(self) -> list[Open]:
        """Its open invocations; those whose stream is gone, unended, leave."""
        for token in list(self.open):
            if token.heard is not None and token.heard() is None:
                self.open.pop(token, None)
        return list(self.open)


class Open:
    """An open invocation in the metrics: what `Instruments.opened` gave, for its later records.

    `group` is what it is active under, `named` what it is called now.
    """

    __slots__ = ("group", "heard", "named", "since")

    def __init__(self, group: Group, since: int, heard: weakref.ref[Heard] | None) -> None:
        self.group = group
        self.named = group
        self.since = since
        self.heard = heard


class Invocations:
    """The open invocations of all sessions of a meter provider. `clock` gives nanoseconds since the epoch."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._groups: dict[tuple[Level, str | None], Group] = {}

    def group(self, level: Level, name: str | None) -> tuple[Group, bool]:
        """The group of a label, and whether it is new: the first time that the name is seen."""
        group = self._groups.get((level, name))
        if group is not None:
            return group, False
        new = Group(level, name)
        group = self._groups.setdefault((level, name), new)
        return group, group is new

    def enter(self, group: Group, heard: Heard | None) -> Open:
        """Open an invocation in `group`."""
        token = Open(group, self._clock(), None if heard is None else weakref.ref(heard))
        group.open[token] = None
        return token

    def leave(self, token: Open) -> None:
        """Close an invocation; a second time is nothing."""
        token.group.open.pop(token, None)

    def active(self) -> Iterator[tuple[int, Labels]]:
        """For each name once seen, how many of its invocations are open."""
        for group in list(self._groups.values()):
            yield len(group.living()), group.labels

    def oldest_ages(self) -> Iterator[tuple[float, Labels]]:
        """For each name once seen, the age in seconds of its oldest open invocation, or 0."""
        now = self._clock()
        for group in list(self._groups.values()):
            oldest = min((token.since for token in group.living()), default=now)
            yield max(0, now - oldest) / 1e9, group.labels

    def idle_times(self) -> Iterator[tuple[float, Labels]]:
        """For each run's name once seen, seconds since the last event of its most silent open run, or 0."""
        now = self._clock()
        for group in list(self._groups.values()):
            if group.level == "run":
                streams = (token.heard() for token in group.living() if token.heard is not None)
                last = min((heard.last_event_ns for heard in streams if heard is not None), default=now)
                yield max(0, now - last) / 1e9, group.labels


class InterruptGauges:
    """The open interrupts of the thread memories in use.

    An immediate memory is asked when a gauge is read. Any other is asked every 15 s on a thread of its own,
    from the first read on, and reports nothing while its last figure is older than two minutes. A reason once
    seen reports 0 afterwards.
    """

    def __init__(
        self,
        names: Names,
        clock: Callable[[], int],
        every: float = REFRESH_SECONDS,
        stale: float = STALE_SECONDS,
    ) -> None:
        self._names = names
        self._clock = clock
        self._every = every
        self._stale = stale
        self._watched: dict[int, Watched] = {}
        self._seen: set[tuple[str, str]] = set()

    def watch(self, memory: ThreadMemory) -> None:
        """Report the interrupts of `memory` until it is gone. Cheap when it is watched already."""
        watched = self._watched.get(id(memory))
        if watched is None or watched.memory() is not memory:
            for key, other in list(self._watched.items()):
                if other.memory() is None:
                    self._watched.pop(key, None)
            self._watched[id(memory)] = Watched(memory, self._every, self._stale)

    def open_counts(self) -> Iterator[tuple[int, Labels]]:
        """For each reason and scope, how many interrupts are open; nothing where nothing is known."""
        for labels, waiting in self._read():
            yield waiting.open, labels

    def oldest_ages(self) -> Iterator[tuple[float, Labels]]:
        """For each reason and scope, the age in seconds of its oldest open interrupt, or 0."""
        now = self._clock() / 1e9
        for labels, waiting in self._read():
            yield max(0.0, now - waiting.oldest) if waiting.open else 0.0, labels

    def _read(self) -> list[tuple[Labels, Waiting]]:
        sums: dict[tuple[str, str], Waiting] = {}
        for watched in list(self._watched.values()):
            memory = watched.memory()
            figure = None if memory is None else watched.current(memory)
            if memory is None or figure is None:
                continue
            for reason, scope in list(self._seen):
                if scope == memory.scope:
                    sums.setdefault((reason, scope), _NONE)
            for reason, waiting in figure.reasons.items():
                label = self._names.label(reason), memory.scope
                count, oldest = sums.get(label, _NONE)
                sums[label] = Waiting(count + waiting.open, min(oldest, waiting.oldest))
        self._seen.update(sums)
        return [({s.INTERRUPT_REASON: reason, s.STORE: scope}, waiting) for (reason, scope), waiting in sums.items()]


class Watched:
    """One thread memory, held weakly where it can be, and its last figure."""

    def __init__(self, memory: ThreadMemory, every: float, stale: float) -> None:
        self.memory: Callable[[], ThreadMemory | None] = _reference(memory)
        self._every = every
        self._stale = stale
        self._figure: Figure | None = None
        self._at = 0.0
        self._thread: threading.Thread | None = None
        self._starting = renewed(self, "_starting", threading.Lock)

    def current(self, memory: ThreadMemory) -> Figure | None:
        """The figure now where asking never blocks; else the last one, or None when that is too old."""
        if memory.immediate:
            return _ask(memory)
        self._keep_fresh()
        return None if self._figure is None or time.monotonic() - self._at > self._stale else self._figure

    def refresh(self) -> bool:
        """Ask the memory, which may block; false when it is gone."""
        memory = self.memory()
        if memory is None:
            return False
        figure = _ask(memory)
        if figure is not None:
            self._figure, self._at = figure, time.monotonic()
        return True

    def _keep_fresh(self) -> None:
        """Refresh on a daemon thread from now on; a forked child, which has none, starts its own."""
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=_refresh_until_gone,
                    args=(weakref.ref(self), self._every),
                    name="agui-otel-figures",
                    daemon=True,
                )
                self._thread.start()


def _refresh_until_gone(reference: weakref.ref[Watched], every: float) -> None:
    while True:
        watched = reference()
        if watched is None or not watched.refresh():
            return
        del watched
        time.sleep(every)


def _ask(memory: ThreadMemory) -> Figure | None:
    try:
        return memory.figure()
    except Exception:  # noqa: BLE001 - a store of the host's own that breaks its promise
        return None


def _reference(memory: ThreadMemory) -> Callable[[], ThreadMemory | None]:
    try:
        return weakref.ref(memory)
    except TypeError:
        return lambda: memory
