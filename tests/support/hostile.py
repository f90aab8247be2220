"""Events as they should not be: JSON at its edges, and objects that raise and lie."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from random import Random
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import MagicMock

from hypothesis import strategies as st

from agui_otel.protocol.events import EVENT_TYPES, Unreadable, parse
from tests.support.defects import write
from tests.support.specimens import SPECIMENS, spoil
from tests.support.vocabulary import Event

TYPES = [*sorted(EVENT_TYPES), "THINKING_START", "THINKING_TEXT_MESSAGE_CONTENT", "FUTURE", "", "\ud800"]
FIELDS = [
    *("threadId", "runId", "parentRunId", "input", "result", "usage", "outcome", "message", "code", "stepName"),
    *("messageId", "role", "name", "delta", "toolCallId", "toolCallName", "parentMessageId", "content", "subtype"),
    *("entityId", "encryptedValue", "snapshot", "activityType", "patch", "replace", "event", "source", "value"),
    *("messages", "subagentRunId", "subagentId", "description", "parentSubagentRunId", "parentToolCallId"),
    *("timestamp", "metadata", "rawEvent", "protocolVersion", "\0", "\ud800", ""),
]
TEXTS = ["", "a", "b", "\0", "\ud800", "\udfff\ud83d", "é\u202e", "a" * 20_000, "/", "~2", "on_interrupt", '{"a": 1}', "["]
NUMBERS = [0, -1, 2**63, -(2**63) - 1, 10**400, 1.5, float("nan"), float("inf"), 1e308, 1700000000000, 1700000000.5]


def nested(depth: int, leaf: Any = 1) -> Any:
    """A JSON value so deep."""
    value: Any = leaf
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.sampled_from(TEXTS) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*TEXTS, "type", "id", "op"]), inner, max_size=3),
    max_leaves=6,
)
deep_values = st.sampled_from([10, 100, 500, 5_000, 100_000]).map(nested)
random_events: st.SearchStrategy[Event] = st.builds(
    lambda kind, fields: {"type": kind, **fields},
    st.sampled_from(TYPES),
    st.dictionaries(st.sampled_from(FIELDS), json_values, max_size=6),
)
deep_events: st.SearchStrategy[Event] = st.builds(
    lambda specimen, field, value: {**specimen, field: value},
    st.sampled_from(SPECIMENS),
    st.sampled_from(FIELDS),
    deep_values,
)
specimens: st.SearchStrategy[Event] = st.sampled_from(SPECIMENS)
spoiled: st.SearchStrategy[Event] = st.builds(lambda seed, event: spoil(Random(seed), event), st.integers(0, 10**6), specimens)
authored: st.SearchStrategy[list[Event]] = st.integers(0, 10**9).map(lambda seed: write(seed, None))
unreadable: st.SearchStrategy[Any] = st.binary(max_size=20).map(parse) | st.just(Unreadable("too large"))

json_streams: st.SearchStrategy[list[Any]] = authored | st.builds(
    lambda before, events, after: before + events + after,
    st.just([]) | authored,
    st.lists(specimens | spoiled | random_events | deep_events | unreadable, max_size=12),
    st.just([]) | authored,
)
"""Streams of JSON-like values: legal, illegal, odd, and what is no event at all."""


def refuse(*_: Any, **__: Any) -> NoReturn:
    """Raise, whatever is asked."""
    raise RuntimeError("no")


def _refuse_too(*_: Any, **__: Any) -> NoReturn:
    raise ZeroDivisionError("no")


class Raising:
    """Every attribute raises."""

    def __getattribute__(self, name: str) -> NoReturn:
        raise RuntimeError(name)


class RaisingClass:
    """Asking for its class raises."""

    __class__ = property(refuse)  # type: ignore[assignment]


def pretending(kind: type, **fields: Any) -> Any:
    """An object that says it is of another class."""
    return type("Pretending", (), {"__class__": property(lambda _: kind), **fields})()


class Text(str):
    """A string that raises when it is compared, hashed or shown."""

    __slots__ = ()
    __eq__ = __ne__ = __hash__ = __str__ = __repr__ = __len__ = __format__ = encode = refuse


class Number(int):
    """A number that raises when it is compared, computed with or shown."""

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __add__ = __sub__ = __mul__ = __str__ = __repr__ = refuse
    __hash__ = int.__hash__


class Unequal:
    """A value that raises when it is compared, hashed, shown, copied or asked for its truth."""

    __eq__ = __ne__ = __hash__ = __bool__ = __str__ = __repr__ = __copy__ = __deepcopy__ = __reduce__ = _refuse_too


class Mapping(dict[Any, Any]):
    """A dict that raises when it is read."""

    get = items = keys = values = __getitem__ = __contains__ = __iter__ = copy = refuse


class Shifting(dict[Any, Any]):
    """A dict that is another one each time it is read."""

    def __getitem__(self, key: Any) -> Any:
        return None

    def get(self, key: Any, default: Any = None) -> Any:
        """Nothing."""
        return default


class Kind(str, Enum):
    """Event types as an enum, and one that is none."""

    TEXT = "TEXT_MESSAGE_CONTENT"
    START = "RUN_STARTED"
    OTHER = "OTHER"


VALUES: list[Callable[[], Any]] = [
    Raising, RaisingClass, Unequal, MagicMock, object, lambda: Text("a"), lambda: Text("RUN_STARTED"), lambda: Number(5),
    lambda: Mapping(type="RUN_STARTED"), lambda: Shifting(type="RUN_STARTED", threadId="t", runId="r"),
    lambda: pretending(dict), lambda: pretending(str), lambda: pretending(int, __getitem__=refuse), lambda: Kind.TEXT,
    lambda: {1, 2}, lambda: b"\xff", lambda: range(3), lambda: (x for x in ()), lambda: refuse, lambda: Exception("x"),
    lambda: complex(1, 2), lambda: memoryview(b"x"), lambda: int, lambda: ..., lambda: nested(100_000), lambda: cyclic(),
    lambda: {Unequal.__name__: Unequal()}, lambda: [Unequal()], lambda: {1: 2, None: 3, ("a",): 4},
]  # fmt: skip
"""What may stand where JSON is expected."""


def cyclic() -> list[Any]:
    """A list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


