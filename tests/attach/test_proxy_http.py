"""HTTP through the proxy: methods, headers, bodies both ways at the slower side's pace, and what is answered here."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager

import pytest
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from agui_otel import TracingMiddleware
from agui_otel.attach.proxy import Proxy
from tests.attach.test_proxy import streaming_app
from tests.support.proxies import END, HEAD, chunked, facing, proxied, proxying, said
from tests.support.servers import JSON, ask, asking, eventually, free_port, served, sse, streaming
from tests.support.sources import RUN, WHOLE
from tests.support.watched import Alarm, Watched, values

MIB = 1024 * 1024


def test_headers_pass_both_ways(watched: Watched) -> None:
    """Duplicates and their order, cookies and unknown ones, whatever bytes they hold; not those of the connection."""
    answered = (
        b"HTTP/1.1 201 Made\r\nSet-Cookie: a=1\r\nX-Latin: \xe9\r\nset-cookie: b=2\r\nconnection: x-hop, close\r\n"
        b"x-hop: 1\r\nkeep-alive: timeout=5\r\nserver: theirs\r\ncontent-length: 2\r\n\r\nok"
    )
    asked = (
        b"GET /a%2Fb/../c?q=%20&r HTTP/1.1\r\nhost: public.example\r\nX-A: 1\r\nx-latin: \xe9\r\ncookie: c\r\n"
        b"x-a: 2\r\nconnection: close, x-hop\r\nx-hop: 1\r\n\r\n"
    )
    with facing(answered, watched) as (own, server):
        received = said(own, asked)
    head, _, body = received.partition(b"\r\n\r\n")
    assert [
        b"HTTP/1.1 201 Created", b"set-cookie: a=1", b"x-latin: \xe9", b"set-cookie: b=2", b"server: theirs",
        b"content-length: 2", b"connection: close",
    ] == head.split(b"\r\n")  # fmt: skip
    assert b"ok" == body
    assert [
        "GET /a%2Fb/../c?q=%20&r HTTP/1.1", f"host: {server.authority}", "x-a: 1", "x-latin: é", "cookie: c", "x-a: 2",
        "x-forwarded-for: 127.0.0.1", "x-forwarded-host: public.example", "x-forwarded-proto: http",
    ] == server.heads()[:-1]  # fmt: skip
    assert re.fullmatch(r"via: 1\.1 agui-otel-[0-9a-f]{16}", server.heads()[-1])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"GET http://evil.example:81/agent?x HTTP/1.1", "GET /agent?x HTTP/1.1"),
        (b"GET //evil.example/agent HTTP/1.1", "GET //evil.example/agent HTTP/1.1"),
        (b"OPTIONS * HTTP/1.1", "OPTIONS * HTTP/1.1"),
    ],
)
def test_no_request_chooses_its_server(watched: Watched, line: bytes, expected: str) -> None:
    """Neither by its target nor by its Host: it is the upstream that answers."""
    with facing(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", watched) as (own, server):
        received = said(own, line + b"\r\nhost: evil.example\r\nconnection: close\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 200 OK")
    assert [expected, f"host: {server.authority}"] == server.heads()[:2]


def test_a_base_path_is_not_left(watched: Watched) -> None:
    """It stands before every path; one that leads out of it is refused here."""
    with facing(b"HTTP/1.1 204 No Content\r\n\r\n", watched, base="/base/") as (own, server):
        assert 204 == ask(own, None, method="GET", path="/agent?x", headers={}).status
        refused = ask(own, None, method="GET", path="/%2e%2e/admin", headers={})
    assert (400, b"agui-otel proxy: the path leads out of /base\n") == (refused.status, refused.body)
    assert ["GET /base/agent?x HTTP/1.1"] == [head.partition(b"\r\n")[0].decode() for head in server.requests]


def test_responses_without_a_body(watched: Watched) -> None:
    """HEAD has a GET's headers; 204 and 304 end with their head."""
    answers = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\netag: a\r\ncontent-length: 1000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody",
    ]
    waiting = list(answers)
    with facing(lambda connection: connection.sendall(waiting.pop(0)), watched) as (own, _):
        head = ask(own, None, method="HEAD", headers={})
        others = [ask(own, None, method="GET", headers={}) for _ in range(3)]
    assert (200, "1000", b"") == (head.status, head.header("content-length"), head.body)
    assert [(204, b""), (304, b""), (200, b"body")] == [(answer.status, answer.body) for answer in others]
    assert "a" == others[1].header("etag")


def test_a_browser_may_ask(watched: Watched) -> None:
    """CORS is the upstream's: a preflight and its answer pass."""
    app = streaming_app(streaming([sse(WHOLE)]))
    app.add_middleware(CORSMiddleware, allow_origins=["http://app.example"], allow_methods=["POST"])
    asking_ = {"origin": "http://app.example", "access-control-request-method": "POST"}
    with proxied(app, watched) as port:
        preflight = ask(port, None, method="OPTIONS", headers=asking_)
        answer = ask(port, headers={**JSON, "origin": "http://app.example"})
    assert (200, "POST") == (preflight.status, preflight.header("access-control-allow-methods"))
    assert ["http://app.example"] * 2 == [told.header("access-control-allow-origin") for told in (preflight, answer)]
    assert 1 == len(watched.runs)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("length", [True, False], ids=["content-length", "chunked"])
