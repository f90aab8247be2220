"""Real frameworks on a real server, each in its environment, traced by the middleware and without any code."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.doc_outputs import environment
from tests.support.frameworks import ROOT, scripts_of
from tests.support.receivers import Received, http_receiver
from tests.support.servers import ask, eventually, free_port, listens

pytestmark = pytest.mark.slow

QUESTION = {
    "threadId": "thread-1", "runId": "run-1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
    "messages": [{"id": "question-1", "role": "user", "content": "What moves the sea?"}],
}  # fmt: skip

Line = tuple[str, str | None, str | None]
"""A span of ours: its name, the name of its parent, and its outcome."""


def tree_in(received: Received) -> list[Line]:
    """The spans of this package, sorted."""
    scopes = [scope for request in received.traces for group in request.resource_spans for scope in group.scope_spans]
    names = {span.span_id: span.name for scope in scopes for span in scope.spans}
    lines: list[Line] = []
    for scope in scopes:
        for span in scope.spans if scope.scope.name == "agui_otel" else ():
            outcome = {item.key: item.value.string_value for item in span.attributes}.get("agui.outcome")
            lines.append((span.name, names.get(span.parent_span_id), outcome))
    return sorted(lines, key=str)


def traced(command: Sequence[str | Path]) -> tuple[list[str], list[Line]]:
    """Serve a framework, ask it once, and stop it: the types of the events, and the tree."""
    port = free_port()
    with http_receiver() as received:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": received.url, "OTEL_TRACES_EXPORTER": "otlp"}
        server = subprocess.Popen(
            [*map(str, command), "--port", str(port)],
            cwd=ROOT, env={**environment(), **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            eventually(lambda: listens(port) or server.poll() is not None, 60)
            answer = ask(port, QUESTION)
            server.send_signal(signal.SIGTERM)
            output, _ = server.communicate(timeout=30)
        finally:
            server.kill()
            server.wait()
    assert b"Traceback" not in output
    lines = answer.body.decode().splitlines()
    events = [json.loads(line.removeprefix("data: "))["type"] for line in lines if line.startswith("data: ")]
    return events, tree_in(received)


WAYS = ["middleware", "zero code"]


def serve(framework: str, way: str) -> tuple[list[str], list[Line]]:
    """The framework's server, traced in this way."""
    module, scripts = f"tests.frameworks.{framework}_server", scripts_of(framework)
    if way == "middleware":
        return traced([scripts / "uvicorn", "--factory", f"{module}:traced"])
    return traced([scripts / "opentelemetry-instrument", scripts / "uvicorn", f"{module}:app"])


@pytest.mark.parametrize("way", WAYS)
def test_langgraph(way: str) -> None:
    """Two researchers at work at once, each under the call that dispatched it, in the server's own span."""
    events, tree = serve("langgraph", way)
    run = "invoke_agent supervisor" if way == "middleware" else "invoke_agent"
    assert ("RUN_STARTED", "RUN_FINISHED") == (events[0], events[-1])
    assert tree == sorted(
        [
            *[("execute_tool search", "invoke_agent researcher", "success")] * 2,
            *[("execute_tool task", run, "success")] * 2,
            *[("invoke_agent researcher", "execute_tool task", "success")] * 2,
            *[("message assistant", "invoke_agent researcher", None)] * 2,
            ("message assistant", run, None),
            (run, "POST /agent", "success"),
        ],
        key=str,
    )


@pytest.mark.parametrize("way", WAYS)
def test_pydantic_ai(way: str) -> None:
    """A tool call between two messages; no server span is there, so the run is a root."""
    events, tree = serve("pydantic", way)
    run = "invoke_agent planner" if way == "middleware" else "invoke_agent"
    assert ("RUN_STARTED", "RUN_FINISHED") == (events[0], events[-1])
    assert tree == sorted(
        [
            ("execute_tool search", run, "success"),
            *[("message assistant", run, None)] * 2,
            (run, None, "success"),
        ],
        key=str,
    )
