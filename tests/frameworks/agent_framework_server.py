"""A workflow of Microsoft's Agent Framework behind its own endpoint: a researcher that searches, then a writer."""

# The framework is not among the packages that this project is checked with.
# mypy: disable-error-code="import-not-found, misc"

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
    WorkflowBuilder,
)
from agent_framework.ag_ui import add_agent_framework_fastapi_endpoint
from fastapi import FastAPI


class ScriptedClient(FunctionInvocationLayer, BaseChatClient):
    """Calls the tool, if it has it, and says `answer` to its result; fails where that is asked for."""

    def __init__(self, answer: str) -> None:
        super().__init__()
        self.answer = answer

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Mapping[str, Any], **_: Any
    ) -> Any:
        assert stream
        return self._build_response_stream(self._updates(messages, options))

    async def _updates(
        self, messages: Sequence[Message], options: Mapping[str, Any]
    ) -> AsyncIterator[ChatResponseUpdate]:
        if messages[-1].text == "Fail.":
            raise RuntimeError("the model is away")
        if options.get("tools") and messages[-1].role != "tool":
            contents = [Content.from_function_call("call-1", "search", arguments='{"query": "tides"}')]
        else:
            contents = [Content.from_text(self.answer)]
        yield ChatResponseUpdate(role="assistant", contents=contents, message_id=f"message-{len(messages)}")


def search(query: str) -> str:
    """Search for something."""
    return f"results for {query}"


researcher = Agent(ScriptedClient("It is about tides."), name="researcher", tools=[search])
writer = Agent(ScriptedClient("The moon moves the sea."), name="writer")
app = FastAPI()
add_agent_framework_fastapi_endpoint(
    app,
    WorkflowBuilder(start_executor=researcher, output_from=[researcher, writer]).add_edge(researcher, writer).build(),
    "/agent",
    single_user=True,
)
