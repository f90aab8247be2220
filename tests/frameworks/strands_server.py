"""Agents of AWS's Strands behind ag-ui-strands' endpoint: one that searches, and a graph of that and a writer."""

# The framework is not among the packages that this project is checked with.
# mypy: disable-error-code="import-not-found, misc, untyped-decorator"

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from ag_ui_strands import StrandsAgent, add_strands_fastapi_endpoint
from fastapi import FastAPI
from strands import Agent, tool
from strands.models import Model
from strands.multiagent import GraphBuilder


class ScriptedModel(Model):
    """Calls the first of its tools, and says `answer` to its result; without tools, at once."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def update_config(self, **model_config: Any) -> None:
        """There is nothing to configure."""

    def get_config(self) -> dict[str, Any]:
        """There is nothing to configure."""
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        """Not asked for."""
        raise NotImplementedError

    async def stream(self, messages: Any, tool_specs: Any = None, *_: Any, **__: Any) -> AsyncIterator[dict[str, Any]]:
        """The answer in one piece."""
        calls = tool_specs and not any("toolResult" in block for block in messages[-1]["content"])
        tool_use = {"name": "search", "toolUseId": "call-1"}
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {"toolUse": tool_use} if calls else {}}}
        yield {
            "contentBlockDelta": {
                "delta": {"toolUse": {"input": json.dumps({"query": "tides"})}} if calls else {"text": self.answer}
            }
        }
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}
        yield {"metadata": {"usage": {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}, "metrics": {}}}


@tool
def search(query: str) -> str:
    """Search for something."""
    return f"results for {query}"


researcher = Agent(ScriptedModel("It is about tides."), tools=[search])
graph = GraphBuilder()
graph.add_node(researcher, "researcher")
graph.add_node(Agent(ScriptedModel("The moon moves the sea.")), "writer")
graph.add_edge("researcher", "writer")
app = FastAPI()
add_strands_fastapi_endpoint(app, StrandsAgent(researcher, name="researcher"), "/agent")
add_strands_fastapi_endpoint(app, StrandsAgent(graph.build(), name="planner"), "/graph")
