"""`agui-otel demo`: the whole way, from the command to what Phoenix shows."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from agui_otel import phoenix
from agui_otel.cli.demo import PROJECT
from agui_otel.phoenix import EmbeddedPhoenix, PhoenixClient, session_url, trace_url
from agui_otel.testing import span_tree
from tests.cli.test_script import GOLDEN
from tests.support import recordings, services
from tests.support.browser import browser_page
from tests.support.command import Command
from tests.support.demonstration import tree
from tests.support.processes import servers_in


def _is_installed() -> bool:
    try:
        return bool(version("arize-phoenix"))
    except PackageNotFoundError:
        return False


def _start(*arguments: str) -> subprocess.Popen[str]:
    services.require(_is_installed(), "arize-phoenix")
    return subprocess.Popen(
        [sys.executable, "-m", "agui_otel.cli.main", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        preexec_fn=_heed_ctrl_c,  # noqa: PLW1509 (no thread runs beside it)
    )


def _heed_ctrl_c() -> None:
    """A shell's background jobs ignore Ctrl-C, and so do the programs that they start: these tests are no such job."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _until(line: str, stream: IO[str]) -> str:
    """What is printed up to a line that contains `line`."""
    text = ""
    for printed in stream:
        text += printed
        if line in printed:
            return text
    pytest.fail(f"{line!r} did not come; there was:\n{text}")


def _stored(url: str, text: str) -> str:
    """The tree that the Phoenix at `url` has of the conversation whose links stand in `text`."""
    (thread,) = re.findall(r"session: \S+/redirects/sessions/(\S+)", text)
    trace_ids = re.findall(r"run \d: +\S+/redirects/traces/(\S+)", text)
    assert 2 == len(trace_ids)
    client = PhoenixClient(url)
    (session,) = (session for session in client.sessions(PROJECT) if session["session_id"] == thread)
    assert trace_ids == [trace["trace_id"] for trace in session["traces"]]
    return tree(client.spans(PROJECT, trace_ids=trace_ids), thread=thread)


class Once(NamedTuple):
    """How `demo --once` ended, what it printed, and a Phoenix on the database that it left."""

    status: int
    out: str
    err: str
    server: EmbeddedPhoenix
    directory: Path


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Once]:
    """`demo --once` with a directory that is kept."""
    directory = tmp_path_factory.mktemp("phoenix")
    with _start("--once", "--dir", str(directory)) as process:
        out, err = process.communicate()
    with EmbeddedPhoenix(directory) as server:
        yield Once(process.returncode, out, err, server, directory)


def test_once(once: Once) -> None:
    """`--once` ends by itself, with the trees and the links printed and both runs in Phoenix's database."""
    assert (0, "") == (once.status, once.err)
    assert f"Phoenix stops now, and these pages with it. Its database is kept in {once.directory}." in once.out
    assert "\n\ninvoke_agent planner  success" in once.out
    assert "! state 5: hotel-scout overwrote /budget/spent of flight-scout" in once.out
    assert "invoke_agent restaurant-scout  error  tables.example did not answer in 5 s" in once.out
    assert GOLDEN.read_text(encoding="utf-8") == _stored(once.server.url, once.out)


def test_pages(once: Once) -> None:
    """In a browser, the trace's page shows the subagents in the tree, and the session's page both runs in order."""
    trace, _ = re.findall(r"run \d: +\S+/redirects/traces/(\S+)", once.out)
    (thread,) = re.findall(r"session: \S+/redirects/sessions/(\S+)", once.out)
    with browser_page(height=1600) as page:
        page.goto(trace_url(once.server.url, trace))
        for name in ("flight-scout", "treasurer", "hotel-scout", "reviewer", "restaurant-scout", "booker"):
            page.get_by_text(f"invoke_agent {name}").first.wait_for()
        page.get_by_text("invoke_agent restaurant-scout").first.click()
        page.get_by_text("tables.example did not answer").first.wait_for()
        page.goto(session_url(once.server.url, thread))
        for answer in ("No restaurant answered", "All set"):
            page.get_by_text(answer).last.wait_for()
        text = page.inner_text("body")
    assert text.rindex("No restaurant answered") < text.rindex("All set")


