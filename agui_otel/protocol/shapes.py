"""The fields of the 31 event types, and the checks that an event's fields must pass.

The authority is the event schema of AG-UI 1.0. Two of its properties shape this module:

- **Required fields decide.** An event whose required fields (and the required fields inside them) pass is
  usable, so only these raise `ShapeError`. An optional field that does not pass is left out of a copy, with a
  note; a null in an optional field stays, because whether it may stand there is for the rules to judge.
- **Objects are open.** Fields that the schema does not name are neither checked nor taken out.

One optional field is stricter: a RUN_FINISHED outcome of a *known* type with a broken inside is wrong as a
whole, because without it an interrupted run would read as a success.

A check is a callable of a value, the path that leads to it and the list that takes notes. It returns the
value, or a copy without what was left out, or raises `ShapeError`. No message quotes a value: they name paths
and JSON types only.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

Path = tuple[Any, "str | int"]
"""Where a value stands: the path of what holds it (None for the event) and its own key or index."""

Check = Callable[[Any, "Path | None", "list[str]"], Any]

_LARGEST_INTEGER = 2**53 - 1


class ShapeError(Exception):
    """A value that cannot stand where it does; `fatal` where even as an optional one it spoils its event."""

    def __init__(self, path: Path | None, reason: str) -> None:
        super().__init__(f"{_name(path)}: {reason} (at ${_pointer(path)})")
        self.fatal = False


def json_type(value: object) -> str:
    """The JSON name of a value's type with its article ("a string", "null"), for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a string"
    if isinstance(value, dict):
        return "an object"
    return "an array" if isinstance(value, (list, tuple)) else "no JSON value"


def _pointer(path: Path | None) -> str:
    if path is None:
        return ""
    parent, key = path
    return f"{_pointer(parent)}[{key}]" if isinstance(key, int) else f"{_pointer(parent)}.{key}"


def _name(path: Path | None) -> str:
    if path is None:
        return "event"
    parent, key = path
    return f"{_name(parent)}[{key}]" if isinstance(key, int) else key


def _simple(expected: str, holds: Callable[[Any], bool]) -> Check:
    """A check that looks at nothing but the value itself."""

    def check(value: Any, path: Path | None, _notes: list[str]) -> Any:
        if holds(value):
            return value
        raise ShapeError(path, f"expected {expected}, got {json_type(value)}")

    return check


