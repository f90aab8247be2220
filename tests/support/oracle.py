"""The reference client as a process: streams in, verdicts out."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from typing_extensions import Self

from tests.support import services
from tests.support.vocabulary import Event

FOLDER = Path(__file__).parents[1] / "oracle"


class Verdict(NamedTuple):
    """What the reference client makes of a stream."""

    refused: int | None
    message: str | None
    well_formed: list[bool]


class NodeScript:
    """A script of tests/oracle as a process that answers a line with a line, both JSON; a context manager.

    Entering skips the test where Node or the packages (`npm ci` in tests/oracle) are missing.
    """

    script: str

    def __enter__(self) -> Self:
        node = shutil.which("node")
        services.require(node is not None, "node")
        services.require((FOLDER / "node_modules").is_dir(), "tests/oracle/node_modules (npm ci)")
        self._process = subprocess.Popen(
            [str(node), str(FOLDER / self.script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def ask(self, question: Any) -> Any:
        """The answer to one question."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question).encode() + b"\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


class Oracle(NodeScript):
    """Asks @ag-ui/client 1.0.0."""

    script = "oracle.mjs"

    def judge(self, streams: Iterable[list[Event]]) -> Iterator[Verdict]:
        """A verdict for each stream, in order."""
        for stream in streams:
            answer = self.ask(stream)
            yield Verdict(answer["refused"], answer["message"], answer["wellFormed"])


class Transport(NodeScript):
    """Asks @ag-ui/encoder and @ag-ui/proto 1.0.0."""

    script = "transport.mjs"


class Agent(NodeScript):
    """Asks a server with @ag-ui/client's HttpAgent."""

    script = "agent.mjs"

    def run(self, port: int, given: Any, accept: str) -> tuple[list[Event], str | None]:
        """What an application sees of a run: its events, and why it failed."""
        answer = self.ask({"url": f"http://127.0.0.1:{port}/agent", "accept": accept, "input": given})
        return answer["events"], answer["error"]
