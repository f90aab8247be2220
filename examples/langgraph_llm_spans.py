"""The agent of langgraph_server.py with the LLM spans of openinference-instrumentation-langchain inside its runs.

    pip install . 'ag-ui-langgraph[fastapi]' deepagents uvicorn openinference-instrumentation-langchain
    export PHOENIX_COLLECTOR_ENDPOINT=http://localhost:6006
    uvicorn --app-dir examples langgraph_llm_spans:app
    curl -N localhost:8000/agent -H 'content-type: application/json' -d '{
        "threadId": "thread-1", "runId": "run-1", "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{"id": "1", "role": "user", "content": "What moves the sea?"}]}'

A run is one trace: who does what, from the stream, and below the run the chain of calls that LangChain reports, each
with the run's session. The LLM spans say how many tokens were used, so no `usage` spans are made from the stream, and
Phoenix counts each token once.
"""

# The packages of the agent are not among those that this project is checked with.
# mypy: disable-error-code="import-not-found"

from __future__ import annotations

from ag_ui_langgraph import add_langgraph_fastapi_endpoint
from fastapi import FastAPI
from langgraph_agent import make_agent
from openinference.instrumentation.langchain import LangChainInstrumentor

from agui_otel import TracingMiddleware, setup

handle = setup(service_name="examples")
LangChainInstrumentor().instrument(tracer_provider=handle.tracer_provider)
app = FastAPI(telemetry={"tracing": False})
app.add_middleware(TracingMiddleware, agent_name="supervisor")
add_langgraph_fastapi_endpoint(app, make_agent(), "/agent")