def _is_integer(value: Any) -> bool:
    """Whether JavaScript would call it one: 1.0 is, a boolean is not."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _is_pointer(value: Any) -> bool:
    """Whether it is a JSON Pointer (RFC 6901)."""
    if not isinstance(value, str):
        return False
    return not value or (value[0] == "/" and re.search("~(?![01])", value) is None)


_string = _simple("a string", lambda value: isinstance(value, str))
_anything = _simple("a value", lambda _value: True)
_mapping = _simple("an object", lambda value: isinstance(value, dict))
_boolean = _simple("a boolean", lambda value: isinstance(value, bool))
_json_pointer = _simple("a JSON Pointer", _is_pointer)


def _integer(smallest: int) -> Check:
    """A whole number that JavaScript holds exactly."""
    expected = f"an integer from {smallest} to {_LARGEST_INTEGER}"
    return _simple(expected, lambda value: _is_integer(value) and smallest <= value <= _LARGEST_INTEGER)


_at_a_glance: dict[Check, type] = {_string: str, _mapping: dict, _boolean: bool}  # every value of the type passes
_words: dict[Check, frozenset[str]] = {}  # these strings pass


def _one_of(*values: str) -> Check:
    def check(value: Any, path: Path | None, notes: list[str]) -> Any:
        if _string(value, path, notes) in values:
            return value
        raise ShapeError(path, "unknown value")

    _words[check] = frozenset(values)
    return check


def _array(of: Check, *, smallest: int = 0) -> Check:
    def check(value: Any, path: Path | None, notes: list[str]) -> Any:
        if not isinstance(value, list):
            raise ShapeError(path, f"expected an array, got {json_type(value)}")
        if len(value) < smallest:
            raise ShapeError(path, "empty")
        checked = [of(item, (path, index), notes) for index, item in enumerate(value)]
        return value if all(map(operator.is_, checked, value)) else checked

    return check


def _text_or(other: Check) -> Check:
    def check(value: Any, path: Path | None, notes: list[str]) -> Any:
        return value if isinstance(value, str) else other(value, path, notes)

    _at_a_glance[check] = str
    return check


def _tagged(tag: str, variants: dict[str, Shape], *, fatal: bool = False) -> Check:
    """One of several objects, told apart by the string under `tag`."""
    known = _one_of(*variants)

    def check(value: Any, path: Path | None, notes: list[str]) -> Any:
        if type(value) is dict and type(value.get(tag)) is str:
            variant = variants.get(value[tag])
            if variant is not None and variant.fits(value):
                return value
        if not isinstance(value, dict):
            raise ShapeError(path, f"expected an object, got {json_type(value)}")
        if tag not in value:
            raise ShapeError((path, tag), "missing")
        name = known(value[tag], (path, tag), notes)
        try:
            return variants[name](value, path, notes)
        except ShapeError as error:
            error.fatal = fatal
            raise

    return check


class Shape:
    """An object: the checks of its required and of its optional fields. A shape is itself a check."""

    __slots__ = ("_known", "_required_names", "_types", "_words", "optional", "required")

    def __init__(self, required: dict[str, Check], optional: dict[str, Check]) -> None:
        self.required = required
        self.optional = optional
        checks = {**required, **optional}
        self._known = checks.keys()
        self._required_names = tuple(required)
        self._types = {name: _at_a_glance[check] for name, check in checks.items() if check in _at_a_glance}
        self._words = {name: _words[check] for name, check in checks.items() if check in _words}

    def fits(self, value: dict[str, Any]) -> bool:
        """Whether a quick look settles that every field passes: most objects, at a fraction of the cost."""
        types = self._types
        for name, field in value.items():
            kind = type(field)
            if kind is types.get(name):
                continue
            if (kind is str and field in self._words.get(name, ())) or name not in self._known:
                continue
            return False
        for name in self._required_names:  # noqa: SIM110 (a generator would cost what is saved here)
            if name not in value:
                return False
        return True

    def __call__(self, value: Any, path: Path | None, notes: list[str]) -> Any:
        """Check `value`; each optional field that does not pass is left out of a copy, with a note."""
        if not isinstance(value, dict):
            raise ShapeError(path, f"expected an object, got {json_type(value)}")
        if self.fits(value):
            return value
        changed: dict[str, Any] | None = None
        for name, check in self.required.items():
            if name not in value:
                raise ShapeError((path, name), "missing")
            before = value[name]
            after = before if check is _string and type(before) is str else check(before, (path, name), notes)
            if after is not before:
                changed = dict(value) if changed is None else changed
                changed[name] = after
        for name, check in self.optional.items():
            before = value.get(name)
            if before is None or (check is _string and type(before) is str):
                continue
            try:
                after = check(before, (path, name), notes)
            except ShapeError as error:
                if error.fatal:
                    raise
                notes.append(f"{error}; ignored")
                changed = dict(value) if changed is None else changed
                del changed[name]
            else:
                if after is not before:
                    changed = dict(value) if changed is None else changed
                    changed[name] = after
        return value if changed is None else changed


def _optional_strings(*names: str) -> dict[str, Check]:
    return dict.fromkeys(names, _string)


_COUNT = _integer(0)
_STRINGS = _array(_string)

_SOURCE = _tagged(
    "type",
    {
        "data": Shape({"value": _string, "mimeType": _string}, {}),
        "url": Shape({"value": _string}, {"mimeType": _string}),
        "file": Shape({"value": _string}, {"provider": _string, "mimeType": _string}),
    },
)
_MEDIA = Shape({"source": _SOURCE}, {"id": _string, "metadata": _anything})
_PARTS = _array(
    _tagged(
        "type",
        {
            "text": Shape({"text": _string}, {"id": _string, "metadata": _anything}),
            **dict.fromkeys(("image", "audio", "video", "document"), _MEDIA),
        },
    )
)

_WITH_VALUE = Shape({"path": _json_pointer, "value": _anything}, {})
_WITH_FROM = Shape({"path": _json_pointer, "from": _json_pointer}, {})
_PATCH = _array(
    _tagged(
        "op",
        {
            "add": _WITH_VALUE,
            "replace": _WITH_VALUE,
            "test": _WITH_VALUE,
            "remove": Shape({"path": _json_pointer}, {}),
            "move": _WITH_FROM,
            "copy": _WITH_FROM,
        },
    )
)

_FUNCTION = Shape({"name": _string, "arguments": _string}, {})
_TOOL_CALL = Shape(
    {"id": _string, "type": _one_of("function"), "function": _FUNCTION},
    {"encryptedValue": _string, "metadata": _mapping},
)


def _message(required: dict[str, Check], *optional: str, **other: Check) -> Shape:
    common: dict[str, Check] = {"subagentRunId": _string, "metadata": _mapping}
    return Shape({"id": _string, **required}, {**common, **_optional_strings(*optional), **other})


_MESSAGES = _array(
    _tagged(
        "role",
        {
            "developer": _message({"content": _string}, "name", "encryptedValue"),
            "system": _message({"content": _string}, "name", "encryptedValue"),
            "assistant": _message({}, "name", "encryptedValue", "content", toolCalls=_array(_TOOL_CALL)),
            "user": _message({"content": _text_or(_PARTS)}, "name", "encryptedValue"),
            "tool": _message({"content": _text_or(_PARTS), "toolCallId": _string}, "error", "encryptedValue"),
            "activity": _message({"activityType": _string, "content": _mapping}),
            "reasoning": _message({"content": _string}, "encryptedValue"),
        },
    )
)

_INPUT = Shape(
    {"threadId": _string, "runId": _string, "messages": _MESSAGES},
    {
        **_optional_strings("protocolVersion", "parentRunId"),
        "state": _anything,
        "tools": _array(
            Shape({"name": _string, "description": _string}, {"parameters": _anything, "metadata": _mapping})
        ),
        "context": _array(Shape({"description": _string, "value": _string}, {})),
        "forwardedProps": _anything,
        "resume": _array(
            Shape(
                {"interruptId": _string, "status": _one_of("resolved", "cancelled")},
                {"payload": _anything, "metadata": _mapping},
            )
        ),
    },
)

_INTERRUPT = Shape(
    {"id": _string, "reason": _string},
    {
        **_optional_strings("subagentRunId", "message", "toolCallId", "expiresAt"),
        "responseSchema": _mapping,
        "metadata": _mapping,
    },
)
_RUN_OUTCOME = _tagged(
    "type",
    {
        "success": Shape({}, {"pendingToolCallIds": _STRINGS}),
        "interrupt": Shape({"interrupts": _array(_INTERRUPT, smallest=1)}, {}),
        "cancelled": Shape({}, {}),
    },
    fatal=True,
)
_SUBAGENT_OUTCOME = _tagged("type", {"success": Shape({}, {}), "suspended": Shape({}, {"interruptIds": _STRINGS})})
_COUNTS = ("input", "output", "total", "reasoning", "cachedInput", "cacheWriteInput")
_USAGE = _array(Shape({}, {**_optional_strings("provider", "model"), **{f"{name}Tokens": _COUNT for name in _COUNTS}}))

_BASE: dict[str, Check] = {
    "timestamp": _integer(-_LARGEST_INTEGER),
    "rawEvent": _anything,
    "metadata": _mapping,
}


def _run_level(*required: str, **checks: Check) -> Shape:
    """An event of the run or of a subagent's life: its own fields, and no tag beside them."""
    return Shape(dict.fromkeys(required, _string), {**_BASE, **checks})


