"""Where telemetry goes: the arguments of `setup` and the environment, resolved to one plan. No I/O.

Traces, the first that is given:
1. the argument `phoenix` or `endpoint`;
2. `PHOENIX_COLLECTOR_ENDPOINT` (unless `phoenix=False`);
3. the standard variables of the OTLP exporter, at last its default, http://localhost:4318.

Metrics go to `endpoint` or by the standard variables; never to Phoenix, which takes none: where traces go to
Phoenix there are metrics only if a variable names their endpoint. `OTEL_TRACES_EXPORTER=none` and
`OTEL_METRICS_EXPORTER=none` win over everything.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import SplitResult, urlsplit

from opentelemetry.util.re import parse_env_headers

from agui_otel.config import variable
from agui_otel.errors import ConfigurationError

Protocol = Literal["http/protobuf", "grpc"]
PROTOCOLS: tuple[Protocol, ...] = ("http/protobuf", "grpc")
GRPC_PORT = 4317
HTTP_PORT = 4318
PHOENIX_PORT = 6006


@dataclass(frozen=True)
class Destination:
    """An OTLP receiver of one signal.

    `endpoint` is the signal's whole URL for HTTP and the server's for gRPC; None leaves it to the exporter,
    which reads the standard variables. `headers` have lower-case names and include the variables'.
    """

    protocol: Protocol
    endpoint: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """The destinations of a process; None where a signal is not exported.

    `phoenix_url` is the base of Phoenix's pages, when traces go to Phoenix; `project` its project.
    """

    traces: Destination | None
    metrics: Destination | None
    phoenix_url: str | None
    project: str | None


def resolve(
    environ: Mapping[str, str],
    *,
    phoenix: bool | str | None = None,
    endpoint: str | None = None,
    protocol: str | None = None,
    headers: Mapping[str, str] | None = None,
    project: str | None = None,
    metrics: bool = True,
) -> Plan:
    """Resolve the arguments of `setup` and the environment. Raises `ConfigurationError`."""
    if endpoint is not None and phoenix:
        raise ConfigurationError(
            f"phoenix={phoenix!r} and endpoint={endpoint!r} both say where traces go: give one of them "
            "(for metrics beside Phoenix set OTEL_EXPORTER_OTLP_METRICS_ENDPOINT)"
        )
    chosen = _protocol("protocol", protocol)
    own = {name.lower(): value for name, value in (headers or {}).items()}
    base = _phoenix_base(environ, phoenix) if endpoint is None else None
    page_url = None
    if base is not None:
        traces, page_url = _to_phoenix(environ, base, chosen, own)
        figures = _beside_phoenix(environ, page_url)
    else:
        traces = _to_otlp(environ, "traces", endpoint, chosen, own)
        figures = _to_otlp(environ, "metrics", endpoint, chosen, own)
    exported = _is_exported(environ, "OTEL_TRACES_EXPORTER")
    return Plan(
        traces=traces if exported else None,
        metrics=figures if _is_exported(environ, "OTEL_METRICS_EXPORTER") and metrics else None,
        phoenix_url=page_url if exported else None,
        project=project or variable("PHOENIX_PROJECT", environ) or variable("PHOENIX_PROJECT_NAME", environ),
    )


def _phoenix_base(environ: Mapping[str, str], phoenix: bool | str | None) -> SplitResult | None:
    """Phoenix's address, or None when traces do not go to Phoenix."""
    if isinstance(phoenix, str):
        return _url("phoenix", phoenix)
    collector = variable("PHOENIX_COLLECTOR_ENDPOINT", environ)
    if phoenix is False or (phoenix is None and collector is None):
        return None
    if collector is not None:
        return _url("PHOENIX_COLLECTOR_ENDPOINT", collector)
    host = variable("PHOENIX_HOST", environ) or "localhost"
    if "://" not in host:
        # It is the address that the server binds to, and all addresses are no address to connect to.
        host = "localhost" if host in ("0.0.0.0", "::") else host
        host = f"http://[{host}]" if host.count(":") > 1 else f"http://{host}"
    parts = _url("PHOENIX_HOST", host)
    return _with_port(parts, parts.port or _port(environ, "PHOENIX_PORT", PHOENIX_PORT))


def _to_phoenix(
    environ: Mapping[str, str], base: SplitResult, protocol: Protocol | None, headers: Mapping[str, str]
) -> tuple[Destination, str]:
    """The receiver of Phoenix at `base`, and the base of its pages."""
    grpc_port = _port(environ, "PHOENIX_GRPC_PORT", GRPC_PORT)
    at_grpc = base.port == grpc_port and protocol != "http/protobuf"
    page = _with_port(base, _port(environ, "PHOENIX_PORT", PHOENIX_PORT)) if at_grpc else base
    sent = {**_standard_headers(environ, "traces"), **_headers(environ, "PHOENIX_CLIENT_HEADERS")}
    key = variable("PHOENIX_API_KEY", environ)
    if key is not None:
        sent["authorization"] = f"Bearer {key}"
    sent.update(headers)
    if at_grpc or protocol == "grpc":
        receiver = Destination("grpc", _with_port(base, grpc_port)._replace(path="").geturl(), sent)
    else:
        receiver = Destination("http/protobuf", f"{base.geturl()}/v1/traces", sent)
    return receiver, page.geturl()


