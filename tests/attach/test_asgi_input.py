"""Bad input, in the request and in the response: it passes, memory stays bounded, a violation says what was seen."""

from __future__ import annotations

import asyncio
import json
import struct
import tracemalloc
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from starlette.responses import JSONResponse

from agui_otel import Settings, TracingMiddleware
from tests.attach.test_asgi import PROTO, call, serving
from tests.support.servers import SSE, ask, served, sse, streaming
from tests.support.sources import DONE, INPUT, RUN, WHOLE
from tests.support.watched import Watched, values

MIB = 1024 * 1024


def violations(watched: Watched) -> list[str]:
    """What the violations on the only run say."""
    return [
        str((event.attributes or {})["agui.message"]) for event in watched.run.events if event.name == "agui.violation"
    ]


def sending(chunks: Iterable[bytes], media: str = SSE) -> Any:
    """An application that sends these chunks, and keeps none."""

    async def app(_: Any, receive: Any, send: Any) -> None:
        await receive()
        headers = [(b"content-type", media.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return app


async def _drop(_: Any) -> None:
    """Send nowhere."""


def drive(app: Any, body: bytes) -> int:
    """Call an application with one request; the bytes of memory that it took at most."""

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", b"application/json")]}
    tracemalloc.start()
    try:
        asyncio.run(app(scope, receive, _drop))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


TOO_LARGE = "too large: more than 10485760 bytes"
CUT = "cut off in the middle of an event"


@pytest.mark.parametrize(
    ("media", "start", "said"),
    [
        (SSE, b"data: ", TOO_LARGE),
        (SSE, b"", CUT),
        (SSE, b'{"type": "', CUT),
        ("application/x-ndjson", b'{"type": "', TOO_LARGE),
    ],
)
def test_a_body_without_an_end_of_event_is_bounded(watched: Watched, media: str, start: bytes, said: str) -> None:
    """A gigabyte would be no other: no more than one event's limit is held."""

    def body() -> Iterator[bytes]:
        yield start
        chunk = b"x" * MIB
        for _ in range(200):
            yield chunk

    peak = drive(TracingMiddleware(sending(body(), media), **watched.keywords), json.dumps(INPUT).encode())
    assert peak < 40 * MIB
    watched.check()
    assert "unfinished" == values(watched.run)["agui.outcome"]
    assert [said] == violations(watched)


def test_an_event_that_is_too_large_is_passed_and_left_out(watched: Watched) -> None:
    """The events around it are read."""
    huge = {"type": "CUSTOM", "name": "huge", "value": "x" * (10 * MIB)}
    body = sse([RUN, huge, DONE])
    with serving(streaming([body[at : at + 65_536] for at in range(0, len(body), 65_536)]), watched) as port:
        assert body == ask(port).body
    watched.check()
    assert [TOO_LARGE] == violations(watched)
    assert "success" == values(watched.run)["agui.outcome"]


@pytest.mark.parametrize(
    ("media", "piece", "said"),
    [
        (SSE, b'data: {"type": "TEXT_MESSAGE_CONTENT", "delta": "\xff"}\n\n', "not UTF-8 (at byte 43)"),
        (SSE, b"data: " + b"[" * 200_000 + b"\n\n", "nested too deeply"),
        (SSE, b"data: {]\n\n", "not JSON (at character 1)"),
        ("application/x-ndjson", b"\x00\x01\n", "not JSON (at character 0)"),
        ("application/x-ndjson", b"data: {}\n", "not JSON (at character 0)"),
    ],
)
def test_what_cannot_be_read_is_a_violation(watched: Watched, media: str, piece: bytes, said: str) -> None:
    """In the middle of a stream, and as its beginning: after a RunAgentInput it is a defect of the stream."""
    rest = sse([RUN, DONE]) if media == SSE else b"\n".join(json.dumps(event).encode() for event in (RUN, DONE))
    with serving(streaming([piece + rest], media=media), watched) as port:
        assert piece + rest == ask(port).body
    watched.check()
    assert [said] == violations(watched)
    assert "success" == values(watched.run)["agui.outcome"]


@pytest.mark.parametrize(
    ("media", "body"),
    [
        (PROTO, struct.pack(">I", 4_000_000_000) + b"x" * MIB),
        (PROTO, sse(WHOLE)),
        ("application/x-ndjson", sse(WHOLE)),
        ("application/x-ndjson", b"\x00" * 1000),
    ],
)
def test_a_false_content_type_is_a_violation(watched: Watched, media: str, body: bytes) -> None:
    """The body is not what its type says, and passes."""
    with serving(streaming([body], media=media), watched) as port:
        assert body == ask(port).body
    watched.check()
    assert violations(watched)
    assert "unfinished" == values(watched.run)["agui.outcome"]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_a_false_content_encoding_is_a_violation(watched: Watched, encoding: str) -> None:
    """Also one that is not read here."""
    endpoint = streaming([b"no such format"] * 3, headers={"content-encoding": encoding})
    with serving(endpoint, watched) as port:
        assert b"no such format" * 3 == ask(port).body
    watched.check()
    said = (
        "compressed with zstd, which is not read here" if encoding == "zstd" else f"cut off: the body is not {encoding}"
    )
    assert [said] == violations(watched)


async def length_of(request: Any) -> Any:
    """An endpoint that says how long its request is."""
    return JSONResponse(len(await request.body()))


def test_a_request_over_the_limit_is_not_read_ahead(watched: Watched) -> None:
    """It reaches the application whole; the run is that of the stream."""
    config = Settings(max_event_bytes=1024)
    big = {**INPUT, "state": {"text": "x" * 2000}}

    async def chunked(scope: Any, receive: Any, send: Any) -> None:
        scope["headers"] = [(key, value) for key, value in scope["headers"] if key != b"content-length"]
        await TracingMiddleware(streaming_app, **{**watched.keywords, "config": config})(scope, receive, send)

    sizes: list[int] = []

    async def streaming_app(scope: Any, receive: Any, send: Any) -> None:
        del scope
        size = 0
        while (message := await receive())["type"] == "http.request":
            size += len(message["body"])
            if not message["more_body"]:
                break
        sizes.append(size)
        await sending([sse(WHOLE)])({}, lambda: asyncio.sleep(0), send)

    for app in (TracingMiddleware(streaming_app, **{**watched.keywords, "config": config}), chunked):
        with served(app) as port:
            assert sse(WHOLE) == ask(port, big).body
    assert [len(json.dumps(big))] * 2 == sizes
    watched.check()
    assert [None, None] == [values(run).get("input.value") for run in watched.runs]
    assert ["success", "success"] == [values(run)["agui.outcome"] for run in watched.runs]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[1, 2]",
        b'{"threadId": 1, "runId": "r", "messages": []}',
        b'{"threadId": "t", "runId": "r", "messages": {}}',
        b'{"threadId": "t", "runId": "r", "messages": [',
        b'{"threadId": "t", "runId": "\xff", "messages": []}',
        b'{"threadId": "t", "runId": "r"}',
        b'{"threadId":' * 5000 + b'"runId" "messages"',
    ],
)
def test_what_is_no_input_starts_no_run(watched: Watched, body: bytes) -> None:
    """It is the application's to refuse."""
    with serving(length_of, watched) as port:
        assert str(len(body)).encode() == ask(port, body).body
    assert () == watched.captured.spans


