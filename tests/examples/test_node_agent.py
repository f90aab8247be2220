"""The proxy before a server in another language: Node's is traced without a line in it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import Any

from scripts.doc_outputs import ROOT, environment
from tests.support import services
from tests.support.receivers import http_receiver
from tests.support.servers import ask, eventually, free_port, listens
from tests.support.sources import INPUT

DURATION = re.compile(r"\d+(?:\.\d+)? m?s\b")


def started(*command: str, port: int, **variables: str) -> subprocess.Popen[str]:
    """A process that listens at a port."""
    process = subprocess.Popen(
        command, cwd=ROOT, env={**environment(), **variables}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(lambda: listens(port) or process.poll() is not None, 30)
    return process


def test_a_server_in_node_is_traced() -> None:
    """The client gets its events, the terminal shows the tree, the receiver has it, and the server knows its trace."""
    node = shutil.which("node")
    services.require(node is not None, "node")
    agent_port, port = free_port(), free_port()
    proxy = ("-m", "agui_otel.cli.main", "proxy", "--upstream", f"http://127.0.0.1:{agent_port}", "--live")
    place = ("--listen", f"127.0.0.1:{port}", "--agent-name", "planner")
    with http_receiver() as received:
        exporting: Any = {"OTEL_EXPORTER_OTLP_ENDPOINT": received.url, "OTEL_TRACES_EXPORTER": "otlp"}
        agent = started(str(node), "examples/node_agent.mjs", str(agent_port), port=agent_port)
        before = started(sys.executable, *proxy, *place, port=port, **exporting)
        try:
            answer = ask(port, INPUT)
        finally:
            before.terminate()
            shown, _ = before.communicate(timeout=30)
            agent.terminate()
            printed, _ = agent.communicate(timeout=30)
    assert (200, 13) == (answer.status, answer.body.count(b"data: "))
    assert (
        "invoke_agent planner  success  …, first chunk …\n"
        "└─ execute_tool task  success  …\n"
        "   └─ invoke_agent researcher  success  …, first chunk …\n"
        "      └─ message assistant  …, first chunk …, 3 chunks / 12 characters\n"
    ) == DURATION.sub("…", shown)
    (group,) = received.traces[-1].resource_spans
    (run,) = [span for span in group.scope_spans[0].spans if span.name == "invoke_agent planner"]
    assert f"traceparent: 00-{run.trace_id.hex()}-{run.span_id.hex()}-" == printed[:66]
