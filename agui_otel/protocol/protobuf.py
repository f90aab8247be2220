"""The binary transport (`application/vnd.ag-ui.event+proto`) to AG-UI events, incrementally and in bounded memory.

A frame is a length, four bytes big-endian, and one `Event` of agui.proto. Events come out as the JSON transport would
have brought them. As in AG-UI's reference client, a frame of an event type that this build does not know is passed
over, one whose type differs from what its envelope carries is broken, and so is a stream that ends within a frame.
Unlike there, a broken frame does not end the stream: the lengths still say where the next one begins. Also unlike
there, whole numbers beyond 2**53 are read, and text that is not UTF-8 is not.

protobuf is imported when the first frame is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from agui_otel.protocol.events import Unreadable
from agui_otel.protocol.lines import CUT, MAX_EVENT_BYTES, too_large

_PREFIX = 4
_ARMS = 31
"""The envelope's fields 1 to 31 are the event types."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}


class ProtobufDecoder:
    """Frames in, payloads out; neither I/O nor clock. The interface is that of `SSEDecoder`.

    `max_event_bytes` bounds one frame, its four bytes of length included, as the reference client counts. A frame
    that claims more becomes one `Unreadable` at once, and as many bytes as it claims are passed over. Between two
    calls no more than `max_event_bytes` are held.

    `lines` has, beside each payload of the last call, the number of its frame, counted from 1.
    """

    __slots__ = ("_held", "_length", "_limit", "_number", "_skip", "lines")

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.lines: list[int] = []
        self._limit = max_event_bytes
        self._held = bytearray()
        self._length: int | None = None  # of the frame that is being read; None while its length is
        self._skip = 0
        self._number = 0

    def feed(self, chunk: bytes) -> list[dict[str, Any] | Unreadable]:
        """Take the next bytes; return the payloads of the frames that they complete."""
        payloads: list[dict[str, Any] | Unreadable] = []
        self.lines = []
        for part in self._parts(chunk):
            if self._length is None:
                self._begin(int.from_bytes(part, "big"), payloads)
            else:
                self._length = None
                self._take(decode(part), payloads)
        return payloads

    @property
    def between(self) -> bool:
        """Whether the next byte begins a frame, whatever came before."""
        return self._length is None and not self._held and not self._skip

    def close(self) -> list[dict[str, Any] | Unreadable]:
        """Say that the stream has ended; return an Unreadable where that was within a frame."""
        self.lines = []
        if self._length is None and not self._held:
            return []
        payloads: list[dict[str, Any] | Unreadable] = []
        self._number += self._length is None
        self._held.clear()
        self._length = None
        self._take(Unreadable(CUT), payloads)
        return payloads

    def _parts(self, chunk: bytes) -> Iterator[bytes]:
        """The lengths and frames that `chunk` completes, in turn; what is not complete is held."""
        at, size = 0, len(chunk)
        while True:
            if self._skip:
                passed = min(self._skip, size - at)
                self._skip -= passed
                at += passed
            wanted = _PREFIX if self._length is None else self._length
            missing = wanted - len(self._held)
            if self._skip or size - at < missing:
                self._held += chunk[at:]
                return
            part = bytes(self._held) + chunk[at : at + missing] if self._held else chunk[at : at + missing]
            self._held.clear()
            at += missing
            yield part

    def _begin(self, length: int, payloads: list[dict[str, Any] | Unreadable]) -> None:
        self._number += 1
        if length + _PREFIX > self._limit:
            self._skip = length
            self._take(too_large(self._limit), payloads)
        else:
            self._length = length

    def _take(self, payload: dict[str, Any] | Unreadable | None, payloads: list[dict[str, Any] | Unreadable]) -> None:
        if payload is not None:
            payloads.append(payload)
            self.lines.append(self._number)


def decode(frame: bytes) -> dict[str, Any] | Unreadable | None:
    """The event in a frame (without its length); None for one of a type from a later AG-UI. Never raises."""
    event_type, error_type, plain = _protobuf()
    try:
        envelope = event_type.FromString(frame)
        fields = _fields(frame)
        if fields is None:
            return Unreadable("not protobuf")
        if len(fields) == 1 and fields[0][1] == _BYTES and fields[0][0] <= _ARMS:
            return plain(envelope)  # type: ignore[no-any-return]
        known = {number for number, _, _ in fields if number <= _ARMS}
        if len(known) > 1:
            return Unreadable("not an event: several in one frame")
        if known:
            return plain(envelope)  # type: ignore[no-any-return]
    except (error_type, UnicodeDecodeError, RecursionError) as error:
        return Unreadable(_reason(error))
    later = any(wire == _BYTES and _fields(content) is not None for _, wire, content in fields)
    return None if later else Unreadable("not an event: nothing in the frame")


def begins_stream(head: bytes) -> bool | None:
    """Whether `head` begins a binary stream: a frame of less than 16 MiB, and in it one of the 31 events.

    None where `head` is too short to say.
    """
    if head[:1] not in (b"", b"\0"):
        return False
    tag = int.from_bytes(head[_PREFIX : _PREFIX + 2], "little")
    first = tag & 0xFF
    if len(head) <= _PREFIX or (first & 0x80 and len(head) <= _PREFIX + 1):
        return None
    number = first >> 3 if first < 0x80 else (first & 0x7F) >> 3 | (tag >> 8) << 4
    return first & 7 == _BYTES and 1 <= number <= _ARMS and int.from_bytes(head[:_PREFIX], "big") > 1


@cache
def _protobuf() -> tuple[Any, type[Exception], Any]:
    """The envelope's class, what reading it raises, and what makes a plain event of it."""
    from google.protobuf.message import DecodeError

    from agui_otel.protocol.agui_pb2 import Event  # type: ignore[attr-defined]
    from agui_otel.protocol.wireform import plain_event

    return Event, DecodeError, plain_event


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError) or "MaxDepth" in str(error):
        return "nested too deeply"
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) or "UTF-8" in str(error) else "not protobuf"


def _fields(data: bytes) -> list[tuple[int, int, bytes]] | None:
    """The fields of a protobuf message: number, wire type and, of a length-delimited one, content; None for none.

    Groups, which nobody has written since proto2, count as none.
    """
    fields = []
    at, size = 0, len(data)
    while at < size:
        tag, at = _varint(data, at)
        wire, content = tag & 7, b""
        if wire == _BYTES:
            length, at = _varint(data, at)
            content = data[at : at + length]
            at += length
        elif wire == _VARINT:
            _, at = _varint(data, at)
        elif wire in _FIXED:
            at += _FIXED[wire]
        else:
            return None
        if at > size or tag < 8:
            return None
        fields.append((tag >> 3, wire, content))
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at` and where it ends, which is behind the data where it is cut off."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, len(data) + 1
