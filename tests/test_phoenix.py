"""The embedded Phoenix and the reader of its REST API."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from agui_otel import phoenix
from agui_otel.phoenix import EmbeddedPhoenix, PhoenixClient, PhoenixError
from tests.support import services
from tests.support.processes import servers_in
from tests.support.servers import in_background


def _is_installed() -> bool:
    try:
        return bool(version("arize-phoenix"))
    except PackageNotFoundError:
        return False


@contextmanager
def _answering(*, status: int = 200, body: bytes | None = None) -> Iterator[tuple[str, list[str]]]:
    """A server with three spans in pages of two; its URL and the paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            query = parse_qs(urlsplit(self.path).query)
            page: dict[str, Any] = {"data": [{"n": 3}], "next_cursor": None}
            if "cursor" not in query:
                page = {"data": [{"n": 1}, {"n": 2}], "next_cursor": "c/2"}
            content = json.dumps(page).encode() if body is None else body
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Nothing on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with in_background(server):
        yield f"http://127.0.0.1:{server.server_port}", asked


def test_all_pages() -> None:
    """The reader follows the cursor to the last page, and escapes names."""
    with _answering() as (url, asked):
        assert [{"n": 1}, {"n": 2}, {"n": 3}] == PhoenixClient(url + "/").spans("a/b", trace_ids=["1", "2"])
    assert [
        "/v1/projects/a%2Fb/spans?limit=1000&trace_id=1&trace_id=2",
        "/v1/projects/a%2Fb/spans?limit=1000&trace_id=1&trace_id=2&cursor=c%2F2",
    ] == asked


def test_traces_and_sessions() -> None:
    """Traces and sessions are read likewise."""
    with _answering() as (url, asked):
        client = PhoenixClient(url)
        assert 3 == len(client.traces("p")) == len(client.sessions("p"))
    assert ["/v1/projects/p/traces?limit=1000", "/v1/projects/p/sessions?limit=1000"] == [asked[0], asked[2]]


def test_waiting() -> None:
    """Waiting returns what has arrived, or says how much is missing."""
    with _answering() as (url, _):
        client = PhoenixClient(url)
        assert 3 == len(client.wait_for_spans("p", 3)) == len(client.wait_for_traces("p", 2))
        with pytest.raises(PhoenixError, match=r"after 0\.2 s there are 3 of 4 spans in p"):
            client.wait_for_spans("p", 4, timeout=0.2)


def test_unknown_project() -> None:
    """A project that Phoenix does not know yet is empty; a server that knows no projects is no Phoenix."""
    with _answering(status=404, body=b"no such project") as (url, _):
        assert [] == PhoenixClient(url).spans("p")
        with pytest.raises(PhoenixError, match="does not answer as Phoenix does"):
            PhoenixClient(url).ping()


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [(500, b"broken", "answered 500: broken"), (200, b"<html>", "does not answer as Phoenix does")],
)
def test_wrong_answers(status: int, body: bytes, message: str) -> None:
    """What is no answer of Phoenix's is an error that says so."""
    with _answering(status=status, body=body) as (url, _), pytest.raises(PhoenixError, match=message):
        PhoenixClient(url).spans("p")


def test_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody there is an error, at once; a proxy of the environment is not asked about this machine."""
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:9")
    with pytest.raises(PhoenixError, match=r"http://127\.0\.0\.1:1 does not answer: "):
        PhoenixClient("http://127.0.0.1:1").ping()


def test_ports() -> None:
    """The usual port is taken where it is free, another where it is not, and never one twice."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = phoenix._port(None, port)
        assert port != found
        with pytest.raises(PhoenixError, match=f"port {port} is taken"):
            phoenix._port(port, port)
    assert port == phoenix._port(None, port)
    assert port != phoenix._port(None, port, but=port)


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes over no Phoenix variable: it cannot write into a database of the user's."""
    monkeypatch.setenv("PHOENIX_SQL_DATABASE_URL", "postgresql://production")
    monkeypatch.setenv("PHOENIX_ENABLE_AUTH", "true")
    environment = phoenix._environment(Path("/here"), 1, 2)
    assert "sqlite:////here/phoenix.db" == environment["PHOENIX_SQL_DATABASE_URL"]
    assert "PHOENIX_ENABLE_AUTH" not in environment
    assert "127.0.0.1" == environment["PHOENIX_HOST"]
    assert os.environ["PATH"] == environment["PATH"]


