"""Suspended in one process, resumed in another: a real agent, real servers, a shared thread memory and Phoenix.

The servers share the file of LangGraph's checkpoints and the thread memory, and nothing else. The first is killed while
all that it has begun waits for a person.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from agui_otel.phoenix import EmbeddedPhoenix, PhoenixClient
from agui_otel.testing import span_tree
from agui_otel.tracing.memory import ThreadMemory, _make
from scripts.doc_outputs import environment
from tests.support.frameworks import ROOT, scripts_of
from tests.support.processes import agui_otel_waiting
from tests.support.servers import ask, eventually, free_port, listens
from tests.support.services import require
from tests.support.stores import SHARED, RedisServer

pytestmark = pytest.mark.slow

TREES = Path(__file__).parent / "trees"
ATTRIBUTES = ("agui.continued", "gen_ai.tool.call.id", "graph.node.id")
EVENTS = ("agui.interrupt.decision", "agui.interrupt.reason")
Span = dict[str, Any]


@pytest.fixture(scope="module")
def phoenix() -> Iterator[str]:
    """A Phoenix for this module."""
    try:
        version("arize-phoenix")
    except PackageNotFoundError:
        require(available=False, what="arize-phoenix")
    with EmbeddedPhoenix() as server:
        yield server.url


@contextmanager
def serving(project: str, phoenix: str, memory: str, directory: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A server of the agents: its process, and its port."""
    port = free_port()
    variables = {
        "CHECKPOINTS": str(directory / "checkpoints.db"),
        "AGUI_OTEL_THREAD_MEMORY": memory,
        "AGUI_OTEL_THREAD_MEMORY_TIMEOUT": "10",  # the machine may be slow; nobody waits for it
        "AGUI_OTEL_STEPS": "off",
        "OTEL_TRACES_EXPORTER": "otlp",
        "PHOENIX_COLLECTOR_ENDPOINT": phoenix,
        "PHOENIX_PROJECT": project,
    }
    command = [scripts_of("langgraph") / "uvicorn", "--factory", "tests.frameworks.waiting_server:traced"]
    with (directory / "log").open("ab") as log:
        server = subprocess.Popen(
            [*map(str, command), "--port", str(port)],
            cwd=ROOT, env={**environment(), **variables}, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        eventually(lambda: listens(port) or server.poll() is not None, 60)
        yield server, port
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    finally:
        server.kill()
        server.wait()


def run(port: int, path: str, kind: str, number: int, *answered: str) -> list[str]:
    """One run of an agent, which answers these interrupts; the interrupts that it ends with."""
    resume = [
        {"interruptId": ident, "status": "resolved", "payload": {"decisions": [{"type": "approve"}]}}
        for ident in answered
    ]
    asked = {
        "threadId": f"{path}-{kind}", "runId": f"{path}-{number}", "state": {}, "tools": [], "context": [],
        "forwardedProps": {}, "messages": [{"id": "question", "role": "user", "content": "go"}],
        **({"resume": resume} if resume else {}),
    }  # fmt: skip
    answer = ask(port, asked, path=f"/{path}")
    lines = answer.body.decode().splitlines()
    last = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")][-1]
    assert "RUN_FINISHED" == last["type"], last
    return [interrupt["id"] for interrupt in (last.get("outcome") or {}).get("interrupts", ())]


class Seen:
    """What has arrived in a project of Phoenix."""

    def __init__(self, url: str, project: str) -> None:
        self._client = PhoenixClient(url)
        self._project = project

    def run(self, run_id: str) -> list[Span]:
        """The spans of a run, once its root has arrived: it ends last."""
        found: list[Span] = []

        def arrived() -> bool:
            spans = self._client.spans(self._project)
            ours = [span for span in spans if span["span_kind"] != "UNKNOWN"]  # FastAPI has spans of its own
            found[:] = [span for span in ours if span["attributes"].get("agui.run.id") == run_id]
            return any(span["parent_id"] is None for span in found)

        eventually(arrived, 60)
        return found

    def tree(self, run_id: str) -> str:
        """A run as text, with the events that tell of waiting."""
        text = span_tree(self.run(run_id), attributes=ATTRIBUTES, event_attributes=EVENTS, links=False)
        told = ("* agui.interrupt", "* agui.subagent.")
        lines = [
            line for line in text.splitlines() if not line.lstrip().startswith("* ") or any(t in line for t in told)
        ]
        return "\n".join(lines) + "\n"

    def session(self, thread: str) -> list[str]:
        """The traces of a session, in its order."""
        (session,) = (each for each in self._client.sessions(self._project) if each["session_id"] == thread)
        return [trace["trace_id"] for trace in sorted(session["traces"], key=lambda trace: str(trace["start_time"]))]


def root(spans: list[Span]) -> Span:
    """The run's own span."""
    (found,) = (span for span in spans if span["parent_id"] is None)
    return found


def identity(span: Span) -> tuple[str, str]:
    """A span's trace and id."""
    return span["context"]["trace_id"], span["context"]["span_id"]


def assert_it_leads_there(spans: list[Span], earlier: list[list[Span]]) -> None:
    """What the spans say that they continue is there, by its name, in one of the earlier runs."""
    known = {identity(span): span for run_ in earlier for span in run_}
    continued = [span for span in spans if span["attributes"].get("agui.continued")]
    assert continued
    for span in continued:
        attributes = span["attributes"]
        target = known[attributes["agui.continues.trace_id"], attributes["agui.continues.span_id"]]
        assert (span["name"], attributes["agui.continues.run_id"]) == (
            target["name"],
            target["attributes"]["agui.run.id"],
        )


def assert_it_answers(run_: Span, asked: Span, began: float) -> None:
    """The run names the run that asked, and the wait is the time between them."""
    attributes = run_["attributes"]
    assert identity(asked) == (*attributes["agui.resumes.trace_id"], *attributes["agui.resumes.span_id"])
    (wait,) = (
        event["attributes"]["agui.interrupt.wait"]
        for event in run_["events"]
        if event["name"] == "agui.interrupt.resolved"
    )
    assert 0 < wait < time.time() - began


@pytest.mark.parametrize("kind", SHARED)
def test_suspended_here_resumed_there(kind: str, phoenix: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The second process makes the tree that the first has begun, and joins it to the first.

    Two levels deep, and where two ask and one is answered.
    """
    url = f"sqlite:///{tmp_path / 'threads.db'}"
    if kind == "redis":
        server = RedisServer()
        server.start()
        request.addfinalizer(server.__exit__)
        url = server.url
    memory: ThreadMemory = _make(url, 3600.0, 100, 10.0)
    request.addfinalizer(memory.close)
    project, began = f"waiting-{kind}", time.time()
    seen = Seen(phoenix, project)

    with serving(project, phoenix, url, tmp_path) as (first, port):
        (nested,) = run(port, "nested", kind, 1)
        one, two = run(port, "two", kind, 1)
        eventually(lambda: 2 == len(list(memory.waiting(10))))
        before = {run_id: seen.run(run_id) for run_id in ("nested-1", "two-1")}
        first.kill()
        first.wait()

    listed = agui_otel_waiting(url, phoenix)
    assert {(f"nested-{kind}", "mailer"), (f"two-{kind}", "mailer")} == {
        (each["thread"], each["who"]) for each in listed
    }
    assert {f"{phoenix}/redirects/traces/{root(spans)['context']['trace_id']}" for spans in before.values()} == {
        each["url"] for each in listed
    }

    with serving(project, phoenix, url, tmp_path) as (_, port):
        assert [] == run(port, "nested", kind, 2, nested)
        assert [two] == run(port, "two", kind, 2, one)
        eventually(lambda: [f"two-{kind}"] == [record.thread_id for record in memory.waiting(10)])
        assert [] == run(port, "two", kind, 3, two)
        after = {run_id: seen.run(run_id) for run_id in ("nested-2", "two-2", "two-3")}
        eventually(lambda: [] == list(memory.waiting(10)))

    for name in ("nested-1", "nested-2", "two-1", "two-2", "two-3"):
        golden = TREES / f"waiting-{name}.tree"
        assert golden.read_text(encoding="utf-8") == seen.tree(name), name
    assert_it_leads_there(after["nested-2"], [before["nested-1"]])
    assert_it_leads_there(after["two-2"], [before["two-1"]])
    assert_it_leads_there(after["two-3"], [before["two-1"], after["two-2"]])
    assert_it_answers(root(after["nested-2"]), root(before["nested-1"]), began)
    assert_it_answers(root(after["two-2"]), root(before["two-1"]), began)
    assert_it_answers(root(after["two-3"]), root(before["two-1"]), began)
    assert [identity(root(spans))[0] for spans in (before["nested-1"], after["nested-2"])] == seen.session(
        f"nested-{kind}"
    )
    runs = (before["two-1"], after["two-2"], after["two-3"])
    assert [identity(root(spans))[0] for spans in runs] == seen.session(f"two-{kind}")
