"""The events' own timestamps as a clock (trace model: time)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_otel.tracing.clock import EventClock, nanoseconds
from tests.support.hostile import VALUES

NOW = 1_767_225_600_000_000_000


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (NOW, NOW),
        (NOW // 1_000, NOW),
        (NOW // 1_000_000, NOW),
        (NOW // 1_000_000_000, NOW),
        (NOW / 1_000_000_000, NOW),
        (0, None),
        (-1, None),
        (12_345, None),
        (10**400, None),
        (float("nan"), None),
        (float("inf"), None),
        (True, None),
        ("1767225600", None),
        (None, None),
    ],
)
def test_the_unit_shows_in_the_magnitude(timestamp: Any, expected: int | None) -> None:
    """Seconds, milliseconds, microseconds or nanoseconds of the present; anything else is no time."""
    assert expected == nanoseconds(timestamp)


@given(st.integers(2_000, 2_100), st.sampled_from([1, 10**3, 10**6, 10**9]))
def test_every_present_day_time_is_read_back(year: int, unit: int) -> None:
    """Whatever unit it was written in."""
    seconds = (year - 1970) * 31_556_952
    assert seconds * 10**9 == nanoseconds(seconds * unit)


@given(st.lists(st.tuples(st.none() | st.integers(NOW, NOW + 100), st.integers(NOW, NOW + 100)), max_size=20))
def test_it_never_runs_backwards(events: list[tuple[int | None, int]]) -> None:
    """Nor does it tell of a step back but between timestamps."""
    clock = EventClock()
    times, stamps = [0], [0]
    for stamp, received in events:
        at, note = clock.read({"timestamp": stamp}, received)
        times.append(at)
        assert (note is not None) == (stamp is not None and stamp < max(stamps))
        stamps.append(stamp or 0)
    assert sorted(times) == times
    assert times[-1] <= clock.end(NOW + 100)


def test_a_stream_is_not_older_than_its_beginning() -> None:
    """What was timed before any event stands."""
    clock = EventClock()
    clock.begin(NOW)
    assert (NOW, None) == clock.read({"timestamp": NOW - 5}, NOW + 1)
    assert (NOW + 2, None) == clock.read(SimpleNamespace(timestamp=NOW + 2), NOW + 3)
    assert NOW + 2 == clock.end(NOW + 50)


@pytest.mark.parametrize("make", VALUES)
def test_an_event_that_cannot_be_read_has_no_timestamp(make: Any) -> None:
    """Nothing is raised, whatever the event is or has as its timestamp."""
    clock = EventClock()
    assert (NOW, None) == clock.read(make(), NOW)
    assert (NOW, None) == clock.read({"timestamp": make()}, NOW)


@given(st.one_of(st.integers(), st.floats(allow_nan=True, allow_infinity=True)))
def test_every_time_fits_a_span(timestamp: float) -> None:
    """Whatever a producer sends, a time is one of this century, in nanoseconds that 64 bits hold, or none."""
    time = nanoseconds(timestamp)
    assert time is None or 946_684_800 * 10**9 <= time < 4_102_444_800 * 10**9
