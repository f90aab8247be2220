"""`agui-otel blame`: who last wrote each path of the state of a recorded run."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from agui_otel.cli.recordings import Recording, open_recording
from agui_otel.config import Settings
from agui_otel.errors import InputError
from agui_otel.protocol.events import Malformed, read
from agui_otel.protocol.patch import ABSENT, parse_pointer
from agui_otel.protocol.quirks import translate
from agui_otel.protocol.state import Blame, StateLedger
from agui_otel.render import printable

_ABOUT = """\
Apply the state snapshots and patches of a recording and say who last wrote each path of the state: the
path, the writer, the update and the event (counted from 0) it came with, when, the value, and the value
that it replaced. POINTER (RFC 6901) asks for one path and what lies below it. Needs no backend.
"""

_SHOWN = 60
"""Characters shown of a value in a list of paths."""
_WHOLE = 1024 * 1024
"""Characters shown of the value at the path that was asked for: one that shares parts may be longer than any memory."""


def register(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "blame",
        help="say who last wrote each path of the state",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE", help="a recording, or - for standard input")
    parser.add_argument("pointer", metavar="POINTER", nargs="?", default="", help="JSON Pointer, as /plan/0")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Say who wrote what. Exit status 2 where there is no such path, or the file could not be read whole."""
    pointer: str = arguments.pointer
    try:
        parse_pointer(pointer)
    except ValueError as error:
        print(f"agui-otel: {pointer}: {error}", file=sys.stderr)
        return 2
    recording = open_recording(arguments.file)
    history = History(recording)
    status = 0
    try:
        history.follow()
    except InputError as error:
        print(f"agui-otel: {error}", file=sys.stderr)
        status = 2
    rows = list(history.rows(pointer))
    if status and not rows:
        return status
    if pointer and not rows:
        print(f"agui-otel: {recording.path}: the state has no {pointer}", file=sys.stderr)
        return 2
    for line in _aligned([row.columns(_WHOLE if pointer and row.pointer == pointer else _SHOWN) for row in rows]) or [
        "the state is empty"
    ]:
        print(printable(line))
    for problem in history.problems:
        print(f"agui-otel: {recording.path}: {problem}", file=sys.stderr)
    return status


class Producer(NamedTuple):
    """Who writes state: a subagent invocation, or the run's own agent, whose id is None."""

    id: str | None
    name: str | None

    def __str__(self) -> str:
        return self.name or self.id or "the run's own agent"


class Row(NamedTuple):
    """The last write of a path. `value` and `before` are `ABSENT` where there is none."""

    pointer: str
    writer: str
    when: str
    value: Any
    before: Any

    def columns(self, limit: int) -> tuple[str, ...]:
        """The row as text; values are cut at `limit` characters."""
        was = f"  (was: {_shown(self.before, limit)})" if self.when else ""
        return (self.pointer or '""', self.writer, self.when, _shown(self.value, limit) + was)