def test_a_client_that_waits_for_leave_is_not_told_by_us(watched: Watched) -> None:
    """`Expect: 100-continue` is the application's to answer: nothing is read ahead."""
    asked: list[str] = []

    async def app(_: Any, receive: Any, send: Any) -> None:
        del receive
        asked.append("app")
        await send({"type": "http.response.start", "status": 401, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Any:
        asked.append("body")
        return {"type": "http.disconnect"}

    scope = {
        "type": "http", "method": "POST", "path": "/",
        "headers": [(b"content-type", b"application/json"), (b"expect", b"100-continue")],
    }  # fmt: skip
    asyncio.run(TracingMiddleware(app, **watched.keywords)(scope, receive, _drop))
    assert ["app"] == asked


def test_a_server_that_fails_fails_in_the_application(watched: Watched) -> None:
    """What the server's receive raises is raised where the application asks."""
    caught: list[Exception] = []
    error = RuntimeError("broken pipe")

    async def app(_: Any, receive: Any, send: Any) -> None:
        del send
        try:
            await receive()
        except RuntimeError as raised:
            caught.append(raised)

    async def receive() -> Any:
        raise error

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", b"application/json")]}
    asyncio.run(TracingMiddleware(app, **watched.keywords)(scope, receive, _drop))
    assert [error] == caught


def test_other_protocols_pass(watched: Watched) -> None:
    """Websockets and lifespans are none of ours."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        del receive, send
        seen.append(scope)

    middleware = TracingMiddleware(app, **watched.keywords)
    nothing: Any = _drop
    for kind in ("websocket", "lifespan"):
        asyncio.run(middleware({"type": kind}, nothing, nothing))
    assert [{"type": "websocket"}, {"type": "lifespan"}] == seen


def test_memoryviews_and_bytearrays_are_bodies(watched: Watched) -> None:
    """Whatever holds bytes is passed on itself."""
    parts: list[Any] = [bytearray(sse([RUN])), memoryview(sse([DONE]))]
    sent = call(TracingMiddleware(sending(parts), **watched.keywords), INPUT)
    assert all(part is message["body"] for part, message in zip(parts, sent[1:], strict=False))
    assert "success" == values(watched.run)["agui.outcome"]
