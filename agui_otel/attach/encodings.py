"""Compressed response bodies, decompressed for reading: incrementally, a bounded piece at a time."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Protocol

from agui_otel.protocol.events import Unreadable

PIECE = 64 * 1024
"""Bytes that are decompressed at once, where the format allows to say so."""


class Decompressor(Protocol):
    """Bytes as they are sent to bytes as they are meant; once an `Unreadable`, where they cannot be told."""

    def feed(self, chunk: bytes) -> Iterator[bytes | Unreadable]:
        """Take the next bytes."""


class _Zlib:
    """gzip (of several members too), and deflate with or without its header: the first two bytes say which."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._window = 31 if name == "gzip" else 0
        self._made: Any = None
        self._head = b""
        self._failed = False

    def feed(self, chunk: bytes) -> Iterator[bytes | Unreadable]:
        if self._made is None:
            chunk = self._head = self._head + chunk
            if len(chunk) < 2:
                return
            has_header = chunk[0] & 15 == 8 and (chunk[0] << 8 | chunk[1]) % 31 == 0
            self._window = self._window or (15 if has_header else -15)
            self._made = zlib.decompressobj(self._window)
        more = False
        while (chunk or more) and not self._failed:
            try:
                piece = self._made.decompress(chunk, PIECE)
            except zlib.error:
                self._failed = True
                yield Unreadable(f"cut off: the body is not {self._name}")
                return
            more, chunk = len(piece) == PIECE, self._made.unconsumed_tail
            if self._made.eof:
                more, chunk = False, self._made.unused_data
                self._made = zlib.decompressobj(self._window)
            if piece:
                yield piece


class _Brotli:
    def __init__(self, made: Any) -> None:
        self._made = made
        self._failed = False

    def feed(self, chunk: bytes) -> Iterator[bytes | Unreadable]:
        if self._failed:
            return
        process = getattr(self._made, "process", None) or self._made.decompress  # Brotli's word, brotlicffi's word
        try:
            piece = process(chunk)
        except Exception:  # noqa: BLE001 - each library has an error of its own
            self._failed = True
            yield Unreadable("cut off: the body is not br")
        else:
            if piece:
                yield piece


class _Unknown:
    def __init__(self, name: str) -> None:
        self._reason: str | None = f"compressed with {name}, which is not read here"

    def feed(self, chunk: bytes) -> Iterator[bytes | Unreadable]:  # noqa: ARG002
        reason, self._reason = self._reason, None
        if reason is not None:
            yield Unreadable(reason)


def decompressor(encoding: str) -> Decompressor | None:
    """What reads a body with this content encoding; None where it is sent as it is."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return None
    if name in ("gzip", "x-gzip", "deflate"):
        return _Zlib(name.removeprefix("x-"))
    if name == "br":
        made = _brotli()
        if made is not None:
            return _Brotli(made)
    return _Unknown(name[:40])


def _brotli() -> Any:
    """A decompressor of the library that the host compresses with."""
    try:
        import brotli
    except ImportError:
        try:
            import brotlicffi as brotli
        except ImportError:
            return None
    return brotli.Decompressor()
