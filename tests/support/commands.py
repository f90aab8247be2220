"""Servers that are started by a command, as a user does, and what they export."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.doc_outputs import environment
from tests.support.receivers import Received, http_receiver
from tests.support.servers import eventually, free_port, listens

ROOT = Path(__file__).parents[2]
THREAD = "thread-1"
QUESTION = {
    "threadId": THREAD, "runId": "run-1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
    "messages": [{"id": "question-1", "role": "user", "content": "What moves the sea?"}],
}  # fmt: skip


@dataclass
class Serving:
    """A server at work, and what it exports."""

    port: int
    received: Received
    output: str = ""
    """What it wrote until it had stopped."""

    def spans(self) -> list[dict[str, Any]]:
        """All spans of the traces in which `QUESTION` was answered, with the name of their `scope`."""
        spans = self.received.spans()
        traces = {span["context"]["trace_id"] for span in spans if span["attributes"].get("session.id") == THREAD}
        return [span for span in spans if span["context"]["trace_id"] in traces]


@contextmanager
def serving(command: Sequence[object], **variables: str) -> Iterator[Serving]:
    """Start a server in the repository's root, with its port given by `--port`; afterwards it has stopped.

    Its environment has `variables`, in which `{receiver}` stands for the URL of a receiver.
    """
    port = free_port()
    with http_receiver() as received:
        given = {name: value.replace("{receiver}", received.url) for name, value in variables.items()}
        server = subprocess.Popen(
            [*map(str, command), "--port", str(port)],
            cwd=ROOT, env={**environment(), "OTEL_TRACES_EXPORTER": "otlp", **given},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            eventually(lambda: listens(port) or server.poll() is not None, 120)
            it = Serving(port, received)
            yield it
            server.send_signal(signal.SIGTERM)
            it.output, _ = server.communicate(timeout=60)
        finally:
            server.kill()
            server.wait()
