"""Protobuf messages of agui.proto as events in wire form: what `JSON.parse` would have given for the same event.

A string without presence stands even where it is empty, an absent optional field does not. What protobuf must spread
over several fields is put together again: a RUN_FINISHED's or SUBAGENT_FINISHED's outcome, a message's or a tool
result's content. A value that this build cannot name (a content part of a later AG-UI) is left out of its list, and an
unknown patch operation keeps its number, as the reference client does both.

How a message is converted is read from its descriptor, once.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

from agui_otel.protocol.events import Unreadable

Convert = Callable[[Any], Any]

_ABSENT: Any = object()
_EXACT = 2.0**53
"""From here on JavaScript writes zeros behind the digits that tell a whole number from its neighbours."""
_EXPONENT = 1e21
"""From here on it writes an exponent, and a JSON reader takes the number for no integer."""
_STANDS_EMPTY = frozenset({"delta", "patch", "messages", "tools", "context", "resume"})
"""Lists that the reference decoder has even where they are empty; the others are then absent."""
_ROLES_WITH_PARTS = frozenset({"user", "tool"})
_ROLES_WITH_TEXT = frozenset({"developer", "system", "assistant", "reasoning"})


class _ContradictionError(ValueError):
    """A message says two things of which only one can be."""


def plain_event(envelope: Any) -> dict[str, Any] | Unreadable:
    """The event in an envelope that carries one of the 31."""
    arm = envelope.WhichOneof("event")
    if arm is None:
        return Unreadable("not an event: nothing in the frame")
    message = getattr(envelope, arm)
    name, number, plan, finish = _kind(arm)
    if not message.HasField("base_event"):
        return Unreadable(f"not an event: {name} without its base")
    base = message.base_event
    if base.type != number:
        return Unreadable(f"not an event: a {name} that declares another type")
    try:
        event: dict[str, Any] = {"type": name}
        plan.fill(event, message)
        if base.ByteSize() > (2 if number else 0):  # more than its type, whose 0 is not written
            _base_plan().fill(event, base)
        if finish is not None:
            finish(event)
    except _ContradictionError as wrong:
        return Unreadable(f"not an event: {wrong}")
    return event


@cache
def _kind(arm: str) -> tuple[str, int, _Plan, Callable[[dict[str, Any]], None] | None]:
    """What an arm of the envelope carries: the event's type, its number, its plan, and what is left to do then."""
    from agui_otel.protocol.agui_pb2 import Event, EventType  # type: ignore[attr-defined]

    name = arm.upper()
    descriptor = Event.DESCRIPTOR.fields_by_name[arm].message_type
    return name, EventType.Value(name), _Plan(descriptor, leave_out="base_event"), _FINISH.get(name)


@cache
def _base_plan() -> _Plan:
    from agui_otel.protocol.agui_pb2 import BaseEvent  # type: ignore[attr-defined]

    return _Plan(BaseEvent.DESCRIPTOR, leave_out="type")


class _Plan:
    """How the fields of one message type become the entries of an object; one field may be left out."""

    __slots__ = ("_defaults", "_empty", "_left_out", "_names", "_plain")

    def __init__(self, descriptor: Any, *, leave_out: str | None = None) -> None:
        self._plain: dict[int, str] = {}
        """By number, the fields whose values are JSON values."""
        self._names: dict[int, tuple[str, Convert]] = {}
        """By number, the others, with what converts their values."""
        self._left_out = 0
        self._defaults: dict[str, Any] = {}
        self._empty: list[str] = []
        for field in descriptor.fields:
            if field.name == leave_out:
                self._left_out = field.number
            else:
                self._add(field)

    def _add(self, field: Any) -> None:
        name, convert, many = field.json_name, _convert_of(field), _is_list(field)
        if many:
            self._names[field.number] = (name, _each(convert))
            if name in _STANDS_EMPTY:
                self._empty.append(name)
            return
        if convert is None:
            self._plain[field.number] = name
        else:
            self._names[field.number] = (name, convert)
        if not field.has_presence:
            default = field.default_value
            self._defaults[name] = default if convert is None else convert(default)

    def fill(self, found: dict[str, Any], message: Any) -> None:
        """Put what `message` has into `found`: the fields that are set, and those that cannot be unset."""
        found.update(self._defaults)
        for name in self._empty:
            found[name] = []
        plain = self._plain
        for field, value in message.ListFields():
            number = field.number
            if number in plain:
                found[plain[number]] = value
            elif number != self._left_out:
                name, convert = self._names[number]
                converted = convert(value)
                if converted is not _ABSENT:
                    found[name] = converted


@cache
def _plan(descriptor: Any) -> _Plan:
    return _Plan(descriptor)


def _is_list(field: Any) -> bool:
    repeated = getattr(field, "is_repeated", None)  # protobuf < 6.31 has only the label
    return bool(field.label == field.LABEL_REPEATED if repeated is None else repeated)


