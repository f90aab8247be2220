"""Each way in which a request can end (trace model: outcomes): one outcome, once; the host sees what it saw before."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse
from starlette.routing import Route

from agui_otel import Settings, TracingMiddleware, trace_events
from agui_otel.tracing.boundary import Boundary
from scripts.doc_outputs import ROOT, environment
from tests.attach.test_asgi import application, call, serving
from tests.support.receivers import http_receiver
from tests.support.servers import ask, asking, eventually, forever, free_port, listens, served, sse, streaming
from tests.support.sources import DONE, FAILED, HALF, INPUT, RUN, WHOLE
from tests.support.watched import Alarm, Watched, exceptions, parent_id, span_id, values


class Broken(Exception):  # noqa: N818
    """What an application raises here."""


def ending(watched: Watched) -> tuple[str, str | None, str | None, str]:
    """How the only run ended: outcome, error type, cause and status; after the checks that hold for every trace."""
    watched.check()
    run = watched.run
    told = values(run)
    return str(told["agui.outcome"]), told.get("error.type"), told.get("agui.cause"), run.status.status_code.name


@pytest.mark.parametrize("wait", [0.01, 0.1, 1.0])
def test_a_client_that_leaves_has_disconnected(watched: Watched, wait: float) -> None:
    """In mid-stream; the application returns normally, as Starlette's responses do."""
    with serving(streaming([sse(HALF)], then=forever), watched) as port:
        with asking(port) as response:
            assert response.read(10) == sse(HALF)[:10]
            time.sleep(wait)
        eventually(lambda: bool(watched.runs))
    assert ("disconnected", None, None, "UNSET") == ending(watched)


def test_a_client_that_leaves_before_the_response_has_disconnected(watched: Watched) -> None:
    """The application asked whether it is still there."""
    began = threading.Event()

    async def endpoint(request: Any) -> Any:
        began.set()
        while not await request.is_disconnected():
            await asyncio.sleep(0.01)
        return PlainTextResponse("too late")

    with serving(endpoint, watched) as port:
        with socket.create_connection(("127.0.0.1", port)) as client:
            body = b'{"threadId":"thread","runId":"run","messages":[]}'
            head = f"POST /agent HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
            client.sendall(head.encode() + b"\r\n\r\n" + body)
            assert began.wait(10)
        eventually(lambda: bool(watched.runs))
    assert ("disconnected", None, None, "UNSET") == ending(watched)


def test_a_send_that_fails_is_a_disconnect(watched: Watched) -> None:
    """Servers of ASGI 2.4 raise where the client is gone; the same error reaches the application."""
    caught: list[Any] = []
    error = OSError("gone")

    async def app(_: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        try:
            await send({"type": "http.response.body", "body": sse(HALF), "more_body": True})
        except OSError as caused:
            caught.append(caused)

    async def receive() -> Any:
        return {"type": "http.request", "body": b'{"threadId":"thread","runId":"run","messages":[]}'}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            raise error

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-type", b"application/json")]}
    asyncio.run(TracingMiddleware(app, **watched.keywords)(scope, receive, send))
    assert [error] == caught
    assert ("disconnected", None, None, "UNSET") == ending(watched)
    assert 6 == values(watched.run)["agui.events.count"]


@pytest.mark.parametrize("announced", [True, False])
def test_a_cancelled_task_is_a_cancelled_run(watched: Watched, announced: bool) -> None:
    """The server stops, and its client is still there."""

    async def main() -> None:
        app = application(streaming([sse(HALF)], then=forever), watched)
        sent: list[Any] = []
        body = b'{"threadId":"thread","runId":"run","messages":[]}' if announced else b"{}"
        received = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            message = next(received, None)
            if message is None:
                await forever()
            return message

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "method": "POST", "path": "/agent", "root_path": "", "query_string": b"",
            "headers": [(b"content-type", b"application/json")],
        }  # fmt: skip
        task = asyncio.create_task(app(scope, receive, send))
        while len(sent) < 2:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ("cancelled", None, None, "UNSET") == ending(watched)


def test_an_exception_in_mid_stream_is_an_error(watched: Watched) -> None:
    """The producer raised; the server closes the connection, as it does without us."""

    async def fail() -> None:
        raise Broken("no")

    with serving(streaming([sse(HALF)], then=fail), watched) as port:
        with pytest.raises(Exception, match="IncompleteRead"):
            ask(port)
        eventually(lambda: bool(watched.runs))
    assert ("error", f"{__name__}.Broken", "own", "ERROR") == ending(watched)
    assert [f"{__name__}.Broken"] == exceptions(watched.run)


def test_an_exception_before_the_response_is_an_error(watched: Watched) -> None:
    """The framework answers 500; the exception says more."""

    async def endpoint(_: Any) -> Any:
        raise Broken("no")

    with serving(endpoint, watched) as port:
        assert 500 == ask(port).status
    assert ("error", f"{__name__}.Broken", "own", "ERROR") == ending(watched)


