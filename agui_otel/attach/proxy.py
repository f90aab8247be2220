"""A reverse proxy as an ASGI application: it stands before one server, and passes on what it gets, as it gets it.

`TracingMiddleware` around it traces what passes. This only forwards: bytes undecoded and unbuffered, as fast as the
slower side takes them. The HTTP client is httpcore2, the part of httpx2 that speaks HTTP: without what a client for
people adds (redirects, cookies, decompression, headers of its own, proxies of the environment), and with requests and
responses as raw bytes. It hands out every byte that came before a connection broke.

Each request has a connection of its own to the upstream: what an upstream sends beyond the end of its response, by a
wrong length or as the body of a HEAD, would stand before the next client's answer on a connection that is used again.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import aclosing

import httpcore2
from opentelemetry.trace import get_current_span

from agui_otel.attach.asgi import Receive, Scope, Send
from agui_otel.attach.forwarding import (
    Pairs,
    Upstream,
    has_body,
    has_passed,
    is_websocket,
    request_headers,
    response_headers,
    traced,
    unsendable,
)
from agui_otel.errors import AguiOtelError
from agui_otel.tracing.boundary import tell

CONNECT_SECONDS = 10.0
WRITE_SECONDS = 60.0
"""How long an upstream may take no byte of a request. How long it thinks about one is its own affair."""
MAX_HEADER_BYTES = 65_536
"""What the names and values of a request's headers may have together."""

_TEXT = (b"content-type", b"text/plain; charset=utf-8")


class UpstreamError(AguiOtelError):
    """The upstream broke off in the middle of its response: the client's connection is broken off as well."""


class _ClientLeft(Exception):  # noqa: N818 - it is no error
    """The client left before its request was whole."""


