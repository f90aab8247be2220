"""A deep agent with two researchers at work at once, served by ag-ui-langgraph and traced. Asks no model.

    pip install . ag-ui-langgraph deepagents                    # in a checkout of agui-otel
    python examples/langgraph_agent.py                          # the trace as a tree, here
    python examples/langgraph_agent.py http://localhost:6006    # the trace in a Phoenix that runs there

What makes the subagents visible is `subagent_visibility="attributed"`. By default ag-ui-langgraph names no
subagent in its events, and a trace shows one agent that does everything.
"""

# The packages of the agent are not among those that this project is checked with.
# mypy: disable-error-code="import-not-found, misc, untyped-decorator"

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from ag_ui.core import RunAgentInput, UserMessage
from ag_ui_langgraph import LangGraphAgent
from deepagents import create_deep_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from agui_otel import Settings, setup, trace_events
from agui_otel.render import render_text
from agui_otel.testing import capture


class ScriptedModel(BaseChatModel):
    """A chat model that calls the tool `tool_name` with each of `arguments`, and says `answer` to the results."""

    tool_name: str
    arguments: list[dict[str, Any]]
    answer: str

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        """Knows its tools already."""
        del tools, kwargs
        return self

    def _reply(self, messages: list[BaseMessage]) -> AIMessage:
        if any(isinstance(message, ToolMessage) for message in messages):
            return AIMessage(content=self.answer)
        asked = messages[-1].text
        calls = [
            {"name": self.tool_name, "id": f"{self.tool_name} {index} of {asked}", "args": args, "type": "tool_call"}
            for index, args in enumerate(self.arguments, start=1)
        ]
        return AIMessage(content="", tool_calls=calls)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        del stop, run_manager, kwargs
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        del stop, kwargs
        for chunk in _chunks(self._reply(messages)):
            if run_manager is not None:
                run_manager.on_llm_new_token(str(chunk.message.content), chunk=chunk)
            yield chunk


def _chunks(reply: AIMessage) -> Iterator[ChatGenerationChunk]:
    for word in str(reply.content).split():
        yield ChatGenerationChunk(message=AIMessageChunk(content=f"{word} "))
    for index, call in enumerate(reply.tool_calls):
        opening = {"index": index, "id": call["id"], "name": call["name"], "args": ""}
        arguments = {"index": index, "id": None, "name": None, "args": json.dumps(call["args"])}
        for piece in (opening, arguments):
            yield ChatGenerationChunk(message=AIMessageChunk(content="", tool_call_chunks=[piece]))
    tokens = len(str(reply.content).split()) + len(reply.tool_calls)
    usage = {"input_tokens": 10, "output_tokens": tokens, "total_tokens": 10 + tokens}
    yield ChatGenerationChunk(message=AIMessageChunk(content="", usage_metadata=usage))


@tool
def search(query: str) -> str:
    """Search for something."""
    return f"results for {query}"


def make_agent() -> LangGraphAgent:
    """A supervisor that sends two researchers out, each with a search to make."""
    supervisor = ScriptedModel(
        tool_name="task",
        arguments=[
            {"description": "the sea", "subagent_type": "researcher"},
            {"description": "the moon", "subagent_type": "researcher"},
        ],
        answer="The moon moves the sea.",
    )
    researcher = ScriptedModel(tool_name="search", arguments=[{"query": "tides"}], answer="It is about tides.")
    graph = create_deep_agent(
        model=supervisor,
        subagents=[
            {
                "name": "researcher",
                "description": "Looks things up.",
                "system_prompt": "Look it up.",
                "model": researcher,
                "tools": [search],
            }
        ],
        checkpointer=InMemorySaver(),
    )
    return LangGraphAgent(name="supervisor", graph=graph, emit_raw_events=False, subagent_visibility="attributed")


async def serve(agent: LangGraphAgent, request: RunAgentInput, **tracing: Any) -> None:
    """What a server does: take the agent's events and send them. Here they go nowhere."""
    async for event in trace_events(agent.run(request), input=request, agent_name=agent.name, **tracing):
        del event


def main() -> None:
    """Run the agent once, and show the trace or send it."""
    question = UserMessage(id="question-1", content="What moves the sea?")
    request = RunAgentInput(
        thread_id="thread-1",
        run_id="run-1",
        messages=[question],
        state={},
        tools=[],
        context=[],
        forwarded_props={},
    )
    if len(sys.argv) > 1:
        with setup(phoenix=sys.argv[1], service_name="examples") as handle:
            asyncio.run(serve(make_agent(), request))
        print(f"sent to {handle.phoenix_url}, project {handle.project}")
        return
    captured = capture()
    settings = Settings(steps="off")
    asyncio.run(serve(make_agent(), request, tracer_provider=captured.tracer_provider, config=settings))
    print(render_text(captured.spans))


if __name__ == "__main__":
    main()
