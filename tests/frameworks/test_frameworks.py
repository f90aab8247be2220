"""Real frameworks on a real server, each in its environment, traced by the middleware and without any code.

The expected trees stand in `trees/`: read against what the framework sent, not written down from what came out. After
`scripts/lock` a framework may send something else; then the tree is read again.
"""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from http.client import IncompleteRead
from pathlib import Path
from typing import Any

import pytest

from agui_otel.cli.questions import ask as examine
from agui_otel.forest import forest
from agui_otel.testing import span_tree
from tests.support.commands import QUESTION, THREAD, Serving, serving
from tests.support.frameworks import scripts_of
from tests.support.servers import ask, asking, eventually

pytestmark = pytest.mark.slow

TREES = Path(__file__).parent / "trees"
VARIABLES = {
    "OTEL_EXPORTER_OTLP_ENDPOINT": "{receiver}",
    "OTEL_METRICS_EXPORTER": "otlp",
    "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "langchain",
    "AGUI_OTEL_CAPTURE": "full",
}
UNNAMED = (
    "no event names a subagent: it has none, called none, or does not name them. Of the frameworks that "
    'docs/ways-in.md lists, ag-ui-langgraph does, with subagent_visibility="attributed"'
)
TURN = "a session will show the turn: the question and the answer"
OURS = ("agui_otel", "fastapi")
"""Whose spans the expected trees show: FastAPI traces itself where there are providers."""
DETACHING = re.compile(
    r"Failed to detach context\nTraceback .*\n(?:  .*\n)+ValueError: .* was created in a different Context\n"
)
SHOWN = ("agui.attribution", "agui.violations", "input.value", "output.value", "llm.token_count.total")
SHOWN_OF_EVENTS = ("agui.step.name", "agui.step.count", "agui.custom.name", "agui.state.paths", "agui.activity.type")


@dataclass(frozen=True)
class Framework:
    """A framework's server (`name`, of `NAME_server.py`), and what is known of it."""

    name: str
    path: str
    tree: str
    """The name of the expected tree."""
    subagents: str = UNNAMED
    """What `agui-otel doctor` says of its subagents."""
    scope: str | None = None
    """The name under which the framework makes spans of its own."""
    detaches: bool = False
    """Its own tracing logs errors (`DETACHING`) wherever there are providers, with this package or without it."""


def tree(spans: list[dict[str, Any]]) -> str:
    """The tree of what was traced by this package and by FastAPI."""
    shown = [span for span in spans if span["scope"] in OURS]
    return span_tree(shown, attributes=SHOWN, event_attributes=SHOWN_OF_EVENTS) + "\n"


def module_of(framework: str) -> str:
    """The module with the framework's `app`."""
    return f"tests.frameworks.{framework}_server"


def by_middleware(framework: str) -> AbstractContextManager[Serving]:
    """The framework's server, with the middleware."""
    command = [scripts_of(framework) / "python", "-m", "tests.frameworks.middleware", module_of(framework)]
    return serving(command, **VARIABLES)


def both(framework: Framework) -> tuple[bytes, list[dict[str, Any]], list[str]]:
    """Ask a framework's server with the middleware, and one that is traced without code.

    What was answered; what was traced, of which the tree is the same in both ways; what `agui-otel doctor` finds.
    """
    scripts, path = scripts_of(framework.name), framework.path
    without_code = [scripts / "opentelemetry-instrument", scripts / "uvicorn", f"{module_of(framework.name)}:app"]
    with (
        by_middleware(framework.name) as one,
        serving(without_code, **VARIABLES) as other,
    ):
        answers = [ask(server.port, QUESTION, path=path) for server in (one, other)]
        _, *findings = examine(f"http://127.0.0.1:{one.port}{path}", "What moves the sea?")
    assert [200, 200] == [answer.status for answer in answers]
    for server in (one, other):
        output = DETACHING.sub("", server.output) if framework.detaches else server.output
        assert "Traceback" not in output
        assert server.received.metrics
        assert {} == server.received.counter("agui.observer.errors")
    assert tree(one.spans()) == tree(other.spans())
    return answers[0].body, one.spans(), findings


def events(body: bytes) -> list[str]:
    """The types of the events of an answer."""
    lines = body.decode().splitlines()
    return [json.loads(line.removeprefix("data: "))["type"] for line in lines if line.startswith("data: ")]