class History:
    """The state of a recording with the provenance of its parts.

    Where a file has several runs, the state goes on from one to the next, as it does in the client.
    """

    def __init__(self, recording: Recording) -> None:
        self.problems: list[str] = []
        """Updates that could not be applied."""
        self._recording = recording
        self._producers: dict[str | None, Producer] = {None: Producer(None, None)}
        self._updates: list[tuple[int, float | None]] = []
        state = (recording.given or {}).get("state")
        self._ledger = StateLedger(ABSENT if state is None else state, conflicts=_never)

    def follow(self) -> None:
        """Read the recording and apply its updates. Raises `InputError` after the good part."""
        times = self._recording.times
        events = self._recording.events(max_event_bytes=Settings().max_event_bytes)
        for index, raw in enumerate(events):
            try:
                event = read(raw, [])
            except Malformed:
                continue
            after = None if times is None else times[min(index, len(times) - 1)]
            self._take(translate(event) or event, index, after)

    def rows(self, pointer: str) -> Iterator[Row]:
        """Yield the last write of `pointer` and of what was written below it; of all where it is empty."""
        above: Blame | None = None
        for blame in self._ledger.blame():
            if not _covers(pointer, blame.pointer):
                if _covers(blame.pointer, pointer):
                    above = blame
                continue
            if above is not None and blame.pointer != pointer:
                yield self._row(above, pointer)
            above = None
            yield self._row(blame, blame.pointer)
        if above is not None and _at(above.value, pointer[len(above.pointer) :]) is not ABSENT:
            yield self._row(above, pointer)

    def _take(self, event: dict[str, Any], index: int, after: float | None) -> None:
        kind = event["type"]
        tag = event.get("subagentRunId")
        if kind == "SUBAGENT_STARTED":
            self._producers.setdefault(tag, Producer(tag, event["name"]))
        elif kind in ("STATE_SNAPSHOT", "STATE_DELTA"):
            producer = self._producers.setdefault(tag, Producer(tag, None))
            self._updates.append((index, after))
            at = round((after or 0) * 1_000_000)
            if kind == "STATE_SNAPSHOT":
                self._ledger.snapshot(event["snapshot"], producer, at)
                return
            write = self._ledger.delta(event["delta"], producer, at)
            if write.problem is not None:
                self.problems.append(f"the update of event {index} cannot be applied: {write.problem}")

    def _row(self, blame: Blame, pointer: str) -> Row:
        inner = pointer[len(blame.pointer) :]
        value, before = _at(blame.value, inner), _at(blame.before, inner)
        if blame.writer is None:
            return Row(pointer, "the run's input", "", value, before)
        event, after = self._updates[blame.seq - 1]
        when = f"update {blame.seq}, event {event}"
        return Row(pointer, str(blame.writer), when + (f", {after:.0f} ms" if after is not None else ""), value, before)


def _never(previous: Producer, writer: Producer) -> bool:
    """Overwrites are the tracer's business."""
    del previous, writer
    return False


def _covers(outer: str, inner: str) -> bool:
    """Whether the JSON Pointer `inner` is `outer` or lies below it."""
    return inner == outer or inner.startswith(f"{outer}/")


def _at(value: Any, pointer: str) -> Any:
    """What `value` has at `pointer`, or `ABSENT`."""
    for token in parse_pointer(pointer):
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif isinstance(value, list) and token.isascii() and token.isdigit() and int(token) < len(value):
            value = value[int(token)]
        else:
            return ABSENT
    return value


def _shown(value: Any, limit: int) -> str:
    """`value` as compact JSON, `limit` characters at most. No more of it is looked at than is shown."""
    if value is ABSENT:
        return "absent"
    pieces: list[str] = []
    length = 0
    for piece in _pieces(value, limit):
        pieces.append(piece)
        length += len(piece)
        if length > limit:
            return "".join(pieces)[: limit - 1] + "…"
    return "".join(pieces)


def _pieces(value: Any, limit: int) -> Iterator[str]:
    """The compact JSON of `value`, whatever its depth, as it is asked for; a string is cut when it is longer."""
    ends: list[str] = [""]
    opened: list[Iterator[tuple[str, Any]]] = [iter([("", value)])]
    while opened:
        lead, part = next(opened[-1], (ends[-1], ABSENT))
        yield lead
        if part is ABSENT:
            opened.pop()
            ends.pop()
        elif isinstance(part, dict):
            yield "{"
            opened.append(_members(part, limit))
            ends.append("}")
        elif isinstance(part, list):
            yield "["
            opened.append(("," if index else "", element) for index, element in enumerate(part))
            ends.append("]")
        else:
            yield _scalar(part, limit)


def _members(value: dict[str, Any], limit: int) -> Iterator[tuple[str, Any]]:
    for index, (name, part) in enumerate(value.items()):
        yield ("," if index else "") + _scalar(name, limit) + ":", part


def _scalar(value: Any, limit: int) -> str:
    return json.dumps(value[:limit] if isinstance(value, str) else value, ensure_ascii=False)


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
