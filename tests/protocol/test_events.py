"""Trace model: violations (well-formed, malformed, ignored with a note). Bytes and objects become events."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest
from ag_ui import core
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter

from agui_otel.protocol.events import EVENT_TYPES, Malformed, Unreadable, parse, read
from tests.support.specimens import SPECIMENS

Event = dict[str, Any]
EVENT: TypeAdapter[Any] = TypeAdapter(core.Event)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


def malformed(raw: object) -> str:
    """What `read` says of something that is no event."""
    with pytest.raises(Malformed) as caught:
        read(raw, [])
    return str(caught.value)


# Bytes.


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"type": "X"}', {"type": "X"}),
        ('{"type": "X"}', {"type": "X"}),
        (b'  {"a": "\\ud800"}\r\n', {"a": "\ud800"}),
        ('{"a": "\ud800"}', {"a": "\ud800"}),
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b'{"a": 1e400}', {"a": float("inf")}),
        (b"[" * 300 + b"]" * 300, Unreadable("not an object but an array")),
        (b"null", Unreadable("not an object but null")),
        (b"1", Unreadable("not an object but a number")),
        (b"true", Unreadable("not an object but a boolean")),
        (b'"text"', Unreadable("not an object but a string")),
        (b"", Unreadable("not JSON (at character 0)")),
        (b"{", Unreadable("not JSON (at character 1)")),
        (b'{"a": 1} x', Unreadable("not JSON (at character 9)")),
        (b'{"a": NaN}', Unreadable("not JSON (a number that no JSON reader accepts)")),
        (b'{"a": -Infinity}', Unreadable("not JSON (a number that no JSON reader accepts)")),
        (b'{"a": ' + b"1" * 5000 + b"}", Unreadable("not JSON (a number that no JSON reader accepts)")),
        (b'{"a": "\xff"}', Unreadable("not UTF-8 (at byte 7)")),
        (b"[" * 100_000, Unreadable("nested too deeply")),
    ],
)
def test_parse(data: bytes | str, expected: object) -> None:
    """A JSON object is read as JavaScript reads it; all else says why it is none."""
    assert expected == parse(data)


@given(st.binary() | st.text() | JSON.map(json.dumps))
def test_parse_never_raises(data: bytes | str) -> None:
    """Whatever the bytes are, there is an object or a reason, and the reason quotes nothing of them."""
    result = parse(data)
    assert isinstance(result, (dict, Unreadable))


@given(st.dictionaries(st.text(), JSON))
def test_parse_reads_what_json_writes(value: Event) -> None:
    """Parsing gives back what was written."""
    assert value == parse(json.dumps(value))
    assert value == parse(json.dumps(value).encode())


def test_an_unreadable_is_a_value() -> None:
    """It compares by its reason, and reading it is malformed for that reason."""
    assert len({Unreadable("a"), Unreadable("a"), Unreadable("b")}) == 2
    assert repr(Unreadable("a")) == "Unreadable('a')"
    assert malformed(Unreadable("not JSON (at character 0)")) == "not JSON (at character 0)"


# What is malformed.

INTERRUPTED = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({}, "type: missing (at $.type)"),
        ({"type": None}, "type: expected a string, got null (at $.type)"),
        ({"type": ["CUSTOM"]}, "type: expected a string, got an array (at $.type)"),
        ({"type": "TEXT_MESSAGE_END"}, "messageId: missing (at $.messageId)"),
        (
            {"type": "TEXT_MESSAGE_END", "messageId": None},
            "messageId: expected a string, got null (at $.messageId)",
        ),
        ({"type": "STEP_STARTED", "stepName": 1}, "stepName: expected a string, got a number (at $.stepName)"),
        ({"type": "CUSTOM", "name": "n"}, "value: missing (at $.value)"),
        ({"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "user"}, "role: unknown value (at $.role)"),
        (
            {"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "a", "role": "assistant"}, {"role": "assistant"}]},
            "id: missing (at $.messages[1].id)",
        ),
        ({"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "a"}]}, "role: missing (at $.messages[0].role)"),
        (
            {"type": "MESSAGES_SNAPSHOT", "messages": [None]},
            "messages[0]: expected an object, got null (at $.messages[0])",
        ),
        (
            {**INTERRUPTED, "outcome": {"type": "interrupt", "interrupts": [{"reason": "r"}]}},
            "id: missing (at $.outcome.interrupts[0].id)",
        ),
        (
            {**INTERRUPTED, "outcome": {"type": "interrupt", "interrupts": []}},
            "interrupts: empty (at $.outcome.interrupts)",
        ),
        (
            {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "a", "value": 1}]},
            "path: expected a JSON Pointer, got a string (at $.delta[0].path)",
        ),
        ({"type": "STATE_DELTA", "delta": {}}, "delta: expected an array, got an object (at $.delta)"),
        (None, "event: expected an object, got null"),
        ("text", "event: expected an object, got a string"),
        (b"bytes", "event: expected an object, got no JSON value"),
        ([], "event: expected an object, got an array"),
        (object(), "type: missing (at $.type)"),
    ],
)
def test_what_is_malformed(raw: object, message: str) -> None:
    """A required field that is missing or wrong is named with its path, at any depth."""
    assert message == malformed(raw)


def test_a_malformed_event_says_what_could_be_read() -> None:
    """The error carries the type and the fields, so that a tracer can still place it."""
    event = {"type": "TEXT_MESSAGE_END", "subagentRunId": "s"}
    with pytest.raises(Malformed) as caught:
        read(event, [])
    assert (caught.value.type, caught.value.event) == ("TEXT_MESSAGE_END", event)


# What is ignored.

STARTED = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
FINISHED = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}


@pytest.mark.parametrize(
    ("event", "expected", "note"),
    [
        (
            {**STARTED, "timestamp": "now"},
            STARTED,
            "timestamp: expected an integer from -9007199254740991 to 9007199254740991, got a string (at $.timestamp)",
        ),
        (
            {**STARTED, "metadata": []},
            STARTED,
            "metadata: expected an object, got an array (at $.metadata)",
        ),
        ({**FINISHED, "outcome": {"type": "future"}}, FINISHED, "type: unknown value (at $.outcome.type)"),
        ({**FINISHED, "outcome": "success"}, FINISHED, "outcome: expected an object, got a string (at $.outcome)"),
        ({**STARTED, "input": {"threadId": "t"}}, STARTED, "runId: missing (at $.input.runId)"),
        (
            {**FINISHED, "usage": [{"model": "m", "inputTokens": -1}]},
            {**FINISHED, "usage": [{"model": "m"}]},
            "inputTokens: expected an integer from 0 to 9007199254740991, got a number (at $.usage[0].inputTokens)",
        ),
        (
            {"type": "SUBAGENT_FINISHED", "subagentRunId": "s", "outcome": {"type": "future"}},
            {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"},
            "type: unknown value (at $.outcome.type)",
        ),
        (
            {
                "type": "SUBAGENT_FINISHED",
                "subagentRunId": "s",
                "outcome": {"type": "suspended", "interruptIds": [1]},
            },
            {"type": "SUBAGENT_FINISHED", "subagentRunId": "s", "outcome": {"type": "suspended"}},
            "interruptIds[0]: expected a string, got a number (at $.outcome.interruptIds[0])",
        ),
        (
            {"type": "TEXT_MESSAGE_START", "messageId": "m", "role": "wizard"},
            {"type": "TEXT_MESSAGE_START", "messageId": "m"},
            "role: unknown value (at $.role)",
        ),
    ],
)
def test_what_is_ignored_with_a_note(event: Event, expected: Event, note: str) -> None:
    """An optional field that does not hold what it should is left out of a copy; the event itself stays as it was."""
    before, notes = json.dumps(event), list[str]()
    assert expected == read(event, notes)
    assert [f"{note}; ignored"] == notes
    assert before == json.dumps(event)


@pytest.mark.parametrize(
    "event",
    [
        {**STARTED, "timestamp": 1.0, "protocolVersion": None, "input": None, "unheardOf": {"a": [1]}},
        {**FINISHED, "outcome": None, "usage": [{"inputTokens": None}]},
        {"type": "TEXT_MESSAGE_START", "messageId": "m", "subagentRunId": None, "role": None},
        {"type": "STATE_SNAPSHOT", "snapshot": None},
        {"type": "FUTURE", "messageId": 1},
        *SPECIMENS,
    ],
)
def test_what_is_in_order_is_returned_itself(event: Event) -> None:
    """Nulls in optional fields, fields that nobody knows and unknown types are none of `read`'s business."""
    notes: list[str] = []
    assert read(event, notes) is event
    assert notes == []


