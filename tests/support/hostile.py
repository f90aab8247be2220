"""Events as they should not be: JSON at its edges, and objects that raise and lie."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import MagicMock

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
TEXTS = [
    "",
    "a",
    "b",
    "\0",
    "\ud800",
    "\udfff\ud83d",
    "é\u202e",
    "a" * 20_000,
    "/",
    "~2",
    "on_interrupt",
    '{"a": 1}',
    "[",
]
NUMBERS = [0, -1, 2**63, -(2**63) - 1, 10**400, 1.5, float("nan"), float("inf"), 1e308, 1700000000000, 1700000000.5]


@cache
def nested(depth: int, leaf: Any = 1) -> Any:
    """A JSON value so deep."""
    value: Any = leaf
    for level in range(depth):
        value = [value] if level % 2 else {"a": value}
    return value


def json_value(random: Random, depth: int = 3) -> Any:
    """Any JSON value, and some that JSON has no word for."""
    act = random.random()
    if act < 0.3 and depth:
        return [json_value(random, depth - 1) for _ in range(random.randrange(4))]
    if act < 0.6 and depth:
        keys = (random.choice([*TEXTS, "type", "id", "op", "path"]) for _ in range(random.randrange(4)))
        return {key: json_value(random, depth - 1) for key in keys}
    return random.choice(random.choice(((None, True, False), NUMBERS, TEXTS)))


def _random_event(random: Random) -> Event:
    fields = {random.choice(FIELDS): json_value(random) for _ in range(random.randrange(7))}
    return {"type": random.choice(TYPES), **fields}


def _deep_event(random: Random) -> Event:
    field = random.choice(FIELDS)
    return {**random.choice(SPECIMENS), field: nested(random.choice((10, 100, 500, 5_000, 100_000)))}


def _unreadable(random: Random) -> Any:
    return random.choice((parse(random.randbytes(random.randrange(20))), parse('["\ud800"]'), Unreadable("too large")))


_JSON: tuple[Callable[[Random], Any], ...] = (
    lambda random: random.choice(SPECIMENS),
    lambda random: spoil(random, random.choice(SPECIMENS)),
    _random_event,
    _deep_event,
    _unreadable,
)


def _around(random: Random, middle: list[Any]) -> list[Any]:
    """`middle` with parts of well-formed streams around it."""
    before, after = (write(random.randrange(10**9), None) for _ in range(2))
    return [*before[: random.randrange(len(before) + 1)], *middle, *after[random.randrange(len(after) + 1) :]]


def json_stream(seed: int) -> list[Any]:
    """A stream of JSON-like values: legal, illegal, odd, and what is no event at all."""
    random = Random(seed)
    return _around(random, [random.choice(_JSON)(random) for _ in range(random.randrange(12))])


def hostile_stream(seed: int) -> list[Any]:
    """A stream in which some events are objects that raise or lie."""
    random = Random(seed)
    return _around(random, [_hostile_event(random) for _ in range(random.randrange(1, 8))])


def _hostile_event(random: Random) -> Any:
    event, name, value = random.choice(SPECIMENS), random.choice([*FIELDS, "type"]), random.choice(VALUES)()
    attribute = next(iter(snake({name: None})))
    return random.choice(
        (
            lambda: value,
            lambda: {**event, name: value},
            lambda: {**event, **dict.fromkeys(event, value), "type": event["type"]},
            lambda: as_object(event, attribute, value),
            lambda: with_property(event, attribute),
            lambda: Mapping(event),
            lambda: Shifting(event),
        )
    )()


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

    __class__ = property(refuse)


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

    def get(self, *_: Any) -> Any:
        """Nothing."""
        return None


class Kind(str, Enum):
    """Event types as an enum, and one that is none."""

    TEXT = "TEXT_MESSAGE_CONTENT"
    START = "RUN_STARTED"
    OTHER = "OTHER"


def cyclic() -> list[Any]:
    """A list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


VALUES: list[Callable[[], Any]] = [
    *(Raising, RaisingClass, Unequal, MagicMock, object),
    *(lambda: Text("a"), lambda: Text("RUN_STARTED"), lambda: Number(5), lambda: Kind.TEXT),
    *(lambda: Mapping(type="RUN_STARTED"), lambda: Shifting(type="RUN_STARTED", threadId="t", runId="r")),
    *(lambda: pretending(dict), lambda: pretending(str), lambda: pretending(int, __getitem__=refuse)),
    *(lambda: {1, 2}, lambda: b"\xff", lambda: range(3), lambda: iter(()), lambda: refuse, lambda: Exception("x")),
    *(lambda: complex(1, 2), lambda: memoryview(b"x"), lambda: int, lambda: ..., lambda: nested(100_000)),
    *(cyclic, lambda: {"a": Unequal()}, lambda: [Unequal()], lambda: {1: 2, None: 3, ("a",): 4}),
]
"""What may stand where JSON is expected."""


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
