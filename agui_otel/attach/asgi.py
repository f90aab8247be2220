"""The way in for ASGI applications: a middleware that sees the request, and the response as it is sent.

Each request has a responder of its own. It reads the request's body ahead, where that may be a RunAgentInput, so that
the run's span is current for all that the application does; then it stands between the application and the server, and
looks at what passes. The middleware itself only knows which requests are open, for the application's end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from agui_otel.attach.exchange import Exchange
from agui_otel.attach.headers import Headers, header, is_json, media_type
from agui_otel.attach.observe import current_context, flush, observer
from agui_otel.config import Settings
from agui_otel.tracing.ending import Reason, reason_of
from agui_otel.tracing.host import Attributes

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_KEY = "agui_otel.exchange"
"""Where a request's scope says that it is observed already: outer and inner middlewares share one exchange."""


FLUSH_SECONDS = 5.0
"""How long a server's shutdown waits for the exporter at most."""


class TracingMiddleware:
    """Trace the AG-UI runs that an ASGI application serves. Pure ASGI: for Starlette, FastAPI and any other framework.

    A POSTed RunAgentInput starts the run's span, which is current while the application answers; a stream of AG-UI
    events (server-sent events, JSON lines, protobuf) becomes its tree. The bytes of the response are passed on as they
    are, when they are. What is no AG-UI passes through.

        app.add_middleware(TracingMiddleware, agent_name="planner")

    Args:
        app: the ASGI application.
        agent_name: the name of the runs' own agent.
        paths: the paths that are observed: exact, or ending with `*` for all that begin so. None: all.
        attributes: a mapping, or a callable from a run's input (a dict) to one, put on every span of that run.
        response_header: tell the run's span in a `traceresponse` header, exposed to browsers, where the run is known
            when the response starts: a front end can link to its trace.
        config: settings; those of the environment where there are none.
        tracer_provider, meter_provider: those of `setup()`, else the process's global ones, where none are given.
        redact, tool_failed, decision: as for `trace_events`.

    Raises:
        ConfigurationError: an environment variable holds a setting that is not allowed.
    """

    def __init__(
        self,
        app: Application,
        *,
        agent_name: str | None = None,
        paths: Iterable[str] | None = None,
        attributes: Attributes | None = None,
        response_header: bool = False,
        config: Settings | None = None,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        redact: Callable[[str], str] | None = None,
        tool_failed: Callable[[str, Any], bool | str] | None = None,
        decision: Callable[[Mapping[str, Any]], str | None] | None = None,
    ) -> None:
        self.app = app
        self._how = observer(
            config, tracer_provider, meter_provider, redact=redact, tool_failed=tool_failed, decision=decision
        )
        self._agent_name = agent_name
        self._attributes = attributes
        self._response_header = response_header
        chosen = None if paths is None else [paths] if isinstance(paths, str) else list(paths)
        self._covers = _matcher(chosen)
        self._context = current_context()
        self._open: dict[_Responder, object] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await self.serve(self.app, scope, receive, send)

    async def serve(self, app: Application, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection with `app`."""
        if scope["type"] == "lifespan" and not self._how.settings.disabled:
            await app(scope, receive, self._flushing(scope.get("app"), send))
            return
        if scope["type"] != "http" or self._how.settings.disabled or not self._covers(scope.get("path", "")):
            await app(scope, receive, send)
            return
        outer = scope.get(_KEY)
        if isinstance(outer, Exchange):
            outer.adopt(self._agent_name, self._attributes)
            await app(scope, receive, send)
            return
        get, attach, detach = self._context
        headers = scope.get("headers", ())
        exchange = Exchange(self._how, get(), headers, agent_name=self._agent_name, attributes=self._attributes)
        responder = _Responder(exchange, receive, send, response_header=self._response_header)
        if scope.get("method") == "POST" and is_json(media_type(headers)):
            body = await responder.read_ahead(headers, self._how.settings.max_event_bytes)
            if body is not None:
                exchange.ask(body)
        scope[_KEY] = exchange
        self._open[responder] = scope.get("app")
        token = attach(exchange.surround())
        try:
            await app(scope, responder.receive, responder.send)
        except BaseException as error:
            responder.end(reason_of(error), error)
            raise
        else:
            responder.end("exhausted")
        finally:
            self._open.pop(responder, None)
            scope.pop(_KEY, None)
            _leave(detach, token)

    def _flushing(self, served: object, send: Send) -> Send:
        """`send` for an application's lifespan: at its end its open runs end, and all is exported, before that is told.

        Servers give cancelled requests no time, and end themselves by the signal that stopped them: then nothing runs
        at the interpreter's exit.
        """

        async def flush_then_send(message: Message) -> None:
            if message["type"] in ("lifespan.shutdown.complete", "lifespan.shutdown.failed"):
                for responder, owner in list(self._open.items()):
                    if owner is served:
                        responder.end("cancelled")
                flush(self._how, FLUSH_SECONDS)
            await send(message)

        return flush_then_send


class _Responder:
    """What stands between one request's application and its server."""

    __slots__ = ("_clock", "_exchange", "_receive", "_response_header", "_send", "_unread")

    def __init__(self, exchange: Exchange, receive: Receive, send: Send, *, response_header: bool) -> None:
        self._exchange = exchange
        self._clock = exchange.clock
        self._receive = receive
        self._send = send
        self._response_header = response_header
        self._unread: deque[Message | Exception] = deque()  # read ahead, not yet handed on

    async def read_ahead(self, headers: Headers, limit: int) -> bytes | None:
        """The request's body, which stays to be read; None where it is too large, or clearly no JSON object.

        A client that waits to be told to send its body (`Expect`) is told so by the application, not by this.
        """
        length = header(headers, b"content-length")
        if header(headers, b"expect") or (length.isdecimal() and int(length) > limit):
            return None
        parts: list[bytes] = []
        size = 0
        while True:
            try:
                message = await self._receive()
            except Exception as error:  # noqa: BLE001 - the server's, raised where the application asks
                self._unread.append(error)
                return None
            self._unread.append(message)
            if message["type"] != "http.request":
                return None
            part = bytes(message.get("body", b""))
            parts.append(part)
            size += len(part)
            if not message.get("more_body", False):
                return b"".join(parts)
            if size > limit or not _may_be_an_object(parts):
                return None

    async def receive(self) -> Message:
        """What the application asks for next: what was read ahead, then what comes."""
        if self._unread:
            message = self._unread.popleft()
            if isinstance(message, Exception):
                raise message
        else:
            message = await self._receive()
        if message["type"] == "http.disconnect":
            self.end("disconnected")
        return message

    async def send(self, message: Message) -> None:
        """Pass on what the application answers, then look at it."""
        exchange = self._exchange
        if exchange.ended:
            await self._send(message)
            return
        kind = message["type"]
        last = due = False
        if kind == "http.response.body":
            body = message.get("body", b"")
            if body:
                due = exchange.take(body if type(body) is bytes else bytes(body), self._clock())
            last = not message.get("more_body", False)
        elif kind == "http.response.start":
            message = self._start(message)
        elif kind in ("http.response.pathsend", "http.response.zerocopysend"):
            last = kind == "http.response.pathsend" or not message.get("more_body", False)
        try:
            await self._send(message)
        except Exception as error:
            self.end("disconnected", error)
            raise
        if last:
            self.end("exhausted")
        elif due:
            exchange.listen()

    def end(self, reason: Reason, error: BaseException | None = None) -> None:
        """The exchange ended, unless it had before."""
        self._exchange.end(reason, error)

    def _start(self, message: Message) -> Message:
        status, headers = message["status"], list(message.get("headers", ()))
        if self._response_header:
            told = self._exchange.trace_response(status, headers)
            message = message if told is None else {**message, "headers": told}
        self._exchange.answer(status, headers)
        return message


def _may_be_an_object(parts: list[bytes]) -> bool:
    """Whether a body that begins so may be a JSON object."""
    for part in parts:
        begun = part.lstrip()
        if begun:
            return begun[0] == ord("{")
    return True


def _matcher(paths: list[str] | None) -> Callable[[str], bool]:
    if paths is None:
        return lambda _: True
    exact = frozenset(path for path in paths if not path.endswith("*"))
    begins = tuple(path[:-1] for path in paths if path.endswith("*"))
    return lambda path: path in exact or path.startswith(begins)


def _leave(detach: Callable[[Any], None], token: Any) -> None:
    """Restore the caller's context; a coroutine that is closed elsewhere has none to restore."""
    try:
        detach(token)
    except ValueError:
        return
