"""A deep agent behind ag-ui-langgraph's own endpoint."""

# The packages of the agent are not among those that this project is checked with.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from ag_ui_langgraph import add_langgraph_fastapi_endpoint
from fastapi import FastAPI

from examples.langgraph_agent import make_agent

app = FastAPI()
add_langgraph_fastapi_endpoint(app, make_agent(), "/agent")
