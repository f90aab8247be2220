"""What a session asks of thread memory, and tells it (trace model: thread memory)."""

from __future__ import annotations

from dataclasses import replace

from agui_otel.config import Settings
from agui_otel.protocol.bounds import MAX_LENGTH, bounded, bounded_run
from agui_otel.protocol.entities import Entity
from agui_otel.protocol.interrupts import seen_run, thread_change
from agui_otel.protocol.scope import Scope
from agui_otel.protocol.thread import Remembered, SpanRef, ThreadChange, ThreadRecord
from agui_otel.tracing import background
from agui_otel.tracing.background import Reading
from agui_otel.tracing.boundary import Boundary
from agui_otel.tracing.links import reference
from agui_otel.tracing.memory import ThreadMemory, open_memory

_NOTHING = Remembered(None, {}, asked=False)


def memory_of(settings: Settings, given: ThreadMemory | None = None) -> ThreadMemory:
    """The thread memory that is `given`, else the settings'."""
    if given is not None:
        return given
    return open_memory(
        settings.thread_memory,
        ttl=settings.thread_memory_ttl,
        size=settings.thread_memory_size,
        timeout=settings.thread_memory_timeout,
    )


class Remembering:
    """One stream's dealings with a store. A store that is down costs the links, never the run.

    Anonymous threads have no memory: many users share them. Threads and entries with ids that are too long have none
    either, which is counted. Descriptions are kept only with `keep_content`. A store that is not immediate is read for
    as long as the settings say, and written, in the background; where `waits` is true, it is here that one waits for
    it.
    """

    def __init__(
        self, memory: ThreadMemory, boundary: Boundary, settings: Settings, *, keep_content: bool, waits: bool
    ) -> None:
        self._memory = memory
        self._boundary = boundary
        self._anonymous = settings.anonymous_threads
        self._keep_content = keep_content
        self._timeout = settings.thread_memory_timeout
        self._at_once = memory.immediate or waits
        self.reading: Reading | None = None
        """The read that was begun last, until somebody takes it."""

    def recall(self, thread_id: str) -> Remembered | None:
        """What is remembered of a thread; None where it is being read: see `reading`."""
        if thread_id in self._anonymous:
            return _NOTHING
        if len(thread_id) > MAX_LENGTH:
            self._boundary.count("thread_memory.long", 1)
            return _NOTHING
        if self._at_once:
            return self._read(thread_id)
        self.reading = background.read(self._memory, thread_id, self._timeout)
        return None

    def result(self, reading: Reading) -> Remembered:
        """What a read, which is over, has found."""
        return self._remembered(reading.thread_id, reading.result(self._boundary), answered=reading.answered)

    def remember_early(self, scope: Scope, at: int) -> None:
        """`remember`, for a run whose end is told later. Never raises."""
        try:
            self.remember(scope, at)
            scope.told = True
        except Exception as error:  # noqa: BLE001 - the boundary
            self._boundary.swallow("thread_memory.write", error)

    def remember(self, scope: Scope, at: int) -> None:
        """A run has had its terminal event at `at`: what its thread is to know of it."""
        run = scope.run
        if scope.told or run.thread_id is None or run.thread_id in self._anonymous or len(run.thread_id) > MAX_LENGTH:
            return

        def ref_of(entity: Entity) -> SpanRef:
            return reference(entity, run.id)

        change, lost = bounded(thread_change(scope, at, ref_of, keep_content=self._keep_content))
        self._boundary.count("thread_memory.long", lost)
        if run.id and run.handle.span.get_span_context().is_valid:
            seen = bounded_run(seen_run(scope, at, ref_of, keep_content=self._keep_content))
        else:
            seen = None
        if seen is not None:
            self._memory.seen.add(run.thread_id, seen)
            if not change.empty or seen.cut_off or run.goes_on:
                change = replace(change, runs=(seen,))
        if change.empty:
            return
        if self._at_once:
            self._write(change)
        else:
            background.write(self._memory, change, self._boundary)

    def _remembered(self, thread_id: str, record: ThreadRecord | None, *, answered: bool) -> Remembered:
        here = self._memory.seen.of(thread_id)
        if record is None or not record.runs:
            return Remembered(record, here, answered)
        newer = {ident: run for ident, run in record.runs.items() if ident not in here or here[ident].at < run.at}
        return Remembered(record, {**here, **newer})

    def _read(self, thread_id: str) -> Remembered:
        notes: list[str] = []
        try:
            record = self._memory.read(thread_id, notes)
        except Exception as error:  # noqa: BLE001 - the boundary
            self._boundary.swallow("thread_memory.read", error)
            return self._remembered(thread_id, None, answered=False)
        for note in notes:
            self._boundary.swallow("thread_memory.record", ValueError(note))
        return self._remembered(thread_id, record, answered=True)

    def _write(self, change: ThreadChange) -> None:
        try:
            self._boundary.count("thread_memory.evicted", self._memory.write(change))
        except Exception as error:  # noqa: BLE001 - the boundary
            self._boundary.swallow("thread_memory.write", error)
