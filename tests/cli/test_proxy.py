"""`agui-otel proxy` from the outside: what it says, what it refuses, and the trees that it shows."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from agui_otel.attach.forwarding import Upstream
from agui_otel.cli.live import MAX_SPANS, LiveTrees
from agui_otel.cli.proxy import refuse_itself
from agui_otel.testing import capture
from scripts.doc_outputs import ROOT, environment
from tests.support.command import Command
from tests.support.proxies import END, HEAD, chunked, raw
from tests.support.servers import ask, asking, eventually, free_port, listens, sse
from tests.support.sources import HALF, WHOLE


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--upstream", "localhost"), "upstream 'localhost': it should be a URL such as http://localhost:8000"),
        (("--listen", "8080x"), "--listen 8080x: it should be HOST:PORT, such as 127.0.0.1:8080"),
        (("--listen", "8080"), "--listen 8080: it should be HOST:PORT, such as 127.0.0.1:8080"),
        (("--listen", ":8080"), "--listen :8080: it should be HOST:PORT, such as 127.0.0.1:8080"),
        (("--listen", "127.0.0.1:99999"), "--listen 127.0.0.1:99999: it should be HOST:PORT, such as 127.0.0.1:8080"),
        (("--listen", "203.0.113.7:80"), "--listen 203.0.113.7:80: Cannot assign requested address"),
        (("--path", "agent"), "--path agent: it should begin with /"),
        (("--health", "healthz"), "--health healthz: it should be a path such as /healthz, or off"),
        (("--grace", "-1"), "--grace -1: it should be 0 or more seconds"),
    ],
)
def test_wrong_arguments_are_refused(command: Command, arguments: tuple[str, ...], message: str) -> None:
    """With what is wrong, and what should be."""
    ran = command("proxy", "--upstream", "http://localhost:1", *arguments)
    assert (2, "", f"agui-otel: {message}\n") == ran


def test_a_port_that_is_taken_is_said(command: Command) -> None:
    """Before anything is started."""
    with raw(lambda _: None) as (port, _):
        ran = command("proxy", "--upstream", "http://localhost:1", "--listen", f"127.0.0.1:{port}")
    assert (2, f"agui-otel: --listen 127.0.0.1:{port}: Address already in use\n") == (ran.status, ran.err)


@pytest.mark.parametrize(
    ("listen", "upstream"),
    [
        ("127.0.0.1", "127.0.0.1"), ("127.0.0.1", "localhost"), ("localhost", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"),
        ("0.0.0.0", "localhost"), ("127.0.0.1", "0.0.0.0"), ("0.0.0.0", "0.0.0.0"), ("0.0.0.0", "127.0.0.2"),
    ],
)  # fmt: skip
def test_it_does_not_ask_itself(command: Command, listen: str, upstream: str) -> None:
    """Whatever name its own address has."""
    port = free_port()
    ran = command("proxy", "--upstream", f"http://{upstream}:{port}/a", "--listen", f"{listen}:{port}")
    place = f"{listen.replace('localhost', '127.0.0.1')}:{port}"
    wanted = f"--upstream http://{upstream}:{port}/a: it is where the proxy itself listens ({place}); "
    assert (2, "", f"agui-otel: {wanted}give --listen another port\n") == ran


def test_another_address_with_its_port_is_asked() -> None:
    """The same port elsewhere is another server: one of no machine here, of a name that nobody has, or of this one."""
    for listen, upstream in (("0.0.0.0", "203.0.113.7"), ("127.0.0.1", "nobody.invalid"), ("127.0.0.1", "127.0.0.2")):
        with socket.create_server((listen, 0)) as listening:
            port = listening.getsockname()[1]
            refuse_itself(Upstream.parse(f"http://{upstream}:{port}"), listening)


def test_without_its_packages_it_names_them(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are an extra."""
    monkeypatch.setitem(sys.modules, "httpcore2", None)
    ran = command("proxy", "--upstream", "http://localhost:1")
    assert (2, "agui-otel: httpcore2 is not installed: pip install 'agui-otel[proxy]'\n") == (ran.status, ran.err)


@contextmanager
def running(*options: str, **streams: Any) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """The command as a process that exports nothing; its port."""
    port = free_port()
    arguments = ("-m", "agui_otel.cli.main", "proxy", "--listen", f"127.0.0.1:{port}", *options)
    process = subprocess.Popen([sys.executable, *arguments], cwd=ROOT, env=environment(), text=True, **streams)
    try:
        eventually(lambda: listens(port), 30)
        yield port, process
    finally:
        process.kill()
        process.communicate()


