"""A pydantic-ai agent behind its own AG-UI adapter, traced by the middleware: the marked lines do it.

    pip install . 'pydantic-ai-slim[ag-ui]' uvicorn    # in a checkout of agui-otel
    export PHOENIX_COLLECTOR_ENDPOINT=http://localhost:6006
    uvicorn --app-dir examples pydantic_ai_server:app
    curl -N localhost:8000/agent -H 'content-type: application/json' -d '{
        "threadId": "thread-1", "runId": "run-1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{"id": "1", "role": "user", "content": "What moves the sea?"}]}'

pydantic-ai's test model stands in for a real one. With `include_usage` the stream says how many tokens a run used.
"""

# The packages of the agent are not among those that this project is checked with.
# mypy: disable-error-code="import-not-found, untyped-decorator"

from __future__ import annotations

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agui_otel import TracingMiddleware, setup  # 1

setup(service_name="examples")  # 2: where traces go, as the environment says
agent = Agent(TestModel(custom_output_text="The moon moves the sea."))


@agent.tool_plain
def search(query: str) -> str:
    """Search for something."""
    return f"results for {query}"


async def answer(request: Request) -> Response:
    """Run the agent, and stream its events."""
    return await AGUIAdapter.dispatch_request(request, agent=agent, include_usage=True)


app = Starlette(
    routes=[Route("/agent", answer, methods=["POST"])],
    middleware=[Middleware(TracingMiddleware, agent_name="planner")],  # 3
)
