"""Bad input through the proxy: it passes, memory stays bounded, a violation says what was seen."""

from __future__ import annotations

import http.client
import json
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response, StreamingResponse

from agui_otel import Settings, TracingMiddleware, setup
from agui_otel.attach.proxy import MAX_HEADER_BYTES
from tests.attach.test_asgi import PROTO
from tests.attach.test_asgi_endings import command
from tests.attach.test_asgi_input import MIB, TOO_LARGE, violations
from tests.attach.test_proxy import streaming_app
from tests.attach.test_proxy_endings import exported, proxy_command, told
from tests.support.proxies import facing, proxied, said
from tests.support.receivers import http_receiver
from tests.support.servers import JSON, SSE, ask, eventually, free_port, listens, sse, streaming
from tests.support.sources import DONE, INPUT, RUN, WHOLE
from tests.support.watched import Watched, values

HUGE = {"type": "CUSTOM", "name": "huge", "value": "x" * (10 * MIB)}


@pytest.mark.parametrize(
    ("media", "body", "said"),
    [
        (SSE, sse([RUN, HUGE, DONE]), TOO_LARGE),
        (SSE, sse([RUN]) + b"data: " + b"[" * 200_000 + b"\n\n" + sse([DONE]), "nested too deeply"),
        (SSE, sse([RUN]) + b'data: {"type": "RAW", "event": "\xff"}\n\n' + sse([DONE]), "not UTF-8 (at byte 26)"),
        (PROTO, sse(WHOLE), None),
        (PROTO, struct.pack(">I", 4_000_000_000) + b"x" * MIB, None),
        ("application/x-ndjson", sse(WHOLE), "not JSON (at character 0)"),
    ],
)
def test_bad_bodies_pass(watched: Watched, media: str, body: bytes, said: str | None) -> None:
    """A large event, deep and broken ones, a false content type, a frame that claims 4 GB."""
    chunks = [body[at : at + 65_536] for at in range(0, len(body), 65_536)]
    with proxied(streaming_app(streaming(chunks, media=media)), watched) as own:
        assert body == ask(own).body
    watched.check()
    assert said in (None, violations(watched)[0])
    assert ("success" if body.endswith(sse([DONE])) and media == SSE else "unfinished") == values(watched.run)[
        "agui.outcome"
    ]


@pytest.mark.parametrize("many", [1, 100])
def test_large_headers_are_refused(watched: Watched, many: int) -> None:
    """All of a request together, the upstream is not asked; with a byte less they pass."""
    body = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
    base = b"host: x\r\nconnection: close\r\n"
    room = MAX_HEADER_BYTES - len(b"hostxconnectionclose") - many * len(b"x-a")
    texts = [b"v" * (room // many)] * (many - 1)
    texts.append(b"v" * (room - sum(map(len, texts))))

    def asked(*more: bytes) -> bytes:
        lines = b"".join(b"x-a: " + value + b"\r\n" for value in [*texts[:-1], texts[-1] + b"".join(more)])
        return b"GET / HTTP/1.1\r\n" + base + lines + b"\r\n"

    with facing(body, watched) as (own, server):
        assert said(own, asked()).startswith(b"HTTP/1.1 200 OK")
        refused = said(own, asked(b"v"))
    assert b"HTTP/1.1 431 Request Header Fields Too Large" == refused.partition(b"\r\n")[0]
    assert b"agui-otel proxy: the headers have more than 65,536 bytes together\n" == refused.partition(b"\r\n\r\n")[2]
    assert 1 == len(server.requests)


def test_a_request_over_the_limit_passes(watched: Watched) -> None:
    """It is not read ahead: it reaches the upstream whole, and the run is that of the stream."""
    lengths: list[int] = []

    async def endpoint(request: Any) -> Response:
        lengths.append(len(await request.body()))
        return await streaming([sse(WHOLE)])(request)  # type: ignore[no-any-return]

    big = json.dumps({**INPUT, "state": {"text": "x" * 2 * MIB}}).encode()
    config = Settings(max_event_bytes=MIB)
    with proxied(streaming_app(endpoint), watched, config=config) as own:
        assert sse(WHOLE) == ask(own, big).body
        with closing(http.client.HTTPConnection("127.0.0.1", own)) as client:
            client.request("POST", "/", iter([big[:1000], big[1000:]]), JSON, encode_chunked=True)
            assert sse(WHOLE) == client.getresponse().read()
    watched.check()
    assert [len(big)] * 2 == lengths
    assert [("success", None)] * 2 == [
        (values(run)["agui.outcome"], values(run).get("input.value")) for run in watched.runs
    ]


GIGABYTE = 1024 * MIB
ENDLESS = "tests.attach.test_proxy_input:endless"


def endless() -> Any:
    """A traced application that answers with a gigabyte in which no event ends."""
    setup()

    async def endpoint(request: Any) -> Response:
        await request.body()

        async def body() -> Any:
            yield b"data: "
            for _ in range(GIGABYTE // MIB):
                yield b"x" * MIB

        return StreamingResponse(body(), media_type=SSE)

    return TracingMiddleware(streaming_app(endpoint), agent_name="middleware")


def memory_of(process: int, what: str) -> int:
    """A process's memory in bytes: `VmRSS` now, `VmHWM` at most so far."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(what)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of processes where Linux tells it")
def test_a_gigabyte_without_an_end_of_event_takes_no_memory() -> None:
    """Neither in a server with the middleware nor in the proxy before it: each grows by a few events' limit at most."""
    port = free_port()
    arguments = ("-m", "uvicorn", "--factory", ENDLESS, "--port", str(port))
    with http_receiver() as received:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": received.url, "OTEL_TRACES_EXPORTER": "otlp"}
        with command(*arguments, variables=variables) as server:
            eventually(lambda: listens(port), 30)
            with proxy_command(port, received, "--agent-name", "proxy") as (own, proxy):
                before = [memory_of(process.pid, "VmRSS") for process in (server, proxy)]
                assert len(b"data: ") + GIGABYTE == sum(map(len, body_of(own)))
                grown = [memory_of(process.pid, "VmHWM") for process in (server, proxy)]
                for process in (proxy, server):
                    process.terminate()
                    process.wait(20)
    assert [True, True] == [after - earlier < 64 * MIB for earlier, after in zip(before, grown, strict=True)]
    for name in ("middleware", "proxy"):
        run = exported(received)[f"invoke_agent {name}"]
        assert "unfinished" == told(run)["agui.outcome"]
        assert ["malformed_event"] == [
            item.value.string_value for event in run.events for item in event.attributes if item.key == "agui.rule"
        ]


def body_of(port: int) -> Iterator[bytes]:
    """The answer to a run, in pieces that are not kept."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as client:
        client.request("POST", "/", json.dumps(INPUT), JSON)
        response = client.getresponse()
        while piece := response.read(MIB):
            yield piece
