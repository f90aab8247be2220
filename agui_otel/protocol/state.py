"""Who wrote what into a run's one state document, and who wrote over whom.

A tree of marks mirrors the document: a mark stands where something was written and says by whom, when, and
what was there before. A write takes away the marks below it; inserting into an array and removing from one
moves the marks of the elements that move. So the last writer of a place is the one at the deepest mark on the
way to it, and a write meets, as previous writers, that one and all below the place: it is their data that it
replaces. (Trace model: state.)

Putting an element into an array replaces no other element: it meets the writer of the array only. Who removed
a member of an object is remembered, for the latest ones, so that adding it again meets them.

A write looks at the marks it takes away, and each mark is taken away once: over a run, an update costs the
depth of its paths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from agui_otel.protocol.patch import ABSENT, Change, Key, PatchError, escape, json_equal, parse_pointer, patch

__all__ = ["ABSENT", "Blame", "Overwrite", "StateLedger", "StateWrite", "Writer"]


class Writer(Protocol):
    """Who writes: any object but None. Two writers are the same when they are one object."""


@dataclass(slots=True)
class Overwrite:
    """An update wrote ``path``; ``previous`` was the last to write it, or something above or below."""

    path: str
    previous: Writer


@dataclass(slots=True)
class StateWrite:
    """One state update.

    ``seq``: 1 for the first update of the run.
    ``op_count``: the number of operations; 0 for a snapshot.
    ``paths``: distinct JSON Pointers of what was written, in order, with real indexes for ``-``; of a patch
    that could not be applied, the pointers it would have written, as they were sent.
    ``overwrites``: one for each path and previous writer at most.
    ``paths_omitted``, ``overwrites_omitted``: how many more there were than the ledger's ``max_paths``.
    ``problem``: why a patch could not be applied, without content; None when all is well.
    """

    seq: int
    op_count: int
    paths: list[str]
    paths_omitted: int
    overwrites: list[Overwrite]
    problem: str | None = None
    overwrites_omitted: int = 0


@dataclass(slots=True)
class Blame:
    """The last write of one place in the document.

    ``writer``: None for a value that the run started with; its ``seq`` is 0, ``at`` None.
    ``at``: nanoseconds since the epoch.
    ``value``: what is there now, later writes below it included.
    ``before``: what was there before that write; `ABSENT` where nothing was, or the ledger does not keep it.
    """

    pointer: str
    writer: Writer | None
    seq: int
    at: int | None
    value: Any
    before: Any


class StateLedger:
    """The state document of a run with the provenance of its parts.

    ``initial``: the document that the run starts with; `ABSENT`, for one not known, is an empty object.
    ``conflicts``: called with a previous writer and the present one, another; is that an overwrite?
    ``max_paths``: how many paths, and how many overwrites, one `StateWrite` names.
    ``keep_before``: whether each place keeps, for `blame`, the value that its last write replaced.
    """

    def __init__(
        self,
        initial: object = ABSENT,
        *,
        conflicts: Callable[[Any, Any], bool],
        max_paths: int = 64,
        keep_before: bool = True,
    ) -> None:
        self._document: Any = {} if initial is ABSENT else initial
        self._marks = _Mark()
        self._seq = 0
        self._conflicts = conflicts
        self._max_paths = max_paths
        self._keep_before = keep_before

    @property
    def document(self) -> Any:
        """The document as it is now. No update changes the object returned: it makes another."""
        return self._document

    def snapshot(self, value: object, writer: Writer, at: int) -> StateWrite:
        """`writer` replaces the document by `value` at `at` (nanoseconds since the epoch).

        From object to object, the top-level members that differ count as written; the others keep their
        writers.
        """
        self._seq += 1
        old = self._document
        changes: list[Change] = []
        if isinstance(old, dict) and isinstance(value, dict):
            self._document, changes = _differences(old, value)
        elif not json_equal(old, value):
            self._document, changes = value, [Change("set", "", (), old)]
        return self._written(0, changes, writer, at)

    def delta(self, operations: object, writer: Writer, at: int) -> StateWrite:
        """`writer` patches the document with RFC 6902 `operations` at `at` (nanoseconds since the epoch)."""
        self._seq += 1
        op_count = len(operations) if isinstance(operations, (list, tuple)) else 0
        try:
            self._document, changes = patch(self._document, operations)
        except PatchError as error:
            where = "" if error.index is None else f"operation {error.index}: "
            paths, omitted = self._capped(_claimed(operations))
            return StateWrite(self._seq, op_count, paths, omitted, [], f"{where}{error.reason}")
        return self._written(op_count, changes, writer, at)

    def blame(self) -> Iterator[Blame]:
        """The last write of each place that was written and is there, in document order, outer before inner.

        Top-level members that the run started with and nobody has written whole come with no writer; so does
        the document itself when it is no object. No update may come while the iteration is under way.
        """
        top = self._marks
        unwritten = top.writer is None
        members = unwritten and isinstance(self._document, dict)
        pending: list[tuple[str, _Mark, Any, bool]] = [("", top, self._document, unwritten and not members)]
        while pending:
            pointer, mark, value, initial = pending.pop()
            if mark.writer is not None:
                yield Blame(pointer, mark.writer, mark.seq, mark.at, value, mark.before)
            elif initial:
                yield Blame(pointer, None, 0, None, value, ABSENT)
            every = members and mark is top
            inner = [(pointer + step, below, part, every) for step, below, part in mark.parts(value, every)]
            pending.extend(reversed(inner))

    def _written(self, op_count: int, changes: list[Change], writer: Writer, at: int) -> StateWrite:
        clashes: dict[tuple[str, int], Overwrite] = {}
        for change in changes:
            for previous in self._mark(change, writer, at):
                key = (change.pointer, id(previous))
                if previous is not writer and self._conflicts(previous, writer):
                    clashes[key] = Overwrite(change.pointer, previous)
        paths, omitted = self._capped([change.pointer for change in changes])
        overwrites = list(clashes.values())
        return StateWrite(
            self._seq,
            op_count,
            paths,
            omitted,
            overwrites[: self._max_paths],
            overwrites_omitted=max(0, len(overwrites) - self._max_paths),
        )

    def _mark(self, change: Change, writer: Writer, at: int) -> Iterable[Writer]:
        """Mark a place as written. Returns the previous writers that the write meets, each once."""
        parent, place = None, self._marks
        nearest = place.writer
        for key in change.keys[:-1]:
            place = place.enter(key)
            if place.writer is not None:
                nearest = place.writer
        met: dict[int, Writer] = {}
        if change.keys:
            parent, key = place, change.keys[-1]
            if change.kind == "insert":
                place = parent.insert(key)
            else:
                place = parent.enter(key)
                remover = parent.forget_remover(key)
                nearest = remover if remover is not None else nearest
        if place.writer is not None:
            nearest = place.writer
        if nearest is not None:
            met[id(nearest)] = nearest
        place.collect_writers(met)
        if parent is not None and change.kind == "remove":
            parent.remove(key, writer)
        else:
            place.write(writer, self._seq, at, change.before if self._keep_before else ABSENT)
        return met.values()

    def _capped(self, pointers: Iterable[str]) -> tuple[list[str], int]:
        paths = list(dict.fromkeys(pointers))
        return paths[: self._max_paths], max(0, len(paths) - self._max_paths)


_MAX_REMOVERS: Final = 64
_WRITING: Final = ("add", "remove", "replace", "move", "copy")


class _Mark:
    """A place in the document: its last write, if it was written as a whole, and the marked places inside it.

    ``members`` are inside an object, ``elements`` inside an array: by index, None where there is no mark, and
    the last ones may be left out. ``removers``: who removed the members that were removed last.
    """

    __slots__ = ("at", "before", "elements", "members", "removers", "seq", "writer")

    def __init__(self) -> None:
        self.writer: Writer | None = None
        self.seq = 0
        self.at = 0
        self.before: Any = ABSENT
        self.members: dict[str, _Mark] | None = None
        self.elements: list[_Mark | None] | None = None
        self.removers: dict[str, Writer] | None = None

    def write(self, writer: Writer, seq: int, at: int, before: Any) -> None:
        self.writer = writer
        self.seq = seq
        self.at = at
        self.before = before
        self.members = self.elements = self.removers = None

    def enter(self, key: Key) -> _Mark:
        """The mark of a member or element, which is there from now on."""
        if isinstance(key, str):
            if self.members is None:
                self.members = {}
            inner = self.members.get(key)
            if inner is None:
                inner = self.members[key] = _Mark()
            return inner
        elements = self._reach(key + 1)
        inner = elements[key]
        if inner is None:
            inner = elements[key] = _Mark()
        return inner

    def insert(self, index: Key) -> _Mark:
        assert isinstance(index, int)
        inner = _Mark()
        self._reach(index).insert(index, inner)
        return inner

    def remove(self, key: Key, writer: Writer) -> None:
        if isinstance(key, int):
            del self._reach(key + 1)[key]
            return
        if self.members is not None:
            self.members.pop(key, None)
        if self.removers is None:
            self.removers = {}
        elif len(self.removers) >= _MAX_REMOVERS:
            del self.removers[next(iter(self.removers))]
        self.removers[key] = writer

    def forget_remover(self, key: Key) -> Writer | None:
        return self.removers.pop(key, None) if self.removers is not None and isinstance(key, str) else None

    def collect_writers(self, into: dict[int, Writer]) -> None:
        """Put into `into`, by id, who wrote this place, or wrote or removed something inside."""
        pending = [self]
        while pending:
            mark = pending.pop()
            if mark.writer is not None:
                into.setdefault(id(mark.writer), mark.writer)
            for remover in (mark.removers or {}).values():
                into.setdefault(id(remover), remover)
            pending.extend((mark.members or {}).values())
            pending.extend(inner for inner in mark.elements or () if inner is not None)

    def parts(self, value: Any, every: bool) -> Iterator[tuple[str, _Mark, Any]]:
        """The marked places inside `value`, with `every` all members: the pointer's step, mark, value."""
        if isinstance(value, dict):
            members = self.members or {}
            for name, part in value.items():
                inner = members.get(name)
                if inner is not None:
                    yield f"/{escape(name)}", inner, part
                elif every and isinstance(name, str):
                    yield f"/{escape(name)}", _Mark(), part
        for index, element in enumerate(self.elements or ()):
            if element is not None:
                yield f"/{index}", element, value[index]

    def _reach(self, size: int) -> list[_Mark | None]:
        """The marks of the elements, `size` of them at least."""
        if self.elements is None:
            self.elements = []
        if len(self.elements) < size:
            self.elements.extend([None] * (size - len(self.elements)))
        return self.elements


