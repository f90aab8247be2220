"""An AG-UI server with Starlette and nothing else, traced by the middleware: the marked lines do it.

    pip install . starlette uvicorn    # in a checkout of agui-otel
    export PHOENIX_COLLECTOR_ENDPOINT=http://localhost:6006
    uvicorn --app-dir examples starlette_server:app
    curl -N localhost:8000/agent -H 'content-type: application/json' -d '{
        "threadId": "thread-1", "runId": "run-1", "messages": [{"id": "1", "role": "user", "content": "Rain?"}]}'

The agent is a script. Its code may make spans of its own: the run is current around it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from opentelemetry import trace
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from agui_otel import TracingMiddleware, setup  # 1

setup(service_name="examples")  # 2: where traces go, as the environment says


async def agent(asked: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """Asks the forecast, and answers."""
    run = {"threadId": asked["threadId"], "runId": asked["runId"]}
    yield {"type": "RUN_STARTED", **run}
    yield {"type": "TOOL_CALL_CHUNK", "toolCallId": "call-1", "toolCallName": "forecast", "delta": '{"day": "today"}'}
    with trace.get_tracer("weather").start_as_current_span("look up"):
        forecast = "rain"
    yield {"type": "TOOL_CALL_RESULT", "messageId": "message-1", "toolCallId": "call-1", "content": forecast}
    yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "message-2", "delta": "Take an umbrella."}
    yield {"type": "RUN_FINISHED", **run}


async def answer(request: Request) -> StreamingResponse:
    """Run the agent, and stream its events."""
    asked = await request.json()

    async def stream() -> AsyncIterator[str]:
        async for event in agent(asked):
            yield f"data: {json.dumps(event)}\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


app = Starlette(
    routes=[Route("/agent", answer, methods=["POST"])],
    middleware=[Middleware(TracingMiddleware, agent_name="weather")],  # 3
)
