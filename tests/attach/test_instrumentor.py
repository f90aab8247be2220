"""Zero code: every Starlette and FastAPI application is traced, once, wherever it comes from, until that is undone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import set_tracer_provider
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.routing import Mount, Route

from agui_otel import Settings, TracingMiddleware, setup
from agui_otel.attach.instrumentor import AGUIInstrumentor
from scripts.doc_outputs import ROOT, environment
from tests.support.receivers import Received, http_receiver
from tests.support.servers import JSON, ask, asking, eventually, forever, free_port, listens, served, sse, streaming
from tests.support.sources import HALF, INPUT, WHOLE
from tests.support.watched import Alarm, Watched, parent_id, span_id, values

ORIGINAL = ExceptionMiddleware.__call__


@pytest.fixture
def instrumented(watched: Watched) -> Iterator[AGUIInstrumentor]:
    """An instrumentor that is on, with the providers of the test."""
    instrumentor = AGUIInstrumentor()
    instrumentor.instrument(agent_name="planner", **watched.keywords)
    yield instrumentor
    if instrumentor.is_instrumented_by_opentelemetry:
        instrumentor.uninstrument()
    assert ORIGINAL is ExceptionMiddleware.__call__


def starlette(**options: Any) -> Starlette:
    """An application with one stream."""
    return Starlette(routes=[Route("/agent", streaming([sse(WHOLE)]), methods=["POST"])], **options)


def fastapi() -> FastAPI:
    """The same with FastAPI."""
    app = FastAPI()
    answer = streaming([sse(WHOLE)])

    @app.post("/agent")
    async def agent(request: Request) -> Any:
        return await answer(request)

    return app


@pytest.mark.parametrize("make", [starlette, fastapi])
def test_applications_are_traced_from_now_on_until_no_longer(watched: Watched, make: Any) -> None:
    """One that runs already, one that is made later; after `uninstrument` neither, and the class is what it was."""
    early = make()
    instrumentor = AGUIInstrumentor()
    with served(early) as port:
        ask(port)
        assert [] == watched.runs
        instrumentor.instrument(agent_name="planner", **watched.keywords)
        try:
            ask(port)
            with served(make()) as other:
                ask(other)
        finally:
            instrumentor.uninstrument()
        ask(port)
        assert ORIGINAL is ExceptionMiddleware.__call__
    watched.check()
    assert ["planner", "planner"] == [values(run)["gen_ai.agent.name"] for run in watched.runs]


@pytest.mark.usefixtures("instrumented")
def test_a_request_is_traced_once(watched: Watched) -> None:
    """Also where applications are mounted in one another, or have the middleware already."""
    mounted = Starlette(routes=[Mount("/sub", app=starlette()), Mount("/fast", app=fastapi())])
    own = starlette(middleware=[Middleware(TracingMiddleware, **{**watched.keywords, "agent_name": "own"})])
    with served(mounted) as port:
        assert sse(WHOLE) == ask(port, path="/sub/agent").body
        assert sse(WHOLE) == ask(port, path="/fast/agent").body
    with served(own) as port:
        ask(port)
    watched.check()
    assert ["planner", "planner", "own"] == [values(run)["gen_ai.agent.name"] for run in watched.runs]


@pytest.mark.usefixtures("instrumented")
def test_a_middlewares_span_is_the_runs_parent(watched: Watched) -> None:
    """We stand inside what the application has added: its server span is around the run."""

    def server_span(app: Any) -> Any:
        async def serve(scope: Any, receive: Any, send: Any) -> None:
            with watched.tracer.start_as_current_span("server"):
                await app(scope, receive, send)

        return serve

    with served(starlette(middleware=[Middleware(server_span)])) as port:
        ask(port)
    assert span_id(watched.named("server")) == parent_id(watched.run)


@pytest.mark.usefixtures("instrumented")
def test_what_the_framework_refuses_is_a_failed_run(watched: Watched) -> None:
    """FastAPI's validation answers 422."""
    app = FastAPI()

    @app.post("/agent")
    async def agent(missing: int) -> None:
        del missing

    with served(app) as port:
        assert 422 == ask(port).status
    assert ("422", "refused") == (values(watched.run)["error.type"], values(watched.run)["agui.cause"])


def test_a_request_that_is_open_is_traced_to_its_end(watched: Watched, instrumented: AGUIInstrumentor) -> None:
    """Undoing takes nothing away from what has begun."""
    with served(Starlette(routes=[Route("/agent", streaming([sse(HALF)], then=forever), methods=["POST"])])) as port:
        with asking(port) as response:
            assert response.read(10)
            instrumented.uninstrument()
        eventually(lambda: bool(watched.runs))
    watched.check()
    assert "disconnected" == values(watched.run)["agui.outcome"]


