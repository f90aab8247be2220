"""HTTP servers that answer with JSON, where the real service cannot be in the state that is wanted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.servers import in_background


@contextmanager
def answering(answers: Mapping[str, Any]) -> Iterator[str]:
    """A server that answers these paths (without their query) with this JSON, else 404; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            self.send_response(200 if path in answers else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answers.get(path)).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Nothing on standard error."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    with in_background(server):
        yield f"http://127.0.0.1:{server.server_port}"
