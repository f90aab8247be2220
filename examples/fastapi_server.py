"""An AG-UI server with FastAPI, traced: the three lines that tracing takes are marked.

    pip install . ag-ui-protocol fastapi uvicorn    # in a checkout of agui-otel
    PHOENIX_COLLECTOR_ENDPOINT=http://localhost:6006 python examples/fastapi_server.py
    curl -N localhost:8000/agent -H 'content-type: application/json' -d '{
        "threadId": "thread-1", "runId": "run-1", "messages": [{"id": "1", "role": "user", "content": "Rain?"}]}'

Without that variable traces go where the standard OTEL_EXPORTER_OTLP_* variables say. The agent is a script.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ag_ui.core import (
    BaseEvent,
    RunAgentInput,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageChunkEvent,
    ToolCallChunkEvent,
    ToolCallResultEvent,
)
from ag_ui.encoder import EventEncoder
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse

from agui_otel import setup, trace_events  # 1


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Export while the server runs, and send the rest when it stops."""
    with setup(service_name="weather"):  # 2
        yield


app = FastAPI(lifespan=lifespan, telemetry={"tracing": False})  # of FastAPI's own, a trace beside each run's


async def agent(request: RunAgentInput) -> AsyncIterator[BaseEvent]:
    """Asks the forecast, and answers."""
    yield RunStartedEvent(thread_id=request.thread_id, run_id=request.run_id)
    yield ToolCallChunkEvent(tool_call_id="call-1", tool_call_name="forecast", delta='{"day": "today"}')
    yield ToolCallResultEvent(message_id="message-1", tool_call_id="call-1", content="rain")
    yield TextMessageChunkEvent(message_id="message-2", delta="Take an umbrella.")
    yield RunFinishedEvent(thread_id=request.thread_id, run_id=request.run_id)


@app.post("/agent")
async def run(body: RunAgentInput, request: Request) -> StreamingResponse:
    """Run the agent, and stream its events."""
    encoder = EventEncoder(accept=request.headers.get("accept", ""))

    async def stream() -> AsyncIterator[str]:
        async for event in trace_events(agent(body), input=body, agent_name="weather"):  # 3
            yield encoder.encode(event)

    return StreamingResponse(stream(), media_type=encoder.get_content_type())


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(app, port=8000)
