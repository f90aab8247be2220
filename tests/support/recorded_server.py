"""A small HTTP server on the loopback interface that answers a run with a recording, as servers do."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import PurePosixPath

from tests.support import recordings
from tests.support.servers import in_background

TYPES = {".sse": "text/event-stream", ".bin": "application/vnd.ag-ui.event+proto", ".jsonl": "application/x-ndjson"}
PAGE = b"<!doctype html><title>agent</title>"
_PIECES = 8


class _Handler(BaseHTTPRequestHandler):
    """POST /NAME.sse streams that recording, gzipped for whoever accepts it; /refused answers 500, /moved/… leads to
    the rest of its path, anything else is not found, and GET is a page.
    """

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(200, "text/html", PAGE)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        path = PurePosixPath(self.path)
        if path.name == "refused":
            self._answer(500, "application/json", b'{"detail": "no such agent"}')
        elif path.parts[1] == "moved":
            self.send_response(307)
            self.send_header("location", f"/{path.name}")
            self.send_header("content-length", "0")
            self.end_headers()
        elif path.suffix in TYPES:
            self._stream(path.name)
        else:
            self._answer(404, "text/plain", b"not found")

    def _stream(self, name: str) -> None:
        data = (recordings.STREAMS / name).read_bytes()
        self.send_response(200)
        self.send_header("content-type", TYPES[PurePosixPath(name).suffix])
        self.send_header("transfer-encoding", "chunked")
        if "gzip" in self.headers.get("accept-encoding", ""):
            self.send_header("content-encoding", "gzip")
            data = gzip.compress(data)
        self.end_headers()
        step = len(data) // _PIECES + 1
        for at in range(0, len(data), step):
            piece = data[at : at + step]
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            time.sleep(0.01)
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Nothing on standard error."""


@contextmanager
def agent() -> Iterator[str]:
    """The server's URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    with in_background(server):
        yield f"http://127.0.0.1:{server.server_port}"