def _beside_phoenix(environ: Mapping[str, str], phoenix_url: str) -> Destination | None:
    """Where metrics go when traces go to Phoenix: where a variable says, unless that is Phoenix itself."""
    named = variable("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", environ)
    if named is None:
        named = variable("OTEL_EXPORTER_OTLP_ENDPOINT", environ)
        if named is not None and urlsplit(named).netloc == urlsplit(phoenix_url).netloc:
            return None
    return None if named is None else _to_otlp(environ, "metrics", None, None, {})


def _to_otlp(
    environ: Mapping[str, str],
    signal: Literal["traces", "metrics"],
    endpoint: str | None,
    protocol: Protocol | None,
    headers: Mapping[str, str],
) -> Destination:
    """An OTLP receiver: an endpoint of ours, else what the standard variables say."""
    specific = f"OTEL_EXPORTER_OTLP_{signal.upper()}"
    stated = protocol
    for name in (f"{specific}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        stated = stated or _protocol(name, variable(name, environ))
    sent = {**_standard_headers(environ, signal), **headers}
    if endpoint is None:
        source = f"{specific}_ENDPOINT"
        source = source if variable(source, environ) else "OTEL_EXPORTER_OTLP_ENDPOINT"
        named = variable(source, environ)
        stated = stated or _protocol_of_port(named)
        if named is not None and stated == "http/protobuf":
            _url(source, named)  # gRPC takes an address without a scheme, too
        return Destination(stated, None, sent)
    parts = _url("endpoint", endpoint)
    if (stated or _protocol_of_port(endpoint)) == "grpc":
        return Destination("grpc", parts.geturl(), sent)
    return Destination("http/protobuf", f"{parts.geturl()}/v1/{signal}", sent)


def address(destination: Destination, environ: Mapping[str, str] = os.environ) -> SplitResult:
    """Where the exporter sends traces: the endpoint, or what the standard variables say in its place."""
    if destination.endpoint is not None:
        return urlsplit(destination.endpoint)
    specific = variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", environ)
    named = specific or variable("OTEL_EXPORTER_OTLP_ENDPOINT", environ)
    if destination.protocol == "grpc":
        text = named or f"http://localhost:{GRPC_PORT}"
        return urlsplit(text if "://" in text else f"//{text}")
    if specific is not None:
        return urlsplit(specific)
    return urlsplit(f"{(named or f'http://localhost:{HTTP_PORT}').rstrip('/')}/v1/traces")


def _protocol(source: str, value: str | None) -> Protocol | None:
    if value is None:
        return None
    for known in PROTOCOLS:
        if value == known:
            return known
    raise ConfigurationError(f"{source}={value!r}: it should be 'http/protobuf' or 'grpc'")


def _protocol_of_port(endpoint: str | None) -> Protocol:
    """What nothing states: gRPC at its registered port, where no receiver speaks HTTP; else HTTP."""
    return "grpc" if endpoint is not None and endpoint.rstrip("/").endswith(f":{GRPC_PORT}") else "http/protobuf"


def _is_exported(environ: Mapping[str, str], name: str) -> bool:
    value = variable(name, environ) or "otlp"
    if value not in ("otlp", "none"):
        raise ConfigurationError(
            f"{name}={value!r}: setup() exports by 'otlp' or, with 'none', not at all; for another exporter "
            "make the provider with OpenTelemetry's SDK"
        )
    return value == "otlp"


def _url(source: str, value: str) -> SplitResult:
    """A base URL: scheme and host are needed; a signal's path and a closing slash are taken off."""
    wrong = ConfigurationError(f"{source}={value!r}: it should be a URL such as http://localhost:4318")
    try:
        parts = urlsplit(value.strip())
        port = parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise wrong
    path = parts.path.rstrip("/")
    for signal in ("/v1/traces", "/v1/metrics"):
        path = path.removesuffix(signal)
    return parts._replace(path=path.rstrip("/"), query="", fragment="")


def _with_port(parts: SplitResult, port: int) -> SplitResult:
    host = parts.netloc.removesuffix(f":{parts.port}")
    return parts._replace(netloc=f"{host}:{port}")


def _port(environ: Mapping[str, str], name: str, default: int) -> int:
    text = variable(name, environ)
    if text is None:
        return default
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ConfigurationError(f"{name}={text!r}: it should be a port, 1 to 65535")
    return int(text)


def _standard_headers(environ: Mapping[str, str], signal: Literal["traces", "metrics"]) -> Mapping[str, str]:
    """The headers of the signal's standard variable, else of the general one.

    The HTTP exporter adds them by itself; the gRPC exporter reads them only where it is given none.
    """
    specific = f"OTEL_EXPORTER_OTLP_{signal.upper()}_HEADERS"
    return _headers(environ, specific if variable(specific, environ) else "OTEL_EXPORTER_OTLP_HEADERS")


def _headers(environ: Mapping[str, str], name: str) -> Mapping[str, str]:
    """A variable's headers: `name=value,name=value` with URL-encoded values."""
    return parse_env_headers(variable(name, environ) or "", liberal=True)
