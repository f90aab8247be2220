"""`agui-otel waiting`: what waits for a person, and the commands that know a shared thread memory."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agui_otel.protocol.thread import OpenInterrupt, PendingToolCall, SpanRef, SuspendedSubagent, ThreadChange
from agui_otel.tracing import memory as memories
from agui_otel.tracing.memory import open_memory
from tests.support.command import Command
from tests.support.recordings import STREAMS
from tests.support.stores import RedisServer

RUN = SpanRef(trace_id="1" * 32, span_id="1" * 16, run_id="run-1")
ASKER = SpanRef(trace_id="1" * 32, span_id="2" * 16, run_id="run-1")
NOW = 1_800_000_000.0


@pytest.fixture(autouse=True)
def fresh_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test opens stores of its own."""
    monkeypatch.setattr(memories, "_opened", {})


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A shared store that the environment names."""
    if request.param == "sqlite":
        chosen = f"sqlite:///{tmp_path / 'threads.db'}"
        monkeypatch.setenv("AGUI_OTEL_THREAD_MEMORY", chosen)
        yield chosen
        return
    with RedisServer() as server:
        monkeypatch.setenv("AGUI_OTEL_THREAD_MEMORY", server.url)
        yield server.url


def remember(url: str, thread: str, **entries: Any) -> None:
    """A run of `thread` has left this."""
    memory = open_memory(url)
    memory.write(ThreadChange(thread_id=thread, at=NOW, **entries))
    memory.close()


def interrupt(ident: str = "i", **fields: Any) -> OpenInterrupt:
    """An interrupt that has waited for 90 minutes."""
    return OpenInterrupt(**{"id": ident, "run": RUN, "since": NOW - 5400, "reason": "approval", **fields})


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is `NOW`."""
    monkeypatch.setattr(time, "time", lambda: NOW)


def test_what_waits_oldest_first(command: Command, url: str) -> None:
    """Who asked first, for what, since when, and where; interrupts and the calls of a front end."""
    remember(url, "mails", interrupts=(interrupt(owner="s", owner_name="mailer", span=ASKER),))
    remember(url, "old", interrupts=(interrupt(reason="form", since=NOW - 3 * 86400 - 7200),))
    call = PendingToolCall(id="c", name="pick_colour", span=ASKER, since=NOW - 30)
    remember(url, "colours", tool_calls=(call,))
    assert (
        0,
        f"old: the run's own agent waits for form, since 2027-01-12T06:00:00Z (3 d 2 h): trace {'1' * 32}\n"
        f"mails: mailer waits for approval, since 2027-01-15T06:30:00Z (1 h 30 min): trace {'1' * 32}\n"
        "colours: the run's own agent waits for an answer to the tool call pick_colour, since 2027-01-15T07:59:30Z "
        f"(30 s): trace {'1' * 32}\n",
        "",
    ) == command("waiting")


def test_as_json(command: Command, url: str) -> None:
    """One object a line, with all ids."""
    remember(url, "mails", interrupts=(interrupt(owner="s", span=ASKER, expires_at="2027-01-15T07:59:00Z"),))
    ran = command("waiting", "--json")
    assert {
        "thread": "mails", "kind": "interrupt", "id": "i", "who": "s", "what": "approval",
        "since": "2027-01-15T06:30:00Z", "seconds": 5400.0, "expires": "2027-01-15T07:59:00Z", "expired": True,
        "answered": False, "run": "run-1", "trace_id": "1" * 32, "span_id": "2" * 16, "url": None,
    } == json.loads(ran.out)  # fmt: skip


def test_marks(command: Command, url: str) -> None:
    """What has expired is still there; so is what was answered by a run that failed."""
    remember(url, "t", interrupts=(interrupt(expires_at="2027-01-15T07:00:00Z", answered=True),))
    assert "waits for approval (expired) (answered by a run that did not end well), since" in command("waiting").out


