"""The runs that this process traced last: for runs that name one as their parent, and for streams that come again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping

from opentelemetry.trace import SpanContext

from agui_otel.protocol.bounds import MAX_LENGTH
from agui_otel.protocol.thread import MAX_RUNS, SeenRun
from agui_otel.tracing.forking import renewed

MAX_IDS = 4096
"""Run ids that are known at once."""
MAX_THREADS = 16
"""Threads that are told apart for one run id."""


class RecentRuns:
    """Run ids with the spans that stand for them, by thread: producers need not make ids that are unique."""

    def __init__(self) -> None:
        self._lock = renewed(self, "_lock", threading.RLock)  # a collection in here may end a stream
        self._runs: OrderedDict[str, OrderedDict[str | None, SpanContext]] = OrderedDict()

    def add(self, run_id: str, thread_id: str | None, context: SpanContext) -> None:
        """A run has this id: the latest of a thread counts. Ids that are too long are not kept."""
        if len(run_id) > MAX_LENGTH or (thread_id is not None and len(thread_id) > MAX_LENGTH):
            return
        with self._lock:
            threads = self._runs.setdefault(run_id, OrderedDict())
            self._runs.move_to_end(run_id)
            threads[thread_id] = context
            threads.move_to_end(thread_id)
            if len(threads) > MAX_THREADS:
                threads.popitem(last=False)
            if len(self._runs) > MAX_IDS:
                self._runs.popitem(last=False)

    def find(self, run_id: str, thread_id: str | None) -> SpanContext | None:
        """The run of this id in the same thread, else the only one of this id; None where that leaves a choice."""
        with self._lock:
            threads = self._runs.get(run_id)
            if threads is None:
                return None
            sole = next(iter(threads.values())) if len(threads) == 1 else None
            return threads.get(thread_id, sole)


class SeenRuns:
    """The runs of each thread that ended here, whatever their end; the threads that were seen last."""

    def __init__(self) -> None:
        self._lock = renewed(self, "_lock", threading.RLock)  # a collection in here may end a stream
        self._threads: OrderedDict[str, dict[str, SeenRun]] = OrderedDict()

    def add(self, thread_id: str, run: SeenRun) -> None:
        """A run has ended. Ids that are too long are not kept."""
        if len(run.id) > MAX_LENGTH or len(thread_id) > MAX_LENGTH:
            return
        with self._lock:
            runs = dict(self._threads.get(thread_id, ()))
            runs.pop(run.id, None)
            runs[run.id] = run
            if len(runs) > MAX_RUNS:
                del runs[next(iter(runs))]
            self._threads[thread_id] = runs
            self._threads.move_to_end(thread_id)
            if len(self._threads) > MAX_IDS:
                self._threads.popitem(last=False)

    def of(self, thread_id: str) -> Mapping[str, SeenRun]:
        """The runs of a thread, by id."""
        return self._threads.get(thread_id, _NONE)

    def clear(self) -> None:
        """Forget every run."""
        with self._lock:
            self._threads.clear()


_NONE: Mapping[str, SeenRun] = {}

RECENT_RUNS = RecentRuns()
"""Of this process."""