# Objects.


@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen["type"])
def test_an_event_object_reads_like_its_json(specimen: Event) -> None:
    """Each class of ag-ui-protocol gives the event that its encoder would send."""
    event = EVENT.validate_python(specimen)
    notes: list[str] = []
    assert json.loads(event.model_dump_json(by_alias=True)) == read(event, notes)
    assert notes == []


def test_the_specimens_are_of_all_types() -> None:
    """The test above covers each of the 31."""
    assert {specimen["type"] for specimen in SPECIMENS} == EVENT_TYPES
    assert len(EVENT_TYPES) == 31


def test_what_an_object_holds_is_copied() -> None:
    """A host that goes on changing its state does not change the event."""
    state: Event = {"list": [1]}
    event = read(core.StateSnapshotEvent(snapshot=state), [])
    state["list"].append(2)
    assert event == {"type": "STATE_SNAPSHOT", "snapshot": {"list": [1]}}


def test_extra_fields_of_an_object_are_kept() -> None:
    """What a producer adds to an event, as canary builds do with subagentId, is not lost."""
    event = core.TextMessageEndEvent.model_validate({"messageId": "m", "subagentId": "s", "x": None})
    assert read(event, []) == {"type": "TEXT_MESSAGE_END", "messageId": "m", "subagentId": "s"}


