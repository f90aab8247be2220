"""The server that `benchmarks.serving` asks: a Starlette application that encodes its events with EventEncoder.

    python -m benchmarks.agents WAY PORT [RECEIVER]

WAY is `bare` or `middleware`, which exports to the OTLP receiver at the URL RECEIVER.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from functools import cache
from typing import Any

import uvicorn
from ag_ui.core import (
    Event,
    RunAgentInput,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)
from ag_ui.encoder import EventEncoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from agui_otel import TracingMiddleware, setup
from benchmarks.tree import recorded

PACE = 0.02
"""Seconds between two deltas of a paced stream: a model's pace."""


@cache
def message(deltas: int) -> list[Any]:
    """A message."""
    return [
        TextMessageStartEvent(message_id="message", role="assistant"),
        *(TextMessageContentEvent(message_id="message", delta=f"word {number} ") for number in range(deltas)),
        TextMessageEndEvent(message_id="message"),
    ]


def run(given: RunAgentInput, deltas: int) -> list[Any]:
    """The run of an input: one message."""
    return [
        RunStartedEvent(thread_id=given.thread_id, run_id=given.run_id),
        *message(deltas),
        RunFinishedEvent(thread_id=given.thread_id, run_id=given.run_id),
    ]


nested = cache(recorded)
"""A recorded run of several agents: 189 events, 25 spans."""


async def agent(request: Request) -> StreamingResponse:
    """A message of N deltas at a model's pace (`/paced/N`), as fast as it goes (`/burst/N`), or half of it and then
    nothing (`/half/N`); or a recorded run (`/nested`).
    """
    given = RunAgentInput.model_validate_json(await request.body())
    _, kind, *rest = request.url.path.split("/")
    events: list[Event] = nested() if kind == "nested" else run(given, int(rest[0]))
    encoder = EventEncoder(accept=request.headers.get("accept", ""))

    async def stream() -> AsyncIterator[str]:
        for number, event in enumerate(events):
            if kind == "paced":
                await asyncio.sleep(PACE)
            elif kind == "half" and number > len(events) // 2:
                await asyncio.Event().wait()
            yield encoder.encode(event)

    return StreamingResponse(stream(), media_type=encoder.get_content_type())


def main(way: str, port: str, receiver: str = "") -> None:
    """Serve."""
    app: Any = Starlette(routes=[Route("/{path:path}", agent, methods=["POST"])])
    if way == "middleware":
        setup(endpoint=receiver, metrics=False)
        app = TracingMiddleware(app)
    nested()
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_config=None, access_log=False, backlog=2048)


if __name__ == "__main__":
    main(*sys.argv[1:])
