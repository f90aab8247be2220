"""A workflow of LlamaIndex's behind its own AG-UI router: an agent that searches, on the package's own mock model."""

# The framework is not among the packages that this project is checked with.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.protocols.ag_ui.router import get_ag_ui_workflow_router


def answer(messages: Sequence[ChatMessage], **_: Any) -> ChatMessage:
    """Call the tool, and say something to its result; fail where that is asked for."""
    if messages[-1].content == "Fail.":
        raise RuntimeError("the model is away")
    if messages[-1].role == MessageRole.TOOL:
        return ChatMessage(role="assistant", content="The moon moves the sea.")
    call = ToolCallBlock(tool_call_id="call-1", tool_name="search", tool_kwargs={"query": "tides"})
    return ChatMessage(role="assistant", blocks=[call])


def search(query: str) -> str:
    """Search for something."""
    return f"results for {query}"


app = FastAPI()
app.include_router(
    get_ag_ui_workflow_router(llm=MockFunctionCallingLLM(response_generator=answer), backend_tools=[search])
)
