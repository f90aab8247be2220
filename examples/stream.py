"""Trace a generator of AG-UI events: wrap it in `trace_events`, and iterate over that instead.

    python examples/stream.py                          # the trace as a tree, here
    python examples/stream.py http://localhost:6006    # the trace in a Phoenix that runs there

Needs `pip install . ag-ui-protocol` in a checkout of agui-otel. The agent is a script: it asks no model.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

from ag_ui.core import (
    BaseEvent,
    RunAgentInput,
    RunFinishedEvent,
    RunStartedEvent,
    SubagentFinishedEvent,
    SubagentStartedEvent,
    TextMessageChunkEvent,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    UserMessage,
)
from opentelemetry import trace

from agui_otel import setup, trace_events
from agui_otel.render import render_text
from agui_otel.testing import capture


async def planner(request: RunAgentInput) -> AsyncIterator[BaseEvent]:
    """An agent that hands its question to a researcher, whom it calls as a tool."""
    yield RunStartedEvent(thread_id=request.thread_id, run_id=request.run_id)
    yield ToolCallStartEvent(tool_call_id="call-1", tool_call_name="task")
    yield ToolCallArgsEvent(tool_call_id="call-1", delta='{"topic": "tides"}')
    yield ToolCallEndEvent(tool_call_id="call-1")
    yield SubagentStartedEvent(subagent_run_id="sub-1", name="researcher", parent_tool_call_id="call-1")
    with trace.get_tracer("my.agent").start_as_current_span("look up"):  # lands below the run, in its session
        await asyncio.sleep(0.05)
    for word in ("The ", "moon ", "does ", "it."):
        yield TextMessageChunkEvent(message_id="message-1", delta=word, subagent_run_id="sub-1")
    yield SubagentFinishedEvent(subagent_run_id="sub-1")
    yield ToolCallResultEvent(message_id="message-2", tool_call_id="call-1", content="The moon does it.")
    yield TextMessageChunkEvent(message_id="message-3", delta="It is the moon.")
    yield RunFinishedEvent(thread_id=request.thread_id, run_id=request.run_id)


async def serve(request: RunAgentInput) -> None:
    """What a server does: take the agent's events and send them. Here they go nowhere."""
    async for event in trace_events(planner(request), input=request, agent_name="planner"):
        del event


def main() -> None:
    """Run the agent once, and show the trace or send it."""
    question = UserMessage(id="question-1", content="What moves the tides?")
    request = RunAgentInput(thread_id="thread-1", run_id="run-1", messages=[question])
    if len(sys.argv) > 1:
        with setup(phoenix=sys.argv[1], service_name="examples") as handle:
            asyncio.run(serve(request))
        print(f"sent to {handle.phoenix_url}, project {handle.project}")
        return
    captured = capture()
    trace.set_tracer_provider(captured.tracer_provider)
    asyncio.run(serve(request))
    print(render_text(captured.spans))


if __name__ == "__main__":
    main()