def _convert_of(field: Any) -> Convert | None:
    """What turns a field's value, or each of its values, into a JSON one; None where it is one already."""
    if field.enum_type is not None:
        return _operation if field.enum_type.name == "JsonPatchOperationType" else None
    if field.message_type is None:
        return None
    convert: Convert = _SPECIAL.get(field.message_type.full_name, _object)
    return convert


def _each(convert: Convert | None) -> Convert:
    if convert is None:
        return list
    return lambda values: [item for item in map(convert, values) if item is not _ABSENT]


def _object(message: Any) -> dict[str, Any]:
    """A message as an object of its fields."""
    found: dict[str, Any] = {}
    _plan(message.DESCRIPTOR).fill(found, message)
    return found


def _value(value: Any) -> Any:
    """A Value as the JSON value that it is; absent where it is of no kind."""
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _struct(_nested()[0](value.struct_value))
    if kind == "list_value":
        items = map(_value, _nested()[1](value.list_value).values)
        return [None if item is _ABSENT else item for item in items]
    if kind == "number_value":
        return _number(value.number_value)
    if kind == "null_value":
        return None
    return _ABSENT if kind is None else getattr(value, kind)


def _struct(struct: Any) -> dict[str, Any]:
    found = {}
    for entry in struct.fields:
        value = _value(entry.value)
        if value is not _ABSENT:
            found[entry.key] = value
    return found


@cache
def _nested() -> tuple[Callable[[bytes], Any], Callable[[bytes], Any]]:
    """What reads an object and an array that stand in a value."""
    from agui_otel.protocol.agui_pb2 import ListValue, Struct  # type: ignore[attr-defined]

    return Struct.FromString, ListValue.FromString


def _number(number: float) -> int | float | None:
    """As JavaScript writes it: whole numbers without a fraction, and neither NaN nor an infinity."""
    if number.is_integer():
        if abs(number) < _EXACT:
            return int(number)
        return int(Decimal(repr(number))) if abs(number) < _EXPONENT else number
    return number if number - number == 0 else None


def _operation(number: int) -> str:
    from agui_otel.protocol.agui_pb2 import JsonPatchOperationType  # type: ignore[attr-defined]

    try:
        return str(JsonPatchOperationType.Name(number)).lower()
    except ValueError:
        return str(number)


def _source(message: Any) -> Any:
    """Where a media part's content is; absent where this build does not know that way."""
    kind = message.WhichOneof("source")
    return _ABSENT if kind is None else {"type": kind, **_object(getattr(message, kind))}


def _part(message: Any) -> Any:
    """A part of a content; absent where this build does not know its kind, or its source's."""
    kind = message.WhichOneof("part")
    if kind is None:
        return _ABSENT
    inner = getattr(message, kind)
    found = {"type": kind, **_object(inner)}
    return _ABSENT if kind != "text" and inner.HasField("source") and "source" not in found else found


def _message(message: Any) -> dict[str, Any]:
    """A message, with its content from where its role keeps it: a text, parts, or an activity's object."""
    found = _object(message)
    role = found["role"]
    parts, activity = bool(message.content_parts), "activityContent" in found
    text_only, parted = role in _ROLES_WITH_TEXT, role in _ROLES_WITH_PARTS
    if role == "activity":
        strange = parts or "content" in found
    else:
        strange = (parts and text_only) or (activity and (text_only or parted))
    if strange:
        raise _ContradictionError(f"a message of role {role} with another's content")
    if ("content" in found) + parts + activity > 1:
        raise _ContradictionError("a message with several contents")
    if activity:
        found["content"] = found.pop("activityContent")
    elif parts or parted:
        _put_content_together(found)
    return found


def _put_content_together(found: dict[str, Any]) -> None:
    """The content of a tool result or a message that may have parts: a text, or else a list."""
    parts = found.pop("contentParts", None)
    if "content" not in found:
        found["content"] = parts or []
    elif parts:
        raise _ContradictionError("text and parts in one content")


def _put_outcome_together(event: dict[str, Any]) -> None:
    """The outcome's type stands in a string, empty where there is none; what belongs to it stands beside it."""
    kind = event.pop("outcome")
    if not kind:
        return
    outcome = {"type": kind}
    if kind == "interrupt" and event["type"] == "RUN_FINISHED":
        outcome["interrupts"] = []
    outcome.update((name, event.pop(name)) for name in _OUTCOMES if name in event)
    event["outcome"] = outcome


_OUTCOMES = ("interrupts", "pendingToolCallIds", "interruptIds")
_FINISH = {
    "RUN_FINISHED": _put_outcome_together,
    "SUBAGENT_FINISHED": _put_outcome_together,
    "TOOL_CALL_RESULT": _put_content_together,
}
_SPECIAL: dict[str, Convert] = {
    "agui_otel.wire.Value": _value,
    "agui_otel.wire.Struct": _struct,
    "agui_otel.wire.Message": _message,
    "agui_otel.wire.InputContent": _part,
    "agui_otel.wire.InputContentSource": _source,
}
