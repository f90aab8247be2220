"""Recordings as the command line names them: files or standard input, what is in them and what stands beside them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from agui_otel.cli.captures import without_head
from agui_otel.errors import InputError
from agui_otel.protocol.har import Exchange, is_har, read_har
from agui_otel.protocol.inputs import input_in
from agui_otel.protocol.recording import Payload, read, read_run_input, read_times

STDIN = "-"

_CHUNK = 64 * 1024
_LARGEST_INPUT = 64 * 1024 * 1024
"""Bytes of a file that is read again to tell what it is."""
_NUMBERED = re.compile(r"(.+)#([1-9][0-9]{0,8})")


@dataclass(frozen=True)
class Recording:
    """One recorded stream. `size` in bytes, None where it is not known."""

    path: str
    """Its file; of a response in a HAR file with its number, counted from 1, as `FILE#1`."""
    given: dict[str, Any] | None = None
    """The RunAgentInput."""
    times: list[float] | None = None
    """When each event was received, in milliseconds since the request."""
    size: int | None = None
    began: float | None = None
    """When the request was made, in milliseconds since the epoch; None where that is not known."""
    begun: bytes = b""
    """What has been read of standard input."""
    exchange: Exchange | None = None
    """Where it comes from a HAR file."""

    def events(self, *, max_event_bytes: int, on_read: Callable[[int], object] | None = None) -> Iterator[Payload]:
        """Yield its events as they are read; `on_read` is told how many bytes each time.

        Raises `InputError` as `agui_otel.protocol.recording.read` does, where the file cannot be read, and where the
        server's answer was none.
        """
        above = 0
        try:
            above, body = without_head(self._chunks(on_read), path=self.path)
            yield from read(body, path=self.path, max_event_bytes=max_event_bytes)
        except InputError as error:
            if self._is_run_input():
                raise InputError("not AG-UI: a RunAgentInput, not a recording", path=self.path) from None
            if not above or error.line is None:
                raise
            raise InputError(error.args[0], path=error.path, line=error.line + above) from None

    def _is_run_input(self) -> bool:
        """Whether the file is what was posted, which stands beside a recording."""
        if self.size is None or self.size > _LARGEST_INPUT or not Path(self.path).is_file():
            return False
        try:
            return input_in(Path(self.path).read_bytes()) is not None
        except OSError:
            return False

    def _chunks(self, on_read: Callable[[int], object] | None) -> Iterator[bytes]:
        try:
            if self.exchange is not None:
                if self.exchange.problem is not None:
                    raise InputError(self.exchange.problem, path=self.path)
                yield self.exchange.body
            elif self.path == STDIN:
                yield self.begun
                yield from _chunks_of(sys.stdin.buffer, on_read)
            else:
                with Path(self.path).open("rb") as file:
                    yield from _chunks_of(file, on_read)
        except OSError as error:
            raise InputError(error.strerror or str(error), path=self.path) from None


def open_recordings(paths: Sequence[str]) -> list[Recording]:
    """Find the recordings and what stands beside each; a HAR file has as many as it has AG-UI responses.

    `FILE#2` names the second of a HAR file. Raises `InputError` for what is not there or is wrong.
    """
    found = []
    for one in open_each(paths):
        if isinstance(one, InputError):
            raise one
        found.append(one)
    return found


def open_each(paths: Sequence[str]) -> Iterator[Recording | InputError]:
    """Find the recordings as `open_recordings` does; what is not there or is wrong comes as its error, in its place.

    Raises `InputError` where standard input is named twice.
    """
    if paths.count(STDIN) > 1:
        raise InputError("standard input can be read once only", path=STDIN)
    for path in paths:
        try:
            yield from _open(path)
        except InputError as error:
            yield error


def open_recording(path: str) -> Recording:
    """Find the only recording of a file. Raises `InputError` as `open_recordings` does, and where there are several."""
    found = open_recordings([path])
    if len(found) > 1:
        names = ", ".join(f"{one.path} ({one.exchange.url})" for one in found if one.exchange is not None)
        raise InputError(f"{len(found)} AG-UI responses in it: {names}", path=path)
    return found[0]


def _open(path: str) -> list[Recording]:
    if path == STDIN:
        return _standard_input()
    numbered = _NUMBERED.fullmatch(path)
    if numbered is not None and not Path(path).exists():
        file, number = numbered[1], int(numbered[2])
        found = _in_har(_bytes(Path(file)), file) if _begins_har(file) else []
        if number > len(found):
            raise InputError(f"{len(found)} AG-UI responses of a HAR file in it", path=file)
        return [found[number - 1]]
    if _begins_har(path):
        return _in_har(_bytes(Path(path)), path)
    return [_beside(path)]


def _begins_har(path: str) -> bool:
    """Whether it is a HAR file. A pipe is not looked into: what is read of it is gone."""
    file = Path(path)
    try:
        if not file.is_file():
            if file.is_dir():
                raise InputError("a directory, not a recording", path=path)
            file.stat()
            return False
        with file.open("rb") as opened:
            return is_har(opened.read(_CHUNK)) is True
    except OSError as error:
        raise InputError(error.strerror or str(error), path=path) from None


def _standard_input() -> list[Recording]:
    """What comes on standard input; only a HAR file is read before it is asked for."""
    begun = b""
    read_some = getattr(sys.stdin.buffer, "read1", sys.stdin.buffer.read)
    try:
        while is_har(begun) is None and len(begun) < _CHUNK and (chunk := read_some(_CHUNK)):
            begun += chunk
        if is_har(begun):
            return _in_har(begun + sys.stdin.buffer.read(), STDIN)
    except OSError as error:
        raise InputError(error.strerror or str(error), path=STDIN) from None
    return [Recording(STDIN, begun=begun)]


def _in_har(data: bytes, path: str) -> list[Recording]:
    return [
        Recording(
            f"{path}#{number}",
            exchange.given,
            exchange.times,
            began=exchange.began,
            exchange=exchange,
        )
        for number, exchange in enumerate(read_har(data, path=path), start=1)
    ]


def _beside(path: str) -> Recording:
    """The recording in a file, with what stands beside it."""
    file = Path(path)
    given, times = file.with_suffix(".input.json"), file.with_suffix(".times")
    return Recording(
        path,
        read_run_input(_bytes(given), path=str(given)) if given.is_file() else None,
        read_times(_bytes(times), path=str(times)) if times.is_file() and times != file else None,
        file.stat().st_size,
    )


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(error.strerror or str(error), path=str(file)) from None


def _chunks_of(file: BinaryIO, on_read: Callable[[int], object] | None) -> Iterator[bytes]:
    read_some = getattr(file, "read1", file.read)
    while chunk := read_some(_CHUNK):
        if on_read is not None:
            on_read(len(chunk))
        yield chunk
