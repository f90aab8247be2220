"""JSON Patch (RFC 6902) and JSON Pointer (RFC 6901), copy-on-write.

A patch never changes the document it is applied to, nor the values its operations carry: of every object and
array on the way to a written place one shallow copy is made for the whole patch, all else is shared. So an
operation costs the depth of its path and the widths along it, whatever the size of the document. Nothing here
recurses: depth is limited by memory only.

The RFC is followed to the letter. Where it is silent, this is AG-UI's reference client (fast-json-patch):
removing the root leaves null, a move to the place it comes from changes nothing. That client also takes some
things that the RFC forbids, refused here: an index with leading zeros, an empty index, an index past the end
as the target of a move or copy, a missing value as the source of one to the root, ``~`` before anything but 0
and 1, a ``from`` without its leading slash, and nearly anything where the document is a false scalar. It
refuses the name ``__proto__``, and a move whose path leads somewhere only once the source is removed, both
taken here.

A document is made of dict, list (or tuple), str, int, float, bool and None. Any other object is a value
without parts, compared by its own ``==``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Literal, NamedTuple

Key = str | int
"""A step into a document: a member's name, or an element's index."""


class Absent(Enum):
    """The type of `ABSENT`."""

    ABSENT = "absent"


ABSENT: Final = Absent.ABSENT
"""No value is there. Not None, which is JSON's null."""


class PatchError(ValueError):
    """A patch that cannot be applied.

    ``index``: the operation, counted from 0; None when the patch is no list.
    ``path``: the JSON Pointer that could not be followed, as it was sent; None when the operation has none.
    ``reason``: what is wrong. It never quotes the document, the path or the operation.
    """

    def __init__(self, index: int | None, path: str | None, reason: str) -> None:
        where = "patch" if index is None else f"operation {index}"
        super().__init__(f"{where}: {reason}" if path is None else f"{where}: {reason} (at {path!r})")
        self.index = index
        self.path = path
        self.reason = reason


class Change(NamedTuple):
    """One place that a patch wrote.

    ``kind``: ``set`` (a member, an element or the root has a new value), ``insert`` (a new element; the one
    that had its index, and those after, moved up), ``remove`` (a member is gone; or an element, and those
    after it moved down).
    ``pointer``: the JSON Pointer of the place, with the index that a ``-`` stood for.
    ``keys``: the same place, as steps: an int is an index of an array, a str a name.
    ``before``: the value that ``set`` replaced, else `ABSENT`.
    """

    kind: Literal["set", "insert", "remove"]
    pointer: str
    keys: tuple[Key, ...]
    before: Any


class Patched(NamedTuple):
    """The result of a patch: the new document, and what was written, in order (a ``test`` writes nothing)."""

    document: Any
    changes: list[Change]


def apply(document: Any, operations: object) -> Any:
    """The document that `operations`, a list of RFC 6902 operations, make of `document`.

    Raises:
        PatchError: one of them could not be applied; so none was.
    """
    return patch(document, operations).document


def patch(document: Any, operations: object) -> Patched:
    """Like `apply`, and says what was written.

    Raises:
        PatchError: one of the operations could not be applied; so none was.
    """
    if not isinstance(operations, (list, tuple)):
        raise PatchError(None, None, "the operations are not a list")
    patching = _Patching(document)
    try:
        for operation in operations:
            patching.run(operation)
    except _Refused as refused:
        raise PatchError(patching.applied, refused.pointer, refused.reason) from None
    return Patched(patching.document, patching.changes)


def escape(token: str) -> str:
    """A member's name as a JSON Pointer writes it."""
    if "~" in token or "/" in token:
        return token.replace("~", "~0").replace("/", "~1")
    return token


def parse_pointer(pointer: str) -> list[str]:
    """The unescaped tokens of a JSON Pointer; ``""``, the whole document, has none.

    Raises:
        ValueError: `pointer` does not start with ``/``, or has a ``~`` that is no escape.
    """
    if not pointer:
        return []
    if pointer[0] != "/":
        raise ValueError("a JSON Pointer is empty or starts with a slash")
    tokens = pointer[1:].split("/")
    if "~" in pointer:
        if pointer.count("~") != pointer.count("~0") + pointer.count("~1"):
            raise ValueError("in a JSON Pointer a tilde is followed by 0 or 1")
        return [token.replace("~1", "/").replace("~0", "~") for token in tokens]
    return tokens


