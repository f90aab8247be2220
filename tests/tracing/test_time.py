"""Trace model, time: spans are timed by when events were received, or by their own timestamps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.traced import START, Thread, seconds, trace
from tests.support.wire import custom, done, event, failed, finished, given, started, subagent, text, tool

RUN = "invoke_agent supervisor"
BASE = START // 1_000_000_000


def stamped(events: Any, start: float, unit: int = 1) -> Any:
    """Events whose timestamps are a second apart from `start` seconds after `START` on, in units of 1/`unit` s."""
    return [{**e, "timestamp": round((BASE + start + n) * unit)} for n, e in enumerate(events)]


def test_by_the_time_of_receipt() -> None:
    """Whatever the events' timestamps say."""
    traced = trace(stamped([started(), *text("m", "x"), finished()], 500))
    assert ((1, 5), (2, 4)) == (traced.times(RUN), traced.times("message assistant"))


@pytest.mark.parametrize("stamp", [1_767_225_600, 1_767_225_600_000, 5, -1, 1.0])
def test_timestamps_are_recorded_as_they_came(stamp: Any) -> None:
    """On run and subagent spans, in no unit."""
    traced = trace(started(timestamp=stamp), subagent(timestamp=stamp), text("m", tag="sub"), done(), finished())
    assert [[stamp], [stamp], [None]] == [
        traced.each(name, "agui.event.timestamp") for name in (RUN, "invoke_agent researcher", "message assistant")
    ]


@pytest.mark.parametrize("unit", [1, 1_000, 1_000_000], ids=["s", "ms", "us"])
def test_by_the_events_own_clock(unit: int) -> None:
    """With `clock="event"`, the unit inferred from the magnitude; an event without one has the last one's."""
    events = [*stamped([started(), *text("m", "x")], 100, unit), custom(), *stamped([finished()], 200, unit), custom()]
    traced = trace(events, clock="event")
    assert ((100, 200), (101, 103)) == (traced.times(RUN), traced.times("message assistant"))
    started_at = traced.span(RUN).start_time
    assert started_at is not None
    assert [3.0, 100.0] == [
        (e.timestamp - started_at) / 1e9 for e in traced.span(RUN).events if e.name == "agui.custom"
    ]


def test_the_clock_never_runs_backwards() -> None:
    """An earlier timestamp is a note; the event has the time of the one before it."""
    events = [*stamped([started(), text("m")[0]], 100), *stamped([text("m")[1]], 50), *stamped([finished()], 110)]
    traced = trace(events, clock="event")
    assert ((100, 110), (101, 101)) == (traced.times(RUN), traced.times("message assistant"))
    assert [("clock_backwards", 2)] == [
        (a["agui.rule"], a["agui.event.index"]) for _, a in traced.events(RUN, "agui.note")
    ]


def test_without_any_timestamp_it_is_the_time_of_receipt() -> None:
    """As by the other clock: many producers send none at all."""
    events = [started(), text("m"), finished()]
    assert [(2, 3), (1, 4)] == [seconds(span) for span in trace(events, clock="event").spans]
    assert [(2, 3), (1, 4)] == [seconds(span) for span in trace(events).spans]


@pytest.mark.parametrize("clock", ["receive", "event"])
@pytest.mark.parametrize("last", [finished(), failed(), []])
def test_no_span_ends_before_it_begins(clock: str, last: Any) -> None:
    """Also where the time of receipt runs backwards."""
    thread = Thread(clock=clock)
    events = [
        started(), subagent(), text("m", "x", tag="sub"), tool("c"), event("REASONING_START", messageId="r"),
        event("STEP_STARTED", stepName="plan"), done(), last,
    ]  # fmt: skip
    thread.now = 1000
    traced = thread.run(stamped(events[:1], 2000), events[1:], given=given())
    assert all(begin <= end for begin, end in map(seconds, traced.spans))
