"""Trace model: violations. What reads as well-formed against AG-UI's event schema."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agui_otel.protocol.events import EVENT_TYPES, Malformed, read
from tests.support.oracle import Oracle
from tests.support.specimens import SPECIMENS, spoil
from tests.support.vocabulary import Event

BATCH = 200


def accepts(oracle: Oracle, events: list[Event]) -> list[bool]:
    """What the event schema says of each event, nulls in optional fields taken out."""
    (verdict,) = oracle.judge([events])
    return verdict.well_formed


def test_every_specimen_is_well_formed(oracle: Oracle) -> None:
    """Each of the 31 types has a specimen that the schema accepts and that reads as it is."""
    notes: list[str] = []
    assert {event["type"] for event in SPECIMENS} == EVENT_TYPES
    assert accepts(oracle, SPECIMENS) == [True] * len(SPECIMENS)
    assert all(read(event, notes) is event for event in SPECIMENS)
    assert notes == []


def outcome(event: Event) -> tuple[Event | None, list[str]]:
    """What `read` makes of an event (None: malformed), with its notes; it never changes the event."""
    notes: list[str] = []
    before = json.dumps(event)
    try:
        return read(event, notes), notes
    except Malformed:
        return None, notes
    finally:
        assert before == json.dumps(event)


def test_what_is_read_is_what_the_schema_accepts(oracle: Oracle) -> None:
    """An event is accepted just if it reads as it is; what reads with notes is accepted without the noted."""

    @settings(max_examples=8, deadline=None, database=None)
    @given(st.integers(min_value=0, max_value=2**64))
    def compare(seed: int) -> None:
        random = Random(seed)
        spoiled = [spoil(random, random.choice(SPECIMENS)) for _ in range(BATCH)]
        mended: list[Event] = []
        for event, fine in zip(spoiled, accepts(oracle, spoiled), strict=True):
            result, notes = outcome(event)
            assert fine == (result is event), (event, notes)
            if result is not None:
                assert fine == (notes == []), (event, notes)
                mended.append(result)
        for result, fine in zip(mended, accepts(oracle, mended), strict=True):
            assert fine, result

    compare()


@pytest.mark.parametrize("event", SPECIMENS, ids=lambda event: event["type"])
def test_required_fields_are_the_schemas(oracle: Oracle, event: Event) -> None:
    """Taking away a field makes an event malformed just if the schema then refuses it."""
    names = [name for name in event if name != "type"]
    without = [{key: value for key, value in event.items() if key != name} for name in names]
    expected = dict(zip(names, accepts(oracle, without), strict=True))
    assert expected == {name: outcome(rest)[0] is rest for name, rest in zip(names, without, strict=True)}