@pytest.mark.parametrize(
    ("status", "cause", "description"),
    [(500, "own", "HTTP 500 Internal Server Error"), (503, "own", "HTTP 503 Service Unavailable"),
     (401, "refused", "HTTP 401 Unauthorized"), (422, "refused", None), (499, "refused", "HTTP 499")],
)  # fmt: skip
def test_a_status_that_refuses_is_a_failed_run(
    watched: Watched, status: int, cause: str, description: str | None
) -> None:
    """400 and above: the status is the error's type, and a request's fault pages nobody."""

    async def endpoint(_: Any) -> Any:
        if status == 401:
            raise HTTPException(status)
        return JSONResponse({"detail": "no"}, status)

    with serving(endpoint, watched) as port:
        assert status == ask(port).status
    assert ("error", str(status), cause, "ERROR") == ending(watched)
    assert description in (None, watched.run.status.description)
    errors = watched.captured.metrics()["agui.run.errors"]
    assert {cause: 1} == {labels["agui.cause"]: value for labels, value in errors if value}


def test_without_an_input_a_refusal_is_no_run(watched: Watched) -> None:
    """Any request may be refused."""

    async def endpoint(_: Any) -> Any:
        return JSONResponse({}, 404)

    with serving(endpoint, watched) as port:
        ask(port, {"threadId": "t"})
    assert () == watched.captured.spans


def test_what_happens_after_the_last_byte_says_nothing(watched: Watched) -> None:
    """The run ended with the response: background tasks, and the disconnect that follows, are after it."""
    go_on, done = threading.Event(), threading.Event()

    async def later() -> None:
        await asyncio.to_thread(go_on.wait, 10)
        done.set()
        raise Broken

    async def endpoint(_: Any) -> Any:
        async def body() -> Any:
            yield sse(WHOLE)

        return StreamingResponse(body(), media_type="text/event-stream", background=BackgroundTask(later))

    with serving(endpoint, watched) as port:
        ask(port)
        eventually(lambda: bool(watched.runs))
        go_on.set()
        assert done.wait(10)
    assert ("success", None, None, "UNSET") == ending(watched)


def test_a_client_that_leaves_after_the_terminal_event_changes_nothing(watched: Watched) -> None:
    """The terminal event has decided, though the response never ended."""
    with serving(streaming([sse([RUN, FAILED])], then=forever), watched) as port:
        with asking(port) as response:
            assert response.read(10)
        eventually(lambda: bool(watched.runs))
    assert ("error", "broke", "own", "ERROR") == ending(watched)


def test_an_application_that_never_answers_leaves_an_unfinished_run(watched: Watched) -> None:
    """It returned."""

    async def app(_: Any, receive: Any, send: Any) -> None:
        del receive, send

    call(TracingMiddleware(app, **watched.keywords), INPUT)
    assert ("unfinished", None, None, "UNSET") == ending(watched)


@pytest.mark.parametrize("whole", [True, False], ids=["collected", "streamed"])
@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize("given", [INPUT, None])
def test_trace_events_inside_counts_once(watched: Watched, whole: bool, announced: bool, given: Any) -> None:
    """One observer a stream: whoever knows the run first; its name and attributes come from both."""

    async def source() -> Any:
        for event in WHOLE:
            yield event

    async def endpoint(_: Any) -> Any:
        traced = trace_events(
            source(), input=given, agent_name="planner", attributes={"inner": True}, **watched.keywords
        )

        async def body() -> Any:
            if whole:
                yield sse([event async for event in traced])
            else:
                async for event in traced:
                    yield sse([event])

        return StreamingResponse(body(), media_type="text/event-stream")

    with serving(endpoint, watched, agent_name=None, attributes={"outer": True} if announced else None) as port:
        assert sse(WHOLE) == ask(port, INPUT if announced else {}).body
    watched.check()
    assert 1 == len(watched.runs)
    assert ("planner", True, 11) == tuple(
        values(watched.run)[key] for key in ("gen_ai.agent.name", "inner", "agui.events.count")
    )


def test_another_run_inside_is_another_run(watched: Watched) -> None:
    """An agent that runs an agent: two roots, the inner one linked to the run around it."""
    other = {**INPUT, "runId": "other"}

    async def endpoint(_: Any) -> Any:
        list(trace_events([{**RUN, "runId": "other"}, {**DONE, "runId": "other"}], input=other, **watched.keywords))
        return await streaming([sse(WHOLE)])(_)

    with serving(endpoint, watched) as port:
        ask(port)
    watched.check()
    assert ["other", "run"] == [values(run)["agui.run.id"] for run in watched.runs]
    assert [span_id(watched.runs[1])] == [link.context.span_id for link in watched.runs[0].links]


