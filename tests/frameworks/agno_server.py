"""A team of agno's behind its own AG-UI router: the leader delegates to a researcher, who searches."""

# The framework is not among the packages that this project is checked with.
# mypy: disable-error-code="import-not-found, misc"

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from agno.agent import Agent
from agno.models.base import Model
from agno.models.message import Message
from agno.models.response import ModelResponse
from agno.os.interfaces.agui import AGUI
from agno.team import Team
from fastapi import FastAPI


class ScriptedModel(Model):
    """Calls a tool with the arguments, and says `answer` to its result."""

    def __init__(self, tool: str, arguments: dict[str, str], answer: str) -> None:
        super().__init__(id="scripted", provider="nobody")
        self.tool, self.arguments, self.answer = tool, arguments, answer

    def invoke(self, messages: list[Message], **_: Any) -> ModelResponse:
        """The whole answer."""
        if any(message.role == "tool" for message in messages):
            return ModelResponse(role="assistant", content=self.answer)
        function = {"name": self.tool, "arguments": json.dumps(self.arguments)}
        return ModelResponse(role="assistant", tool_calls=[{"id": self.tool, "type": "function", "function": function}])

    async def ainvoke(self, messages: list[Message], **_: Any) -> ModelResponse:
        """The whole answer."""
        return self.invoke(messages)

    def invoke_stream(self, messages: list[Message], **_: Any) -> Iterator[ModelResponse]:
        """The answer in one piece."""
        yield self.invoke(messages)

    async def ainvoke_stream(self, messages: list[Message], **_: Any) -> AsyncIterator[ModelResponse]:
        """The answer in one piece."""
        yield self.invoke(messages)

    def _parse_provider_response(self, response: ModelResponse, **_: Any) -> ModelResponse:
        return response

    def _parse_provider_response_delta(self, response: ModelResponse) -> ModelResponse:
        return response


def search(query: str) -> str:
    """Search for something."""
    return f"results for {query}"


researcher = Agent(
    id="researcher",
    name="researcher",
    model=ScriptedModel("search", {"query": "tides"}, "It is about tides."),
    tools=[search],
    telemetry=False,
)
team = Team(
    name="planner",
    model=ScriptedModel("delegate_task_to_member", {"member_id": "researcher", "task": "the sea"}, "The moon does."),
    members=[researcher],
    telemetry=False,
)
app = FastAPI()
app.include_router(AGUI(team=team).get_router())
