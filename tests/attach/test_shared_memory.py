"""The ways in with a shared thread memory: the host's pace, the process's end, its forks."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from agui_otel import Settings, TracingMiddleware, trace_events
from agui_otel.errors import ConfigurationError
from agui_otel.tracing import background
from agui_otel.tracing import memory as memories
from agui_otel.tracing.memory import ThreadMemory, open_memory
from tests.support.servers import ask, served, sse, streaming
from tests.support.stores import RedisServer, in_processes
from tests.support.watched import Watched
from tests.support.wire import finished, flat, given, interrupted, started, text

EVENTS = list(flat([started(), text("m", "a", "b"), interrupted("x")]))
ASKED = given(messages=[{"id": "q", "role": "user", "content": "go"}])


@pytest.fixture(autouse=True)
def fresh_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test opens stores of its own."""
    monkeypatch.setattr(memories, "_opened", {})
    yield
    assert background.settle(30)


@pytest.fixture
def stopped() -> Iterator[RedisServer]:
    """A Redis that accepts connections and does not answer."""
    with RedisServer() as server:
        server.stop()
        yield server


def settings(url: str, **others: Any) -> Settings:
    """A store that has half a minute."""
    return Settings(thread_memory=url, thread_memory_timeout=30, **others)


def with_memory(watched: Watched, url: str) -> dict[str, Any]:
    """The keywords of a way in, with this store."""
    return {**watched.keywords, "config": settings(url)}


def remembered(url: str) -> list[str]:
    """The interrupts of the thread in a store."""
    record = open_memory(url).read("thread")
    return sorted(record.interrupts) if record is not None else []


def test_an_async_stream_passes_while_the_store_is_silent(stopped: RedisServer, watched: Watched) -> None:
    """Every event is out, and the stream over, before the store has answered anything."""

    async def produced() -> AsyncIterator[dict[str, Any]]:
        for event in EVENTS:
            yield event

    async def consume() -> list[dict[str, Any]]:
        traced = trace_events(produced(), input=ASKED, **with_memory(watched, stopped.url))
        return [event async for event in traced]

    assert EVENTS == asyncio.run(consume())
    assert "" == watched.captured.tree()
    stopped.go_on()
    assert background.settle(30)
    assert "invoke_agent [AGENT] interrupt" == watched.captured.tree().splitlines()[0]
    assert ["x"] == remembered(stopped.url)


def test_a_response_passes_while_the_store_is_silent(stopped: RedisServer, watched: Watched) -> None:
    """The client has the whole response; what remains is done when the server has long answered."""
    app = Starlette(routes=[Route("/agent", streaming([sse([event]) for event in EVENTS]), methods=["POST"])])
    app.add_middleware(TracingMiddleware, **with_memory(watched, stopped.url))
    with served(app) as port:
        assert sse(EVENTS) == ask(port, ASKED).body
        assert "" == watched.captured.tree()
        stopped.go_on()
        assert background.settle(30)
    assert "invoke_agent [AGENT] interrupt" == watched.captured.tree().splitlines()[0]
    assert ["x"] == remembered(stopped.url)


PROGRAM = """
import os, sys
from agui_otel import setup, trace_events
from tests.attach.test_shared_memory import ASKED, EVENTS
"""