def test_request_bodies_pass(watched: Watched, method: str, length: bool) -> None:
    """Of any size and any type, with the length that they came with, or none."""

    async def echo(request: Request) -> Response:
        return Response(await request.body(), headers={"x-length": request.headers.get("content-length", "none")})

    body = bytes(range(256)) * 10_000
    with (
        proxied(streaming_app(echo), watched) as port,
        closing(http.client.HTTPConnection("127.0.0.1", port)) as client,
    ):
        client.request(method, "/", body if length else iter([body[:10], body[10:]]), encode_chunked=not length)
        answer = client.getresponse()
        assert (body, str(len(body)) if length else "none") == (answer.read(), answer.getheader("x-length"))


@contextmanager
def between(watched: Watched) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a PUT that has begun, through the proxy: the client's connection and the upstream's."""
    with ExitStack() as stack:
        upstream = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        own = stack.enter_context(proxying(upstream.getsockname()[1], watched))
        client = stack.enter_context(socket.create_connection(("127.0.0.1", own)))
        client.sendall(b"PUT /file HTTP/1.1\r\nhost: x\r\ncontent-length: 999999999\r\nexpect: 100-continue\r\n\r\n")
        until(client, b"HTTP/1.1 100 Continue\r\n\r\n")
        client.sendall(b"begun")
        connection = stack.enter_context(upstream.accept()[0])
        until(connection, b"\r\n\r\nbegun")
        yield client, connection


def test_a_request_passes_as_it_is_sent(watched: Watched) -> None:
    """The upstream has the first part before the client sends the second."""
    with between(watched) as (client, connection):
        client.sendall(b"two")
        until(connection, b"two")


def until(connection: socket.socket, end: bytes) -> None:
    """Read a connection until what it sends ends so."""
    connection.settimeout(10)
    received = b""
    while not received.endswith(end):
        part = connection.recv(65536)
        assert part, received
        received += part


def sent_before_a_stall(connection: socket.socket) -> int:
    """How many bytes a connection takes whose other end reads nothing."""
    connection.settimeout(1)
    number = 0
    try:
        while number < 200 * MIB:
            number += connection.send(b"x" * 65536)
    except TimeoutError:
        pass
    return number


def test_a_slow_client_slows_the_upstream(watched: Watched) -> None:
    """What the client does not read is not read from the upstream."""
    sent: list[int] = []

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 999999999\r\n\r\n")
        sent.append(sent_before_a_stall(connection))

    with facing(answer, watched) as (own, _), asking(own, None, method="GET", headers={}):
        eventually(lambda: bool(sent), 30)
    assert sent[0] < 20 * MIB


def test_a_slow_upstream_slows_the_client(watched: Watched) -> None:
    """What the upstream does not read is not read from the client."""
    with between(watched) as (client, _):
        assert sent_before_a_stall(client) < 20 * MIB


def test_an_early_answer_is_passed(watched: Watched) -> None:
    """The upstream refuses a body before it has read it."""

    async def refuse(_: Request) -> Response:
        return Response("too large", 413)

    with proxied(streaming_app(refuse), watched) as own:
        answer = ask(own, b"x" * 5 * MIB, headers={})
    assert (413, b"too large") == (answer.status, answer.body)


def test_an_upstream_that_is_down_is_a_bad_gateway(watched: Watched) -> None:
    """The body names what was tried, without the query; the run has failed."""
    port = free_port()
    with proxying(port, watched) as own:
        answer = ask(own, path="/agent?key=secret")
    assert (502, "text/plain; charset=utf-8") == (answer.status, answer.header("content-type"))
    assert (
        f"agui-otel proxy: the upstream http://127.0.0.1:{port} takes no connection (Connection refused): is the agent "
        f"running there?\nTried: POST http://127.0.0.1:{port}/agent\n"
    ) == answer.body.decode()
    assert ("error", "502") == (values(watched.run)["agui.outcome"], values(watched.run)["error.type"])


@pytest.mark.parametrize(
    ("spoken", "found"),
    [
        (b"", "Server disconnected without sending a response."),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "illegal status line: bytearray(b'SSH-2.0-OpenSSH')"),
    ],
)
def test_an_upstream_that_gives_no_answer_is_a_bad_gateway(watched: Watched, spoken: bytes, found: str) -> None:
    """It hangs up, or speaks no HTTP."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(spoken)
        connection.shutdown(socket.SHUT_RDWR)

    with facing(answer, watched) as (own, server):
        told = ask(own)
    assert (502, f"agui-otel proxy: the upstream http://{server.authority} gave no answer: {found}") == (
        told.status, told.body.decode().partition("\n")[0]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("spoken", "found"),
    [
        (b"HTTP/1.1 600 Odd\r\ncontent-length: 2\r\n\r\nok", "its status is 600"),
        (b"HTTP/1.1 999 Odd\r\ncontent-length: 2\r\n\r\nok", "its status is 999"),
        (b"HTTP/1.1 200 OK\r\nx-a: a\x1bb\r\n\r\nok", "its header 'x-a' holds a control character"),
    ],
)
def test_an_answer_that_cannot_be_sent_is_a_bad_gateway(
    watched: Watched, heard: Alarm, spoken: bytes, found: str
) -> None:
    """No cut, and no traceback: the body says what is wrong with it."""
    with facing(spoken, watched) as (own, server):
        told = ask(own)
    wanted = f"agui-otel proxy: the upstream http://{server.authority} gave an answer that cannot be passed on: {found}"
    assert (502, wanted) == (told.status, told.body.decode().partition("\n")[0])
    assert ("error", "502") == (values(watched.run)["agui.outcome"], values(watched.run)["error.type"])
    assert [] == heard.messages


