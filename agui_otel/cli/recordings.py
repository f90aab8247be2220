"""Recordings as the command line names them: the file or standard input, and what stands beside it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from agui_otel.errors import InputError
from agui_otel.protocol.recording import Payload, read, read_run_input, read_times

STDIN = "-"

_CHUNK = 64 * 1024


@dataclass(frozen=True)
class Recording:
    """One recorded stream. `size` in bytes, None where it is not known."""

    path: str
    given: dict[str, Any] | None = None
    """The RunAgentInput."""
    times: list[float] | None = None
    """When each event was received, in milliseconds since the request."""
    size: int | None = None

    def events(self, *, max_event_bytes: int, on_read: Callable[[int], object] | None = None) -> Iterator[Payload]:
        """Yield its events as they are read; `on_read` is told how many bytes each time.

        Raises `InputError` as `agui_otel.protocol.recording.read` does, and where the file cannot be read.
        """
        yield from read(self._chunks(on_read), path=self.path, max_event_bytes=max_event_bytes)

    def _chunks(self, on_read: Callable[[int], object] | None) -> Iterator[bytes]:
        try:
            if self.path == STDIN:
                yield from _chunks_of(sys.stdin.buffer, on_read)
            else:
                with Path(self.path).open("rb") as file:
                    yield from _chunks_of(file, on_read)
        except OSError as error:
            raise InputError(error.strerror or str(error), path=self.path) from None


def open_recordings(paths: Sequence[str]) -> list[Recording]:
    """Find the recordings and what stands beside each. Raises `InputError` for what is not there or is wrong."""
    if paths.count(STDIN) > 1:
        raise InputError("standard input can be read once only", path=STDIN)
    return [Recording(STDIN) if path == STDIN else _open(path) for path in paths]


def _open(path: str) -> Recording:
    file = Path(path)
    try:
        size = file.stat().st_size
    except OSError as error:
        raise InputError(error.strerror or str(error), path=path) from None
    if file.is_dir():
        raise InputError("a directory, not a recording", path=path)
    given, times = file.with_suffix(".input.json"), file.with_suffix(".times")
    return Recording(
        path,
        read_run_input(_bytes(given), path=str(given)) if given.is_file() else None,
        read_times(_bytes(times), path=str(times)) if times.is_file() and times != file else None,
        size,
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
