"""Server-sent events to AG-UI events, incrementally and in bounded memory.

The framing is that of the HTML standard ("Interpreting an event stream"), with what is seen in the wild:
comments and pings, `event:`, `id:` and `retry:` fields (ignored: the type stands in the payload), data
in several lines, LF, CRLF and CR, a byte order mark, events cut anywhere by the transport. As in AG-UI's
reference client, a last event that lacks its empty line still counts. An event without data is a keep-alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agui_otel.protocol.events import Unreadable, parse
from agui_otel.protocol.lines import CUT, MAX_EVENT_BYTES, Lines, too_large

_FIELD = b"data:"
_FIELD_SIZE = len(_FIELD)


class SSEDecoder:
    """Bytes in, payloads out; neither I/O nor clock.

    `max_event_bytes` bounds one event's data, in bytes. A larger event becomes one `Unreadable`, and decoding
    goes on at the next event. Between two calls no more than about this much is held.

    `lines` has, beside each payload of the last call, the 1-based line at which its event began.
    """

    __slots__ = ("_data", "_limit", "_lines", "_number", "_size", "_skipping", "_start", "lines")

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.lines: list[int] = []
        self._limit = max_event_bytes
        self._lines = Lines()
        self._data: list[bytes] = []
        self._size = 0
        self._number = 0
        self._start = 0
        self._skipping = False

    @property
    def between(self) -> bool:
        """Whether the next byte begins an event, whatever came before."""
        return not self._data and not self._skipping and self._lines.between

    def feed(self, chunk: bytes) -> list[dict[str, Any] | Unreadable]:
        """Take the next bytes; return the payloads of the events that they complete."""
        payloads: list[dict[str, Any] | Unreadable] = []
        self.lines = []
        self._consume(self._lines.push(chunk), payloads)
        partial = self._lines.partial
        if self._size + len(partial) > self._limit + _FIELD_SIZE + 1:
            if partial.startswith(_FIELD):
                if not self._data:
                    self._start = self._number + 1
                self._overflow(payloads)
            del partial[_FIELD_SIZE:]
        return payloads

    def close(self) -> list[dict[str, Any] | Unreadable]:
        """Say that the stream has ended; return what was left of it.

        That is a last event which lacks its empty line, or an Unreadable where the stream was cut in the
        middle of one.
        """
        payloads: list[dict[str, Any] | Unreadable] = []
        self.lines = []
        rest = self._lines.rest()
        skipping = self._skipping
        self._consume([rest, b""] if rest else [b""], payloads)
        if rest and not payloads and not skipping and not rest.startswith(b":"):
            payloads.append(Unreadable(CUT))
            self.lines.append(self._number - 1)
        return payloads

    def _consume(self, lines: Iterable[bytes], payloads: list[dict[str, Any] | Unreadable]) -> None:
        for line in lines:
            self._number += 1
            if not line:
                data = self._data
                if data:
                    payload = data[0] if len(data) == 1 else b"\n".join(data)
                    if payload:
                        payloads.append(parse(payload))
                        self.lines.append(self._start)
                    self._data = []
                    self._size = 0
                self._skipping = False
            elif line.startswith(_FIELD):
                if self._skipping:
                    continue
                if not self._data:
                    self._start = self._number
                value = line[_FIELD_SIZE:].removeprefix(b" ")
                self._data.append(value)
                self._size += len(value)
                if self._size > self._limit:
                    self._overflow(payloads)
            elif line == b"data" and not self._skipping:
                self._start = self._start if self._data else self._number
                self._data.append(b"")

    def _overflow(self, payloads: list[dict[str, Any] | Unreadable]) -> None:
        if not self._skipping:
            payloads.append(too_large(self._limit))
            self.lines.append(self._start)
        self._skipping = True
        self._data = []
        self._size = 0
