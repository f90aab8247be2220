"""The events' own timestamps as the clock, when that is asked for (trace model: time).

AG-UI gives ``timestamp`` no unit. One producer sends seconds, another milliseconds; a present-day time tells them apart
by its magnitude.
"""

from __future__ import annotations

from typing import Any

_UNITS = ((1e17, 1), (1e14, 1_000), (1e11, 1_000_000), (1e8, 1_000_000_000))
"""From this magnitude on, a timestamp is in units of so many nanoseconds: ns, µs, ms, s."""


def nanoseconds(timestamp: Any) -> int | None:
    """A timestamp in nanoseconds since the epoch, its unit inferred; None for what is no present-day time."""
    if isinstance(timestamp, bool) or not isinstance(timestamp, int | float):
        return None
    for least, factor in _UNITS:
        if least <= timestamp < least * 1_000:
            return int(timestamp * factor)
    return None


class EventClock:
    """Times a stream by its events' timestamps; an event without one has the last one's. Never runs backwards."""

    def __init__(self, *, start: int | None = None) -> None:
        self._last = start

    def read(self, event: Any, received: int) -> tuple[int, str | None]:
        """The time of `event`, received at `received`; and a sentence when its timestamp lies before the last."""
        stamp = nanoseconds(
            event.get("timestamp") if isinstance(event, dict) else getattr(event, "timestamp", None)
        )
        if stamp is None:
            return (received if self._last is None else self._last), None
        if self._last is not None and stamp < self._last:
            return self._last, "the event's timestamp lies before the one before it"
        self._last = stamp
        return stamp, None

    def end(self, received: int) -> int:
        """The time at which the stream ends: that of its last timestamp."""
        return received if self._last is None else self._last
