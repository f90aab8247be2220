"""Bytes to lines, incrementally: what the two line formats (SSE, JSON lines) have in common.

A line ends with LF, CRLF or CR, wherever the chunks are cut. A byte order mark at the start is dropped.
"""

from __future__ import annotations

from agui_otel.protocol.events import Unreadable

MAX_EVENT_BYTES = 10 * 1024 * 1024
"""The reference client's limit of one event, in bytes."""

CUT = "cut off in the middle of an event"

_BOM = b"\xef\xbb\xbf"
_ENDS = b"\r\n"


def too_large(limit: int) -> Unreadable:
    """What stands for an event of more than `limit` bytes."""
    return Unreadable(f"too large: more than {limit} bytes")


class Lines:
    """Splits chunks into lines; what has no end yet waits in `partial`.

    The owner bounds the memory: it may shorten `partial` at any time.
    """

    __slots__ = ("_after_cr", "_begun", "partial")

    def __init__(self) -> None:
        self.partial = bytearray()
        self._after_cr = False
        self._begun = False

    @property
    def between(self) -> bool:
        """Whether the next byte begins a line, whatever it is."""
        return self._begun and not self._after_cr and not self.partial

    def push(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, without their ends."""
        if not self._begun:
            chunk = bytes(self.partial) + chunk
            self.partial.clear()
            if len(chunk) < len(_BOM) and _BOM.startswith(chunk):
                self.partial += chunk
                return []
            chunk = chunk.removeprefix(_BOM)
            self._begun = True
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if not chunk:
            return []
        last = chunk[-1]
        self._after_cr = last == 0x0D
        ended = last in _ENDS
        lines = chunk.splitlines()
        if self.partial:
            if not ended and len(lines) == 1:
                self.partial += chunk
                return []
            lines[0] = bytes(self.partial) + lines[0]
            self.partial.clear()
        if not ended:
            self.partial += lines.pop()
        return lines

    def rest(self) -> bytes:
        """Return the last line, which has no end, and forget it."""
        line = bytes(self.partial).removeprefix(b"" if self._begun else _BOM)
        self.partial.clear()
        return line
