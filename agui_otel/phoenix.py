"""An embedded Phoenix, and a small reader of Phoenix's REST API.

`EmbeddedPhoenix` runs the installed `arize-phoenix` in a process of its own, on SQLite, reachable from this
machine only. `python -m agui_otel.phoenix` is that process: Phoenix's server, which also ends when the
process that started it is gone, in whatever way that ended.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import OpenerDirector, ProxyHandler, Request, build_opener

from agui_otel.errors import AguiOtelError

INSTALL = "pip install 'arize-phoenix>=20'"
"""The command that installs Phoenix beside this package, as its extra `demo` does."""

HTTP_PORT = 6006

_SERVER = (sys.executable, "-m", "agui_otel.phoenix")
_HOST = "127.0.0.1"
_PAGE = 1000
_LOG_LINES = 30
_LISTENING = "Uvicorn running on"
"""What the server logs once its port is its own."""
_PORT_TAKEN = ("address already in use", "failed to bind")
"""What it logs, in lower case, where a port is somebody else's."""
_STOP_SECONDS = 10.0


class PhoenixError(AguiOtelError):
    """Phoenix is not installed, did not start, does not answer, or has not got what was waited for."""


class _PortTakenError(PhoenixError):
    """The server found a port taken that was free before."""


def trace_url(url: str, trace_id: str) -> str:
    """Return the page of a trace (`trace_id` in 32 hex digits) in the Phoenix at `url`."""
    return f"{url.rstrip('/')}/redirects/traces/{quote(trace_id, safe='')}"


def session_url(url: str, session_id: str) -> str:
    """Return the page of a session (`session.id`, which is AG-UI's thread) in the Phoenix at `url`."""
    return f"{url.rstrip('/')}/redirects/sessions/{quote(session_id, safe='')}"


class EmbeddedPhoenix:
    """A Phoenix server for as long as the `with` block lasts.

    `directory` keeps its database (and `phoenix.log`); None is a temporary one that goes with it. `port` and
    `grpc_port` are asked for as they are; None takes 6006, or a free one where that is taken, and a free one for gRPC.
    `timeout` (seconds) bounds the start, which takes 10 to 30 s: Phoenix migrates its database first.

    The server takes no `PHOENIX_*` variables over from this environment, asks nothing of the internet, and
    runs no assistant. `start` raises `PhoenixError` with the last lines of its log when it does not come up.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        port: int | None = None,
        grpc_port: int | None = None,
        timeout: float = 120.0,
    ) -> None:
        self._given = Path(directory).absolute() if directory is not None else None
        self._ports = (port, grpc_port)
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._temporary: str | None = None
        self._log = Path()
        self.url = ""
        """Where its pages, its REST API and OTLP over HTTP (`/v1/traces`) are, once it has started."""
        self.grpc_endpoint = ""
        """Where OTLP over gRPC is, once it has started."""

    def start(self) -> EmbeddedPhoenix:
        """Start the server and wait until it answers."""
        _require_installed()
        atexit.register(self.stop)
        try:
            directory = self._make_directory()
            try:
                self._launch(directory, HTTP_PORT)
            except _PortTakenError:
                # Somebody took a port between our look and the server's own attempt.
                self._end()
                self._launch(directory, 0)
        except OSError as error:
            self.stop()
            raise PhoenixError(f"Phoenix cannot run: {error}") from error
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the server, and remove its directory if that was a temporary one. May be called again."""
        atexit.unregister(self.stop)
        self._end()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            finally:
                process.stdin.close()

    def __enter__(self) -> EmbeddedPhoenix:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def log_tail(self, lines: int = _LOG_LINES) -> str:
        """Return the last lines of the server's log."""
        try:
            text = self._log.read_text("utf-8", "replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _make_directory(self) -> Path:
        directory = self._given
        if directory is None:
            self._temporary = tempfile.mkdtemp(prefix="agui-otel-phoenix-")
            directory = Path(self._temporary)
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def _launch(self, directory: Path, usual_port: int) -> None:
        port = _port(self._ports[0], usual_port)
        grpc_port = _port(self._ports[1], 0, but=port)
        self.url = f"http://{_HOST}:{port}"
        self.grpc_endpoint = f"http://{_HOST}:{grpc_port}"
        self._log = directory / "phoenix.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                _SERVER,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=_environment(directory, port, grpc_port),
                start_new_session=True,
            )
        self._wait_until_healthy(self._process)

    def _wait_until_healthy(self, process: subprocess.Popen[bytes]) -> None:
        opener = _opener(self.url)
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            code = process.poll()
            if code is not None:
                log = self.log_tail(1000).lower()
                taken = self._ports == (None, None) and any(sign in log for sign in _PORT_TAKEN)
                kind = _PortTakenError if taken else PhoenixError
                raise kind(f"Phoenix ended while it started, with status {code}.\n{self.log_tail()}")
            # The answer may be another server's, whose port ours is about to find taken.
            if _LISTENING in self.log_tail(1000) and _is_healthy(opener, self.url):
                return
            time.sleep(0.1)
        raise PhoenixError(f"Phoenix did not answer within {self._timeout:g} s.\n{self.log_tail()}")


