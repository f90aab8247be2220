"""Trace model: violations. Our judgement of a stream against that of AG-UI's reference client."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agui_otel.protocol.chunks import Expander, Refused
from agui_otel.protocol.events import EVENT_TYPES, read
from agui_otel.protocol.rules import RULES, Judge
from tests.support.defects import write
from tests.support.oracle import Oracle, Verdict
from tests.support.vocabulary import Event

STREAMS = int(os.environ.get("TESTS_ORACLE_STREAMS", "400"))
"""How many streams to compare; read before the tests' environment is cleaned."""

BATCH = 100
SEQUENCE_RULES = [rule for rule in RULES if rule != "malformed_event"]
TARGETS = [*SEQUENCE_RULES, *[None] * 22]


def first_violation(events: list[Event]) -> tuple[int | None, str | None]:
    """Index and rule of the first violation; unknown types are left out, as before any judging."""
    expander, judge = Expander(), Judge()
    for index, raw in enumerate(events):
        notes: list[str] = []
        event = read(raw, notes)
        assert notes == []
        if event["type"] not in EVENT_TYPES:
            continue
        try:
            for part in expander.expand(event):
                breach = judge.judge(part)
                if breach is not None:
                    return index, breach.rule
        except Refused as refused:
            return index, refused.rule
    return None, None


def smallest(events: list[Event], interesting: Callable[[list[Event]], bool]) -> list[Event]:
    """`events` without all that can be taken away one by one while they stay interesting."""
    index = 0
    while index < len(events):
        fewer = events[:index] + events[index + 1 :]
        if interesting(fewer):
            events, index = fewer, 0
        else:
            index += 1
    return events


def explain(oracle: Oracle, events: list[Event]) -> str:
    """The smallest stream on which the two disagree, with what each says."""

    def differs(stream: list[Event]) -> bool:
        (verdict,) = oracle.judge([stream])
        return first_violation(stream)[0] != verdict.refused

    stream = smallest(events, differs)
    (verdict,) = oracle.judge([stream])
    return f"{first_violation(stream)} against {verdict.refused}, {verdict.message}: {json.dumps(stream)}"


def well_formed(events: list[Event], verdict: Verdict) -> bool:
    """Whether the schema accepts each event of a known type."""
    return all(
        fine or event["type"] not in EVENT_TYPES for event, fine in zip(events, verdict.well_formed, strict=True)
    )


def test_the_first_violation_is_where_the_reference_client_refuses(oracle: Oracle) -> None:
    """On well-formed events both stop at the same one or accept all; every rule is among what was seen."""
    seen: Counter[str | None] = Counter()
    deep: Counter[bool] = Counter()

    @settings(
        max_examples=max(1, STREAMS // BATCH),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(min_value=0, max_value=2**64))
    def compare(seed: int) -> None:
        streams = [write(f"{seed}/{number}", TARGETS[number % len(TARGETS)]) for number in range(BATCH)]
        for events, verdict in zip(streams, oracle.judge(streams), strict=True):
            index, rule = first_violation(events)
            assert well_formed(events, verdict)
            assert index == verdict.refused, explain(oracle, events)
            seen[rule] += 1
            deep[(len(events) if index is None else index) > 10] += 1

    compare()
    if sum(deep.values()) >= 400:
        assert set(seen) == {None, *SEQUENCE_RULES}
        assert deep[True] > deep[False]