FRAMEWORKS = [
    Framework("langgraph", "/agent", "langgraph", "its stream is attributed: 1 of its subagents seen (researcher)"),
    Framework("pydantic", "/agent", "pydantic"),
    Framework("agno", "/agui", "agno"),
    Framework("agent_framework", "/agent", "agent_framework", scope="agent_framework"),
    Framework("adk", "/agent", "adk", scope="gcp.vertex.agent"),
    Framework("llamaindex", "/run", "llamaindex"),
    Framework("strands", "/agent", "strands", scope="strands.telemetry.tracer", detaches=True),
    Framework("strands", "/graph", "strands_graph", scope="strands.telemetry.tracer", detaches=True),
]


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=lambda framework: framework.tree)
def test_framework(framework: Framework) -> None:
    """Both ways make the tree that its stream stands for, around its own spans; and doctor knows what it carries."""
    body, spans, findings = both(framework)
    assert ("RUN_STARTED", "RUN_FINISHED") == (events(body)[0], events(body)[-1])
    assert (TREES / f"{framework.tree}.tree").read_text() == tree(spans)
    assert [framework.subagents, TURN] == findings
    others = [span for span in spans if span["scope"] not in OURS]
    assert ({framework.scope} if framework.scope else set()) == {span["scope"] for span in others}
    assert [THREAD] * len(others) == [span["attributes"].get("session.id") for span in others]
    assert 1 == len(forest(spans))
    assert (framework.name == "adk") == (b"\n: ping - " in body)


def test_langgraph_by_default() -> None:
    """Without its switch ag-ui-langgraph names no subagent: one agent makes all calls, and doctor names the switch."""
    with by_middleware("langgraph") as server:
        answer = ask(server.port, QUESTION, path="/default")
        _, *findings = examine(f"http://127.0.0.1:{server.port}/default", "What moves the sea?")
    assert "RUN_FINISHED" == events(answer.body)[-1]
    assert [UNNAMED, TURN] == findings
    spans = [span for span in server.spans() if span["scope"] == "agui_otel"]
    (run,) = (span for span in spans if span["name"] == "invoke_agent")
    calls = [span for span in spans if span["name"].startswith("execute_tool")]
    assert ["search", "search", "task", "task"] == sorted(span["name"].split()[1] for span in calls)
    assert {run["context"]["span_id"]} == {span["parent_id"] for span in calls}


FAIL = {**QUESTION, "messages": [{"id": "question-1", "role": "user", "content": "Fail."}]}


def test_a_failure_that_breaks_the_response() -> None:
    """LlamaIndex says RUN_ERROR and raises after it: the run has failed once, with what RUN_ERROR says."""
    with (
        by_middleware("llamaindex") as server,
        asking(server.port, FAIL, path="/run") as response,
        suppress(IncompleteRead),
    ):
        response.read()
    expected = """\
POST /run !ERROR ""
  invoke_agent [AGENT] error !ERROR "the model is away" agui.attribution="none" agui.violations=0 input.value="Fail."
    * agui.state.snapshot agui.state.paths=[]
    * exception
    fastapi.dependencies
    fastapi.endpoint
"""
    assert expected == tree(server.spans())


def test_an_event_after_a_failure() -> None:
    """Agent Framework says something after RUN_ERROR, which the reference client refuses: a violation."""
    with by_middleware("agent_framework") as server:
        answer = ask(server.port, FAIL, path="/agent")
    assert ["RUN_ERROR", "CUSTOM"] == events(answer.body)[-2:]
    run = next(span for span in server.spans() if span["attributes"].get("agui.outcome") == "error")
    assert ("ERROR", "Workflow execution failed.", 1) == (
        run["status"]["status_code"],
        run["status"]["description"],
        run["attributes"]["agui.violations"],
    )


def test_a_client_that_leaves() -> None:
    """ADK's endpoint is cancelled while a tool is at work: the run ends as disconnected, the tool's call with it."""
    with by_middleware("adk") as server:
        with asking(server.port, QUESTION, path="/agent") as response:
            while b'"toolCallName":"search"' not in response.readline():
                pass
            while b"TOOL_CALL_END" not in response.readline():
                pass
        eventually(lambda: "invoke_agent" in server.received.span_names())
    outcomes = {span["name"]: span["attributes"].get("agui.outcome") for span in server.spans()}
    assert ("disconnected", "aborted") == (outcomes["invoke_agent"], outcomes["execute_tool search"])