def test_another_patch_around_ours_stays(watched: Watched, instrumented: AGUIInstrumentor) -> None:
    """Whoever came later is not undone with us; ours does nothing any more."""
    ours = ExceptionMiddleware.__call__

    async def other(*arguments: Any) -> None:
        await ours(*arguments)

    ExceptionMiddleware.__call__ = other  # type: ignore[method-assign, assignment]
    try:
        instrumented.uninstrument()
        assert other is ExceptionMiddleware.__call__
        with served(starlette()) as port:
            assert sse(WHOLE) == ask(port).body
        assert [] == watched.runs
    finally:
        ExceptionMiddleware.__call__ = ORIGINAL  # type: ignore[method-assign]


def test_content_needs_to_be_asked_for(watched: Watched) -> None:
    """By default names, ids and counts are exported, whatever the destination."""
    instrumentor = AGUIInstrumentor()
    keywords = {**watched.keywords, "config": Settings()}
    for config, expected in ((Settings(), None), (Settings(capture="full"), "hi")):
        instrumentor.instrument(**{**keywords, "config": config})
        with served(starlette()) as port:
            ask(port, {**INPUT, "messages": [{"id": "m", "role": "user", "content": "hi"}]})
        instrumentor.uninstrument()
        assert expected == values(watched.runs[-1]).get("input.value")


@pytest.mark.usefixtures("harmless")
def test_a_wrong_environment_stops_nobody(heard: Alarm, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is logged, and nothing is traced."""
    monkeypatch.setenv("AGUI_OTEL_STEPS", "sometimes")
    AGUIInstrumentor().instrument()
    assert ORIGINAL is ExceptionMiddleware.__call__
    AGUIInstrumentor().uninstrument()
    (message,) = heard.messages
    assert "AGUI_OTEL_STEPS" in message


def test_disabled_patches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a call more."""
    monkeypatch.setenv("AGUI_OTEL_DISABLED", "true")
    AGUIInstrumentor().instrument()
    assert ORIGINAL is ExceptionMiddleware.__call__
    AGUIInstrumentor().uninstrument()


def test_the_entry_point_is_known() -> None:
    """`opentelemetry-instrument` finds it by its name."""
    (found,) = entry_points(group="opentelemetry_instrumentor", name="agui")
    assert AGUIInstrumentor is found.load()


def app_of_a_host() -> Starlette:
    """An application whose process has providers of its own, which it makes after everything was instrumented."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(os.environ["HOSTS_OWN_RECEIVER"])))
    set_tracer_provider(provider)
    return starlette()


def app_that_sets_up() -> Starlette:
    """An application that calls `setup`, as if there were no zero code."""
    setup(endpoint=os.environ["HOSTS_OWN_RECEIVER"].removesuffix("/v1/traces"), metrics=False)
    return starlette()


def run_instrumented(factory: str, variables: dict[str, str]) -> bytes:
    """Run an application with `opentelemetry-instrument uvicorn`, ask once, and stop it; what it answered."""
    port = free_port()
    scripts = Path(sys.executable).parent
    command = [
        *(str(scripts / "opentelemetry-instrument"), str(scripts / "uvicorn")),
        *("--factory", f"{__name__}:{factory}", "--port", str(port)),
    ]
    process = subprocess.Popen(
        command, cwd=ROOT, env={**environment(), **variables}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        eventually(lambda: listens(port), 30)
        answer = ask(port, {**INPUT, "messages": []}, headers=JSON).body
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
        assert b"Traceback" not in output
        return answer
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("factory", ["starlette", "fastapi"])
@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "PHOENIX_COLLECTOR_ENDPOINT"])
def test_the_command_traces_an_application_without_a_line_of_code(factory: str, variable: str) -> None:
    """It exports where the variables say, and its last spans before the server ends itself by its signal."""
    with http_receiver() as received:
        answer = run_instrumented(factory, {variable: received.url, "OTEL_TRACES_EXPORTER": "otlp"})
    assert sse(WHOLE) == answer
    assert TREE == tree_in(received)


TREE = ["execute_tool search", "invoke_agent", "invoke_agent scout", "message assistant"]


def tree_in(received: Received) -> list[str]:
    """The names of this package's spans, whatever the framework's own telemetry sends; sorted."""
    scopes = (scope for request in received.traces for group in request.resource_spans for scope in group.scope_spans)
    return sorted(span.name for scope in scopes if scope.scope.name == "agui_otel" for span in scope.spans)


@pytest.mark.parametrize("factory", ["app_of_a_host", "app_that_sets_up"])
def test_the_hosts_own_providers_are_used(factory: str) -> None:
    """Nothing is made beside them, though they come later than the instrumentation."""
    with http_receiver() as other, http_receiver() as received:
        variables = {
            "HOSTS_OWN_RECEIVER": f"{received.url}/v1/traces",
            "OTEL_EXPORTER_OTLP_ENDPOINT": other.url,
            "OTEL_TRACES_EXPORTER": "otlp",
        }
        run_instrumented(factory, variables)
    assert ([], TREE) == (other.span_names(), tree_in(received))
