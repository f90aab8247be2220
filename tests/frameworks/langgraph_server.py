"""A deep agent behind ag-ui-langgraph's own endpoint, with its subagents named in the stream, and as by default."""

# The packages of the agent are not among those that this project is checked with.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from fastapi import FastAPI

from examples.langgraph_agent import make_agent

app = FastAPI()
add_langgraph_fastapi_endpoint(app, make_agent(), "/agent")
by_default = LangGraphAgent(name="supervisor", graph=make_agent().graph, emit_raw_events=False)
add_langgraph_fastapi_endpoint(app, by_default, "/default")