def test_replay_to_phoenix(once: Once, command: Command) -> None:
    """`replay` sends recordings to Phoenix and prints the page of each trace."""
    files = [recordings.STREAMS / f"approve_{name}.jsonl" for name in ("1", "3_resume")]
    ran = command("replay", "--endpoint", once.server.url, "--project", "replayed", *files)
    assert (0, "") == (ran.status, ran.err)
    sent = [json.loads(line) for line in command("replay", "--to", "json", *files).out.splitlines()]
    client = PhoenixClient(once.server.url)
    stored = client.wait_for_spans("replayed", len(sent))
    assert span_tree(sent, links=False) == span_tree(stored, links=False)
    roots = sorted((span for span in stored if span["parent_id"] is None), key=lambda span: str(span["start_time"]))
    assert [
        f"{file}: invoke_agent: {trace_url(once.server.url, root['context']['trace_id'])}"
        for file, root in zip(files, roots, strict=True)
    ] == ran.out.splitlines()


def test_waits_and_stops() -> None:
    """Without `--once` Phoenix stays up, its API answers, and Ctrl-C ends the command and the server."""
    with _start() as process:
        assert process.stdout is not None
        out = _until("until you press Ctrl-C", process.stdout)
        url = re.findall(r"Phoenix is up at (\S+)\.", out)[0]
        try:
            assert GOLDEN.read_text(encoding="utf-8") == _stored(url, out)
        finally:
            process.send_signal(signal.SIGINT)
            _, err = process.communicate()
    assert (0, "") == (process.returncode, err)
    with socket.socket() as probe:
        assert 0 != probe.connect_ex(("127.0.0.1", int(url.rpartition(":")[2])))


def test_once_without_a_directory() -> None:
    """No links to pages are printed when Phoenix and its database go at once."""
    with _start("--once") as process:
        out, err = process.communicate()
    assert (0, "") == (process.returncode, err)
    assert "Phoenix stops now, and its database goes with it. Without --once it stays up.\n" in out
    assert "/redirects/" not in out


@pytest.mark.parametrize(
    ("variable", "value", "switched"),
    [
        ("AGUI_OTEL_DISABLED", "true", "tracing is switched off by AGUI_OTEL_DISABLED"),
        ("OTEL_SDK_DISABLED", "true", "tracing is switched off by OTEL_SDK_DISABLED"),
        ("OTEL_TRACES_EXPORTER", "none", "the sending of traces is switched off by OTEL_TRACES_EXPORTER=none"),
    ],
)
def test_switched_off(
    command: Command, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, switched: str
) -> None:
    """Where nothing would be traced that is said before Phoenix is started, with status 2."""
    monkeypatch.setenv(variable, value)
    assert (2, "", f"agui-otel: {switched}: unset it\n") == command("demo", "--once")


@pytest.mark.parametrize(("ending", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_stopped_at_the_start(tmp_path: Path, ending: signal.Signals, status: int) -> None:
    """Stopped while Phoenix starts, the command stops it."""
    with _start("--dir", str(tmp_path)) as process:
        while not (servers := servers_in(tmp_path)):
            time.sleep(0.05)
        process.send_signal(ending)
        _, err = process.communicate()
    assert (status, "") == (process.returncode, err)
    assert 1 == len(servers)
    assert [] == servers_in(tmp_path)


def test_links() -> None:
    """Links lead to Phoenix's redirects, with ids escaped."""
    assert "http://p/redirects/traces/0af7" == trace_url("http://p/", "0af7")
    assert "http://p/redirects/sessions/a%2Fb%20c" == session_url("http://p", "a/b c")


def test_not_installed(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Phoenix the status is 2, and the message is the command that installs it."""

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(phoenix, "version", missing)
    ran = command("demo", "--once")
    assert (2, "agui-otel: Phoenix is not installed. Install it with: pip install 'arize-phoenix>=20'\n") == (
        ran.status,
        ran.err,
    )


def test_port_is_taken(command: Command) -> None:
    """A port that was asked for and is taken is status 2."""
    services.require(_is_installed(), "arize-phoenix")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ran = command("demo", "--once", "--port", port)
    assert (2, f"agui-otel: port {port} is taken\n") == (ran.status, ran.err)
