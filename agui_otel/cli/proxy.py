"""`agui-otel proxy`: traces for a server in any language, by a reverse proxy that stands before it."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import TracerProvider

from agui_otel.attach.asgi import TracingMiddleware
from agui_otel.attach.observe import say_what_is_left_out, without_content
from agui_otel.cli.live import LiveTrees
from agui_otel.config import Settings, switched_off
from agui_otel.errors import AguiOtelError, ConfigurationError
from agui_otel.exporting import setup

if TYPE_CHECKING:
    from agui_otel.attach.forwarding import Upstream
    from agui_otel.attach.proxy import Proxy

_ABOUT = """\
Stand before an AG-UI server, in any language, and trace the runs that pass: clients ask the proxy,
the proxy asks the server, and every byte is passed on as it comes. Requests go to the upstream only,
whatever they say. Needs: pip install 'agui-otel[proxy]'

Traces go where PHOENIX_COLLECTOR_ENDPOINT or the standard OTEL_EXPORTER_OTLP_* variables say, else
to http://localhost:4318. They hold no content until AGUI_OTEL_CAPTURE=full asks for it. The server
is sent a traceparent, so that its own spans join the run's trace.

SIGTERM or Ctrl-C stops it: no new requests are taken, open runs may end, and what is exported is
sent. A second Ctrl-C waits for nobody.
"""

_KEEP_ALIVE_SECONDS = 75


def register(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "proxy",
        help="trace a server in any language: a reverse proxy before it",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--upstream", metavar="URL", required=True, help="the server, such as http://localhost:8000")
    parser.add_argument(
        "--listen", metavar="HOST:PORT", default="127.0.0.1:8080", help="where clients ask (default: 127.0.0.1:8080)"
    )
    parser.add_argument(
        "--path", metavar="PATH", action="append",
        help="trace this path only, or with * at its end all that begin so; may be repeated (default: all paths)",
    )  # fmt: skip
    parser.add_argument("--agent-name", metavar="NAME", help="the name of the runs' own agent")
    parser.add_argument(
        "--response-header", action="store_true", help="tell clients their trace in a traceresponse header"
    )
    parser.add_argument(
        "--health", metavar="PATH", default="/healthz",
        help="the path that is answered here, with 200 (default: /healthz); off: every path is the server's",
    )  # fmt: skip
    parser.add_argument(
        "--grace", metavar="SECONDS", type=int, default=10,
        help="how long open runs may go on when it is stopped (default: 10); then they are cut",
    )  # fmt: skip
    parser.add_argument("--live", action="store_true", help="show the runs as trees here, while they run")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until it is stopped. Raises `ConfigurationError` where an argument or the environment is wrong."""
    proxy = _proxy(arguments)
    settings = Settings()
    logging.getLogger("agui_otel").setLevel(logging.INFO)
    logging.getLogger("uvicorn.error").addFilter(_shorten)
    off = switched_off()
    with _listening(arguments.listen) as listening, contextlib.ExitStack() as stack:
        refuse_itself(proxy.upstream, listening)
        handle = stack.enter_context(setup())
        say_what_is_left_out(settings)
        if arguments.live and isinstance(handle.tracer_provider, TracerProvider):
            handle.tracer_provider.add_span_processor(stack.enter_context(LiveTrees()))
        app = TracingMiddleware(
            proxy,
            agent_name=arguments.agent_name,
            paths=arguments.path,
            response_header=arguments.response_header,
            config=without_content(settings),
        )
        told = f"tracing is switched off by {off}" if off is not None else repr(handle).strip("<>").partition(": ")[2]
        host, port = listening.getsockname()[:2]
        print(f"http://{_place(host, port)} -> {proxy.upstream}; {told}", file=sys.stderr, flush=True)
        _serve(app, listening, arguments.grace)
    return 0


def _proxy(arguments: argparse.Namespace) -> Proxy:
    try:
        import httpcore2  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(f"{error.name} is not installed: pip install 'agui-otel[proxy]'") from None
    from agui_otel.attach.proxy import Proxy

    health = None if arguments.health == "off" else arguments.health
    if health is not None and not health.startswith("/"):
        raise ConfigurationError(f"--health {health}: it should be a path such as /healthz, or off")
    for path in arguments.path or ():
        if not path.startswith("/"):
            raise ConfigurationError(f"--path {path}: it should begin with /")
    if arguments.grace < 0:
        raise ConfigurationError(f"--grace {arguments.grace}: it should be 0 or more seconds")
    return Proxy(arguments.upstream, health=health)


def _serve(app: TracingMiddleware, listening: socket.socket, grace: int) -> None:
    import uvicorn

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        ws="none",
        lifespan="on",
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=grace,
    )
    with _signals_taken():
        uvicorn.Server(config).run(sockets=[listening])


@contextlib.contextmanager
def _signals_taken() -> Iterator[None]:
    """The server raises the signal that stopped it once more, when it has stopped: here it has done its work."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: None) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@contextlib.contextmanager
def _listening(place: str) -> Iterator[socket.socket]:
    """A socket that listens at `HOST:PORT`. Raises `ConfigurationError`."""
    host, _, port = place.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(f"--listen {place}: it should be HOST:PORT, such as 127.0.0.1:8080")
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        number = error.errno or 0
        said = os.strerror(number) if number > 0 else error.strerror
        raise ConfigurationError(f"--listen {place}: {said or error}") from None
    with listening:
        yield listening


def refuse_itself(upstream: Upstream, listening: socket.socket) -> None:
    """Raise `ConfigurationError` where what the proxy would ask is the proxy.

    A name that cannot be resolved yet is none of its own.
    """
    host, port = listening.getsockname()[:2]
    if port != (upstream.port or {"http": 80, "https": 443}[upstream.scheme]):
        return
    own = ipaddress.ip_address(host)
    try:
        found = socket.getaddrinfo(upstream.host, port, family=listening.family, type=socket.SOCK_STREAM)
    except OSError:
        return
    for *_, address in found:
        asked = ipaddress.ip_address(str(address[0]).partition("%")[0])
        if asked == own or (own.is_unspecified and _is_ours(asked)) or (asked.is_unspecified and own.is_loopback):
            raise ConfigurationError(
                f"--upstream {upstream}: it is where the proxy itself listens ({_place(host, port)}); "
                "give --listen another port"
            )


def _is_ours(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether this machine has an address: then a socket can have it."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _shorten(record: logging.LogRecord) -> bool:
    """A line, not a traceback, for what is no defect of the proxy: a server that broke off, a run that was cut."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, AguiOtelError):
        record.msg, record.exc_info, record.exc_text = f"agui-otel: {error}", None, None
    elif isinstance(error, asyncio.CancelledError):
        return False
    return "WebSocket" not in record.getMessage() and "upgrade" not in record.getMessage()
