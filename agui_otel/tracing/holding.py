"""The events of a stream whose thread is still being read (trace model: thread memory).

The host does not wait for a shared store: the run's span is open, the host's events go on, and their tracing is put off
until the record is there or its time is over. They are kept as they are now, whatever the host does with them later.
"""

from __future__ import annotations

import threading
from typing import Any

from agui_otel.protocol.events import Kept, keep
from agui_otel.tracing.background import OverloadError, Reading

MAX_EVENTS = 10_000
MAX_SIZE = 16 * 1024 * 1024
"""Characters, roughly, that are held of one stream."""


class Held:
    """What one stream has received since its thread is being read. `lock` is had by who traces what is held."""

    def __init__(self, reading: Reading, lock: threading.RLock) -> None:
        self.reading = reading
        self.events: list[tuple[dict[str, Any] | Kept, int]] = []
        self.started = False
        """Whether a RUN_STARTED is among them."""
        self._lock = lock
        self._size = 0

    def take(self, event: object, at: int) -> bool:
        """Hold an event that was received at `at`; false where the wait is over, and it is to be traced."""
        with self._lock:
            if self.reading.over:
                return False
            if len(self.events) >= MAX_EVENTS or self._size > MAX_SIZE:
                self.reading.give_up(OverloadError())
                return False
            self.add(keep(event), at)
            return True

    def add(self, kept: dict[str, Any] | Kept, at: int) -> None:
        """Hold an event that nobody changes."""
        event = kept.event if isinstance(kept, Kept) else kept
        self.started = self.started or event.get("type") == "RUN_STARTED"
        self._size += _size(event)
        self.events.append((kept, at))


def _size(value: Any) -> int:
    """Characters of an event in JSON terms, roughly."""
    size = 0
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            size += len(item)
        elif isinstance(item, dict):
            size += 8 * len(item) + sum(map(len, item))
            left.extend(item.values())
        elif isinstance(item, list):
            size += 8 * len(item)
            left.extend(item)
    return size


def never(_event: object, _at: int) -> bool:
    """Every event is to be traced."""
    return False


def dropped(_event: object, _at: int) -> bool:
    """Nothing is received after the end."""
    return True
