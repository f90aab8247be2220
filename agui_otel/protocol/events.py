"""Events in their normal form: a plain dict with the keys of the wire.

Two steps lead there. `parse` turns bytes into a JSON object, `read` turns that (or an event object of any
`ag-ui-protocol` version) into an event whose required fields hold what AG-UI's event schema asks for. What
cannot be an event raises `Malformed`; what is merely odd in an optional field is left out, with a note.
Types outside the 31 pass as they are, because a newer producer is no broken one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache, lru_cache
from typing import Any, NoReturn

from pydantic import BaseModel
from pydantic_core import from_json, to_jsonable_python

from agui_otel.protocol.checks import Shape, ShapeError, json_type
from agui_otel.protocol.shapes import EVENTS

EVENT_TYPES: frozenset[str] = frozenset(EVENTS)
"""The names of the 31 event types of AG-UI 1.0."""

_NAMES = {name: name for name in EVENTS}
"""The names by themselves: an enumeration's member finds the string it stands for."""

_ABSENT: Any = object()


STATE_FIELDS = {"STATE_SNAPSHOT": "snapshot", "STATE_DELTA": "delta"}
"""Where the events that write the state carry what they write."""


class Malformed(ValueError):  # noqa: N818  (named for what the event is)
    """What was received is no event, or lacks what its type requires.

    The message names the path, never a value: "messageId: missing (at $.messageId)".
    """

    def __init__(self, message: str, kind: str | None = None, event: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.type = kind
        """The event's type, when that much could be read."""
        self.event: dict[str, Any] = {} if event is None else event
        """The fields that could be read."""


class Unreadable:
    """Stands for bytes that were no event, where an event is expected; `read` raises `Malformed` for it."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def __repr__(self) -> str:
        return f"Unreadable({self.reason!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unreadable) and self.reason == other.reason

    def __hash__(self) -> int:
        return hash(self.reason)


def parse(data: bytes | str) -> dict[str, Any] | Unreadable:
    """The JSON object that `data` (UTF-8) holds, or why there is none. Never raises.

    Lone surrogates are accepted, as JavaScript does; NaN and Infinity are not, as JSON has none.
    """
    try:
        value = from_json(data, allow_inf_nan=False, cache_strings="keys")
    except (ValueError, TypeError):  # a str with lone surrogates is a TypeError
        value = _parse_slowly(data)
    if isinstance(value, (dict, Unreadable)):
        return value
    return Unreadable(f"not an object but {json_type(value)}")


def _parse_slowly(data: bytes | str) -> Any:
    try:
        return json.loads(str(data, "utf-8") if not isinstance(data, str) else data, parse_constant=_refuse)
    except UnicodeDecodeError as error:
        return Unreadable(f"not UTF-8 (at byte {error.start})")
    except json.JSONDecodeError as error:
        return Unreadable(f"not JSON (at character {error.pos})")
    except RecursionError:
        return Unreadable("nested too deeply")
    except ValueError:
        return Unreadable("not JSON (a number that no JSON reader accepts)")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def read(raw: object, notes: list[str]) -> dict[str, Any]:
    """`raw` as an event in normal form; `notes` receives a sentence for each optional field left out.

    `raw` is a dict in wire form, an object with attributes (snake_case as in `ag-ui-protocol`, or camelCase;
    None is absent), or an `Unreadable`. It is never changed; a dict that is in order is returned itself. Null
    in an optional field of a dict is kept. Raises `Malformed`, and nothing else.
    """
    kind: Any = None
    try:
        if type(raw) is dict:
            kind = raw.get("type")
            if type(kind) is str:
                shape = EVENTS.get(kind)
                if shape is None:
                    return raw
                return raw if shape.fits(raw) else _checked(raw, kind, shape, notes)
        event = _strings_of(raw)
        if event is not None:
            return event
        # An object's real class decides: what it says of itself may raise, or lie.
        return _read_unusual(raw, notes) if issubclass(type(raw), dict) else _read_object(raw, notes)  # type: ignore[arg-type]
    except Malformed:
        raise
    except RecursionError:
        raise Malformed("event: nested too deeply", kind if type(kind) is str else None) from None
    except Exception as error:  # noqa: BLE001  (a host's class may raise anything)
        message = f"event: cannot be read ({type(error).__name__})"
        raise Malformed(message, kind if type(kind) is str else None) from None


class Kept:
    """An event that was read before, with what `read` said of it; `read` says the same again."""

    __slots__ = ("error", "event", "notes", "timestamp")

    def __init__(self, event: dict[str, Any], notes: list[str], error: Malformed | None) -> None:
        self.event = event
        self.notes = notes
        self.error = error
        self.timestamp = event.get("timestamp")


def keep(raw: object) -> dict[str, Any] | Kept:
    """`raw` for later: what `read` says of it then is what it says now, whatever happens to `raw` meanwhile."""
    notes: list[str] = []
    try:
        event, error = read(raw, notes), None
    except Malformed as caught:
        event, error = caught.event, caught
    try:
        event = _plain(event)
    except Exception:  # noqa: BLE001 - nested too deeply, or an object that raises: taken as it is
        event = dict(event)
    if error is not None:
        error.event = event
    return event if error is None and not notes else Kept(event, notes, error)


def _checked(event: dict[str, Any], kind: str, shape: Shape, notes: list[str]) -> dict[str, Any]:
    try:
        checked: dict[str, Any] = shape(event, None, notes)
    except ShapeError as wrong:
        raise Malformed(str(wrong), kind, event) from None
    return checked


def _read_unusual(raw: dict[Any, Any], notes: list[str]) -> dict[str, Any]:
    """A dict whose `type` is no plain string, or a dict of a class of its own."""
    event = dict(raw)
    event["type"] = _type_name(event.get("type", _ABSENT), event)
    return read(event, notes)


def _type_name(kind: object, event: dict[str, Any]) -> str:
    if isinstance(kind, Enum):
        kind = kind.value
    if isinstance(kind, str):
        return str.__str__(kind)
    reason = "missing" if kind is _ABSENT else f"expected a string, got {json_type(kind)}"
    raise Malformed(f"type: {reason} (at $.type)", None, event)


def _read_object(raw: object, notes: list[str]) -> dict[str, Any]:
    if isinstance(raw, Unreadable):
        raise Malformed(raw.reason)
    if isinstance(raw, Kept):
        notes.extend(raw.notes)
        if raw.error is not None:
            raise raw.error
        return raw.event
    if raw is None or isinstance(raw, (str, bytes, bytearray, int, float, list, tuple, set, frozenset)):
        raise Malformed(f"event: expected an object, got {json_type(raw)}")
    event: dict[str, Any] = {}
    kind: str | None = None
    try:
        kind = _type_name(getattr(raw, "type", _ABSENT), event)
        event["type"] = kind
        shape = EVENTS.get(kind)
        for name, value in _attributes(raw, shape):
            if type(value) is str:
                event[name] = value
            elif value is not None or (shape is not None and name in shape.required):
                event[name] = _plain(value)
    except Malformed:
        raise
    except RecursionError:
        raise Malformed("event: nested too deeply", kind, event) from None
    except Exception as error:  # noqa: BLE001  (a host's class may raise anything)
        raise Malformed(f"event: cannot be read ({type(error).__name__})", kind, event) from None
    return event if shape is None else read(event, notes)


def _strings_of(raw: Any) -> dict[str, Any] | None:
    """The event in a model that holds nothing but strings, as most do; None for any other, and for what is no model."""
    try:
        values = raw.__dict__
        kind = _NAMES.get(values["type"])
        model: Any = type(raw)
        plan = _plan_of(model, kind) if kind is not None else None
    except Exception:  # noqa: BLE001 (a host's class may raise anything)
        return None
    if plan is None or raw.__pydantic_extra__:
        return None
    required, optional, words = plan
    event: dict[str, Any] = {"type": kind}
    for attribute, wire in required:
        value = values.get(attribute)
        if type(value) is not str:
            return None
        event[wire] = value
    for attribute, wire in optional:
        value = values.get(attribute)
        if value is not None:
            if type(value) is not str:
                return None
            event[wire] = value
    for wire, fits in words:
        if wire in event and not fits(event[wire]):
            return None
    return event


_Names = tuple[tuple[str, str], ...]
"""Attributes with their wire names."""
_Plan = tuple[_Names, _Names, "tuple[tuple[str, Callable[[Any], bool]], ...]"]
"""The required and optional fields of an event, and those in which not every string may stand."""


@lru_cache(maxsize=1024)
def _plan_of(model: Any, kind: str) -> _Plan | None:
    """How the strings of a model of type `kind`, one of the 31, are read; None for what is no model."""
    fields = _model_fields(model)
    if fields is None:
        return None
    shape = EVENTS[kind]
    required = tuple(field for field in fields if field[1] in shape.required)
    if len(required) < len(shape.required):
        return None
    optional = tuple(field for field in fields if field not in required)
    words = tuple((wire, shape.look(wire)) for _, wire in fields if not shape.takes(wire, str))
    return required, optional, words


def _attributes(raw: object, shape: Shape | None) -> Iterable[tuple[str, Any]]:
    """The fields of an event object under their wire names."""
    model: Any = type(raw)
    fields = _model_fields(model)
    if fields is not None:
        return _of_model(raw, fields)
    return _public(raw) if shape is None else _of_shape(raw, shape)


def _of_model(raw: Any, fields: tuple[tuple[str, str], ...]) -> Iterator[tuple[str, Any]]:
    """What a pydantic model declares, and what else it was given."""
    values = vars(raw)
    for attribute, wire in fields:
        if attribute in values:
            yield wire, values[attribute]
    extra = raw.__pydantic_extra__
    if extra:
        yield from extra.items()


def _of_shape(raw: object, shape: Shape) -> Iterator[tuple[str, Any]]:
    """The attributes that stand for the fields of a shape, in either spelling."""
    for wire, attribute in _spellings(shape):
        value = getattr(raw, attribute, _ABSENT)
        if value is _ABSENT and attribute != wire:
            value = getattr(raw, wire, _ABSENT)
        if value is not _ABSENT:
            yield wire, value


def _public(raw: object) -> Iterator[tuple[str, Any]]:
    """The public attributes of an object of an unknown type."""
    for attribute, value in getattr(raw, "__dict__", {}).items():
        if not attribute.startswith("_") and attribute != "type":
            yield _camel(attribute), value


@lru_cache(maxsize=256)
def _model_fields(model: Any) -> tuple[tuple[str, str], ...] | None:
    """The fields of a pydantic model but `type`: attribute and wire name; None for any other class."""
    if not issubclass(model, BaseModel):
        return None
    return tuple(
        (name, field.serialization_alias or field.alias or _camel(name))
        for name, field in _declared(model).items()
        if name != "type"
    )


@cache
def _spellings(shape: Shape) -> tuple[tuple[str, str], ...]:
    """The wire names of a shape's fields with the attribute names that stand for them."""
    return tuple((name, _snake(name)) for name in (*shape.required, *shape.optional))


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


@lru_cache(maxsize=1024)
def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def with_own_state(event: dict[str, Any]) -> dict[str, Any]:
    """A state event with a copy of what it carries: whoever sent it may go on changing that."""
    field = STATE_FIELDS[event["type"]]
    try:
        return {**event, field: _plain(event[field])}
    except Exception:  # noqa: BLE001 - nested too deeply, or an object that raises: taken as it is
        return event


def _plain(value: Any) -> Any:
    """A copy of `value` in JSON terms, so that nothing the host changes later shows in the event."""
    kind: Any = type(value)
    if kind is str or value is None or kind is int or kind is bool or kind is float:
        return value
    if isinstance(value, dict):
        return {
            key if type(key) is str else _key(key): inner if type(inner) is str else _plain(inner)
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [inner if type(inner) is str else _plain(inner) for inner in value]
    fields = _nested_fields(kind)
    if fields is not None:
        return _plain_model(value, fields)
    if isinstance(value, Enum):
        return _plain(value.value)
    return to_jsonable_python(value, by_alias=True, fallback=_class_name)


def _class_name(value: object) -> str:
    """What stands for what JSON cannot say: what it says of itself may be a secret."""
    return type(value).__name__


def _declared(model: Any) -> dict[str, Any]:
    """The declared fields of a pydantic model; before pydantic 2.10 they had another name."""
    fields: dict[str, Any] = getattr(model, "__pydantic_fields__", None) or model.model_fields
    return fields


_Nested = tuple[tuple[str, str, bool], ...]
"""The fields of a nested model: attribute, wire name, and whether it stands also where it has no value."""


@lru_cache(maxsize=256)
def _nested_fields(model: Any) -> _Nested | None:
    """The fields of a pydantic model as they stand inside an event; None for any other class."""
    if not issubclass(model, BaseModel):
        return None
    return tuple(
        (name, field.serialization_alias or field.alias or name, field.is_required())
        for name, field in _declared(model).items()
    )


def _plain_model(model: Any, fields: _Nested) -> dict[str, Any]:
    """A nested model under its wire names, without the optional fields that have no value."""
    plain: dict[str, Any] = {}
    values = vars(model)
    for name, wire, required in fields:
        value = values[name]
        if type(value) is str:
            plain[wire] = value
        elif value is not None or required:
            plain[wire] = _plain(value)
    for name, value in (getattr(model, "__pydantic_extra__", None) or {}).items():
        plain[name] = _plain(value)
    return plain


def _key(key: object) -> str:
    named = key.value if isinstance(key, Enum) else key
    return str(named) if named is None or isinstance(named, str | int | float) else _class_name(named)