FAKE = """
import http.server, os, signal, sys, time
mode, port = os.environ["FAKE_MODE"], int(os.environ["PHOENIX_PORT"])
if mode == "broken":
    print("\\n".join(f"line {number}" for number in range(40)))
    sys.exit(3)
if mode == "taken" and port == int(os.environ["FAKE_USUAL"]):
    sys.exit("error while attempting to bind on address: address already in use")
if mode == "silent":
    time.sleep(600)
if mode == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if mode == "unready" and time.monotonic() < began + 0.5 else 200)
        self.end_headers()
began = time.monotonic()
server = http.server.HTTPServer(("127.0.0.1", port), Handler)
print(f"INFO: Uvicorn running on http://127.0.0.1:{port}", flush=True)
server.serve_forever()
"""
"""A server that behaves as Phoenix does when it starts, as far as `EmbeddedPhoenix` looks."""


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The fake instead of Phoenix; which one, `FAKE_MODE` says."""
    monkeypatch.setattr(phoenix, "_SERVER", (sys.executable, "-c", FAKE))
    monkeypatch.setattr(phoenix, "_require_installed", lambda: None)
    monkeypatch.setenv("FAKE_MODE", "good")
    return monkeypatch


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.usefixtures("fake")
def test_starts_and_stops() -> None:
    """The server is up inside the block, and gone after it, with its temporary directory; stopping twice is fine."""
    with EmbeddedPhoenix() as server:
        process = server._process
        assert process is not None
        directory = Path(str(server._temporary))
        assert (None, True) == (process.poll(), directory.is_dir())
        assert "Uvicorn running on " + server.url in server.log_tail()
    assert (False, False) == (_exists(process.pid), directory.exists())
    server.stop()


@pytest.mark.usefixtures("fake")
def test_directory_is_kept(tmp_path: Path) -> None:
    """A directory that was given is made, used and kept."""
    with EmbeddedPhoenix(tmp_path / "new"):
        pass
    assert (tmp_path / "new" / "phoenix.log").is_file()


@pytest.mark.usefixtures("fake")
def test_stops_on_an_exception() -> None:
    """An exception in the block stops the server."""
    processes = []

    def interrupted() -> None:
        with EmbeddedPhoenix() as server:
            processes.append(server._process)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [-signal.SIGTERM] == [process and process.returncode for process in processes]


def test_does_not_obey(fake: pytest.MonkeyPatch) -> None:
    """A server that does not obey is killed."""
    fake.setenv("FAKE_MODE", "stubborn")
    fake.setattr(phoenix, "_STOP_SECONDS", 0.2)
    with EmbeddedPhoenix() as server:
        process = server._process
    assert process is not None
    assert -signal.SIGKILL == process.returncode


def test_is_not_ready_at_once(fake: pytest.MonkeyPatch) -> None:
    """An error is answered first. From Python 3.14 on, one whose answer nobody closes is a warning."""
    fake.setenv("FAKE_MODE", "unready")
    with EmbeddedPhoenix() as server:
        gc.collect()
        with phoenix._opener(server.url).open(server.url) as answer:
            assert 200 == answer.status


def test_does_not_come_up(fake: pytest.MonkeyPatch) -> None:
    """A server that does not come up in time is stopped, and its directory removed."""
    fake.setenv("FAKE_MODE", "silent")
    server = EmbeddedPhoenix(timeout=0.3)
    with pytest.raises(PhoenixError, match=r"Phoenix did not answer within 0\.3 s"):
        server.start()
    assert not server._log.parent.exists()


def test_says_why_it_ended(fake: pytest.MonkeyPatch) -> None:
    """A server that ends while it starts is an error with its status and the last lines of its log."""
    fake.setenv("FAKE_MODE", "broken")
    with pytest.raises(PhoenixError) as caught:
        EmbeddedPhoenix().start()
    first, *lines = str(caught.value).splitlines()
    assert "Phoenix ended while it started, with status 3." == first
    assert [f"line {number}" for number in range(10, 40)] == lines


def test_port_is_lost(fake: pytest.MonkeyPatch) -> None:
    """A port that somebody takes before the server does is replaced; one that was asked for is an error."""
    usual = phoenix._port(None, 0)
    fake.setattr(phoenix, "HTTP_PORT", usual)
    fake.setenv("FAKE_MODE", "taken")
    fake.setenv("FAKE_USUAL", str(usual))
    with EmbeddedPhoenix() as server:
        assert server.url != f"http://127.0.0.1:{usual}"
    with pytest.raises(PhoenixError, match="address already in use"):
        EmbeddedPhoenix(port=usual).start()


def test_another_server_answers(fake: pytest.MonkeyPatch) -> None:
    """An answer from another server, on a port that ours is about to find taken, is not taken for ours."""
    fake.setenv("FAKE_MODE", "silent")
    with _answering() as (url, asked):
        fake.setattr(phoenix, "_is_free", lambda _: True)
        server = EmbeddedPhoenix(port=urlsplit(url).port, timeout=0.5)
        with pytest.raises(PhoenixError, match="did not answer"):
            server.start()
    assert [] == asked


def test_wrong_directory() -> None:
    """A directory that cannot be made is an error that names it."""
    services.require(_is_installed(), "arize-phoenix")
    with pytest.raises(PhoenixError, match=r"Phoenix cannot run: .*/dev/null/x"):
        EmbeddedPhoenix("/dev/null/x").start()


def test_ends_with_its_parent(tmp_path: Path) -> None:
    """The real server ends also when the process that started it is killed."""
    services.require(_is_installed(), "arize-phoenix")
    code = (
        "import sys; from agui_otel.phoenix import EmbeddedPhoenix; server = EmbeddedPhoenix(sys.argv[1]); "
        "sys.stdin.close(); server.start()"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)]) as parent:
        pid = _wait_for(lambda: servers_in(tmp_path))[0]
        parent.kill()
    _wait_for(lambda: not _exists(pid))


def _wait_for(condition: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found