class Proxy:
    """Forward every request to one upstream.

    upstream: its URL; a path there stands before every path.
    health: the path that is answered here, with 200; None: none is.

    Raises `ConfigurationError` where `upstream` is no such URL.
    """

    def __init__(self, upstream: str, *, health: str | None = "/healthz") -> None:
        self.upstream = Upstream.parse(upstream)
        self._health = health
        self._via = f"agui-otel-{secrets.token_hex(8)}"
        self._pool = httpcore2.AsyncConnectionPool(max_connections=None, max_keepalive_connections=0)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection. Raises `UpstreamError` where the upstream breaks off a response."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1011, "reason": "this proxy passes no websockets"})
        elif sum(len(name) + len(value) for name, value in scope["headers"]) > MAX_HEADER_BYTES:
            await _say(send, 431, f"agui-otel proxy: the headers have more than {MAX_HEADER_BYTES:,} bytes together\n")
        elif scope["path"] == self._health:
            await _say(send, 200, "ok\n")
        elif is_websocket(scope["headers"]):
            await _say(send, 501, "agui-otel proxy passes no websockets; AG-UI runs over plain HTTP responses.\n")
        elif has_passed(scope["headers"], self._via):
            await _say(send, 508, f"agui-otel proxy: the upstream {self.upstream} leads back to this proxy\n")
        else:
            target = self.upstream.target(scope)
            if target is None:
                await _say(send, 400, f"agui-otel proxy: the path leads out of {self.upstream.base}\n")
            else:
                await self._forward(scope, target, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                await self._pool.aclose()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "lifespan.startup.complete"})

    async def _forward(self, scope: Scope, target: bytes, receive: Receive, send: Send) -> None:
        """Exchange request and response, until that is done or the client leaves."""
        upload = _Upload(receive, empty=not has_body(scope["headers"]))
        request = httpcore2.Request(
            scope["method"].encode(),
            httpcore2.URL(scheme=self.upstream.scheme, host=self.upstream.host, port=self.upstream.port, target=target),
            headers=_with_trace(request_headers(scope, self.upstream, self._via)),
            content=None if upload.done.is_set() else upload,
            extensions={"timeout": {"connect": CONNECT_SECONDS, "write": WRITE_SECONDS}},
        )
        exchange = asyncio.ensure_future(self._exchange(request, upload, send))
        leaving = asyncio.ensure_future(upload.client_leaves())
        try:
            await asyncio.wait((exchange, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            finished = exchange.done()
            exchange.cancel()
            leaving.cancel()
            await asyncio.gather(exchange, leaving, return_exceptions=True)
        if finished:
            exchange.result()
        else:
            leaving.result()

    async def _exchange(self, request: httpcore2.Request, upload: _Upload, send: Send) -> None:
        try:
            response = await self._pool.handle_async_request(request)
        except _ClientLeft:
            return
        except httpcore2.LocalProtocolError as error:
            await _say(send, 400, f"agui-otel proxy: the request cannot be passed on: {error}\n")
            return
        except (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError) as error:
            await _say(send, 502, self._unanswered(request, error))
            return
        upload.done.set()
        headers = response_headers(response.status, response.headers)
        found = unsendable(response.status, headers)
        if found is not None:
            await response.aclose()
            await _say(send, 502, self._failed(request, f"gave an answer that cannot be passed on: {found}"))
            return
        try:
            await send({"type": "http.response.start", "status": response.status, "headers": headers})
            async with aclosing(response.aiter_stream()) as chunks:
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise UpstreamError(f"{self.upstream} broke off its response: {error or type(error).__name__}") from error
        finally:
            await response.aclose()
        await send({"type": "http.response.body"})

    def _unanswered(self, request: httpcore2.Request, error: Exception) -> str:
        """What a client reads when the upstream does not answer."""
        if isinstance(error, httpcore2.ConnectTimeout):
            found = f"did not take a connection in {CONNECT_SECONDS:g} seconds"
        elif isinstance(error, httpcore2.ConnectError):
            found = f"takes no connection ({_cause(error)}): is the agent running there?"
        elif isinstance(error, httpcore2.WriteTimeout):
            found = f"took nothing of the request for {WRITE_SECONDS:g} seconds"
        else:
            found = f"gave no answer: {_cause(error)}"
        return self._failed(request, found)

    def _failed(self, request: httpcore2.Request, found: str) -> str:
        """What was found of the upstream, and what was tried: no query, no header."""
        path = request.url.target.partition(b"?")[0].decode("latin-1")
        tried = f"{request.method.decode()} {self.upstream.scheme}://{self.upstream.authority}{path}"
        return f"agui-otel proxy: the upstream {self.upstream} {found}\nTried: {tried}\n"


class _Upload:
    """A request's body as the server receives it, at the upstream's pace; after it, whether the client stays.

    `done`: nothing more of the body is wanted.
    """

    def __init__(self, receive: Receive, *, empty: bool) -> None:
        self._receive = receive
        self.done = asyncio.Event()
        if empty:
            self.done.set()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise _ClientLeft
            more = message.get("more_body", False)
            body = message.get("body", b"")
            if body:
                yield body
        self.done.set()

    async def client_leaves(self) -> None:
        """Return when the client has left; what it still sends is dropped."""
        await self.done.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _with_trace(headers: Pairs) -> Pairs:
    """The headers with the current span as what the upstream's own spans are children of."""
    if not get_current_span().get_span_context().is_valid:
        return headers
    injected: dict[str, str] = {}
    try:
        from opentelemetry.propagate import inject  # reads the environment, and raises where that is wrong

        inject(injected)
    except Exception as error:  # noqa: BLE001 - a propagator of somebody's
        tell("propagator", error, "the upstream is not told which trace it works for.")
    return traced(headers, injected)


def _cause(error: BaseException) -> str:
    """The system's own words for why there is no connection, where it said any."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and (inner.errno or 0) > 0:
            return os.strerror(inner.errno or 0)
        inner = inner.__cause__ or inner.__context__
    return str(error) or type(error).__name__


async def _say(send: Send, status: int, text: str) -> None:
    body = text.encode()
    headers = [_TEXT, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
