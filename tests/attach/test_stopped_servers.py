"""A server whose runs are traced by `trace_events` alone, stopped by SIGTERM: the page's advice holds."""

from __future__ import annotations

import http.client
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from agui_otel import setup, trace_events
from tests.attach.test_asgi_endings import command
from tests.attach.test_proxy_endings import exported, told
from tests.support.receivers import http_receiver
from tests.support.servers import SSE, asking, eventually, forever, free_port, listens, sse
from tests.support.sources import HALF, WHOLE
from tests.support.watched import Watched, values

ADVISED = "tests.attach.test_stopped_servers:advised"


def advised() -> Starlette:
    """An application whose streams never end, with providers in its own code, which its lifespan shuts down."""
    handle = setup()

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        handle.shutdown()

    async def produced() -> AsyncIterator[Any]:
        for event in HALF:
            yield event
        await forever()

    async def endpoint(_: Request) -> StreamingResponse:
        async def body() -> AsyncIterator[bytes]:
            async for event in trace_events(produced(), agent_name="endless"):
                yield sse([event])

        return StreamingResponse(body(), media_type=SSE)

    return Starlette(routes=[Route("/agent", endpoint, methods=["POST"])], lifespan=lifespan)


def test_a_lifespan_that_shuts_down_exports_open_runs() -> None:
    """The server cancels what is open, then ends its lifespan, then itself by the signal: in this order."""
    port = free_port()
    arguments = ("-m", "uvicorn", "--factory", ADVISED, "--port", str(port), "--timeout-graceful-shutdown", "1")
    with http_receiver() as received:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": received.url, "OTEL_TRACES_EXPORTER": "otlp"}
        with command(*arguments, variables=variables) as process:
            eventually(lambda: listens(port), 30)
            with asking(port) as response:
                assert response.read(10)
                process.terminate()
                with suppress(http.client.HTTPException):
                    response.read()
                process.wait(20)
    spans = exported(received)
    assert "cancelled" == told(spans["invoke_agent endless"])["agui.outcome"]
    assert "aborted" == told(spans["execute_tool search"])["agui.outcome"]


def test_a_shutdown_ends_its_own_runs_only(watched: Watched) -> None:
    """They are cancelled and sent, once; those of other providers go on."""
    with http_receiver() as received:
        handle = setup(endpoint=received.url, set_global=False)
        own = trace_events(iter(WHOLE), agent_name="own", tracer_provider=handle.tracer_provider)
        other = trace_events(iter(WHOLE), **watched.keywords)
        for _ in HALF:
            next(own)
            next(other)
        assert handle.shutdown()
        assert list(WHOLE[len(HALF) :]) == list(own)
    assert "cancelled" == told(exported(received)["invoke_agent own"])["agui.outcome"]
    assert [] == watched.runs
    list(other)
    assert "success" == values(watched.run)["agui.outcome"]
