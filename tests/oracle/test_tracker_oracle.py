"""Trace model: violations. The tracker as a whole, short cuts and all, against AG-UI's reference client."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agui_otel.protocol.tracker import Tracker
from agui_otel.protocol.transitions import Remark
from tests.oracle.test_rules_oracle import BATCH, STREAMS, TARGETS, smallest
from tests.support.defects import write
from tests.support.oracle import Oracle
from tests.support.vocabulary import Event


def first_violation(events: list[Event]) -> int | None:
    """The index of the first violation that the tracker reports for a stream of dicts."""
    tracker = Tracker()
    for at, event in enumerate(events):
        for said in tracker.receive(event, at):
            if isinstance(said, Remark) and said.violation:
                return said.event_index
    return None


def test_the_tracker_reports_it_there(oracle: Oracle) -> None:
    """The first violation in what the tracker says is where the reference client refuses the stream."""

    def differs(events: list[Event]) -> bool:
        (verdict,) = oracle.judge([events])
        return first_violation(events) != verdict.refused

    @settings(
        max_examples=max(1, STREAMS // BATCH), deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.integers(min_value=0, max_value=2**64))
    def compare(seed: int) -> None:
        streams = [write(f"{seed}/{number}", TARGETS[number % len(TARGETS)]) for number in range(BATCH)]
        for events, verdict in zip(streams, oracle.judge(streams), strict=True):
            assert first_violation(events) == verdict.refused, smallest(events, differs)

    compare()
