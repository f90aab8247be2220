"""One call that makes a process export."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping
from typing import Literal

from opentelemetry import metrics as metrics_api
from opentelemetry import trace as trace_api

from agui_otel.config import Settings, checked
from agui_otel.errors import ConfigurationError
from agui_otel.exporting.destination import resolve
from agui_otel.exporting.handle import Handle, current_handle, register
from agui_otel.tracing.forking import renewed

_logger = logging.getLogger(__name__)

_setup_lock = renewed(sys.modules[__name__], "_setup_lock", threading.Lock)
_published: list[object] = []
"""The providers of ours that became OpenTelemetry's global ones; they stay that for the process's life."""


def setup(
    *,
    phoenix: bool | str | None = None,
    endpoint: str | None = None,
    protocol: Literal["http/protobuf", "grpc"] | None = None,
    headers: Mapping[str, str] | None = None,
    project: str | None = None,
    service_name: str | None = None,
    config: Settings | None = None,
    metrics: bool = True,
    set_global: bool = True,
    exit_timeout: float = 5.0,
) -> Handle:
    """Make this process export traces and metrics over OTLP, and return the handle of what was made.

    Without arguments the environment decides: `PHOENIX_COLLECTOR_ENDPOINT`, else the standard `OTEL_*`
    variables, else a collector at http://localhost:4318 (docs/configuration.md lists them). Arguments win.

    phoenix: the URL of Phoenix; or True for the one that the environment names, else http://localhost:6006.
        Traces only: Phoenix takes no metrics. False ignores the `PHOENIX_*` endpoint variables.
    endpoint: base URL of an OTLP receiver for traces and metrics, such as http://collector:4318.
    protocol: `http/protobuf` (the default, but for port 4317) or `grpc`, which needs `agui-otel[grpc]`.
    headers: sent with each request to Phoenix or `endpoint`.
    project: Phoenix project, written as the resource's `openinference.project.name`.
    service_name: the resource's `service.name`.
    config: settings; only `disabled` and `metrics` matter here.
    metrics: False exports no metrics: they are recorded with the process's global meter provider.
    set_global: make the providers OpenTelemetry's global ones, and this handle the one that `trace_events`
        and the other ways in use. False does neither: hand `handle.tracer_provider` to where it is needed.
    exit_timeout: seconds that sending the rest at the interpreter's exit may take.

    Raises `ConfigurationError` for wrong values; when it was called before without `shutdown()`; and when the
    host has already set global providers (which `trace_events` uses without any set-up). With
    `AGUI_OTEL_DISABLED` or `OTEL_SDK_DISABLED` nothing is exported and the handle's providers do nothing.
    """
    settings = checked(config) or Settings()
    if settings.disabled:
        return Handle(trace_api.NoOpTracerProvider(), metrics_api.NoOpMeterProvider(), exit_timeout=exit_timeout)
    plan = resolve(
        os.environ,
        phoenix=phoenix,
        endpoint=endpoint,
        protocol=protocol,
        headers=headers,
        project=project,
        metrics=metrics and settings.metrics,
    )
    from agui_otel.exporting.making import make  # the SDK is for those who set up, not for every import

    with _setup_lock:
        if set_global:
            _refuse_what_is_taken(measured=plan.metrics is not None)
        handle = make(plan, settings, service_name, exit_timeout)
        register(handle, current=set_global)
        if set_global:
            _publish(handle)
        return handle


def setup_where_nobody_did(config: Settings | None = None) -> Handle | None:
    """`setup()` by the environment alone, for a process in which nobody has set a global TracerProvider; else None.

    A global MeterProvider that somebody has set is used. Raises `ConfigurationError` for wrong values.
    """
    if current_handle() is not None or _is_the_hosts(trace_api.get_tracer_provider()):
        return None
    return setup(config=config, metrics=not _is_the_hosts(metrics_api.get_meter_provider()))


def _refuse_what_is_taken(*, measured: bool) -> None:
    if current_handle() is not None:
        raise ConfigurationError(
            "setup() was called before in this process: shut its handle down first, or call "
            "setup(set_global=False) for providers beside it"
        )
    if _is_the_hosts(trace_api.get_tracer_provider()):
        raise ConfigurationError(
            "the process has a global TracerProvider already, and trace_events() uses it without setup(); "
            "call setup(set_global=False) for providers beside it"
        )
    if measured and _is_the_hosts(metrics_api.get_meter_provider()):
        raise ConfigurationError(
            "the process has a global MeterProvider already: call setup(metrics=False) to record metrics "
            "with it, or setup(set_global=False) for providers beside it"
        )


def nobody_provides() -> bool:
    """Whether this process's global providers, of traces and of metrics, are the API's own, which do nothing."""
    return all(map(_is_placeholder, (trace_api.get_tracer_provider(), metrics_api.get_meter_provider())))


def _is_the_hosts(provider: object) -> bool:
    """Whether somebody else set this global provider: it is neither ours nor the API's own placeholder."""
    return not _is_placeholder(provider) and provider not in _published


def _is_placeholder(provider: object) -> bool:
    return type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


def _publish(handle: Handle) -> None:
    """Make the handle's providers OpenTelemetry's global ones, which is possible once a process."""
    if trace_api.get_tracer_provider() in _published:
        _logger.warning(
            "setup() was called again after a shutdown: runs use the new providers, but instrumentations "
            "that rely on OpenTelemetry's global provider keep the old one; give them handle.tracer_provider"
        )
    else:
        trace_api.set_tracer_provider(handle.tracer_provider)
        _published.append(handle.tracer_provider)
    if handle.owns_meter_provider and metrics_api.get_meter_provider() not in _published:
        metrics_api.set_meter_provider(handle.meter_provider)
        _published.append(handle.meter_provider)