@pytest.mark.parametrize("length", [b"2", b"9999"])
def test_a_response_with_two_lengths_passes(watched: Watched, length: bytes) -> None:
    """Its chunks say where it ends."""
    head = HEAD.replace(b"\r\n\r\n", b"\r\ncontent-length: " + length + b"\r\n\r\n")
    with facing(head + chunked(sse(WHOLE)) + END, watched) as (own, _):
        answer = ask(own)
    assert (200, None, sse(WHOLE)) == (answer.status, answer.header("content-length"), answer.body)


@pytest.mark.parametrize("between", [0, 2])
def test_an_upstream_that_leads_back_is_a_loop(watched: Watched, between: int) -> None:
    """At once, or through other proxies: the request is told so, and goes round no further."""
    port = free_port()
    with ExitStack() as stack:
        following = port
        for _ in range(between):
            following = stack.enter_context(served(Proxy(f"http://127.0.0.1:{following}"), lifespan="on"))
        loop = Proxy(f"http://127.0.0.1:{following}")
        stack.enter_context(served(TracingMiddleware(loop, **watched.keywords), port=port, lifespan="on", ws="none"))
        answer = ask(port)
    assert 508 == answer.status
    assert f"agui-otel proxy: the upstream {loop.upstream} leads back to this proxy\n" == answer.body.decode()


def test_what_is_answered_here(watched: Watched) -> None:
    """Its own health, unless the upstream wants that path; and that it passes no websockets."""
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-key": "dGVzdA==",
               "sec-websocket-version": "13"}  # fmt: skip
    with facing(b"HTTP/1.1 204 No Content\r\n\r\n", watched) as (own, server):
        assert (200, b"ok\n") == ((found := ask(own, None, method="GET", path="/healthz")).status, found.body)
        refused = ask(own, None, method="GET", path="/ws", headers=upgrade)
        assert (501, b"agui-otel proxy passes no websockets") == (refused.status, refused.body.partition(b";")[0])
        assert [] == server.requests
        with served(Proxy(f"http://{server.authority}", health=None), lifespan="on") as other:
            assert 204 == ask(other, None, method="GET", path="/healthz").status


SMUGGLED = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nsmuggled"


@pytest.mark.parametrize(
    ("method", "head", "expected"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(SMUGGLED), b""),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 304 Not Modified\r\n\r\n", b""),
        ("GET", b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", b"ok"),
        ("GET", HEAD + chunked(b"ok") + END, b"ok"),
    ],
    ids=["HEAD", "204", "304", "content-length", "chunked"],
)
def test_nothing_of_one_answer_is_in_another(watched: Watched, method: str, head: bytes, expected: bytes) -> None:
    """An upstream sends more than its answer, at once with it: the next client gets its own."""
    waiting = [head + SMUGGLED, b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nown"]
    with facing(lambda connection: connection.sendall(waiting.pop(0)), watched) as (own, server):
        first = ask(own, None, method=method, headers={})
        second = ask(own, None, method="GET", headers={})
    assert (expected, b"own") == (first.body, second.body)
    assert (2, 2) == (len(server.requests), server.connections)


def test_connections_are_closed(watched: Watched) -> None:
    """Each when its answer has been passed, also those of many at once."""
    with facing(HEAD + chunked(sse([RUN])) + END, watched) as (own, server):
        with ThreadPoolExecutor(8) as threads:
            assert {sse([RUN])} == {answer.body for answer in threads.map(lambda _: ask(own), range(40))}
        eventually(lambda: server.closed == server.connections)
    assert (40, 40) == (len(server.requests), server.connections)


def test_informational_responses_are_no_answer(watched: Watched) -> None:
    """Early hints: the answer comes after them."""
    hints = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    answered = hints + b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
    with facing(answered, watched) as (own, _):
        assert (200, b"ok") == ((answer := ask(own, None, method="GET", headers={})).status, answer.body)
