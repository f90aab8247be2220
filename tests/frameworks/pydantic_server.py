"""A pydantic-ai agent behind its own AG-UI adapter."""

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

agent = Agent(TestModel(custom_output_text="The moon moves the sea."), name="planner")


@agent.tool_plain
def search(query: str) -> str:
    """Search for something."""
    return f"results for {query}"


async def answer(request: Request) -> Response:
    """What pydantic-ai's documentation has for Starlette."""
    return await AGUIAdapter.dispatch_request(request, agent=agent, include_usage=True)


app = Starlette(routes=[Route("/agent", answer, methods=["POST"])])