def test_pages(command: Command, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the environment names a Phoenix, each has its page there."""
    monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", "http://phoenix.test:6006")
    remember(url, "t", interrupts=(interrupt(),))
    page = f"http://phoenix.test:6006/redirects/traces/{'1' * 32}"
    assert command("waiting").out.endswith(f": {page}\n")
    assert page == json.loads(command("waiting", "--json").out)["url"]


def test_a_call_that_waits_for_an_interrupt(command: Command, url: str) -> None:
    """The interrupt says it: neither the call, nor who it dispatched, nor what that called waits besides."""

    def calls(*idents: str, owner: str | None = None) -> tuple[PendingToolCall, ...]:
        return tuple(PendingToolCall(id=i, name=i, owner=owner, span=RUN, since=NOW) for i in idents)

    remember(
        url, "t", interrupts=(interrupt(owner="s", tool_call="named"),),
        subagents=(SuspendedSubagent(id="s", parent_tool_call="task", span=ASKER, since=NOW),),
        tool_calls=(*calls("named", "inner", owner="s"), *calls("task")),
    )  # fmt: skip
    assert ["i"] == [json.loads(line)["id"] for line in command("waiting", "--json").out.splitlines()]


def test_nothing(command: Command, url: str) -> None:
    """It says so; as JSON it says nothing."""
    remember(url, "t", answered_interrupts=frozenset({"i"}))
    assert (0, "Nothing waits.\n", "") == command("waiting")
    assert (0, "", "") == command("waiting", "--json")


def test_many(command: Command, url: str) -> None:
    """More threads than are listed are told."""
    for number in range(4):
        remember(url, f"t{number}", interrupts=(interrupt(since=NOW - number),))
    lines = command("waiting", "--limit", "3").out.splitlines()
    assert ["t3", "t2", "t1"] == [line.partition(":")[0] for line in lines[:3]]
    assert ["More threads wait than these 3: --limit lists more."] == lines[3:]


def test_the_processes_own_memory(command: Command) -> None:
    """Nobody else knows what waits there."""
    ran = command("waiting")
    assert (2, "") == (ran.status, ran.out)
    assert "only the server's own process knows" in ran.err


def test_a_store_that_cannot_be_read(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that names it, and no password."""
    monkeypatch.setenv("AGUI_OTEL_THREAD_MEMORY", f"sqlite:///{tmp_path / 'no' / 'threads.db'}")
    ran = command("waiting")
    assert (2, f"agui-otel: the thread memory sqlite:///{tmp_path / 'no' / 'threads.db'} cannot be read") == (
        ran.status,
        ran.err.partition(": there is no such file")[0],
    )
    monkeypatch.setenv("AGUI_OTEL_THREAD_MEMORY", "redis://me:secret@127.0.0.1:1/0")
    ran = command("waiting")
    assert (2, "agui-otel: the thread memory redis://…@127.0.0.1:1/0 cannot be read") == (
        ran.status,
        ran.err.partition(": ConnectionError")[0],
    )
    assert "secret" not in ran.err


class TestOtherCommands:
    """They use the same store."""

    def test_a_replay_is_resumed_by_the_next(self, command: Command, url: str) -> None:
        """A suspension that one call replayed is resumed by another; meanwhile it waits."""
        assert url
        first, second = (STREAMS / f"approve_{name}.jsonl" for name in ("1", "3_resume"))
        assert 0 == command("replay", "--to", "json", first).status
        assert "mailer waits for langgraph:interrupt" in command("waiting").out
        memories._opened.clear()
        spans = [json.loads(line) for line in command("replay", "--to", "json", second).out.splitlines()]
        root = next(span for span in spans if span["parent_id"] is None)
        assert ["run-approve_1"] == root["attributes"]["agui.resumes.run_id"]
        assert "Nothing waits.\n" == command("waiting").out

    def test_a_tree_of_what_was_replayed(self, command: Command, url: str) -> None:
        """The same run once more."""
        assert url
        first, second = (STREAMS / f"approve_{name}.jsonl" for name in ("1", "3_resume"))
        command("tree", first, second)
        assert "mailer" in command("tree", first).out
        assert "Nothing waits.\n" == command("waiting").out


def test_the_doctor_asks_the_store(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it answers, and how much waits in it."""
    from agui_otel.cli.doctor import _memory

    assert "thread memory: in each process" in _memory()
    url = f"sqlite:///{tmp_path / 'threads.db'}"
    monkeypatch.setenv("AGUI_OTEL_THREAD_MEMORY", url)
    remember(url, "t", interrupts=(interrupt(),))
    assert f"thread memory: {url}, which answers; open interrupts: 1 (agui-otel waiting)" == _memory()
    assert command


def test_the_doctor_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that cannot be used, with the reason."""
    from agui_otel.cli.doctor import _memory
    from agui_otel.cli.probes import Problem

    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE somebody_elses (x)")
    other.close()
    monkeypatch.setenv("AGUI_OTEL_THREAD_MEMORY", f"sqlite:///{tmp_path / 'other.db'}")
    with pytest.raises(Problem) as caught:
        _memory()
    assert "is a database of something else" in caught.value.found


def test_a_file_that_is_not_there(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listing makes nothing, and says what is wrong."""
    path = tmp_path / "nothing.db"
    monkeypatch.setenv("AGUI_OTEL_THREAD_MEMORY", f"sqlite:///{path}")
    status, out, err = command("waiting")
    assert (2, "") == (status, out)
    assert f"sqlite:///{path} cannot be read: there is no such file" in err
    assert [] == list(tmp_path.iterdir())
