"""A hierarchy as an AG-UI server, over real sockets."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from ag_ui.core import RunAgentInput
from fastapi import FastAPI
from smolagents import MultiStepAgent
from starlette.applications import Starlette

from agui_otel import Settings, TracingMiddleware
from agui_otel.smolagents import agui_endpoint, tool_failed
from agui_otel.testing import capture
from tests.smolagents.test_streaming import Gate, workers
from tests.support.agent_cases import CASES, web
from tests.support.agents import answer, tool_caller
from tests.support.oracle import Oracle
from tests.support.servers import ask, asking, eventually, served

Make = Callable[[RunAgentInput], MultiStepAgent]

ASKED: dict[str, Any] = {
    "threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [], "forwardedProps": {},
    "messages": [
        {"id": "1", "role": "user", "content": "an older question"},
        {"id": "2", "role": "assistant", "content": "an answer"},
        {"id": "3", "role": "user", "content": [{"type": "text", "text": "the task"}]},
    ],
}  # fmt: skip


def application(make: Make, kind: Any = Starlette, **keywords: Any) -> Any:
    """An application with the endpoint at /agent."""
    app = kind()
    app.add_route("/agent", agui_endpoint(make, **keywords), methods=["POST"])
    return app


def events_in(body: bytes) -> list[dict[str, Any]]:
    """The events of a response."""
    return [json.loads(line.removeprefix("data: ")) for line in body.decode().split("\n\n") if line]


@pytest.mark.parametrize("kind", [Starlette, FastAPI])
def test_a_run(kind: Any, oracle: Oracle) -> None:
    """The last user message is the task; the ids are the input's."""
    asked: list[str] = []

    def make(given: RunAgentInput) -> MultiStepAgent:
        asked.append(given.thread_id)
        return CASES["three_levels"]()

    with served(application(make, kind)) as port:
        answered = ask(port, ASKED)
    events = events_in(answered.body)
    assert (200, "text/event-stream", ["t"]) == (answered.status, answered.header("content-type"), asked)
    assert ("t", "r", "the task") == (
        events[0]["threadId"],
        events[0]["runId"],
        events[0]["input"]["messages"][0]["content"],
    )
    assert "managed" == events[-1]["result"]
    assert None is next(oracle.judge([events])).refused


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"{", 422, "not a RunAgentInput: at the body: Invalid JSON: EOF while parsing an object at line 1 column 1"),
        ({**ASKED, "threadId": 3}, 422, "not a RunAgentInput: at threadId: Input should be a valid string"),
        ({**ASKED, "messages": []}, 422, "the input has no user message with text: there is nothing to do"),
        ({**ASKED, "state": "x" * 2000}, 413, "the request has more than 1000 bytes"),
    ],
)
def test_what_is_no_task(body: Any, status: int, says: str) -> None:
    """The answer says where and what."""
    with served(application(lambda _: web(), max_body=1000)) as port:
        answered = ask(port, body)
    assert (status, {"error": says}) == (answered.status, json.loads(answered.body))


def test_an_agent_is_no_factory() -> None:
    """Requests cannot share an agent."""
    with pytest.raises(TypeError, match="needs a function that makes an agent"):
        agui_endpoint(web())


def test_arguments_of_run() -> None:
    """They are passed on."""
    with served(application(lambda _: CASES["top_max_steps"](), max_steps=1)) as port:
        events = events_in(ask(port, ASKED).body)
    assert {"smolagents": {"state": "max_steps_error"}} == events[-1]["metadata"]


def test_a_client_that_leaves_stops_the_agents() -> None:
    """Also while they are silent: the model call that runs is the last one."""
    gate, later = Gate(answer("ok")), threading.Event()

    def manager(_given: RunAgentInput) -> MultiStepAgent:
        def note() -> Any:
            later.set()
            return answer("no")

        worker = tool_caller("web", gate)
        return tool_caller("manager", [("web", {"task": "x"})], note, managed_agents=[worker])

    captured = capture()
    app = TracingMiddleware(application(manager), tracer_provider=captured.tracer_provider)
    with served(app) as port:
        with asking(port, ASKED) as response:
            while b"SUBAGENT_STARTED" not in response.readline():
                pass
            assert gate.reached.wait(20)
        eventually(lambda: any(span.name == "invoke_agent manager" for span in captured.spans))
        gate.go.set()
        eventually(lambda: not workers())
    assert not later.is_set()
    run = next(span for span in captured.spans if span.parent is None)
    assert "disconnected" == (run.attributes or {})["agui.outcome"]


def test_under_the_middleware() -> None:
    """It is traced like any AG-UI server: the tree of the case, under the agent's name."""
    captured = capture()
    app = TracingMiddleware(
        application(lambda _: CASES["fails_in_parallel"]()),
        config=Settings(capture="full"),
        tracer_provider=captured.tracer_provider,
        tool_failed=tool_failed,
    )
    with served(app) as port:
        ask(port, {**ASKED, "messages": [{"id": "1", "role": "user", "content": "the task"}]})
        eventually(lambda: any(span.parent is None for span in captured.spans))
    names = sorted(span.name for span in captured.spans if span.name.startswith("invoke_agent"))
    assert ["invoke_agent manager", "invoke_agent other", "invoke_agent web"] == names
    run = next(span for span in captured.spans if span.parent is None)
    assert ("t", "the task", "went on") == tuple(
        (run.attributes or {})[key] for key in ("session.id", "input.value", "output.value")
    )