def _event(*required: str, **checks: Check) -> Shape:
    """An event that may carry a subagent's tag; `checks` are its optional fields."""
    return _run_level(*required, subagentRunId=_string, **checks)


def _carrying(content: dict[str, Check], *required: str, **checks: Check) -> Shape:
    """An event that may carry a tag, and must carry `content`."""
    event = _event(*required, **checks)
    return Shape({**event.required, **content}, event.optional)


_TEXT_ROLE = _one_of("developer", "system", "assistant", "user")

EVENTS: dict[str, Shape] = {
    "TEXT_MESSAGE_START": _event("messageId", role=_TEXT_ROLE, name=_string),
    "TEXT_MESSAGE_CONTENT": _event("messageId", "delta"),
    "TEXT_MESSAGE_END": _event("messageId"),
    "TEXT_MESSAGE_CHUNK": _event(messageId=_string, role=_TEXT_ROLE, delta=_string, name=_string),
    "TOOL_CALL_START": _event("toolCallId", "toolCallName", parentMessageId=_string),
    "TOOL_CALL_ARGS": _event("toolCallId", "delta"),
    "TOOL_CALL_END": _event("toolCallId"),
    "TOOL_CALL_CHUNK": _event(toolCallId=_string, toolCallName=_string, parentMessageId=_string, delta=_string),
    "TOOL_CALL_RESULT": _carrying({"content": _text_or(_PARTS)}, "messageId", "toolCallId", role=_one_of("tool")),
    "STATE_SNAPSHOT": _carrying({"snapshot": _anything}),
    "STATE_DELTA": _carrying({"delta": _PATCH}),
    "MESSAGES_SNAPSHOT": Shape({"messages": _MESSAGES}, _BASE),
    "ACTIVITY_SNAPSHOT": _carrying({"content": _mapping}, "messageId", "activityType", replace=_boolean),
    "ACTIVITY_DELTA": _carrying({"patch": _PATCH}, "messageId", "activityType"),
    "RAW": _carrying({"event": _anything}, source=_string),
    "CUSTOM": _carrying({"value": _anything}, "name"),
    "RUN_STARTED": _run_level("threadId", "runId", protocolVersion=_string, parentRunId=_string, input=_INPUT),
    "RUN_FINISHED": _run_level("threadId", "runId", result=_anything, outcome=_RUN_OUTCOME, usage=_USAGE),
    "RUN_ERROR": _run_level("message", code=_string, usage=_USAGE),
    "STEP_STARTED": _event("stepName"),
    "STEP_FINISHED": _event("stepName"),
    "REASONING_START": _event("messageId"),
    "REASONING_MESSAGE_START": _carrying({"role": _one_of("reasoning")}, "messageId"),
    "REASONING_MESSAGE_CONTENT": _event("messageId", "delta"),
    "REASONING_MESSAGE_END": _event("messageId"),
    "REASONING_MESSAGE_CHUNK": _event(messageId=_string, delta=_string),
    "REASONING_END": _event("messageId"),
    "REASONING_ENCRYPTED_VALUE": _carrying({"subtype": _one_of("tool-call", "message")}, "entityId", "encryptedValue"),
    "SUBAGENT_STARTED": _run_level(
        "subagentRunId",
        "name",
        **_optional_strings("description", "parentSubagentRunId", "parentToolCallId", "parentMessageId"),
    ),
    "SUBAGENT_FINISHED": _run_level("subagentRunId", result=_anything, outcome=_SUBAGENT_OUTCOME),
    "SUBAGENT_ERROR": _run_level("subagentRunId", "message", code=_string),
}
"""The shape of each event type; `type` itself is settled before a shape is asked."""
