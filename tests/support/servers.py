"""ASGI servers on the loopback interface, and a client that sees every byte they send."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from random import SystemRandom
from socketserver import BaseServer
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

import anyio
import uvicorn
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tests.support.sources import INPUT

JSON = {"content-type": "application/json"}
SSE = "text/event-stream"


@contextmanager
def in_background(server: BaseServer) -> Iterator[None]:
    """Let a server of the standard library serve in a thread, until the block ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def served(app: Any, **options: Any) -> Iterator[int]:
    """Serve an ASGI application with uvicorn; the port."""
    config = uvicorn.Config(app, **{"host": "127.0.0.1", "port": 0, "log_config": None, "lifespan": "off", **options})
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until = time.monotonic() + 30
        while not server.started:
            assert time.monotonic() < until
            time.sleep(0.002)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@dataclass
class Answer:
    """A response, read to its end."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """The value of the only header of this name."""
        found = [value for key, value in self.headers if key.lower() == name]
        assert len(found) <= 1
        return found[0] if found else None


@contextmanager
def asking(
    port: int, body: Any = INPUT, *, method: str = "POST", path: str = "/agent", headers: Mapping[str, str] = JSON
) -> Iterator[http.client.HTTPResponse]:
    """Send a request; the response, of which nothing was read. Leaving closes the connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        sent = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, sent, dict(headers))
        yield connection.getresponse()
    finally:
        connection.close()


def ask(port: int, body: Any = INPUT, **options: Any) -> Answer:
    """Send a request and read the whole response."""
    with asking(port, body, **options) as response:
        return Answer(response.status, response.getheaders(), response.read())


def sse(events: Iterable[Any]) -> bytes:
    """Events as server-sent events."""
    return b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


Then = Callable[[], Any]


def streaming(
    chunks: Sequence[bytes], *, media: str = SSE, headers: Mapping[str, str] | None = None, then: Then | None = None
) -> Callable[[Request], Any]:
    """An endpoint that reads its request and streams these chunks; then it awaits `then()`, if there is one."""

    async def body() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk
        if then is not None:
            await then()

    async def endpoint(request: Request) -> Response:
        await request.body()
        return StreamingResponse(body(), media_type=media, headers=headers)

    return endpoint


async def forever() -> None:
    """Never return."""
    await anyio.sleep_forever()


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until it holds."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came to hold"
        time.sleep(0.005)


def answer_of(url: str) -> bytes | None:
    """What a server on this machine answers with a status below 400; None where it does not yet."""
    try:
        with _direct.open(url, timeout=2) as answer:
            return bytes(answer.read())
    except HTTPError as error:
        error.close()
    except OSError:
        pass
    return None


_direct = build_opener(ProxyHandler({}))


def free_port() -> int:
    """A TCP port of this machine that nobody has.

    It is below those that systems give to clients' connections, so that none of these has it when a server asks for it.
    """
    while True:
        port = _chance.randrange(10_000, 32_768)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


_chance = SystemRandom()  # a seed would have all workers choose the same


def listens(port: int) -> bool:
    """Whether somebody listens at a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
