"""AG-UI's own client, HttpAgent, talks to a server: it sees the same with the middleware or the proxy as without."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from operator import eq
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from agui_otel.tracing.memory import open_memory
from tests.attach.test_asgi import (
    PROTO,
    RECORDED,
    application,
    asked_for,
    chain,
    expected_tree,
    randomly,
    tree_of,
    unordered,
)
from tests.support.oracle import Agent
from tests.support.proxies import proxying
from tests.support.recordings import STREAMS
from tests.support.servers import SSE, served, streaming
from tests.support.watched import Watched

Run = tuple[list[dict[str, Any]], str | None]
Way = Callable[[Watched], AbstractContextManager[int]]


@pytest.fixture(scope="module")
def agent() -> Iterator[Agent]:
    """One client for all tests."""
    with Agent() as running:
        yield running


@pytest.fixture(scope="module")
def bare() -> Iterator[int]:
    """The server without any way in; its port."""
    with served(Starlette(routes=[Route("/agent", endpoint, methods=["POST"])])) as port:
        yield port


async def endpoint(request: Any) -> Any:
    """Answer with the recording that the request names, in the transport that it accepts."""
    name = (await request.json())["forwardedProps"]["recording"]
    suffix = "bin" if request.headers["accept"] == PROTO else "sse"
    return await streaming(randomly((STREAMS / f"{name}.{suffix}").read_bytes()), media=request.headers["accept"])(
        request
    )


def alike(first: list[Run], second: list[Run]) -> bool:
    """Whether the client saw the same. Of a stream that it refuses it hands on as much as it happens to have read."""
    return all(
        error == other and (events == seen if error is None else all(map(eq, events, seen)))
        for (events, error), (seen, other) in zip(first, second, strict=True)
    )


def asked(agent: Agent, port: int, name: str, accept: str) -> list[Run]:
    """What the client sees of a recording and of those before it in its thread."""
    given = [{**json.loads(asked_for(run)), "forwardedProps": {"recording": run}} for run in chain(name)]
    return [agent.run(port, {"tools": [], "context": [], **run}, accept) for run in given]


@pytest.mark.parametrize("accept", [SSE, PROTO], ids=["sse", "protobuf"])
@pytest.mark.parametrize("name", RECORDED)
def test_the_client_sees_the_same(agent: Agent, bare: int, name: str, accept: str) -> None:
    """Events and failures; and each way in makes the recording's tree."""
    expected = asked(agent, bare, name, accept)
    assert expected[-1][0]
    ways: list[Way] = [lambda watched: served(application(endpoint, watched)), lambda watched: proxying(bare, watched)]
    for way in ways:
        open_memory("memory://").close()  # the threads of one way in are not the other's
        watched = Watched()
        with way(watched) as port:
            assert alike(expected, asked(agent, port, name, accept))
        watched.check()
        assert unordered(expected_tree(name)) == unordered(tree_of(watched))