class PhoenixClient:
    """Reads what has arrived in the Phoenix at `url`. Raises `PhoenixError` when it does not answer as it
    should.

    A project that Phoenix does not know yet is empty: it appears with its first span. `timeout` in seconds,
    for one request. `api_key` is for a Phoenix with authentication.
    """

    def __init__(self, url: str, *, api_key: str | None = None, timeout: float = 30.0) -> None:
        self.url = url.rstrip("/")
        self._opener = _opener(url)
        self._timeout = timeout
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}

    def ping(self) -> None:
        """Raise `PhoenixError` where no Phoenix answers."""
        if self._get("/v1/projects?limit=1") is None:
            raise PhoenixError(f"{self.url} does not answer as Phoenix does")

    def spans(self, project: str, *, trace_ids: Collection[str] = ()) -> list[dict[str, Any]]:
        """Return the spans of a project, of these traces or of all, newest first."""
        return list(self._pages(project, "spans", [("trace_id", trace_id) for trace_id in trace_ids]))

    def traces(self, project: str) -> list[dict[str, Any]]:
        """Return the traces of a project, newest first, without their spans."""
        return list(self._pages(project, "traces", []))

    def sessions(self, project: str) -> list[dict[str, Any]]:
        """Return the sessions of a project with the traces of each."""
        return list(self._pages(project, "sessions", []))

    def wait_for_spans(
        self, project: str, count: int, *, trace_ids: Collection[str] = (), timeout: float = 60.0
    ) -> list[dict[str, Any]]:
        """Wait until a project has `count` spans (of these traces); return them. Phoenix stores
        asynchronously.

        Raises `PhoenixError` when they have not arrived within `timeout` seconds.
        """
        return _wait(lambda: self.spans(project, trace_ids=trace_ids), count, f"spans in {project}", timeout)

    def wait_for_traces(self, project: str, count: int, *, timeout: float = 60.0) -> list[dict[str, Any]]:
        """Wait until a project has `count` traces; return them. Like `wait_for_spans`."""
        return _wait(lambda: self.traces(project), count, f"traces in {project}", timeout)

    def _pages(self, project: str, what: str, parameters: list[tuple[str, str]]) -> Iterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            query = [("limit", str(_PAGE)), *parameters, *([("cursor", cursor)] if cursor else [])]
            page = self._get(f"/v1/projects/{quote(project, safe='')}/{what}?{urlencode(query)}")
            if page is None:
                return
            yield from page["data"]
            cursor = page.get("next_cursor")
            if not cursor:
                return

    def _get(self, path: str) -> dict[str, Any] | None:
        try:
            request = Request(self.url + path, headers=self._headers)
            with self._opener.open(request, timeout=self._timeout) as answer:
                value: dict[str, Any] = json.loads(answer.read())
                return value
        except HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                reason = error.read(200).decode("utf-8", "replace")
                raise PhoenixError(f"{self.url} answered {error.code}: {reason}") from None
        except (URLError, OSError) as error:
            raise PhoenixError(f"{self.url} does not answer: {getattr(error, 'reason', error)}") from error
        except ValueError as error:
            raise PhoenixError(f"{self.url} does not answer as Phoenix does: {error}") from error