def _differences(old: dict[str, Any], new: dict[str, Any]) -> tuple[dict[str, Any], list[Change]]:
    """The document that `new` makes of `old`, whose equal members it keeps, and the members that changed."""
    document: dict[str, Any] = {}
    changes: list[Change] = []
    for name, value in new.items():
        before = old.get(name, ABSENT)
        if json_equal(before, value):
            document[name] = before
            continue
        document[name] = value
        if isinstance(name, str):
            changes.append(Change("set", f"/{escape(name)}", (name,), before))
    gone = (name for name in old if name not in new and isinstance(name, str))
    changes.extend(Change("remove", f"/{escape(name)}", (name,), ABSENT) for name in gone)
    return document, changes


def _claimed(operations: object) -> Iterator[str]:
    """The pointers that would be written by operations which cannot all be applied."""
    for operation in operations if isinstance(operations, (list, tuple)) else ():
        name = operation.get("op") if isinstance(operation, dict) else None
        if not isinstance(name, str) or name not in _WRITING:
            continue
        for member in ("from", "path") if name == "move" else ("path",):
            pointer = operation.get(member)
            if isinstance(pointer, str) and _is_pointer(pointer):
                yield pointer


def _is_pointer(text: str) -> bool:
    try:
        parse_pointer(text)
    except ValueError:
        return False
    return True