PIPED = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def test_it_says_where_it_stands_and_shows_what_ended() -> None:
    """Trees as plain lines where they are piped; one line about content; one for an upstream that broke off."""
    answers = [HEAD + chunked(sse(WHOLE)) + END, HEAD + chunked(sse(HALF))]

    def answer(connection: Any) -> None:
        connection.sendall(answers.pop(0))
        if not answers:
            connection.close()

    with raw(answer) as (upstream, _):
        options = ("--upstream", f"http://127.0.0.1:{upstream}", "--live", "--agent-name", "planner", "--path", "/age*")
        with running(*options, **PIPED) as (port, process):
            ask(port)
            with pytest.raises(Exception, match="IncompleteRead"):
                ask(port)
            process.terminate()
            out, err = process.communicate(timeout=20)
    lines = [re.sub(r"  [\d.]+ m?s.*", "", line) for line in out.splitlines()]
    assert [line for line in lines if line.startswith("invoke_agent")] == [
        "invoke_agent planner  success", "invoke_agent planner  error  agui_otel.attach.proxy.UpstreamError",
    ]  # fmt: skip
    assert ["│  └─ execute_tool search  success", "│  └─ execute_tool search  aborted"] == [
        line for line in lines if "execute_tool" in line
    ]
    assert [
        "agui-otel exports names, ids, counts and times, and no content (texts, arguments, results); "
        "AGUI_OTEL_CAPTURE=full adds it, AGUI_OTEL_CAPTURE=metadata silences this line",
        f"http://127.0.0.1:{port} -> http://127.0.0.1:{upstream}; traces go nowhere",
    ] == err.splitlines()[:2]
    (broken,) = err.splitlines()[2:]
    assert broken.startswith(f"agui-otel: http://127.0.0.1:{upstream} broke off its response: peer closed connection")


def test_a_terminal_shows_what_runs() -> None:
    """While it does: its subagent and its call, without an end; afterwards the whole tree stays."""
    go_on: list[bool] = []

    def answer(connection: Any) -> None:
        connection.sendall(HEAD + chunked(sse(HALF)))
        eventually(lambda: bool(go_on), 20)
        connection.sendall(chunked(sse(WHOLE[len(HALF) :])) + END)

    ours, theirs = pty.openpty()
    try:
        with (
            raw(answer) as (upstream, _),
            running("--upstream", f"http://127.0.0.1:{upstream}", "--live", stdout=theirs) as (port, process),
            asking(port) as response,
        ):
            shown = until(ours, "execute_tool search  running")
            assert "invoke_agent  running" in shown
            go_on.append(True)
            response.read()
            until(ours, "execute_tool search  success")
            process.terminate()
            assert 0 == process.wait(20)
    finally:
        os.close(ours)
        os.close(theirs)


def until(terminal: int, wanted: str) -> str:
    """What a terminal shows, without its colours, once this is among it."""
    shown = ""
    due = time.monotonic() + 20
    while wanted not in shown:
        assert time.monotonic() < due, shown
        if select.select([terminal], [], [], 0.1)[0]:
            shown += os.read(terminal, 65536).decode(errors="replace")
            while "\x1b[" in shown:
                before, _, rest = shown.partition("\x1b[")
                shown = before + rest.lstrip("0123456789;?")[1:]
    return shown


def test_a_trace_of_many_spans_is_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """It is shown as far as it is kept, with the number of the rest."""
    captured = capture()
    with LiveTrees() as live:
        captured.tracer_provider.add_span_processor(live)
        tracer = captured.tracer_provider.get_tracer("test")
        root = tracer.start_span("root", Context())
        for _ in range(MAX_SPANS + 9):
            tracer.start_span("inside", set_span_in_context(root)).end()
        root.end()
    lines = capsys.readouterr().out.splitlines()
    assert (MAX_SPANS, "and 10 more spans") == (len(lines) - 1, lines[-1])


def test_what_ended_before_it_stops_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when that comes before the thread that writes has begun to wait."""

    class Slow(io.StringIO):
        def isatty(self) -> bool:
            time.sleep(0.1)
            return False

    monkeypatch.setattr(sys, "stdout", out := Slow())
    captured = capture()
    with LiveTrees() as live:
        captured.tracer_provider.add_span_processor(live)
        captured.tracer_provider.get_tracer("test").start_span("root", Context()).end()
    assert "root" == out.getvalue().partition(" ")[0]


def test_what_is_below_spans_that_are_left_out_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """However deep, and after they ended: one tree with all of them counted. A run below a client's span is a tree."""
    captured = capture()
    with LiveTrees() as live:
        captured.tracer_provider.add_span_processor(live)
        tracer = captured.tracer_provider.get_tracer("test")
        root = tracer.start_span("root", Context())
        for _ in range(MAX_SPANS):
            child = tracer.start_span("inside", set_span_in_context(root))
            for _ in range(3):
                child.end()
                child = tracer.start_span("below", set_span_in_context(child))
            child.end()
        called = SpanContext(root.get_span_context().trace_id, 2**60, True, TraceFlags(1))
        tracer.start_span("another", set_span_in_context(NonRecordingSpan(called))).end()
        root.end()
    lines = capsys.readouterr().out.splitlines()
    roots = [line.partition("  ")[0] for line in lines if line[:1].isalpha()]
    assert ["another", "root", f"and {3 * MAX_SPANS + 1:,} more spans"] == roots
    assert MAX_SPANS + 2 == len(lines)
