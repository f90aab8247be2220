"""Thread records: how they are written down, and what a run changes in them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_otel.protocol.thread import (
    MAX_ENTRIES,
    OpenInterrupt,
    PendingToolCall,
    SpanRef,
    SuspendedSubagent,
    ThreadChange,
    ThreadRecord,
    decode,
)

RUN_1 = SpanRef(trace_id="1" * 32, span_id="1" * 16, run_id="run-1")
RUN_2 = SpanRef(trace_id="2" * 32, span_id="2" * 16, run_id="run-2")


def interrupt(ident: str, run: SpanRef = RUN_1, **values: Any) -> OpenInterrupt:
    """An open interrupt of the first run unless told otherwise."""
    return OpenInterrupt(**{"id": ident, "run": run, "since": 100.0, "reason": "approval", **values})


def subagent(ident: str, **values: Any) -> SuspendedSubagent:
    """A suspended subagent of the first run."""
    return SuspendedSubagent(**{"id": ident, "span": RUN_1, "since": 100.0, **values})


def call(ident: str, **values: Any) -> PendingToolCall:
    """A pending tool call of the first run."""
    return PendingToolCall(**{"id": ident, "name": "ask", "span": RUN_1, "since": 100.0, **values})


texts = st.text(max_size=8) | st.text(st.sampled_from("aé😀\ud800\udc00\0"), max_size=8)
times = st.floats(allow_nan=False, allow_infinity=False)
refs = st.builds(
    SpanRef,
    trace_id=st.from_regex(r"[0-9a-f]{32}", fullmatch=True),
    span_id=st.from_regex(r"[0-9a-f]{16}", fullmatch=True),
    run_id=texts,
)
optional = st.none() | texts
interrupts = st.builds(
    OpenInterrupt,
    id=texts,
    owner=optional,
    owner_name=optional,
    tool_call=optional,
    run=refs,
    span=st.none() | refs,
    since=times,
    reason=texts,
    expires_at=optional,
    legacy=st.booleans(),
    answered=st.booleans(),
)
subagents = st.builds(
    SuspendedSubagent,
    id=texts,
    name=optional,
    description=optional,
    parent_tool_call=optional,
    span=refs,
    interrupt_ids=st.lists(texts, max_size=2).map(tuple),
    since=times,
)
calls = st.builds(PendingToolCall, id=texts, name=texts, owner=optional, span=refs, since=times)


def by_id(entries: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Up to two entries under their ids."""
    return st.lists(entries, max_size=2).map(lambda found: {entry.id: entry for entry in found})


records = st.builds(
    ThreadRecord,
    thread_id=texts,
    interrupts=by_id(interrupts),
    subagents=by_id(subagents),
    tool_calls=by_id(calls),
    dropped=st.integers(0, 9),
    updated=times,
)


@given(records)
def test_a_record_survives_a_store(record: ThreadRecord) -> None:
    """Whatever the ids, surrogates too, what `decode` gives is what `encode` was given."""
    notes: list[str] = []
    assert (record, []) == (decode(record.encode(), notes), notes)


