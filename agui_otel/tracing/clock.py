"""The events' own timestamps as the clock, when that is asked for (trace model: time).

AG-UI gives ``timestamp`` no unit. One producer sends seconds, another milliseconds; a present-day time tells them apart
by its magnitude.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agui_otel.protocol.tracker import Tracker
from agui_otel.protocol.transitions import Transition

_UNITS = (1_000_000_000, 1_000_000, 1_000, 1)
"""The units a timestamp may have, in nanoseconds: s, ms, µs, ns. Of no present-day time two of them make another."""
_FIRST, _LAST = 946_684_800_000_000_000, 4_102_444_800_000_000_000
"""2000-01-01 and 2100-01-01. A span's time has to fit in 64 bits, or its whole batch cannot be exported."""


def nanoseconds(timestamp: Any) -> int | None:
    """A timestamp in nanoseconds since the epoch, its unit inferred; None for what is no present-day time."""
    if type(timestamp) is not int and type(timestamp) is not float:
        return None
    return next((int(timestamp * unit) for unit in _UNITS if _FIRST <= timestamp * unit < _LAST), None)


class EventClock:
    """Times a stream by its events' timestamps; an event without one has the last one's. Never runs backwards.

    Until an event has one, events are timed by their receipt: many producers send none at all.
    """

    def __init__(self) -> None:
        self._now = 0
        self._stamp: int | None = None

    def begin(self, at: int) -> None:
        """Something of the stream was timed at `at`, before any event: no event is earlier."""
        self._now = at

    def read(self, event: Any, received: int) -> tuple[int, str | None]:
        """The time of `event`, received at `received`; and a sentence when its timestamp lies before the last."""
        stamp = nanoseconds(_timestamp(event))
        note = None
        if stamp is not None:
            if self._stamp is not None and stamp < self._stamp:
                note = "the event's timestamp lies before the one before it"
            else:
                self._stamp = stamp
        self._now = max(self._now, received if self._stamp is None else self._stamp)
        return self._now, note

    def end(self, received: int) -> int:
        """The time at which the stream ends: that of its last timestamp, if there was one."""
        return max(self._now, received) if self._stamp is None else self._now


def _timestamp(event: Any) -> Any:
    try:
        return event.get("timestamp") if isinstance(event, dict) else getattr(event, "timestamp", None)
    except Exception:  # noqa: BLE001 - a host's object; whoever reads the event next says what is wrong with it
        return None


class TimedByEvents:
    """Hands a tracker its events at their own times."""

    def __init__(self, tracker: Tracker, clock: EventClock) -> None:
        self._tracker = tracker
        self._clock = clock

    def receive(self, event: object, received: int) -> Sequence[Transition]:
        """The stream's next event, received at `received`. How long a stream has been silent is told by that time."""
        at, note = self._clock.read(event, received)
        noted = self._tracker.note("clock_backwards", note, at) if note is not None else ()
        transitions = self._tracker.receive(event, at)
        self._tracker.last_event_ns = received
        return (*noted, *transitions) if noted else transitions