def json_equal(left: Any, right: Any) -> bool:
    """Whether two values are equal as JSON: 1 and 1.0 are, 1 and true are not; members have no order.

    NaN, which JSON does not have, equals itself, so that a document equals its copy. Values may be deep,
    shared or cyclic.
    """
    pairs = [(left, right)]
    seen: set[tuple[int, int]] = set()
    while pairs:
        a, b = pairs.pop()
        if a is b:
            continue
        if not isinstance(a, (dict, list, tuple)):
            if not _scalars_equal(a, b):
                return False
        elif (id(a), id(b)) not in seen:
            seen.add((id(a), id(b)))
            if not _outsides_equal(a, b, pairs):
                return False
    return True


_PLAIN: Final = frozenset((str, int, bool))


def _outsides_equal(a: Any, b: Any, pairs: list[tuple[Any, Any]]) -> bool:
    """Whether two containers agree as far as a look at them tells; `pairs` gets what is to be looked into."""
    if isinstance(a, dict):
        if not isinstance(b, dict) or len(a) != len(b):
            return False
        parts = [(x, b.get(name, ABSENT)) for name, x in a.items()]
    elif not isinstance(b, (list, tuple)) or len(a) != len(b):
        return False
    else:
        parts = list(zip(a, b, strict=True))
    for part in parts:
        x, y = part
        if x is not y:
            kind = type(x)
            if kind is not type(y) or kind not in _PLAIN:
                pairs.append(part)
            elif x != y:
                return False
    return True


def _scalars_equal(a: Any, b: Any) -> bool:
    if isinstance(a, bool) or isinstance(b, bool):
        return False  # true and false are single objects, and `a is b` was asked before
    try:
        return bool(a == b) or bool(a != a and b != b)
    except Exception:  # noqa: BLE001  (the comparison of a foreign object may do anything)
        return False


class _Refused(Exception):  # noqa: N818  (never leaves this module)
    def __init__(self, pointer: str | None, reason: str) -> None:
        super().__init__(reason)
        self.pointer = pointer
        self.reason = reason


_MISSING: Final = "there is no such value"


