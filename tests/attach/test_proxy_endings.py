"""Each way in which a run behind the proxy can end (trace model: outcomes), as its client and the upstream see it."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from starlette.responses import JSONResponse

from tests.attach.test_asgi_endings import command, ending
from tests.attach.test_proxy import streaming_app
from tests.support.proxies import END, HEAD, chunked, facing, proxied, proxying, raw, reset
from tests.support.receivers import Received, http_receiver
from tests.support.servers import ask, asking, eventually, forever, free_port, listens, sse, streaming
from tests.support.sources import FAILED, HALF, RUN, WHOLE
from tests.support.watched import Alarm, Watched, exceptions

BROKEN_OFF = "agui_otel.attach.proxy.UpstreamError"


@pytest.mark.parametrize("wait", [0.01, 0.1, 1.0])
def test_a_client_that_leaves_has_disconnected(watched: Watched, wait: float) -> None:
    """In mid-stream; the upstream sees it leave."""
    left = threading.Event()

    def answer(connection: socket.socket) -> None:
        connection.sendall(HEAD + chunked(sse(HALF)))
        assert connection.recv(1) == b""
        left.set()

    with facing(answer, watched) as (own, _):
        with asking(own) as response:
            assert response.read(10) == sse(HALF)[:10]
            time.sleep(wait)
        assert left.wait(10)
        eventually(lambda: bool(watched.runs))
    assert ("disconnected", None, None, "UNSET") == ending(watched)


def test_a_client_that_leaves_before_the_response_has_disconnected(watched: Watched) -> None:
    """While the upstream thinks; it sees it leave."""
    asked, left = threading.Event(), threading.Event()

    def answer(connection: socket.socket) -> None:
        asked.set()
        assert connection.recv(1) == b""
        left.set()

    with facing(answer, watched) as (own, _):
        client = http.client.HTTPConnection("127.0.0.1", own)
        client.request("POST", "/", b'{"threadId":"t","runId":"r","messages":[]}', {"content-type": "application/json"})
        assert asked.wait(10)
        client.close()
        assert left.wait(10)
        eventually(lambda: bool(watched.runs))
    assert ("disconnected", None, None, "UNSET") == ending(watched)


def test_a_client_that_leaves_in_its_request_has_sent_none(watched: Watched) -> None:
    """The upstream sees the request break off; nothing is traced, and nothing logged."""
    with socket.create_server(("127.0.0.1", 0)) as upstream, proxying(upstream.getsockname()[1], watched) as own:
        with socket.create_connection(("127.0.0.1", own)) as client:
            client.sendall(b"PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nhalf")
            connection, _ = upstream.accept()
            connection.settimeout(10)
        with connection:
            while connection.recv(65536):
                pass
    assert () == watched.captured.spans


def cut(connection: socket.socket) -> None:
    """Close a connection in the middle of a chunked body."""
    connection.close()


@pytest.mark.parametrize("end", [cut, reset])
def test_an_upstream_that_breaks_off_is_an_error(watched: Watched, heard: Alarm, end: Any) -> None:
    """Closed or reset: the client gets every byte that came before it, and then sees the cut."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(HEAD + chunked(sse(HALF)))
        time.sleep(0.2)
        end(connection)

    with facing(answer, watched) as (own, server), asking(own) as response:
        with pytest.raises(http.client.IncompleteRead) as caught:
            response.read()
        eventually(lambda: bool(watched.runs))
    assert sse(HALF) == caught.value.partial
    assert ("error", BROKEN_OFF, "own", "ERROR") == ending(watched)
    assert [BROKEN_OFF] == exceptions(watched.run)
    assert (watched.run.status.description or "").startswith(f"http://{server.authority} broke off its response: ")
    assert [] == heard.messages


def test_a_length_that_is_not_reached_is_an_error(watched: Watched) -> None:
    """The upstream said how long its body is, and closed before that."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 99999\r\n\r\n")
        connection.sendall(sse(HALF))
        connection.close()

    with facing(answer, watched) as (own, _), asking(own) as response:
        with pytest.raises(http.client.IncompleteRead) as caught:
            response.read()
        eventually(lambda: bool(watched.runs))
    assert sse(HALF) == caught.value.partial
    assert ("error", BROKEN_OFF, "own", "ERROR") == ending(watched)


def test_a_terminal_event_decides_before_the_upstream_breaks_off(watched: Watched) -> None:
    """The run had said how it ended."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(HEAD + chunked(sse([RUN, FAILED])))
        connection.close()

    with facing(answer, watched) as (own, _), asking(own) as response:
        with pytest.raises(http.client.IncompleteRead):
            response.read()
        eventually(lambda: bool(watched.runs))
    assert ("error", "broke", "own", "ERROR") == ending(watched)


