"""The reference client as a process: streams in, verdicts out."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.support import services
from tests.support.vocabulary import Event

FOLDER = Path(__file__).parents[1] / "oracle"


class Verdict(NamedTuple):
    """What the reference client makes of a stream."""

    refused: int | None
    message: str | None
    well_formed: list[bool]


class Oracle:
    """Asks @ag-ui/client 1.0.0; a context manager, because a Node process stands behind it.

    Entering skips the test where Node or the packages (`npm ci` in tests/oracle) are missing.
    """

    def __enter__(self) -> Oracle:
        node = shutil.which("node")
        services.require(node is not None, "node")
        services.require((FOLDER / "node_modules").is_dir(), "tests/oracle/node_modules (npm ci)")
        self._process = subprocess.Popen(
            [str(node), str(FOLDER / "oracle.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def judge(self, streams: Iterable[list[Event]]) -> Iterator[Verdict]:
        """A verdict for each stream, in order."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for stream in streams:
            self._process.stdin.write(json.dumps(stream).encode() + b"\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline())
            yield Verdict(answer["refused"], answer["message"], answer["wellFormed"])