ENDS = {
    "runs out": "list(trace_events(EVENTS, input=ASKED))",
    "exits": "list(trace_events(EVENTS, input=ASKED))\nsys.exit(0)",
    "shuts down": """
with setup(phoenix=False, endpoint="http://127.0.0.1:1", exit_timeout=2, metrics=False) as handle:
    list(trace_events(EVENTS, input=ASKED))
os._exit(0)
""",
    "flushes": """
handle = setup(phoenix=False, endpoint="http://127.0.0.1:1", exit_timeout=2, metrics=False)
list(trace_events(EVENTS, input=ASKED))
handle.force_flush(2)
os._exit(0)
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_what_was_suspended_last_is_written_before_the_end(end: str, tmp_path: Path) -> None:
    """However the process ends, as long as it has a moment to end in."""
    url = f"sqlite:///{tmp_path / 'threads.db'}"
    subprocess.run(
        [sys.executable, "-c", PROGRAM + ENDS[end]],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "AGUI_OTEL_THREAD_MEMORY": url, "AGUI_OTEL_THREAD_MEMORY_TIMEOUT": "20"},
        timeout=60,
        check=True,
        capture_output=True,
    )
    assert ["x"] == remembered(url)


NO_MORE_THREADS = """
import threading
def refuse(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")
threading.Thread.start = refuse
"""


@pytest.mark.parametrize("exits", ["", NO_MORE_THREADS], ids=["as it does", "as in 3.12"])
def test_a_silent_store_does_not_keep_a_process_from_ending(exits: str, stopped: RedisServer) -> None:
    """It has a bounded time; what was not written is lost. In Python 3.12 an exit starts no thread."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + ENDS["runs out"] + exits],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "AGUI_OTEL_THREAD_MEMORY": stopped.url, "AGUI_OTEL_THREAD_MEMORY_TIMEOUT": "60"},
        timeout=50,
        check=False,
        capture_output=True,
    )
    assert 0 == done.returncode


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_forked_workers(kind: str, tmp_path: Path, watched: Watched) -> None:
    """A server that forks after it has used the store: every worker uses it, with connections of its own."""
    redis = RedisServer()
    url = f"sqlite:///{tmp_path / 'threads.db'}"
    if kind == "redis":
        redis.start()
        url = redis.url

    def work(number: int) -> None:
        events = flat([started(f"run-{number}"), interrupted(f"x-{number}", run=f"run-{number}")])
        list(trace_events(events, **with_memory(watched, url)))
        assert background.settle(20)

    try:
        work(0)
        assert [0] * 8 == in_processes(8, lambda number: work(number + 1))
        assert [f"x-{number}" for number in range(9)] == remembered(url)
    finally:
        redis.__exit__()


class TestSettings:
    """`thread_memory`, and what is wrong with it."""

    @pytest.mark.parametrize("url", ["memory://", "sqlite:///a.db", "sqlite:////a/b.db", "redis://h", "unix:///s"])
    def test_known(self, url: str) -> None:
        """URLs of each kind, none of which is opened."""
        assert url == Settings(thread_memory=url).thread_memory

    def test_unknown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What else it could be, and where the wrong one stands; without its password."""
        monkeypatch.setenv("AGUI_OTEL_THREAD_MEMORY", "postgres://me:secret@host/db?token=secret")
        with pytest.raises(ConfigurationError) as caught:
            Settings()
        assert str(caught.value).startswith(
            "AGUI_OTEL_THREAD_MEMORY='postgres://…@host/db': it should be memory://, sqlite:///path"
        )
        assert "secret" not in str(caught.value)

    def test_without_redis_py(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It says what to install."""
        monkeypatch.setattr("agui_otel.config.find_spec", lambda _: None)
        with pytest.raises(ConfigurationError, match=r"pip install 'agui-otel\[redis\]'"):
            Settings(thread_memory="redis://me:secret@host")

    def test_a_url_that_redis_py_cannot_read(self) -> None:
        """It is said where a way in is made, before any stream; without the password."""
        config = Settings(thread_memory="redis://:se/cret@host:port/0")
        with pytest.raises(ConfigurationError, match="redis-py cannot read it") as caught:
            trace_events([], config=config)
        assert "cret" not in str(caught.value)

    def test_it_is_not_shown(self) -> None:
        """It may hold a password."""
        assert "secret" not in repr(Settings(thread_memory="redis://me:secret@host"))

    def test_one_store_a_url(self, tmp_path: Path) -> None:
        """And none is opened by that."""
        url = f"sqlite:///{tmp_path / 'threads.db'}"
        first: ThreadMemory = open_memory(url)
        assert first is open_memory(url)
        assert [] == list(tmp_path.iterdir())


def test_nothing_of_content_is_stored_unless_it_is_captured(tmp_path: Path, watched: Watched) -> None:
    """Messages, arguments and results never; descriptions where content is captured."""
    secrets = ["mail-body", "user-said", "interrupt-said", "described"]
    events = [
        started(), text("m", "user-said"),
        {"type": "TOOL_CALL_CHUNK", "toolCallId": "c", "toolCallName": "task", "delta": json.dumps("mail-body")},
        {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "n", "description": "described"},
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "s", "outcome": {"type": "suspended", "interruptIds": ["x"]}},
        interrupted({"id": "x", "reason": "r", "message": "interrupt-said", "metadata": {"a": "mail-body"}}),
    ]  # fmt: skip
    for capture, stored in (("metadata", []), ("full", ["described"])):
        path = tmp_path / capture
        config = settings(f"sqlite:///{path}", capture=capture)
        list(trace_events(flat(events), **{**watched.keywords, "config": config}))
        assert background.settle(30)
        open_memory(f"sqlite:///{path}").close()
        data = b"".join(file.read_bytes() for file in tmp_path.glob(f"{capture}*"))
        assert stored == [secret for secret in secrets if secret.encode() in data]


def test_a_finished_run_leaves_nothing_that_waits(tmp_path: Path, watched: Watched) -> None:
    """A plain run writes nothing at all."""
    config = settings(f"sqlite:///{tmp_path / 'threads.db'}")
    list(trace_events(flat([started(), text("m", "a"), finished()]), **{**watched.keywords, "config": config}))
    assert background.settle(30)
    assert None is open_memory(config.thread_memory).read("thread")