class _Patching:
    """A document while a patch is applied to it.

    ``_own`` holds the containers that were copied for this patch, by id: nobody else sees them, and they are
    changed in place. The containers of the given document and of the operations' values are not among them.
    """

    __slots__ = ("_own", "applied", "changes", "document")

    def __init__(self, document: Any) -> None:
        self.document = document
        self.applied = 0
        self.changes: list[Change] = []
        self._own: dict[int, Any] = {}

    def run(self, operation: object) -> None:
        if not isinstance(operation, dict):
            raise _Refused(None, "the operation is not an object")
        name, path = operation.get("op"), operation.get("path")
        if not isinstance(path, str):
            raise _Refused(None, "`path` is not a string")
        action = _ACTIONS.get(name) if isinstance(name, str) else None
        if action is None:
            raise _Refused(path, "`op` is none of add, remove, replace, move, copy, test")
        action(self, path, operation)
        self.applied += 1

    def add(self, path: str, operation: dict[str, Any]) -> None:
        self._put(path, _member(operation, "value", path))

    def replace(self, path: str, operation: dict[str, Any]) -> None:
        value = _member(operation, "value", path)
        tokens = _tokens(path)
        if not tokens:
            self._replace_root(value)
            return
        container, keys = self._open(path, tokens)
        key = _existing(container, tokens[-1], path)
        before = container[key]
        container[key] = value
        self.changes.append(Change("set", path, (*keys, key), before))

    def remove(self, path: str, _operation: dict[str, Any]) -> None:
        self._take(path)

    def test(self, path: str, operation: dict[str, Any]) -> None:
        expected = _member(operation, "value", path)
        if not json_equal(self._find(path)[0], expected):
            raise _Refused(path, "the test failed")

    def move(self, path: str, operation: dict[str, Any]) -> None:
        source = _source(operation, path)
        if source == path:
            value, keys = self._find(path)
            self.changes.append(Change("set", path, keys, value))
            return
        if path.startswith(source + "/"):
            raise _Refused(path, "a value cannot be moved into itself")
        self._put(path, self._take(source))

    def copy(self, path: str, operation: dict[str, Any]) -> None:
        value, _ = self._find(_source(operation, path))
        if id(value) in self._own:  # else nothing below it is our own either
            self._own.clear()  # what was copied is now in two places
        self._put(path, value)

    def _put(self, path: str, value: Any) -> None:
        tokens = _tokens(path)
        if not tokens:
            self._replace_root(value)
            return
        container, keys = self._open(path, tokens)
        token = tokens[-1]
        if isinstance(container, dict):
            before = container.get(token, ABSENT)
            container[token] = value
            self.changes.append(Change("set", path, (*keys, token), before))
            return
        size = len(container)
        if token == "-":
            index = size
            path = f"{path[:-1]}{index}"
        else:
            index = _index(token, size + 1, path)
        container.insert(index, value)
        self.changes.append(Change("insert", path, (*keys, index), ABSENT))

    def _take(self, path: str) -> Any:
        tokens = _tokens(path)
        if not tokens:
            value = self.document
            self._replace_root(None)
            return value
        container, keys = self._open(path, tokens)
        key = _existing(container, tokens[-1], path)
        value = container.pop(key)
        self.changes.append(Change("remove", path, (*keys, key), ABSENT))
        return value

    def _replace_root(self, value: Any) -> None:
        self.changes.append(Change("set", "", (), self.document))
        self.document = value

    def _find(self, pointer: str) -> tuple[Any, tuple[Key, ...]]:
        """The value at `pointer`, and the steps to it."""
        value = self.document
        keys: list[Key] = []
        for token in _tokens(pointer):
            key = _existing(value, token, pointer)
            value = value[key]
            keys.append(key)
        return value, tuple(keys)

    def _open(self, pointer: str, tokens: list[str]) -> tuple[Any, list[Key]]:
        """The container of the place that `tokens` name, our own now like all above it; the steps to it."""
        container = self.document = self._owned(self.document, pointer)
        keys: list[Key] = []
        for token in tokens[:-1]:
            key = _existing(container, token, pointer)
            inner = self._owned(container[key], pointer)
            container[key] = inner
            container = inner
            keys.append(key)
        return container, keys

    def _owned(self, value: Any, pointer: str) -> Any:
        if id(value) in self._own:
            return value
        own: Any
        if isinstance(value, dict):
            own = dict(value)
        elif isinstance(value, (list, tuple)):
            own = list(value)
        else:
            raise _Refused(pointer, "the path leads into a value that is no object and no array")
        self._own[id(own)] = own
        return own


_ACTIONS: Final[dict[str, Callable[[_Patching, str, dict[str, Any]], None]]] = {
    "add": _Patching.add,
    "remove": _Patching.remove,
    "replace": _Patching.replace,
    "move": _Patching.move,
    "copy": _Patching.copy,
    "test": _Patching.test,
}


def _member(operation: dict[str, Any], name: str, path: str) -> Any:
    value = operation.get(name, ABSENT)
    if value is ABSENT:
        raise _Refused(path, f"`{name}` is missing")
    return value


def _source(operation: dict[str, Any], path: str) -> str:
    source = _member(operation, "from", path)
    if not isinstance(source, str):
        raise _Refused(path, "`from` is not a string")
    return source


def _tokens(pointer: str) -> list[str]:
    try:
        return parse_pointer(pointer)
    except ValueError as error:
        raise _Refused(pointer, str(error)) from None


def _existing(container: Any, token: str, pointer: str) -> Key:
    """The key of an existing member or element."""
    if isinstance(container, dict):
        if token in container:
            return token
        raise _Refused(pointer, _MISSING)
    if isinstance(container, (list, tuple)):
        if token == "-":
            raise _Refused(pointer, "`-` names the element after the last, which is not there")
        return _index(token, len(container), pointer)
    raise _Refused(pointer, "the path leads into a value that is no object and no array")


def _index(token: str, limit: int, pointer: str) -> int:
    """The array index, below `limit`, that `token` spells."""
    if not (token.isascii() and token.isdigit()) or (token[0] == "0" and len(token) > 1):
        raise _Refused(pointer, "an array's index is digits, without leading zeros")
    if len(token) > 18 or (index := int(token)) >= limit:
        raise _Refused(pointer, "the index is out of bounds")
    return index