def _wait(read: Callable[[], list[dict[str, Any]]], count: int, what: str, timeout: float) -> list[dict[str, Any]]:
    deadline = time.monotonic() + timeout
    while True:
        found = read()
        if len(found) >= count:
            return found
        if time.monotonic() > deadline:
            raise PhoenixError(f"after {timeout:g} s there are {len(found)} of {count} {what}")
        time.sleep(0.1)


def _is_healthy(opener: OpenerDirector, url: str) -> bool:
    try:
        with opener.open(f"{url}/healthz", timeout=2) as answer:
            return bool(answer.status == 200)
    except HTTPError as error:
        error.close()
    except OSError:
        pass
    return False


def _opener(url: str) -> OpenerDirector:
    """What opens a URL: not through a proxy of the environment where it leads to this machine."""
    local = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
    return build_opener(ProxyHandler({})) if local else build_opener()


def _require_installed() -> None:
    try:
        version("arize-phoenix")
    except PackageNotFoundError:
        raise PhoenixError(f"Phoenix is not installed. Install it with: {INSTALL}") from None


def _port(asked: int | None, usual: int, *, but: int | None = None) -> int:
    """The port that was asked for, else the usual one, else any that is free."""
    if asked is not None:
        if not _is_free(asked):
            raise PhoenixError(f"port {asked} is taken")
        return asked
    if usual and usual != but and _is_free(usual):
        return usual
    while True:
        with socket.socket() as probe:
            probe.bind((_HOST, 0))
            found: int = probe.getsockname()[1]
        if found != but:
            return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        if probe.connect_ex((_HOST, port)) == 0:
            return False
    with socket.socket() as probe:
        if os.name == "posix":
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True


def _environment(directory: Path, port: int, grpc_port: int) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PHOENIX_")}
    environment.update(
        PHOENIX_WORKING_DIR=str(directory),
        PHOENIX_SQL_DATABASE_URL=f"sqlite:///{directory / 'phoenix.db'}",
        PHOENIX_HOST=_HOST,
        PHOENIX_PORT=str(port),
        PHOENIX_GRPC_PORT=str(grpc_port),
        PHOENIX_LOGGING_LEVEL="info",
        PHOENIX_TELEMETRY_ENABLED="false",
        PHOENIX_ALLOW_EXTERNAL_RESOURCES="false",
        PHOENIX_DISABLE_AGENT_ASSISTANT="true",
        PHOENIX_ENABLE_MCP_SERVER="false",
        PYTHONUNBUFFERED="1",
    )
    return environment


def _keep_grpc_here() -> None:
    """Phoenix would bind its gRPC port, which asks for no credentials, on every interface, whatever its host is."""
    import grpc.aio

    make = grpc.aio.server

    def server(*args: Any, **kwargs: Any) -> Any:
        made = make(*args, **kwargs)
        bind = made.add_insecure_port
        made.add_insecure_port = lambda address: bind(f"{_HOST}:{address.rpartition(':')[2]}")
        return made

    grpc.aio.server = server


def _serve() -> None:
    """Be the server: stop when the standard input, which the parent holds, is closed."""

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    _keep_grpc_here()
    from phoenix.server.main import main

    sys.argv = ["phoenix", "serve"]
    main()


if __name__ == "__main__":
    _serve()
