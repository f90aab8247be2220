"""Where telemetry goes: a table of arguments and variables, and what they come to."""

from __future__ import annotations

from typing import Any

import pytest

from agui_otel.errors import ConfigurationError
from agui_otel.exporting.destination import Destination, resolve

HTTP, GRPC = "http/protobuf", "grpc"

TRACES = [
    # arguments, environment, protocol, endpoint (None: the exporter reads the variables)
    ({}, {}, HTTP, None),
    ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, HTTP, None),
    ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}, GRPC, None),
    ({}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, GRPC, None),
    ({}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, GRPC, None),
    (
        {},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
        HTTP,
        None,
    ),
    ({"protocol": "grpc"}, {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"}, GRPC, None),
    ({"endpoint": "http://c:4318"}, {}, HTTP, "http://c:4318/v1/traces"),
    ({"endpoint": "http://c:4318/v1/traces/"}, {}, HTTP, "http://c:4318/v1/traces"),
    ({"endpoint": "https://c/otlp"}, {}, HTTP, "https://c/otlp/v1/traces"),
    ({"endpoint": "http://c:4317"}, {}, GRPC, "http://c:4317"),
    ({"endpoint": "http://c:4317", "protocol": "http/protobuf"}, {}, HTTP, "http://c:4317/v1/traces"),
    ({"endpoint": "http://c:9"}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, GRPC, "http://c:9"),
    (
        {"endpoint": "http://c:9"},
        {"PHOENIX_COLLECTOR_ENDPOINT": "http://p:6006"},
        HTTP,
        "http://c:9/v1/traces",
    ),
    ({"phoenix": False}, {"PHOENIX_COLLECTOR_ENDPOINT": "http://p:6006"}, HTTP, None),
    ({}, {"PHOENIX_HOST": "p"}, HTTP, None),  # a server's own variable, which alone asks for no export
]

PHOENIX = [
    # arguments, environment, protocol, endpoint, base of the pages
    ({"phoenix": True}, {}, HTTP, "http://localhost:6006/v1/traces", "http://localhost:6006"),
    ({"phoenix": True}, {"PHOENIX_PORT": "1"}, HTTP, "http://localhost:1/v1/traces", "http://localhost:1"),
    (
        {"phoenix": True},
        {"PHOENIX_HOST": "0.0.0.0", "PHOENIX_PORT": "70"},
        HTTP,
        "http://localhost:70/v1/traces",
        "http://localhost:70",
    ),
    ({"phoenix": True}, {"PHOENIX_HOST": "p:80"}, HTTP, "http://p:80/v1/traces", "http://p:80"),
    ({"phoenix": True}, {"PHOENIX_HOST": "::1"}, HTTP, "http://[::1]:6006/v1/traces", "http://[::1]:6006"),
    ({"phoenix": True}, {"PHOENIX_HOST": "https://p"}, HTTP, "https://p:6006/v1/traces", "https://p:6006"),
    (
        {"phoenix": True},
        {"PHOENIX_HOST": "q", "PHOENIX_COLLECTOR_ENDPOINT": "http://p:6006/v1/traces"},
        HTTP,
        "http://p:6006/v1/traces",
        "http://p:6006",
    ),
    (
        {},
        {"PHOENIX_COLLECTOR_ENDPOINT": "https://p/s/me", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"},
        HTTP,
        "https://p/s/me/v1/traces",
        "https://p/s/me",
    ),
    ({"phoenix": "http://p:6006/"}, {}, HTTP, "http://p:6006/v1/traces", "http://p:6006"),
    (
        {"phoenix": "http://p:6006"},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        HTTP,
        "http://p:6006/v1/traces",
        "http://p:6006",
    ),
    ({"phoenix": "http://p:6006", "protocol": "grpc"}, {}, GRPC, "http://p:4317", "http://p:6006"),
    ({"phoenix": "http://p:4317"}, {}, GRPC, "http://p:4317", "http://p:6006"),
    (
        {"phoenix": "http://p:44"},
        {"PHOENIX_GRPC_PORT": "44", "PHOENIX_PORT": "66"},
        GRPC,
        "http://p:44",
        "http://p:66",
    ),
]

METRICS = [
    # arguments, environment, endpoint ("": none are exported, None: the exporter reads the variables)
    ({}, {}, None),
    ({"endpoint": "http://c:4318"}, {}, "http://c:4318/v1/metrics"),
    ({"metrics": False}, {}, ""),
    ({}, {"OTEL_METRICS_EXPORTER": "none"}, ""),
    ({"endpoint": "http://c:4318"}, {"OTEL_METRICS_EXPORTER": "none"}, ""),
    ({"phoenix": True}, {}, ""),
    ({"phoenix": True}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, None),
    ({"phoenix": True}, {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:4318/m"}, None),
    ({"phoenix": True}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318"}, ""),
    ({"phoenix": True}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:6006"}, ""),
]

WRONG = [
    (
        {"phoenix": True, "endpoint": "http://c"},
        {},
        "phoenix=True and endpoint='http://c' both say where traces go",
    ),
    ({"endpoint": "c:4318"}, {}, "endpoint='c:4318': it should be a URL such as http://localhost:4318"),
    ({"endpoint": "http://c:port"}, {}, "endpoint='http://c:port': it should be a URL"),
    ({"phoenix": ""}, {}, "phoenix='': it should be a URL"),
    ({"protocol": "http/json"}, {}, "protocol='http/json': it should be 'http/protobuf' or 'grpc'"),
    (
        {},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
        "OTEL_EXPORTER_OTLP_PROTOCOL='http/json': it should be",
    ),
    (
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "c:4318"},
        "OTEL_EXPORTER_OTLP_ENDPOINT='c:4318': it should be a URL",
    ),
    (
        {},
        {"PHOENIX_COLLECTOR_ENDPOINT": "phoenix"},
        "PHOENIX_COLLECTOR_ENDPOINT='phoenix': it should be a URL",
    ),
    ({"phoenix": True}, {"PHOENIX_PORT": "six"}, "PHOENIX_PORT='six': it should be a port, 1 to 65535"),
    ({}, {"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER='zipkin': setup() exports by 'otlp' or"),
    ({}, {"OTEL_METRICS_EXPORTER": "prometheus"}, "OTEL_METRICS_EXPORTER='prometheus': setup() exports by"),
]


@pytest.mark.parametrize(("arguments", "environ", "protocol", "endpoint"), TRACES)
def test_traces(arguments: Any, environ: dict[str, str], protocol: Any, endpoint: str | None) -> None:
    """Traces go where the arguments say, else the Phoenix variable, else the standard ones."""
    plan = resolve(environ, **arguments)
    assert (Destination(protocol, endpoint), None) == (plan.traces, plan.phoenix_url)


@pytest.mark.parametrize(("arguments", "environ", "protocol", "endpoint", "pages"), PHOENIX)
def test_phoenix(arguments: Any, environ: dict[str, str], protocol: Any, endpoint: str, pages: str) -> None:
    """Traces go to Phoenix's receiver, and the pages' base is known, for each way to name it."""
    plan = resolve(environ, **arguments)
    assert (Destination(protocol, endpoint), pages) == (plan.traces, plan.phoenix_url)


@pytest.mark.parametrize(("arguments", "environ", "endpoint"), METRICS)
def test_metrics(arguments: Any, environ: dict[str, str], endpoint: str | None) -> None:
    """Metrics go to the endpoint or by the standard variables, and never to Phoenix."""
    found = resolve(environ, **arguments).metrics
    assert (None if endpoint == "" else Destination("http/protobuf", endpoint)) == found


@pytest.mark.parametrize(("arguments", "environ", "expected"), WRONG)
def test_wrong(arguments: Any, environ: dict[str, str], expected: str) -> None:
    """What cannot be used is an error that names it, its value and what is allowed."""
    with pytest.raises(ConfigurationError) as caught:
        resolve(environ, **arguments)
    assert str(caught.value).startswith(expected)


def test_no_traces_no_phoenix() -> None:
    """OTEL_TRACES_EXPORTER=none wins over an argument, and then nothing is exported to Phoenix."""
    plan = resolve({"OTEL_TRACES_EXPORTER": "none"}, phoenix=True)
    assert (None, None) == (plan.traces, plan.phoenix_url)


@pytest.mark.parametrize(
    ("arguments", "environ", "expected"),
    [
        ({"phoenix": True}, {"PHOENIX_API_KEY": "k"}, {"authorization": "Bearer k"}),
        ({"phoenix": True}, {"PHOENIX_CLIENT_HEADERS": "X-A=1,b=a%20b"}, {"x-a": "1", "b": "a b"}),
        (
            {"phoenix": True, "headers": {"Authorization": "Basic x"}},
            {"PHOENIX_API_KEY": "k"},
            {"authorization": "Basic x"},
        ),
        ({}, {"PHOENIX_API_KEY": "k"}, {}),
        ({"endpoint": "http://c", "headers": {"A": "1"}}, {}, {"a": "1"}),
        ({"headers": {"a": "1"}}, {"OTEL_EXPORTER_OTLP_HEADERS": "a=2,b=3"}, {"a": "1", "b": "3"}),
        ({}, {"OTEL_EXPORTER_OTLP_HEADERS": "a=2", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "b=3"}, {"b": "3"}),
    ],
)
def test_headers(arguments: Any, environ: dict[str, str], expected: dict[str, str]) -> None:
    """The standard variables' headers, then Phoenix's, then the argument's; the key goes to Phoenix only."""
    traces = resolve(environ, **arguments).traces
    assert traces is not None
    assert expected == traces.headers


def test_an_argument_for_phoenix_stays_with_phoenix() -> None:
    """Headers that are meant for Phoenix are not sent to the metrics' receiver."""
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "PHOENIX_API_KEY": "k"}
    plan = resolve(environ, phoenix=True, headers={"x": "1"})
    assert Destination("http/protobuf", None) == plan.metrics


@pytest.mark.parametrize(
    ("argument", "environ", "expected"),
    [
        (None, {}, None),
        (None, {"PHOENIX_PROJECT_NAME": "a"}, "a"),
        (None, {"PHOENIX_PROJECT_NAME": "a", "PHOENIX_PROJECT": "b"}, "b"),
        ("c", {"PHOENIX_PROJECT": "b"}, "c"),
    ],
)
def test_project(argument: str | None, environ: dict[str, str], expected: str | None) -> None:
    """The project is the argument's, else that of Phoenix's variables, the newer name first."""
    assert expected == resolve(environ, project=argument).project