def test_two_middlewares_count_once(watched: Watched) -> None:
    """The inner one passes through, and gives the name that the outer one lacks."""
    inner = application(streaming([sse(WHOLE)]), watched, agent_name="planner")
    with served(TracingMiddleware(inner, **watched.keywords)) as port:
        ask(port)
        ask(port, None, method="GET", headers={})
    watched.check()
    assert ["planner", "planner"] == [values(run)["gen_ai.agent.name"] for run in watched.runs]


def test_the_run_is_current_for_the_application(watched: Watched) -> None:
    """Spans of the endpoint, of the stream's producer and of threads are children of the run; afterwards nothing is."""

    def work(name: str) -> None:
        watched.tracer.start_span(name).end()

    async def endpoint(_: Any) -> Any:
        work("endpoint")
        await asyncio.to_thread(work, "thread")

        async def body() -> Any:
            work("body")
            yield sse(WHOLE)

        return StreamingResponse(body(), media_type="text/event-stream")

    async def outside(scope: Any, receive: Any, send: Any) -> None:
        await application(endpoint, watched)(scope, receive, send)
        work("outside")

    with served(outside) as port:
        ask(port)
    run = span_id(watched.run)
    names = ("endpoint", "thread", "body", "outside")
    assert [run, run, run, None] == [parent_id(watched.named(name)) for name in names]
    assert "thread" == values(watched.named("body"))["session.id"]


def test_a_local_span_is_the_runs_parent(watched: Watched) -> None:
    """A server span of another instrumentation, whatever the headers say."""

    async def outside(scope: Any, receive: Any, send: Any) -> None:
        with watched.tracer.start_as_current_span("POST /agent"):
            await application(streaming([sse(WHOLE)]), watched)(scope, receive, send)

    headers = {"content-type": "application/json", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    with served(outside) as port:
        ask(port, headers=headers)
        ask(port, None, method="GET", headers=headers)
    servers = [span_id(span) for span in watched.captured.spans if span.name == "POST /agent"]
    assert servers == [parent_id(run) for run in watched.runs]


def test_disabled_is_a_pass_through(watched: Watched) -> None:
    """Nothing is observed, and the application is called with the server's own functions."""
    seen: list[Any] = []

    async def app(*arguments: Any) -> None:
        seen.extend(arguments)

    async def function(*_: Any) -> Any:
        return None

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    middleware = TracingMiddleware(app, **{**watched.keywords, "config": Settings(disabled=True)})
    asyncio.run(middleware(scope, function, function))
    assert [scope, function, function] == seen


@pytest.mark.usefixtures("harmless")
def test_a_defect_of_ours_costs_the_trace_only(watched: Watched, heard: Alarm, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever raises in here, the response is what it was, and one line says what happened."""

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("agui_otel.attach.exchange._is_agui", fail)
    monkeypatch.setattr("agui_otel.attach.headers._extract", fail)
    with serving(streaming([sse(WHOLE)]), watched) as port:
        assert sse(WHOLE) == ask(port).body
    assert not Boundary.strict
    assert 2 == len(heard.messages)
    assert ["propagator", "response"] == sorted(
        labels["agui.where"] for labels, _ in watched.captured.metrics()["agui.observer.errors"]
    )
    watched.check()


@contextmanager
def command(*arguments: str, variables: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end, if it lives."""
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=ROOT, env={**environment(), **variables},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


ENDLESS = "tests.attach.test_asgi_endings:endless"


def endless() -> Any:
    """An application whose streams never end, exporting where the environment says."""
    from agui_otel import setup

    setup()
    app = Starlette(routes=[Route("/agent", streaming([sse(HALF)], then=forever), methods=["POST"])])
    app.add_middleware(TracingMiddleware, agent_name="endless")
    return app


def test_a_worker_that_is_stopped_exports_its_open_runs() -> None:
    """SIGTERM: the server cancels what is open, which ends as cancelled and is exported."""
    port = free_port()
    with http_receiver() as received:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": received.url, "OTEL_TRACES_EXPORTER": "otlp"}
        arguments = ("-m", "uvicorn", "--factory", ENDLESS, "--port", str(port), "--timeout-graceful-shutdown", "1")
        with command(*arguments, variables=variables) as process:
            eventually(lambda: listens(port), 30)
            with asking(port) as response:
                assert response.read(10)
                os.kill(process.pid, signal.SIGTERM)
                process.wait(20)
    spans = {
        span.name: {item.key: item.value.string_value for item in span.attributes}
        for request in received.traces
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    }
    assert "cancelled" == spans["invoke_agent endless"]["agui.outcome"]
    assert "aborted" == spans["execute_tool search"]["agui.outcome"]
