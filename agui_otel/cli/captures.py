"""Responses that were captured with their heads (`curl -i`, `curl -iN`): the bodies in them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agui_otel.attach.encodings import decompressor
from agui_otel.errors import InputError
from agui_otel.protocol.events import Unreadable

_BEGIN = b"HTTP/"
_STATUS = re.compile(rb"HTTP/[\d.]+ (\d{3})")
_END = re.compile(rb"\r?\n\r?\n")
_LONGEST = 256 * 1024
"""Bytes of a head."""


def without_head(chunks: Iterator[bytes], *, path: str) -> tuple[int, Iterator[bytes]]:
    """The body of a captured response, decompressed, and how many lines stand above it.

    What has no head is the body itself. Of several heads (`100 Continue`, a proxy's, redirects that were followed) the
    last counts. Raises `InputError` for a head that is cut off, and for a response that is no success.
    """
    data, above, status, encoding = b"", 0, 200, ""
    while True:
        data = _at_least(len(_BEGIN), data, chunks)
        if not data.startswith(_BEGIN):
            break
        while (end := _END.search(data)) is None:
            more = next(chunks, None)
            if more is None or len(data) > _LONGEST:
                raise InputError("cut off in the head of the response", path=path, line=above + 1)
            data += more
        head, data = data[: end.end()], data[end.end() :]
        status_line = _STATUS.match(head)
        if status_line is None:
            raise InputError("not the head of a response", path=path, line=above + 1)
        status, encoding = int(status_line[1]), _encoding(head)
        above += head.count(b"\n")
    if not 200 <= status < 300:
        raise InputError(f"the server answered {status}", path=path)
    return above, _decompressed(data, chunks, encoding, path)


def _at_least(size: int, data: bytes, chunks: Iterator[bytes]) -> bytes:
    """`data` and so many of the chunks that it can be told whether a head begins."""
    while len(data) < size and _BEGIN.startswith(data):
        more = next(chunks, None)
        if more is None:
            break
        data += more
    return data


def _encoding(head: bytes) -> str:
    found = re.search(rb"^content-encoding:([^\r\n]*)", head, re.IGNORECASE | re.MULTILINE)
    return "" if found is None else found[1].decode("latin-1")


def _decompressed(data: bytes, chunks: Iterator[bytes], encoding: str, path: str) -> Iterator[bytes]:
    reader = decompressor(encoding)
    for chunk in _prepend(data, chunks):
        if reader is None:
            yield chunk
            continue
        for piece in reader.feed(chunk):
            if isinstance(piece, Unreadable):
                raise InputError(piece.reason, path=path)
            yield piece


def _prepend(data: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    if data:
        yield data
    yield from chunks
