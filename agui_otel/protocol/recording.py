"""Recorded streams: what a file holds, told by its content, and when its events were received.

Pure: bytes come in, from wherever they were read. The file names beside a recording (`NAME.input.json`,
`NAME.times`) and standard input are the command line's business.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from agui_otel.errors import InputError
from agui_otel.protocol.events import EVENT_TYPES, Unreadable
from agui_otel.protocol.jsonlines import AFTER_ARRAY, JSONArrayDecoder, JSONLinesDecoder
from agui_otel.protocol.lines import CUT, MAX_EVENT_BYTES
from agui_otel.protocol.protobuf import ProtobufDecoder, begins_stream
from agui_otel.protocol.sse import SSEDecoder

Payload = dict[str, Any] | Unreadable
Decoder = SSEDecoder | JSONLinesDecoder | JSONArrayDecoder | ProtobufDecoder

GAP_NS = 1_000_000_000
"""What lies between two recordings that are laid end to end, in nanoseconds."""

_MS = 1_000_000
_HEAD = 64 * 1024
_HELD = 1000
_BOM = b"\xef\xbb\xbf"
_SSE_FIELD = re.compile(rb":|(?:data|event|id|retry)[:\r\n]")
_SSE_NAMES = (b"data:", b"event:", b"retry:", b"id:")


def recognise(head: bytes) -> type[Decoder] | None:
    """Return the decoder for what begins with `head`; None where it is none of ours, or too short."""
    if begins_stream(head):
        return ProtobufDecoder
    text = head.removeprefix(_BOM).lstrip()
    if text.startswith(b"{"):
        return JSONLinesDecoder
    if text.startswith(b"["):
        return JSONArrayDecoder
    return SSEDecoder if _SSE_FIELD.match(text) else None


def read(chunks: Iterable[bytes], *, path: str, max_event_bytes: int = MAX_EVENT_BYTES) -> Iterator[Payload]:
    """Yield the events of a recording in JSON lines, server-sent events, one JSON array, or binary frames.

    Unreadable pieces in the middle are yielded as such (they are violations of the stream). Raises
    `InputError`, naming `path` and the line (of binary frames the frame, counted from 1), for a recording that is
    empty, not UTF-8, cut off in the middle of an event, or no AG-UI stream at all; always after everything that
    could be read.
    """
    source = iter(chunks)
    text = _TextCheck()
    decoder, head = _begin(source, path, max_event_bytes)
    is_text = not isinstance(decoder, ProtobufDecoder)
    gate = _Gate(path)
    for chunk in _prepend(head, source):
        if is_text:
            text.look_at(chunk)
        payloads = decoder.feed(chunk)
        if payloads:
            yield from gate.admit(payloads, decoder.lines)
    rest = decoder.close()
    end = rest[-1] if rest and isinstance(rest[-1], Unreadable) else None
    if end is not None:
        rest.pop()
    yield from gate.admit(rest, decoder.lines)
    if text.bad_line is not None:
        raise InputError("not UTF-8", path=path, line=text.bad_line)
    if end is not None and gate.may_be_agui:
        raise InputError(end.reason if end.reason == AFTER_ARRAY else CUT, path=path, line=decoder.lines[-1])
    gate.close()


def read_times(data: bytes, *, path: str) -> list[float]:
    """Read the receive time of each event, one a line, in milliseconds since the request."""
    times = []
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            value = float(line)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0:
            raise InputError("not a time in milliseconds", path=path, line=number)
        times.append(value)
    if not times:
        raise InputError("no times in it", path=path)
    return times


def read_json(data: bytes, *, path: str, what: str = "") -> Any:
    """The JSON value that a file holds. Raises `InputError`, which begins with `what`."""
    try:
        return json.loads(data.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        raise InputError(f"{what}not JSON: {error.msg}", path=path, line=error.lineno) from None
    except UnicodeDecodeError:
        raise InputError(f"{what}not UTF-8", path=path) from None
    except RecursionError:
        raise InputError(f"{what}nested too deeply", path=path) from None


def read_run_input(data: bytes, *, path: str) -> dict[str, Any]:
    """Read a RunAgentInput: an object with strings `threadId` and `runId` and an array `messages`."""
    value = read_json(data, path=path)
    if isinstance(value, dict):
        ids = isinstance(value.get("threadId"), str) and isinstance(value.get("runId"), str)
        if ids and isinstance(value.get("messages"), list):
            return value
    raise InputError("not a RunAgentInput: an object with threadId, runId and messages", path=path)


@dataclass(frozen=True)
class Timeline:
    """When the events of one recording were received, on the clock of now."""

    begin: int
    """When the request was made, in nanoseconds since the epoch."""
    times: Sequence[float]
    """The receive time of each event, in milliseconds since the request."""

    def at(self, index: int) -> int:
        """Return when the event at the 0-based `index` was received, in nanoseconds since the epoch.

        An event for which there is no time has that of the last one.
        """
        return self.begin + round(self.times[min(index, len(self.times) - 1)] * _MS)


def lay_out(
    recordings: Sequence[Sequence[float] | None], *, now: int, began: Sequence[float | None] | None = None
) -> list[Timeline | None]:
    """Lay the recordings that have receive times end to end, a second apart, the last ending at `now`
    (trace model: time). A recording without times has no timeline: its events happen when they are read.

    `began` says of each recording when its request was made, in milliseconds of one clock, or None. Where it is known
    of two neighbours they are as far apart as they were.
    """
    known = [None] * len(recordings) if began is None else began
    timelines: list[Timeline | None] = []
    later: tuple[int, float | None] | None = None
    for times, start in zip(reversed(recordings), reversed(known), strict=True):
        if times is None:
            timelines.append(None)
            continue
        if later is None:
            begin = now - round(max(times) * _MS)
        elif start is not None and later[1] is not None and start <= later[1]:
            begin = later[0] - round((later[1] - start) * _MS)
        else:
            begin = later[0] - GAP_NS - round(max(times) * _MS)
        later = begin, start
        timelines.append(Timeline(begin, times))
    timelines.reverse()
    return _ending_at(now, timelines)


def _ending_at(now: int, timelines: list[Timeline | None]) -> list[Timeline | None]:
    """The timelines, moved back together where one of them, longer than those after it, ends later than `now`."""
    ends = [line.begin + round(max(line.times) * _MS) for line in timelines if line is not None]
    late = max(ends, default=now) - now
    if late <= 0:
        return timelines
    return [None if line is None else Timeline(line.begin - late, line.times) for line in timelines]


def _begin(source: Iterator[bytes], path: str, max_event_bytes: int) -> tuple[Decoder, bytes]:
    """Read until the format is known; return its decoder and what was read."""
    head = b""
    ended = False
    while True:
        chosen = recognise(head)
        if chosen is not None:
            return chosen(max_event_bytes=max_event_bytes), head
        begun = head.removeprefix(_BOM).lstrip()
        begins_text = any(name.startswith(begun) for name in (*_SSE_NAMES, _BOM))
        undecided = len(head) < _HEAD and (begins_text or begins_stream(head) is None)
        chunk = next(source, None) if undecided else None
        if chunk is None:
            ended = undecided
            break
        head += chunk
    if ended and not head.removeprefix(_BOM).strip():
        raise InputError("empty", path=path)
    line = head[: len(head) - len(head.lstrip())].count(b"\n") + 1
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head.partition(b"\0")[0])
        binary = b"\0" in head
    except UnicodeDecodeError:
        binary = True
    if binary:
        raise InputError("not UTF-8 text", path=path, line=line)
    raise InputError(
        "not AG-UI: neither JSON lines, nor server-sent events, nor a JSON array of events",
        path=path,
        line=line,
    )


def _prepend(head: bytes, source: Iterator[bytes]) -> Iterator[bytes]:
    yield head
    yield from source


class _TextCheck:
    """Finds the line of the first byte that is not UTF-8."""

    def __init__(self) -> None:
        self.bad_line: int | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._line = 1

    def look_at(self, chunk: bytes) -> None:
        if self.bad_line is not None:
            return
        try:
            self._decoder.decode(chunk)
        except UnicodeDecodeError as error:
            # The decoder's position counts from what it held back of the chunk before.
            held = len(error.object) - len(chunk)
            self.bad_line = self._line + chunk.count(b"\n", 0, max(error.start - held, 0))
        else:
            self._line += chunk.count(b"\n")


class _Gate:
    """Holds payloads back until the first event of a type that AG-UI knows.

    A file that has none is no recording, and nothing of it is passed on.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._held: list[Payload] = []
        self._first: tuple[Payload, int] | None = None
        self._open = False

    @property
    def may_be_agui(self) -> bool:
        """Whether an event was seen, or nothing at all so far."""
        return self._open or not self._held

    def admit(self, payloads: list[Payload], lines: list[int]) -> Iterable[Payload]:
        if self._open or not payloads:
            return payloads
        if self._first is None:
            self._first = (payloads[0], lines[0])
        self._held += payloads
        self._open = any(_is_event(payload) for payload in payloads)
        if self._open:
            return self._held
        if len(self._held) > _HELD:
            self.close()
        return ()

    def close(self) -> None:
        """Raise InputError where nothing was let through."""
        if self._open:
            return
        if self._first is None:
            raise InputError("no event in it", path=self._path)
        payload, line = self._first
        reason = f": {payload.reason}" if isinstance(payload, Unreadable) else " of a known type"
        raise InputError(f"not AG-UI: no event{reason}", path=self._path, line=line)


def _is_event(payload: Payload) -> bool:
    if isinstance(payload, Unreadable):
        return False
    kind = payload.get("type")
    return isinstance(kind, str) and (kind in EVENT_TYPES or kind.startswith("THINKING_"))
