"""The proxy between real sockets: every byte passes as it came, the tree is the recording's, and HTTP stays HTTP."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from agui_otel.tracing.inside import OPEN_RUNS
from agui_otel.tracing.memory import open_memory
from tests.attach.test_asgi import (
    PROTO,
    RECORDED,
    SMALL,
    Split,
    asked_for,
    bytewise,
    carriage_returns,
    chain,
    expected_tree,
    pinged,
    randomly,
    tree_of,
    unordered,
    whole,
)
from tests.support.proxies import END, HEAD, chunked, facing, proxied
from tests.support.recordings import STREAMS
from tests.support.servers import JSON, ask, asking, eventually, sse, streaming
from tests.support.sources import WHOLE
from tests.support.watched import Watched, span_id, trace_id, values


def minced(data: bytes) -> list[bytes]:
    """One byte at a time; after 40,000 of them in pieces."""
    return [*bytewise(data[:40_000]), *randomly(data[40_000:])]


def through(
    watched: Watched, name: str, bodies: dict[str, bytes], splits: Sequence[Split], *, headers: bytes = b""
) -> None:
    """Ask the proxy for a recording, and those before it in its thread: every byte comes, and the tree is right.

    Once for each split, in which the upstream sends its body.
    """
    waiting: list[bytes] = []

    def answer(connection: socket.socket) -> None:
        connection.sendall(HEAD.replace(b"\r\n\r\n", b"\r\n" + headers + b"\r\n") + waiting.pop(0) + END)

    with facing(answer, watched) as (own, _):
        for split in splits:
            open_memory("memory://").close()  # the thread begins anew
            waiting.extend(chunked(*split(bodies[run])) for run in chain(name))
            for run in chain(name):
                before = len(watched.runs)
                assert bodies[run] == ask(own, asked_for(run)).body
                eventually(lambda before=before: len(watched.runs) > before and not OPEN_RUNS)  # type: ignore[misc]
            watched.check()
            assert expected_tree(name) == tree_of(watched)


@pytest.mark.parametrize("name", RECORDED)
def test_recordings_pass_and_become_their_trees(watched: Watched, name: str) -> None:
    """However the upstream cuts its body, the client gets the same bytes, and the tree is the recording's."""
    bodies = {run: (STREAMS / f"{run}.sse").read_bytes() for run in chain(name)}
    through(watched, name, bodies, [whole, randomly, minced])


@pytest.mark.parametrize("framing", [pinged, carriage_returns])
@pytest.mark.parametrize("name", SMALL)
def test_framings_pass_as_they_are(watched: Watched, name: str, framing: Callable[[bytes], bytes]) -> None:
    """Comments and line ends, a byte at a time."""
    bodies = {run: framing((STREAMS / f"{run}.sse").read_bytes()) for run in chain(name)}
    through(watched, name, bodies, [bytewise])


def test_compressed_bodies_are_not_touched(watched: Watched) -> None:
    """They are decompressed for reading only."""
    bodies = {"nested": gzip.compress((STREAMS / "nested.sse").read_bytes())}
    through(watched, "nested", bodies, [whole, randomly, bytewise], headers=b"content-encoding: gzip\r\n")


def test_the_binary_transport_passes(watched: Watched) -> None:
    """Protobuf frames, cut anywhere."""
    data = (STREAMS / "nested.bin").read_bytes()
    with proxied(streaming_app(streaming(randomly(data), media=PROTO)), watched) as port:
        assert data == ask(port, asked_for("nested")).body
    assert unordered(expected_tree("nested")) == unordered(tree_of(watched))


def streaming_app(endpoint: Any) -> Starlette:
    """An application with one endpoint that takes every method there."""
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    return Starlette(routes=[Route("/{path:path}", endpoint, methods=methods)])


def test_each_event_passes_when_it_comes(watched: Watched) -> None:
    """Nothing is held back: the next event is sent only when the client has the last one."""
    go_on = threading.Semaphore(0)

    def answer(connection: socket.socket) -> None:
        connection.sendall(HEAD)
        for event in WHOLE:
            connection.sendall(chunked(sse([event])))
            assert go_on.acquire(timeout=10)
        connection.sendall(END)

    with facing(answer, watched) as (own, _), asking(own) as response:
        for event in WHOLE:
            assert sse([event]) == response.read(len(sse([event])))
            go_on.release()
    assert "success" == values(watched.run)["agui.outcome"]


def test_the_upstreams_spans_are_told_the_runs(watched: Watched) -> None:
    """`traceparent` names the run's span, in place of the client's; without a run the client's passes."""
    client = f"00-{'a' * 32}-{'b' * 16}-01"
    with facing(HEAD + chunked(sse(WHOLE)) + END, watched) as (own, server):
        ask(own, headers={**JSON, "traceparent": client, "tracestate": "vendor=1", "baggage": "k=v;p"})
        ask(own, None, method="GET", headers={"traceparent": client, "tracestate": "vendor=1"})
    run = watched.runs[0]
    assert [f"00-{trace_id(run):032x}-{span_id(run):016x}-01"] == server.header("traceparent", 0)
    assert ([], ["k=v;p"]) == (server.header("tracestate", 0), server.header("baggage", 0))
    assert ([client], ["vendor=1"]) == (server.header("traceparent", 1), server.header("tracestate", 1))
    assert "a" * 32 == values(run)["agui.ambient.trace_id"]
