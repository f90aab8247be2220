"""The runs that this process traced last, for the runs that name one of them as their parent (trace model: parents)."""

from __future__ import annotations

import threading
from collections import OrderedDict

from opentelemetry.trace import SpanContext

MAX_IDS = 4096
"""Run ids that are known at once."""
MAX_THREADS = 16
"""Threads that are told apart for one run id."""
MAX_LENGTH = 256
"""Characters of a run id that is known, and of its thread's; a client chooses them."""


class RecentRuns:
    """Run ids with the spans that stand for them, by thread: producers need not make ids that are unique."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a collection in here may end a stream
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


RECENT_RUNS = RecentRuns()
"""Of this process."""
