"""`setup`, against real receivers: what arrives, what is refused, and how it ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from opentelemetry import metrics as metrics_api

from agui_otel.config import Settings
from agui_otel.errors import ConfigurationError
from agui_otel.exporting import Handle, current_handle, handle_for, setup
from tests.support.receivers import Received, grpc_receiver, http_receiver

RECEIVERS = {"http/protobuf": http_receiver, "grpc": grpc_receiver}
GRPC_LIMIT = 4 * 1024 * 1024


def receiver(protocol: str) -> AbstractContextManager[Received]:
    """A receiver that speaks the protocol."""
    return RECEIVERS[protocol]()


def end_spans(handle: Handle, *names: str, **attributes: str) -> None:
    """Start and end a span of each name."""
    tracer = handle.tracer_provider.get_tracer("test")
    for name in names:
        tracer.start_span(name, attributes=attributes).end()


@contextmanager
def silent_port() -> Iterator[str]:
    """An address where connections are taken and nothing is ever answered."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("protocol", RECEIVERS)
def test_traces_and_metrics_arrive(protocol: Any) -> None:
    """With an endpoint, spans, metrics and the count of exported spans arrive, and name their service."""
    with receiver(protocol) as received:
        with setup(
            endpoint=received.url,
            protocol=protocol,
            service_name="shop",
            project="demo",
            headers={"X-Team": "a"},
            set_global=False,
        ) as handle:
            end_spans(handle, "a", "b")
            handle.meter_provider.get_meter("test").create_counter("mine").add(3, {"kind": "x"})
            assert handle.force_flush() is True
        assert received.span_names() == ["a", "b"]
        resource = received.resource()
        assert ("shop", "demo") == (resource["service.name"], resource["openinference.project.name"])
        assert received.headers[0]["x-team"] == "a"
        assert received.counter("mine") == {"x": 3}
        assert received.counter("agui.export.spans") == {"exported": 2, "refused": 0, "dropped": 0}


@pytest.mark.parametrize("protocol", RECEIVERS)
def test_big_spans_arrive_whole(protocol: Any) -> None:
    """Batches of spans with a hundred values of 16 KiB arrive, each request below gRPC's 4 MiB."""
    content = {f"value_{number}": "x" * 16_384 for number in range(100)}
    names = [str(number) for number in range(20)]
    with receiver(protocol) as received:
        with setup(endpoint=received.url, protocol=protocol, metrics=False, set_global=False) as handle:
            end_spans(handle, *names, **content)
            assert handle.force_flush(30) is True
        assert received.span_names() == names
        assert max(received.sizes) < GRPC_LIMIT // 2 + 16_384


def test_a_span_too_big_takes_no_other_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A span that a gRPC receiver cannot take is refused alone: its neighbours in the batch arrive."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")  # the exporter tries again until then
    with grpc_receiver() as received:
        with setup(endpoint=received.url, protocol="grpc", set_global=False) as handle:
            end_spans(handle, "before")
            end_spans(handle, "huge", content="x" * (GRPC_LIMIT + 1))
            end_spans(handle, "after")
            assert handle.force_flush(30) is True
        assert received.span_names() == ["before", "after"]
        assert received.counter("agui.export.spans") == {"exported": 2, "refused": 1, "dropped": 0}


def test_what_is_refused_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is no success counts the spans as refused; nothing is raised."""
    with http_receiver() as figures, http_receiver(status=400) as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{figures.url}/v1/metrics")
        with setup(phoenix=received.url, set_global=False) as handle:
            end_spans(handle, "a", "b", "c")
            handle.force_flush()
        assert figures.counter("agui.export.spans") == {"exported": 0, "refused": 3, "dropped": 0}


@pytest.mark.parametrize("named_by", ["argument", "PHOENIX_COLLECTOR_ENDPOINT"])
def test_phoenix(named_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Phoenix is sent traces with its key and project, and no metrics; its pages are known."""
    monkeypatch.setenv("PHOENIX_API_KEY", "secret")
    monkeypatch.setenv("PHOENIX_PROJECT_NAME", "ショップ")
    with http_receiver() as received:
        monkeypatch.setenv(
            "PHOENIX_COLLECTOR_ENDPOINT", "http://127.0.0.1:1" if named_by == "argument" else received.url
        )
        phoenix = received.url if named_by == "argument" else None
        with setup(phoenix=phoenix, set_global=False) as handle:
            end_spans(handle, "a")
            assert handle.force_flush() is True
            assert (True, received.url, "ショップ") == (
                handle.exports_to_phoenix,
                handle.phoenix_url,
                handle.project,
            )
            page = f"{received.url}/redirects/traces/{'0' * 31}a"
            assert page == handle.trace_url(10) == handle.trace_url("0" * 31 + "a")
            assert handle.meter_provider is metrics_api.get_meter_provider()
        assert received.paths == ["/v1/traces"]
        assert received.headers[0]["authorization"] == "Bearer secret"
        assert received.resource()["openinference.project.name"] == "ショップ"