@given(st.binary() | st.text() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_garbage_is_no_record(data: bytes | str) -> None:
    """Anything that is no record is None with one note, and raises nothing."""
    notes: list[str] = []
    assert (None, 1) == (decode(data, notes), len(notes))


def test_a_deeply_nested_value_is_no_record() -> None:
    """The parser's recursion limit is a note like any other."""
    notes: list[str] = []
    assert (None, 1) == (decode("[" * 100_000, notes), len(notes))


def test_a_record_of_another_version_is_none_with_a_note() -> None:
    """A newer process wrote it: this one neither guesses nor fails."""
    data = json.dumps({"version": 2, "thread_id": "t", "everything": "else"})
    notes: list[str] = []
    assert decode(data, notes) is None
    assert ["thread memory: a record of version 2 was ignored; this is version 1"] == notes


@pytest.mark.parametrize(
    "wrong",
    [
        {"version": None},
        {"version": "1"},
        {"thread_id": None},
        {"updated": float("inf")},
        {"interrupts": [{"id": "i"}]},
        {"interrupts": {"i": {"id": "i"}}},
        {"interrupts": "SECRET"},
        {"tool_calls": [1]},
        {"subagents": [{"id": "s", "since": 1, "span": {**RUN_1.model_dump(), "trace_id": "SECRET"}}]},
    ],
)
def test_a_record_with_a_wrong_field_is_none_with_a_note_that_quotes_nothing(wrong: dict[str, Any]) -> None:
    """A damaged record is left out whole, and its content is not logged."""
    data = json.dumps({**ThreadRecord(thread_id="SECRET", updated=1.0).model_dump(), **wrong})
    notes: list[str] = []
    assert decode(data, notes) is None
    assert ["thread memory: a record with missing or wrong fields was ignored"] == notes


def test_unknown_fields_of_the_same_version_are_ignored() -> None:
    """A later release may add optional fields without a new version."""
    record = ThreadRecord(thread_id="t", updated=1.0)
    assert record == decode(json.dumps({**record.model_dump(), "colour": "red"}), [])


@pytest.mark.parametrize(
    ("expires_at", "expiry"),
    [
        (None, None),
        ("1970-01-01T00:01:40Z", 100.0),
        ("1970-01-01T00:01:40z", 100.0),
        ("1970-01-01T01:01:40+01:00", 100.0),
        ("1970-01-01T00:01:40.500000Z", 100.5),
        (" 1970-01-01T00:01:40 ", 100.0),
        ("tomorrow", None),
        ("", None),
    ],
)
def test_an_expiry_is_read_as_iso_8601(expires_at: str | None, expiry: float | None) -> None:
    """A time without an offset is UTC; what is no time never expires."""
    assert expiry == interrupt("i", expires_at=expires_at).expiry


def test_a_change_of_an_unknown_thread_makes_its_record() -> None:
    """What a run suspends and leaves pending is kept by id, with the time of the change."""
    change = ThreadChange(
        thread_id="t",
        at=5.0,
        interrupts=(interrupt("i"),),
        subagents=(subagent("s"),),
        tool_calls=(call("c"),),
    )
    expected = ThreadRecord(
        thread_id="t",
        interrupts={"i": interrupt("i")},
        subagents={"s": subagent("s")},
        tool_calls={"c": call("c")},
        updated=5.0,
    )
    assert expected == change.apply(None)


def test_what_was_answered_and_continued_leaves() -> None:
    """After the answering run ended well nothing of it is remembered."""
    before = ThreadChange(
        thread_id="t",
        at=5.0,
        interrupts=(interrupt("i"),),
        subagents=(subagent("s"),),
        tool_calls=(call("c"),),
    ).apply(None)
    after = ThreadChange(
        thread_id="t",
        at=6.0,
        forget_interrupts=frozenset({"i"}),
        forget_subagents=frozenset({"s"}),
        forget_tool_calls=frozenset({"c", "unknown"}),
    ).apply(before)
    assert (False, True, 6.0) == (before.empty, after.empty, after.updated)


def test_a_first_answer_is_marked_and_all_stays_for_a_retry() -> None:
    """After any other outcome only the mark of the first answer changes."""
    before = ThreadChange(thread_id="t", at=5.0, interrupts=(interrupt("i"),), tool_calls=(call("c"),)).apply(None)
    after = ThreadChange(
        thread_id="t",
        at=6.0,
        answered_interrupts=frozenset({"i", "unknown"}),
        answered_tool_calls=frozenset({"c"}),
    ).apply(before)
    assert {"i": interrupt("i", answered=True)} == after.interrupts
    assert {"c": call("c", answered=True)} == after.tool_calls
    assert before.interrupts == {"i": interrupt("i")}


def test_a_known_interrupt_keeps_its_first_owner_run_and_time() -> None:
    """Asked again without an answer, it is the same entry with the new reason and expiry."""
    first = interrupt("i", owner="s", span=RUN_1, answered=True)
    again = interrupt("i", RUN_2, owner="other", since=200.0, reason="retry", expires_at="2030-01-01T00:00:00Z")
    record = ThreadChange(thread_id="t", at=5.0, interrupts=(first,)).apply(None)
    after = ThreadChange(thread_id="t", at=6.0, interrupts=(again,)).apply(record)
    expected = first.model_copy(update={"reason": "retry", "expires_at": "2030-01-01T00:00:00Z"})
    assert {"i": expected} == after.interrupts


def test_an_answered_interrupt_that_is_raised_again_waits_for_a_new_answer() -> None:
    """It keeps its first run and time, and is not answered any more."""
    record = ThreadChange(thread_id="t", at=5.0, interrupts=(interrupt("i", answered=True),)).apply(None)
    after = ThreadChange(
        thread_id="t",
        at=6.0,
        forget_interrupts=frozenset({"i"}),
        interrupts=(interrupt("i", RUN_2, since=200.0),),
    ).apply(record)
    assert {"i": interrupt("i")} == after.interrupts


def test_overlapping_runs_lose_nothing_of_each_other() -> None:
    """Two runs that both started from an empty thread are both remembered."""
    one = ThreadChange(thread_id="t", at=5.0, interrupts=(interrupt("i"),))
    two = ThreadChange(thread_id="t", at=4.0, interrupts=(interrupt("j"),))
    assert ({"i", "j"}, 5.0) == (
        set(two.apply(one.apply(None)).interrupts),
        two.apply(one.apply(None)).updated,
    )


def test_a_record_is_bounded_and_counts_what_it_dropped() -> None:
    """Of too many entries the oldest leave."""
    many = tuple(call(f"c{n}", since=float(n)) for n in range(MAX_ENTRIES + 3))
    record = ThreadChange(thread_id="t", at=5.0, tool_calls=many).apply(None)
    assert [f"c{n}" for n in range(3, MAX_ENTRIES + 3)] == list(record.tool_calls)
    assert 3 == record.dropped
    assert 4 == ThreadChange(thread_id="t", at=6.0, tool_calls=(call("x", since=999.0),)).apply(record).dropped


@pytest.mark.parametrize(
    ("change", "empty"),
    [
        (ThreadChange(thread_id="t", at=1.0), True),
        (ThreadChange(thread_id="t", at=1.0, subagents=(subagent("s"),)), False),
        (ThreadChange(thread_id="t", at=1.0, forget_tool_calls=frozenset({"c"})), False),
        (ThreadChange(thread_id="t", at=1.0, answered_interrupts=frozenset({"i"})), False),
    ],
)
def test_a_change_knows_whether_it_changes_anything(change: ThreadChange, empty: bool) -> None:
    """An empty change needs no write."""
    assert empty == change.empty
