"""Checks that the fields of an event must pass, and the shapes that they make up.

- **Required fields decide.** An event whose required fields (and the required fields inside them) pass is
  usable, so only these raise `ShapeError`. An optional field that does not pass is left out of a copy, with a
  note; a null in an optional field stays, because whether it may stand there is for the rules to judge.
- **Objects are open.** Fields that a shape does not name are neither checked nor taken out.

A check is called with a value, the path that leads to it and the list that takes notes. It returns the
value, or a copy without what was left out, or raises `ShapeError`. No message quotes a value: they name paths
and JSON types only. Most values are in order, which `fits` settles at a fraction of the cost.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Protocol

Path = tuple[Any, "str | int"]
"""Where a value stands: the path of what holds it (None for the event) and its own key or index."""

LARGEST_INTEGER = 2**53 - 1


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


class Check(Protocol):
    """What a field's value has to pass. `fits` may say no of a value that does: then the call decides."""

    @property
    def fits(self) -> Callable[[Any], bool]:
        """Whether a quick look settles that the value passes as it is."""

    def __call__(self, value: Any, path: Path | None, notes: list[str], /) -> Any:
        """The value as it passes, or ShapeError."""


class Simple:
    """A check that looks at nothing but the value itself. ``passes``: every value of this exact type does."""

    __slots__ = ("_expected", "fits", "passes")

    def __init__(self, expected: str, holds: Callable[[Any], bool], passes: type | None = None) -> None:
        self._expected = expected
        self.fits = holds
        self.passes = passes

    def __call__(self, value: Any, path: Path | None, _notes: list[str]) -> Any:
        """The value where it holds."""
        if self.fits(value):
            return value
        raise ShapeError(path, f"expected {self._expected}, got {json_type(value)}")


def _is_whole(value: Any) -> bool:
    """Whether JavaScript would call it an integer: 1.0 is, a boolean is not."""
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and value.is_integer())


def _is_pointer(value: Any) -> bool:
    """Whether it is a JSON Pointer (RFC 6901)."""
    if not isinstance(value, str):
        return False
    return not value or (value[0] == "/" and re.search("~(?![01])", value) is None)


STRING = Simple("a string", lambda value: isinstance(value, str), str)
ANYTHING = Simple("a value", lambda _value: True)
MAPPING = Simple("an object", lambda value: isinstance(value, dict), dict)
BOOLEAN = Simple("a boolean", lambda value: isinstance(value, bool), bool)
JSON_POINTER = Simple("a JSON Pointer", _is_pointer)


def integer(smallest: int) -> Check:
    """A whole number that JavaScript holds exactly."""

    def holds(value: Any) -> bool:
        return (type(value) is int or _is_whole(value)) and smallest <= value <= LARGEST_INTEGER

    return Simple(f"an integer from {smallest} to {LARGEST_INTEGER}", holds)


class OneOf:
    """One of a few strings."""

    __slots__ = ("_values",)

    def __init__(self, *values: str) -> None:
        self._values = frozenset(values)

    def fits(self, value: Any) -> bool:
        """Whether the value is one of them."""
        return type(value) is str and value in self._values

    def __call__(self, value: Any, path: Path | None, notes: list[str]) -> Any:
        """The value where it is one of them."""
        if STRING(value, path, notes) in self._values:
            return value
        raise ShapeError(path, "unknown value")


class Array:
    """An array whose items pass `of`."""

    __slots__ = ("_of", "_smallest")

    def __init__(self, of: Check, *, smallest: int = 0) -> None:
        self._of = of
        self._smallest = smallest

    def fits(self, value: Any) -> bool:
        """Whether a quick look settles every item."""
        return type(value) is list and len(value) >= self._smallest and all(map(self._of.fits, value))

    def __call__(self, value: Any, path: Path | None, notes: list[str]) -> Any:
        """The array, or a copy with what its items became."""
        if not isinstance(value, list):
            raise ShapeError(path, f"expected an array, got {json_type(value)}")
        if len(value) < self._smallest:
            raise ShapeError(path, "empty")
        checked = [self._of(item, (path, index), notes) for index, item in enumerate(value)]
        return value if all(map(operator.is_, checked, value)) else checked


class TextOr:
    """A string, or what passes `other`."""

    __slots__ = ("_other", "passes")

    def __init__(self, other: Check) -> None:
        self._other = other
        self.passes = str

    def fits(self, value: Any) -> bool:
        """Whether it is a string, or a quick look settles the rest."""
        return type(value) is str or self._other.fits(value)

    def __call__(self, value: Any, path: Path | None, notes: list[str]) -> Any:
        """The string, or what the other check makes of the value."""
        return value if isinstance(value, str) else self._other(value, path, notes)


class Tagged:
    """One of several objects, told apart by the string under `tag`."""

    __slots__ = ("_fatal", "_known", "_tag", "_variants")

    def __init__(self, tag: str, variants: dict[str, Shape], *, fatal: bool = False) -> None:
        self._tag = tag
        self._variants = variants
        self._known = OneOf(*variants)
        self._fatal = fatal

    def fits(self, value: Any) -> bool:
        """Whether a quick look at the variant settles it."""
        if type(value) is not dict:
            return False
        name = value.get(self._tag)
        variant = self._variants.get(name) if type(name) is str else None
        return variant is not None and variant.fits(value)

    def __call__(self, value: Any, path: Path | None, notes: list[str]) -> Any:
        """The object as its variant passes."""
        if not isinstance(value, dict):
            raise ShapeError(path, f"expected an object, got {json_type(value)}")
        tag = self._tag
        if tag not in value:
            raise ShapeError((path, tag), "missing")
        name = self._known(value[tag], (path, tag), notes)
        try:
            return self._variants[name](value, path, notes)
        except ShapeError as error:
            error.fatal = self._fatal
            raise


_TAGS = ("type", "role", "op")
"""What tells objects apart, and is settled before a shape is asked."""


class Shape:
    """An object: the checks of its required and of its optional fields. A shape is itself a check."""

    __slots__ = ("_looks", "_required_names", "_types", "optional", "required")

    def __init__(self, required: dict[str, Check], optional: dict[str, Check]) -> None:
        self.required = required
        self.optional = optional
        checks = {**required, **optional}
        self._required_names = tuple(required)
        passed = ((name, getattr(check, "passes", None)) for name, check in checks.items())
        self._types = {name: str for name in _TAGS if name not in checks}
        self._types |= {name: kind for name, kind in passed if kind is not None}
        self._looks = {name: check.fits for name, check in checks.items()}

    def takes(self, name: str, kind: type) -> bool:
        """Whether every value of this exact type passes in the field `name`."""
        return name not in self._looks or self._types.get(name) is kind

    def look(self, name: str) -> Callable[[Any], bool]:
        """The quick look at a field that this shape names."""
        return self._looks[name]

    def fits(self, value: Any) -> bool:
        """Whether a quick look settles that every field passes: most objects, at a fraction of the cost."""
        if type(value) is not dict:
            return False
        types, looks = self._types, self._looks
        for name, field in value.items():
            if type(field) is not types.get(name):
                look = looks.get(name)
                if look is not None and not look(field):
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
            after = check(before, (path, name), notes)
            if after is not before:
                changed = dict(value) if changed is None else changed
                changed[name] = after
        for name, check in self.optional.items():
            before = value.get(name)
            if before is None:
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
