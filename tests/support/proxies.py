"""The proxy on a real socket before a real server, and a server that sends bytes exactly as a test says."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from agui_otel import TracingMiddleware
from agui_otel.attach.proxy import Proxy
from tests.support.servers import served
from tests.support.watched import Watched

Answer = Callable[[socket.socket], None]
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


@contextmanager
def proxying(port: int, watched: Watched, *, base: str = "", **options: Any) -> Iterator[int]:
    """The traced proxy before the server at `port`; its own port."""
    app = TracingMiddleware(
        Proxy(f"http://127.0.0.1:{port}{base}"), **{**watched.keywords, "agent_name": "supervisor", **options}
    )
    with served(app, lifespan="on", ws="none", server_header=False, date_header=False) as own:
        yield own


@contextmanager
def proxied(app: Any, watched: Watched, **options: Any) -> Iterator[int]:
    """An ASGI application behind the traced proxy; the proxy's port."""
    with served(app) as port, proxying(port, watched, **options) as own:
        yield own


class Raw:
    """A server for HTTP as bytes at `authority`, host and port.

    `requests` are what it was sent, whole; `connections` how many it has taken, `closed` how many are done.
    """

    def __init__(self, answer: Answer, authority: str) -> None:
        self._answer = answer
        self.authority = authority
        self.requests: list[bytes] = []
        self.connections = 0
        self.closed = 0
        self._counting = threading.Lock()

    def heads(self, number: int = -1) -> list[str]:
        """The lines of a request's head."""
        return self.requests[number].partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")

    def header(self, name: str, number: int = -1) -> list[str]:
        """The values of a request's header."""
        pairs = [line.split(": ", 1) for line in self.heads(number)[1:]]
        return [value for key, value in pairs if key.lower() == name]

    def serve(self, connection: socket.socket) -> None:
        """Answer the requests of a connection, one after another, until it is closed."""
        with self._counting:
            self.connections += 1
        with connection:
            while (request := _request(connection)) is not None:
                self.requests.append(request)
                try:
                    self._answer(connection)
                except OSError:
                    break
        with self._counting:
            self.closed += 1


@contextmanager
def raw(answer: Answer) -> Iterator[tuple[int, Raw]]:
    """A `Raw` server; its port, and what it saw."""
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Raw(answer, f"127.0.0.1:{listening.getsockname()[1]}")

        def accept() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=server.serve, args=(connection,)))
                threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield listening.getsockname()[1], server
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for thread in threads:
                thread.join(10)


def chunked(*chunks: bytes) -> bytes:
    """Chunks of a chunked body, without its end."""
    return b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks if chunk)


def reset(connection: socket.socket) -> None:
    """Close a connection as a process that was killed with unread data does: with RST."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _request(connection: socket.socket) -> bytes | None:
    """The next request of a connection, with its body; None at the connection's end."""
    data = b""
    try:
        while b"\r\n\r\n" not in data:
            part = connection.recv(65536)
            if not part:
                return None
            data += part
        head, _, body = data.partition(b"\r\n\r\n")
        lower = head.lower()
        if b"transfer-encoding: chunked" in lower:
            while not body.endswith(END):
                body += connection.recv(65536)
        elif b"content-length: " in lower:
            length = int(lower.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            while len(body) < length:
                body += connection.recv(65536)
    except OSError:
        return None
    return head + b"\r\n\r\n" + body


@contextmanager
def facing(answer: Answer | bytes, watched: Watched, **options: Any) -> Iterator[tuple[int, Raw]]:
    """The traced proxy before a `Raw` server, which answers each request so; the proxy's port, and the server."""
    given = answer
    say: Answer = (lambda connection: connection.sendall(given)) if isinstance(given, bytes) else given
    with raw(say) as (port, server), proxying(port, watched, **options) as own:
        yield own, server


def said(port: int, request: bytes) -> bytes:
    """All that a server sends to a request, until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65536), b""))
