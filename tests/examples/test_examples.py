"""The examples run as they stand, and trace what they say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.doc_outputs import environment
from tests.support.commands import ROOT, serving
from tests.support.frameworks import scripts_of
from tests.support.receivers import http_receiver
from tests.support.servers import ask

DURATION = re.compile(r"\d+(?:\.\d+)? m?s\b")


def run(example: str, *arguments: str, python: str | Path = sys.executable) -> str:
    """What an example prints, with its durations taken out."""
    kept = {name: value for name, value in environment().items() if not name.startswith("OTEL_")}
    ended = subprocess.run(
        [str(python), f"examples/{example}", *arguments],
        cwd=ROOT,
        env=kept,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return DURATION.sub("…", ended.stdout)


def test_stream_shows_its_tree() -> None:
    """The researcher hangs under the call that dispatched it, and the span of the agent's own code under the run."""
    assert run("stream.py") == (
        "invoke_agent planner  success  …, first chunk …\n"
        "├─ execute_tool task  success  …\n"
        "│  └─ invoke_agent researcher  success  …, first chunk …\n"
        "│     └─ message assistant  …, first chunk …, 4 chunks / 17 characters\n"
        "├─ look up  …\n"
        "└─ message assistant  …, first chunk …, 1 chunk / 15 characters\n"
    )


def test_stream_sends_its_trace() -> None:
    """With an address the same spans arrive there."""
    with http_receiver() as received:
        assert f"sent to {received.url}, project default\n" == run("stream.py", received.url)
    assert [
        "execute_tool task",
        "invoke_agent planner",
        "invoke_agent researcher",
        "look up",
        "message assistant",
        "message assistant",
    ] == sorted(received.span_names())


def test_subscriber_shows_a_run_that_answers_and_one_that_fails() -> None:
    """The second run has the error of its connection, and a text that never ended."""
    assert run("subscriber.py") == (
        "Hello\n"
        "Hel\n"
        "failed: the agent is gone\n"
        "invoke_agent greeter  success  …, first chunk …\n"
        "└─ message assistant  …, first chunk …, 1 chunk / 5 characters\n"
        "invoke_agent greeter  error  ConnectionError  …, first chunk …\n"
        "└─ message assistant  …, first chunk …, 1 chunk / 3 characters, never closed\n"
    )


def test_subscriber_names_the_pages_of_its_runs() -> None:
    """With Phoenix's address it prints the page of each run."""
    with http_receiver() as received:
        pages = re.findall(
            rf"^{received.url}/redirects/traces/[0-9a-f]{{32}}$", run("subscriber.py", received.url), re.M
        )
    assert 2 == len(set(pages))


def test_a_team_of_smolagents_shows_its_tree() -> None:
    """Three levels, two of them at work at once; each agent has its tokens."""
    shown = run("smolagents_team.py")
    assert "Go to Brest for tides, to Kiel for calm water." == shown.splitlines()[0]
    agents = re.findall(r"^([│├└─ ]*)(invoke_agent \w+|execute_tool \w+_searcher|usage \w+)", shown, re.M)
    assert [
        (0, "invoke_agent manager"),
        (2, "invoke_agent research_lead"),
        (3, "execute_tool brest_searcher"),
        (4, "invoke_agent brest_searcher"),
        (5, "usage script"),
        (3, "execute_tool kiel_searcher"),
        (4, "invoke_agent kiel_searcher"),
        (5, "usage script"),
        (3, "usage script"),
        (1, "usage script"),
    ] == [(len(indent) // 3, name) for indent, name in agents]


def test_a_team_of_smolagents_as_events() -> None:
    """What a front end gets: three subagents, each told from its start to its end."""
    kinds = [line.split(" ")[0] for line in run("smolagents_team.py", "--events").splitlines()]
    assert (3, 3, "RUN_STARTED", "RUN_FINISHED") == (
        kinds.count("SUBAGENT_STARTED"),
        kinds.count("SUBAGENT_FINISHED"),
        kinds[0],
        kinds[-1],
    )


def test_a_team_of_smolagents_whose_reader_leaves() -> None:
    """`... --events | head` ends without a word."""
    command = [sys.executable, "examples/smolagents_team.py", "--events"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert "" == process.stderr.read()
    assert 0 == process.returncode


def test_a_team_of_smolagents_sends_its_trace() -> None:
    """With an address the spans arrive there."""
    with http_receiver() as received:
        sent = run("smolagents_team.py", received.url).splitlines()[-1]
        assert f"sent to {received.url}, project default" == sent
    assert 4 == len([name for name in received.span_names() if name.startswith("invoke_agent")])


def test_the_server_streams_its_events_and_traces_them() -> None:
    """A request is answered with the agent's events, and its run arrives at the receiver when the server stops."""
    command = [sys.executable, "-m", "uvicorn", "examples.fastapi_server:app"]
    with serving(command, OTEL_EXPORTER_OTLP_ENDPOINT="{receiver}") as server:
        answer = ask(server.port, {"threadId": "thread-1", "runId": "run-1", "messages": []})
    events = [json.loads(line.removeprefix("data: "))["type"] for line in answer.body.decode().splitlines() if line]
    assert ["RUN_STARTED", "TOOL_CALL_CHUNK", "TOOL_CALL_RESULT", "TEXT_MESSAGE_CHUNK", "RUN_FINISHED"] == events
    spans = server.received.span_names()
    assert {"invoke_agent weather", "execute_tool forecast", "message assistant"} <= set(spans)


@pytest.mark.slow
def test_langgraph_shows_its_tree() -> None:
    """Two researchers at work at once, each under the call that dispatched it; no step is a span."""
    below = (
        "│  └─ invoke_agent researcher  success  …, first chunk …\n"
        "│     ├─ execute_tool search  success  …\n"
        "│     └─ message assistant  …, first chunk …, 4 chunks / 19 characters\n"
    )
    assert run("langgraph_agent.py", python=scripts_of("langgraph") / "python") == (
        "invoke_agent supervisor  success  …, first chunk …\n"
        f"├─ execute_tool task  success  …\n{below}"
        f"├─ execute_tool task  success  …\n{below}"
        "├─ · state 1, snapshot by the run's own agent: /messages, /files\n"
        "├─ · snapshot of 2 messages\n"
        "├─ message assistant  …, first chunk …, 5 chunks / 24 characters\n"
        "├─ · state 2, snapshot by the run's own agent: /messages\n"
        "├─ · snapshot of 11 messages\n"
        "└─ usage  60 tokens in, 17 tokens out\n"
    )
