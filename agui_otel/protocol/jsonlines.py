"""JSON lines, and a JSON array, to AG-UI events: incrementally and in bounded memory, like `sse`."""

from __future__ import annotations

import re
from typing import Any

from agui_otel.protocol.events import Unreadable, parse
from agui_otel.protocol.lines import CUT, MAX_EVENT_BYTES, Lines, too_large

AFTER_ARRAY = "text after the end of the array"


class JSONLinesDecoder:
    """One event a line; empty lines are passed over. The interface is that of
    `SSEDecoder`.
    """

    __slots__ = ("_limit", "_lines", "_number", "_skipping", "lines")

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.lines: list[int] = []
        self._limit = max_event_bytes
        self._lines = Lines()
        self._number = 0
        self._skipping = False

    @property
    def between(self) -> bool:
        """Whether the next byte begins an event, whatever came before."""
        return not self._skipping and self._lines.between

    def feed(self, chunk: bytes) -> list[dict[str, Any] | Unreadable]:
        """Take the next bytes; return the payloads of the lines that they complete."""
        payloads: list[dict[str, Any] | Unreadable] = []
        self.lines = []
        for line in self._lines.push(chunk):
            self._take(line, payloads)
        partial = self._lines.partial
        if len(partial) > self._limit:
            if not self._skipping:
                self._emit(too_large(self._limit), self._number + 1, payloads)
            self._skipping = True
            partial.clear()
        return payloads

    def close(self) -> list[dict[str, Any] | Unreadable]:
        """Say that the stream has ended; return a last line without an end: an Unreadable if it was cut."""
        payloads: list[dict[str, Any] | Unreadable] = []
        self.lines = []
        self._take(self._lines.rest(), payloads)
        return payloads

    def _take(self, line: bytes, payloads: list[dict[str, Any] | Unreadable]) -> None:
        self._number += 1
        if self._skipping:
            self._skipping = False
        elif len(line) > self._limit:
            self._emit(too_large(self._limit), self._number, payloads)
        elif line and not line.isspace():
            self._emit(parse(line), self._number, payloads)

    def _emit(
        self, payload: dict[str, Any] | Unreadable, line: int, payloads: list[dict[str, Any] | Unreadable]
    ) -> None:
        payloads.append(payload)
        self.lines.append(line)


_OUTSIDE = re.compile(rb'["\[\]{},]')
_IN_STRING = re.compile(rb'["\\]')
_SPACE = b" \t\r\n"
_BOM = b"\xef\xbb\xbf"


class JSONArrayDecoder:
    """The elements of one JSON array, each as soon as it is complete. The interface is that of
    `SSEDecoder`.
    """

    __slots__ = ("_at", "_buffer", "_depth", "_in_string", "_limit", "_number", "_skipping", "lines")

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.lines: list[int] = []
        self._limit = max_event_bytes
        self._buffer = bytearray()
        self._at = 0  # what of the buffer has been looked at
        self._depth = 0  # 0 outside the array, 1 between its elements
        self._number = 1
        self._in_string = False
        self._skipping = False

    def feed(self, chunk: bytes) -> list[dict[str, Any] | Unreadable]:
        """Take the next bytes; return the payloads of the elements that they complete."""
        payloads: list[dict[str, Any] | Unreadable] = []
        self.lines = []
        self._buffer += chunk
        while (found := self._next()) is not None:
            self._take(found, payloads)
        if self._buffer[:1].isspace():
            self._drop(len(self._buffer) - len(self._buffer.lstrip(_SPACE)))
        if not self._depth:
            del self._buffer[len(_BOM) :]
            self._at = min(self._at, len(self._buffer))
        elif len(self._buffer) > self._limit:
            self._overflow(payloads)
            self._drop(self._at)
        return payloads

    def close(self) -> list[dict[str, Any] | Unreadable]:
        """Say that the stream has ended; return an Unreadable where the array has no end."""
        payloads: list[dict[str, Any] | Unreadable] = []
        self.lines = []
        if self._depth or self._buffer.strip(_SPACE):
            self._emit(Unreadable(CUT if self._depth else AFTER_ARRAY), payloads)
        return payloads

    def _next(self) -> int | None:
        """The position of the next byte that means something; None where the buffer is exhausted."""
        while True:
            match = (_IN_STRING if self._in_string else _OUTSIDE).search(self._buffer, self._at)
            if match is None:
                self._at = len(self._buffer)
                return None
            position = match.start()
            if not self._in_string:
                self._at = position + 1
                return position
            if self._buffer[position] == ord('"'):
                self._in_string = False
                self._at = position + 1
            elif position + 1 == len(self._buffer):
                self._at = position  # the escaped byte has not come yet
                return None
            else:
                self._at = position + 2

    def _take(self, position: int, payloads: list[dict[str, Any] | Unreadable]) -> None:
        token = self._buffer[position]
        if token == ord('"'):
            self._in_string = True
        elif token in b"[{":
            self._depth += 1
            if self._depth == 1:
                self._drop(position + 1)
        elif token != ord(",") and self._depth:
            self._depth -= 1
            if self._depth == 0:
                self._element(position, payloads)
        elif self._depth == 1:
            self._element(position, payloads)

    def _element(self, end: int, payloads: list[dict[str, Any] | Unreadable]) -> None:
        data = bytes(self._buffer[:end])
        text = data.lstrip(_SPACE)
        self._number += data.count(b"\n", 0, len(data) - len(text))
        if len(text) > self._limit:
            self._overflow(payloads)
        elif not self._skipping and text:
            self._emit(parse(text.rstrip(_SPACE)), payloads)
        self._skipping = False
        self._number += text.count(b"\n")
        del self._buffer[: end + 1]
        self._at = 0

    def _drop(self, end: int) -> None:
        self._number += self._buffer.count(b"\n", 0, end)
        del self._buffer[:end]
        self._at = max(self._at - end, 0)

    def _overflow(self, payloads: list[dict[str, Any] | Unreadable]) -> None:
        if not self._skipping:
            self._emit(too_large(self._limit), payloads)
        self._skipping = True

    def _emit(self, payload: dict[str, Any] | Unreadable, payloads: list[dict[str, Any] | Unreadable]) -> None:
        payloads.append(payload)
        self.lines.append(self._number)