@pytest.mark.parametrize(("status", "cause"), [(500, "own"), (422, "refused")])
def test_a_status_that_refuses_is_a_failed_run(watched: Watched, status: int, cause: str) -> None:
    """Before the first event; the upstream's answer passes."""

    async def refuse(_: Any) -> Any:
        return JSONResponse({"detail": "no"}, status)

    with proxied(streaming_app(refuse), watched) as own:
        answer = ask(own)
    assert (status, b'{"detail":"no"}') == (answer.status, answer.body)
    assert ("error", str(status), cause, "ERROR") == ending(watched)


UPSTREAM = "tests.attach.test_proxy_endings:upstream"


def upstream() -> Any:
    """An agent whose streams never end, for a process of its own."""
    return streaming_app(streaming([sse(HALF)], then=forever))


@contextmanager
def agent() -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """That agent as a process; its port."""
    port = free_port()
    with command("-m", "uvicorn", "--factory", UPSTREAM, "--port", str(port), variables={}) as process:
        eventually(lambda: listens(port), 30)
        yield port, process


def test_an_upstream_that_is_killed_is_an_error(watched: Watched) -> None:
    """SIGKILL in mid-stream."""
    with agent() as (port, process), proxying(port, watched) as own, asking(own) as response:
        assert sse(HALF) == response.read(len(sse(HALF)))
        process.kill()
        with pytest.raises(http.client.IncompleteRead):
            response.read()
        eventually(lambda: bool(watched.runs))
    assert ("error", BROKEN_OFF, "own", "ERROR") == ending(watched)


@contextmanager
def proxy_command(upstream_port: int, received: Received, *options: str) -> Iterator[tuple[int, Any]]:
    """`agui-otel proxy` as a process that exports to a receiver; its port."""
    port = free_port()
    place = ("--upstream", f"http://127.0.0.1:{upstream_port}", "--listen", f"127.0.0.1:{port}")
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": received.url, "OTEL_TRACES_EXPORTER": "otlp"}
    with command("-m", "agui_otel.cli.main", "proxy", *place, *options, variables=variables) as process:
        eventually(lambda: listens(port), 30)
        yield port, process


def exported(received: Received) -> dict[str, Span]:
    """The spans that a receiver was sent, by name."""
    return {
        span.name: span
        for request in received.traces
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    }


def told(span: Span) -> dict[str, str]:
    """What a span's attributes say, as far as they are texts."""
    return {item.key: item.value.string_value for item in span.attributes}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_proxy_that_is_stopped_lets_open_runs_end(number: int) -> None:
    """No new connection is taken; the run ends as it would have, and is exported without content; the status is 0."""
    stopped = threading.Event()

    def answer(connection: socket.socket) -> None:
        connection.sendall(HEAD + chunked(sse(HALF)))
        assert stopped.wait(10)
        connection.sendall(chunked(sse(WHOLE[len(HALF) :])) + END)

    with http_receiver() as received, raw(answer) as (port, _), proxy_command(port, received) as (own, process):
        with asking(own) as response:
            assert sse(HALF) == response.read(len(sse(HALF)))
            os.kill(process.pid, number)
            eventually(lambda: not listens(own))
            stopped.set()
            assert sse(WHOLE[len(HALF) :]) == response.read()
        assert 0 == process.wait(20)
    spans = exported(received)
    assert ("success", "success") == (told(spans["invoke_agent"])["agui.outcome"], outcome_of_the_call(spans))
    assert not [name for span in spans.values() for name in told(span) if name in ("input.value", "output.value")]


def test_a_proxy_that_is_stopped_cuts_what_does_not_end() -> None:
    """After the grace that it was given: the run is cancelled, and exported."""
    with (
        http_receiver() as received,
        agent() as (port, _),
        proxy_command(port, received, "--grace", "1") as (own, process),
        asking(own) as response,
    ):
        assert sse(HALF) == response.read(len(sse(HALF)))
        process.terminate()
        with pytest.raises(http.client.IncompleteRead):
            response.read()
        assert 0 == process.wait(20)
    spans = exported(received)
    assert ("cancelled", "aborted") == (told(spans["invoke_agent"])["agui.outcome"], outcome_of_the_call(spans))


def outcome_of_the_call(spans: dict[str, Span]) -> str:
    """That of the only tool call."""
    return told(spans["execute_tool search"])["agui.outcome"]
