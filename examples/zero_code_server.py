"""An AG-UI server without a line for tracing: opentelemetry-instrument traces it.

    pip install '.[instrument]' ag-ui-protocol fastapi uvicorn    # in a checkout of agui-otel
    export PHOENIX_COLLECTOR_ENDPOINT=http://localhost:6006 AGUI_OTEL_CAPTURE=full
    opentelemetry-instrument uvicorn --app-dir examples zero_code_server:app
    curl -N localhost:8000/agent -H 'content-type: application/json' -d '{
        "threadId": "thread-1", "runId": "run-1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{"id": "1", "role": "user", "content": "Rain?"}]}'

Without AGUI_OTEL_CAPTURE=full traces hold no texts. The agent is a script.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from ag_ui.core import (
    BaseEvent,
    RunAgentInput,
    RunFinishedEvent,
    RunStartedEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageChunkEvent,
    ToolCallChunkEvent,
    ToolCallResultEvent,
)
from ag_ui.encoder import EventEncoder
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

app = FastAPI(telemetry={"tracing": False})


async def agent(asked: RunAgentInput) -> AsyncIterator[BaseEvent]:
    """Has a forecaster, which it calls as a tool."""
    yield RunStartedEvent(thread_id=asked.thread_id, run_id=asked.run_id)
    yield ToolCallChunkEvent(tool_call_id="call-1", tool_call_name="task", delta='{"day": "today"}')
    yield SubagentStartedEvent(subagent_run_id="sub-1", name="forecaster", parent_tool_call_id="call-1")
    yield TextMessageChunkEvent(message_id="message-1", delta="It rains.", subagent_run_id="sub-1")
    yield SubagentFinishedEvent(subagent_run_id="sub-1")
    yield ToolCallResultEvent(message_id="message-2", tool_call_id="call-1", content="It rains.")
    yield TextMessageChunkEvent(message_id="message-3", delta="Take an umbrella.")
    yield RunFinishedEvent(thread_id=asked.thread_id, run_id=asked.run_id)


@app.post("/agent")
async def answer(asked: RunAgentInput) -> StreamingResponse:
    """Run the agent, and stream its events."""
    encoder = EventEncoder()

    async def stream() -> AsyncIterator[str]:
        async for event in agent(asked):
            yield encoder.encode(event)

    return StreamingResponse(stream(), media_type=encoder.get_content_type())
