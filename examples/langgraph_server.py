"""A deep agent behind ag-ui-langgraph's endpoint for FastAPI, traced by the middleware: the marked lines do it.

    pip install . 'ag-ui-langgraph[fastapi]' deepagents uvicorn    # in a checkout of agui-otel
    export PHOENIX_COLLECTOR_ENDPOINT=http://localhost:6006
    uvicorn --app-dir examples langgraph_server:app
    curl -N localhost:8000/agent -H 'content-type: application/json' -d '{
        "threadId": "thread-1", "runId": "run-1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{"id": "1", "role": "user", "content": "What moves the sea?"}]}'

The agent is the one of langgraph_agent.py: it asks no model.
"""

# The packages of the agent are not among those that this project is checked with.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from ag_ui_langgraph import add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langgraph_agent import make_agent

from agui_otel import TracingMiddleware, setup  # 1

setup(service_name="examples")  # 2: where traces go, as the environment says
app = FastAPI(telemetry={"tracing": False})  # of FastAPI's own tracing, a trace beside each run's
app.add_middleware(TracingMiddleware, agent_name="supervisor")  # 3
add_langgraph_fastapi_endpoint(app, make_agent(), "/agent")
