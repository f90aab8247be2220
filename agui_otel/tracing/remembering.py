"""What a session asks of thread memory, and tells it (trace model: thread memory)."""

from __future__ import annotations

from collections.abc import Collection

from agui_otel.protocol.entities import Entity
from agui_otel.protocol.interrupts import thread_change
from agui_otel.protocol.scope import Scope
from agui_otel.protocol.thread import SpanRef, ThreadRecord
from agui_otel.tracing.boundary import Boundary
from agui_otel.tracing.links import reference
from agui_otel.tracing.memory import ThreadMemory


class Remembering:
    """One stream's dealings with a store. A store that is down costs the links, never the run.

    Threads in `anonymous` have no memory: many users share them. Descriptions are kept only with `keep_content`.
    """

    def __init__(
        self, memory: ThreadMemory, boundary: Boundary, anonymous: Collection[str], *, keep_content: bool
    ) -> None:
        self._memory = memory
        self._boundary = boundary
        self._anonymous = anonymous
        self._keep_content = keep_content

    def recall(self, thread_id: str) -> ThreadRecord | None:
        """What is remembered of a thread."""
        if thread_id in self._anonymous:
            return None
        try:
            return self._memory.read(thread_id)
        except Exception as error:  # noqa: BLE001 - the boundary
            self._boundary.swallow("thread_memory.read", error)
            return None

    def remember(self, scope: Scope, at: int) -> None:
        """A run has had its terminal event at `at`: what its thread is to know of it."""
        run = scope.run
        if run.thread_id is None or run.thread_id in self._anonymous:
            return

        def ref_of(entity: Entity) -> SpanRef:
            return reference(entity, run.id)

        change = thread_change(scope, at, ref_of, keep_content=self._keep_content)
        if not change.empty:
            try:
                self._memory.write(change)
            except Exception as error:  # noqa: BLE001 - the boundary
                self._boundary.swallow("thread_memory.write", error)