hostile_values: st.SearchStrategy[Any] = st.sampled_from(VALUES).map(lambda make: make())


def snake(fields: Event) -> dict[str, Any]:
    """Fields under the attribute names of event objects."""
    return {"".join(f"_{c.lower()}" if c.isupper() else c for c in name): value for name, value in fields.items()}


def as_object(event: Event, name: str, value: Any) -> Any:
    """An event object with one attribute that is something else."""
    return SimpleNamespace(**{**snake(event), name: value})


def with_property(event: Event, name: str) -> Any:
    """An event object with one attribute that raises."""
    fields = snake(event)
    fields.pop(name, None)
    found = type("Event", (), {name: property(refuse)})()
    found.__dict__.update(fields)
    return found


_names = st.sampled_from([*FIELDS, "type"])
_attributes = _names.map(lambda name: next(iter(snake({name: None}))))
hostile_events: st.SearchStrategy[Any] = (
    hostile_values
    | st.builds(lambda event, name, value: {**event, name: value}, specimens, _names, hostile_values)
    | st.builds(as_object, specimens, _attributes, hostile_values)
    | st.builds(with_property, specimens, _attributes)
    | st.builds(lambda event: Mapping(event), specimens)
    | st.builds(lambda event: Shifting(event), specimens)
)
hostile_streams: st.SearchStrategy[list[Any]] = st.builds(
    lambda before, events, after: [*before, *events, *after],
    st.just([]) | authored,
    st.lists(hostile_events, min_size=1, max_size=8),
    st.just([]) | authored,
)
"""Streams in which some events are objects that raise or lie."""
