"""Two agents of Google's ADK behind ag-ui-adk's endpoint: one hands over to the other, who searches; pings between."""

# The framework is not among the packages that this project is checked with.
# mypy: disable-error-code="import-not-found, import-untyped, misc"

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from ag_ui_adk import ADKAgent, add_adk_fastapi_endpoint
from fastapi import FastAPI
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types
from sse_starlette.sse import EventSourceResponse

EventSourceResponse.DEFAULT_PING_INTERVAL = 1
"""Seconds between the comments that keep a connection; 15 are too long for a test."""


class ScriptedModel(BaseLlm):
    """Calls a tool with the arguments, and says `answer` to its result."""

    model: str = "scripted"
    tool: str
    arguments: dict[str, str]
    answer: str = ""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """The answer in one piece."""
        del stream
        last = llm_request.contents[-1].parts[-1]
        if last.function_response is not None and last.function_response.name == self.tool:
            part = types.Part(text=self.answer)
        else:
            part = types.Part(function_call=types.FunctionCall(name=self.tool, args=self.arguments))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def search(query: str) -> str:
    """Search for something."""
    await asyncio.sleep(1.5)
    return f"results for {query}"


researcher = LlmAgent(
    name="researcher",
    description="Looks things up.",
    model=ScriptedModel(tool="search", arguments={"query": "tides"}, answer="The moon moves the sea."),
    tools=[search],
)
planner = LlmAgent(
    name="planner",
    model=ScriptedModel(tool="transfer_to_agent", arguments={"agent_name": "researcher"}),
    sub_agents=[researcher],
)
app = FastAPI()
add_adk_fastapi_endpoint(app, ADKAgent(planner, app_name="tides", user_id="user-1"), "/agent")