class Kind(str, Enum):
    """An enum of types, as older versions of ag-ui-protocol have it."""

    END = "TEXT_MESSAGE_END"
    NEW = "FUTURE"


@dataclasses.dataclass
class Plain:
    """An event that is no model, with the names of the wire."""

    type: Kind
    messageId: str  # noqa: N815
    subagentRunId: str | None = None  # noqa: N815


class Inner(BaseModel):
    """A nested model without aliases."""

    some_field: int = 1
    absent: str | None = None


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (SimpleNamespace(type=Kind.END, message_id="m", timestamp=None), {"messageId": "m"}),
        (SimpleNamespace(type="TEXT_MESSAGE_END", messageId="m", surprise=1), {"messageId": "m"}),
        (Plain(Kind.END, "m"), {"messageId": "m"}),
        ({"type": Kind.END, "messageId": "m"}, {"messageId": "m"}),
    ],
)
def test_other_objects(raw: object, expected: Event) -> None:
    """Any object with the right attributes will do, in either spelling, and None is absent."""
    result = read(raw, [])
    assert {"type": "TEXT_MESSAGE_END", **expected} == result
    assert type(result["type"]) is str


def test_an_object_of_an_unknown_type() -> None:
    """Its public attributes are taken under their wire names, nested models and enums in JSON terms."""
    raw = SimpleNamespace(type=Kind.NEW, some_value=(Inner(), Kind.END, {Kind.END: {1}}), _private=1, nothing=None)
    expected = [{"some_field": 1}, "TEXT_MESSAGE_END", {"TEXT_MESSAGE_END": [1]}]
    assert read(raw, []) == {"type": "FUTURE", "someValue": expected}


def test_required_nulls_of_an_object_are_kept() -> None:
    """None is a value where the schema asks for any value."""
    assert read(core.CustomEvent(name="n", value=None), []) == {"type": "CUSTOM", "name": "n", "value": None}


class Hostile:
    """An object whose attributes raise."""

    type = "TEXT_MESSAGE_END"

    @property
    def message_id(self) -> str:
        """Raise."""
        raise RuntimeError("secret")


class HostileDict(dict[str, Any]):
    """A dict that cannot be copied."""

    def keys(self) -> Any:
        """Raise."""
        raise RuntimeError("secret")

    __iter__ = keys


def test_attributes_that_raise() -> None:
    """An object that breaks is malformed, and its error's text stays with it."""
    assert malformed(Hostile()) == "event: cannot be read (RuntimeError)"
    assert malformed(HostileDict(type="CUSTOM")) == "event: cannot be read (RuntimeError)"


def test_an_object_that_holds_itself() -> None:
    """Endless nesting is malformed."""
    loop: list[Any] = []
    loop.append(loop)
    assert malformed(SimpleNamespace(type="CUSTOM", name="n", value=loop)) == "event: nested too deeply"


@given(
    st.fixed_dictionaries(
        {"type": st.sampled_from(sorted(EVENT_TYPES)) | JSON},
        optional=dict.fromkeys(("messageId", "message_id", "delta", "role", "outcome", "name", "value"), JSON),
    )
)
def test_read_raises_malformed_or_nothing(fields: Event) -> None:
    """Any object and any dict is an event or malformed; what is read again is returned itself."""
    for raw in (fields, SimpleNamespace(**fields)):
        try:
            event = read(raw, [])
        except Malformed:
            continue
        notes: list[str] = []
        assert read(event, notes) is event
        assert notes == []