def test_without_phoenix() -> None:
    """Elsewhere there is no page and no project to name."""
    with http_receiver() as received, setup(endpoint=received.url, set_global=False) as handle:
        assert (False, None, None, None) == (
            handle.exports_to_phoenix,
            handle.phoenix_url,
            handle.project,
            handle.trace_url(1),
        )


def test_standard_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an argument the standard variables say where, with which headers, and as which service."""
    with http_receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=b")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "kitchen")
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=pod-1,deployment.environment.name=test")
        with setup(set_global=False) as handle:
            end_spans(handle, "a")
        assert sorted(set(received.paths)) == ["/v1/metrics", "/v1/traces"]
        assert received.headers[0]["x-team"] == "b"
        resource = received.resource()
        assert ("kitchen", "pod-1", "test") == (
            resource["service.name"],
            resource["service.instance.id"],
            resource["deployment.environment.name"],
        )


@pytest.mark.parametrize(
    ("variable", "paths"),
    [
        ("OTEL_TRACES_EXPORTER", {"/v1/metrics"}),
        ("OTEL_METRICS_EXPORTER", {"/v1/traces"}),
        ("OTEL_SDK_DISABLED", set()),
        ("AGUI_OTEL_DISABLED", set()),
    ],
)
def test_switches(variable: str, paths: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal, or everything, can be switched off from outside; spans can be made all the same."""
    monkeypatch.setenv(variable, "none" if variable.endswith("EXPORTER") else "true")
    with http_receiver() as received:
        with setup(endpoint=received.url, set_global=False) as handle:
            end_spans(handle, "a")
            handle.meter_provider.get_meter("test").create_counter("mine").add(1)
            assert handle.force_flush() is True
        assert paths == set(received.paths)


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        (
            "OTEL_BSP_MAX_QUEUE_SIZE",
            "many",
            "OTEL_BSP_MAX_QUEUE_SIZE='many': it should be a whole number above 0",
        ),
        (
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
            "4096",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=4096: it should be at most",
        ),
        ("AGUI_OTEL_METRICS", "perhaps", "AGUI_OTEL_METRICS='perhaps': input should be a valid boolean"),
        ("PHOENIX_COLLECTOR_ENDPOINT", "here", "PHOENIX_COLLECTOR_ENDPOINT='here': it should be a URL"),
    ],
)
def test_a_wrong_variable(variable: str, text: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that cannot be used is an error that names it, and leaves nothing running."""
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigurationError) as caught:
        setup()
    assert str(caught.value).startswith(expected)
    assert current_handle() is None


def test_the_queue_takes_the_standard_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_BSP_MAX_EXPORT_BATCH_SIZE is the number of spans of a request."""
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2")
    with http_receiver() as received:
        with setup(endpoint=received.url, metrics=False, set_global=False) as handle:
            end_spans(handle, "a", "b", "c", "d", "e")
        assert received.span_names() == ["a", "b", "c", "d", "e"]
        assert max(len(request.resource_spans[0].scope_spans[0].spans) for request in received.traces) == 2


def test_providers_beside() -> None:
    """With set_global=False handles are found by their provider only, and any number lives at once."""
    with http_receiver() as received:
        one = setup(endpoint=received.url, set_global=False)
        two = setup(phoenix=received.url, set_global=False)
        assert (one, two, None) == (
            handle_for(one.tracer_provider),
            handle_for(two.tracer_provider),
            current_handle(),
        )
        one.shutdown()
        two.shutdown()
        assert handle_for(one.tracer_provider) is None


def test_settings_without_metrics() -> None:
    """`Settings(metrics=False)` exports none, as `metrics=False` does."""
    with http_receiver() as received:
        with setup(endpoint=received.url, config=Settings(metrics=False), set_global=False) as handle:
            end_spans(handle, "a")
        assert received.paths == ["/v1/traces"]


@pytest.mark.parametrize("where", ["nobody listens", "nobody answers"])
@pytest.mark.parametrize("protocol", RECEIVERS)
def test_shutdown_is_bounded(where: str, protocol: Any) -> None:
    """Shutdown returns in time where the endpoint cannot be reached; once more is nothing."""
    with silent_port() as silent:
        endpoint = "http://127.0.0.1:9" if where == "nobody listens" else silent
        handle = setup(endpoint=endpoint, protocol=protocol, set_global=False)
        end_spans(handle, "a")
        start = time.monotonic()
        done = handle.shutdown(0.5)
        assert time.monotonic() - start < 2
        assert done is False or where == "nobody listens"
        assert handle.shutdown() is True


SERVICE = """
import os, time
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.trace import TracerProvider
from agui_otel.errors import ConfigurationError
from agui_otel.exporting import current_handle, setup

URL = os.environ.get("URL")

def refused(**arguments):
    try:
        setup(**arguments)
    except ConfigurationError as error:
        return str(error)
"""


def run(body: str, **environ: str) -> str:
    """Run the body in an interpreter of its own, with warnings as errors, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SERVICE + body],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout


@pytest.mark.parametrize("protocol", RECEIVERS)
def test_flush_at_exit(protocol: str) -> None:
    """A process that just ends has sent its spans and its metrics, each once."""
    body = """
setup(endpoint=URL, protocol=os.environ["PROTOCOL"])
trace.get_tracer("host").start_span("last").end()
metrics.get_meter("host").create_counter("mine").add(1, {"kind": "x"})
"""
    with receiver(protocol) as received:
        run(body, URL=received.url, PROTOCOL=protocol)
        assert received.span_names() == ["last"]
        assert received.counter("mine") == {"x": 1}
        assert received.counter("agui.export.spans")["exported"] == 1
        assert len(received.metrics) == 1


def test_shutdown_before_the_exit() -> None:
    """After a shutdown by hand nothing is left for the exit."""
    body = """
handle = setup(endpoint=URL, metrics=False)
trace.get_tracer("host").start_span("a").end()
print(handle.shutdown(), handle.shutdown(), current_handle())
"""
    with http_receiver() as received:
        assert run(body, URL=received.url) == "True True None\n"
        assert received.span_names() == ["a"]


def test_the_exit_is_bounded() -> None:
    """A process whose receiver answers nothing ends soon after the time that `setup` allows."""
    body = """
setup(endpoint=URL, exit_timeout=0.3, metrics=False)
trace.get_tracer("host").start_span("a").end()
"""
    with silent_port() as silent:
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", SERVICE + body],
            env={**os.environ, "URL": silent},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert time.monotonic() - start < 5
        assert "Exporting did not end in time: 0 spans that were waiting are dropped" in done.stderr


def test_twice() -> None:
    """A second call is an error that says what to do; it touches nothing."""
    body = """
handle = setup(endpoint=URL)
print(refused(endpoint=URL))
print(current_handle() is handle, trace.get_tracer_provider() is handle.tracer_provider)
beside = setup(endpoint=URL, set_global=False)
print(current_handle() is handle)
"""
    with http_receiver() as received:
        assert run(body, URL=received.url).splitlines() == [
            "setup() was called before in this process: shut its handle down first, or call "
            "setup(set_global=False) for providers beside it",
            "True True",
            "True",
        ]


def test_again_after_a_shutdown() -> None:
    """After a shutdown the new handle is current; OpenTelemetry's globals stay, which is warned of."""
    body = """
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message).41s")
first = setup(endpoint=URL)
first.shutdown()
second = setup(endpoint=URL)
print(current_handle() is second, trace.get_tracer_provider() is first.tracer_provider)
second.tracer_provider.get_tracer("t").start_span("second").end()
"""
    with http_receiver() as received:
        assert run(body, URL=received.url).splitlines() == [
            "setup() was called again after a shutdown",
            "True True",
        ]
        assert received.span_names() == ["second"]


def test_where_the_host_has_providers() -> None:
    """The host's global providers are never replaced or doubled: an error says how to go on."""
    body = """
trace.set_tracer_provider(TracerProvider())
print(refused(endpoint=URL))
beside = setup(endpoint=URL, set_global=False)
print(beside.tracer_provider is trace.get_tracer_provider(), current_handle())
"""
    with http_receiver() as received:
        assert run(body, URL=received.url).splitlines() == [
            "the process has a global TracerProvider already, and trace_events() uses it without setup(); "
            "call setup(set_global=False) for providers beside it",
            "False None",
        ]


def test_where_the_host_has_metrics() -> None:
    """A global MeterProvider of the host is an error unless metrics are left to it."""
    body = """
mine = MeterProvider()
metrics.set_meter_provider(mine)
print(refused(endpoint=URL))
print(setup(endpoint=URL, metrics=False).meter_provider is mine)
"""
    with http_receiver() as received:
        assert run(body, URL=received.url).splitlines() == [
            "the process has a global MeterProvider already: call setup(metrics=False) to record metrics "
            "with it, or setup(set_global=False) for providers beside it",
            "True",
        ]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ({"phoenix": "http://phoenix.example"}, "traces to Phoenix at http://phoenix.example, project default"),
        ({"endpoint": "http://user:secret@otlp.example:4318"}, "traces to http://otlp.example:4318/v1/traces"),
        ({}, "traces to http://localhost:4318/v1/traces"),
        ({"config": Settings(disabled=True)}, "traces go nowhere"),
    ],
)
def test_a_handle_shows_where_traces_go(arguments: dict[str, Any], shown: str) -> None:
    """A handle's representation has the address, without credentials, and whether it is shut down."""
    handle = setup(**arguments, metrics=False, set_global=False, exit_timeout=0.1)
    assert f"<Handle: {shown}>" == repr(handle)
    handle.shutdown()
    assert f"<Handle: {shown}, shut down>" == repr(handle)


def test_settings_are_settings() -> None:
    """A dict in the place of settings is refused."""
    wrong: Any = {"disabled": True}
    with pytest.raises(ConfigurationError, match=r"^config should be a Settings, not dict$"):
        setup(config=wrong)
