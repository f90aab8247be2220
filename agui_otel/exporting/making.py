"""The making of a process's providers: exporters, resource, limits, and the handle that ends them all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import SplitResult

from opentelemetry import metrics as metrics_api
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter

from agui_otel.config import Settings, variable
from agui_otel.errors import ConfigurationError
from agui_otel.exporting.destination import Destination, Plan, address
from agui_otel.exporting.handle import Handle
from agui_otel.exporting.queue import RESULTS, Limits, SpanQueue
from agui_otel.tracing.metrics import instruments

PROJECT_NAME = "openinference.project.name"


def make(plan: Plan, settings: Settings, service_name: str | None, exit_timeout: float) -> Handle:
    """Make what the plan asks for. Raises `ConfigurationError` before anything runs."""
    limits = _queue_limits(os.environ)
    resource = _resource(service_name, plan.project)
    span_exporter = None if plan.traces is None else _span_exporter(plan.traces)
    own_meter_provider = None
    if plan.metrics is not None:
        reader = PeriodicExportingMetricReader(_metric_exporter(plan.metrics))
        own_meter_provider = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    meter_provider = own_meter_provider or metrics_api.get_meter_provider()
    tracer_provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    queue = None
    if span_exporter is not None:
        made = instruments(meter_provider, max_names=settings.max_names, enabled=settings.metrics)
        for result in RESULTS:
            made.exported(result, 0)  # An increase from nothing to 1 is seen by no alert; from 0 it is.
        queue = SpanQueue(span_exporter, limits, made.exported)
        tracer_provider.add_span_processor(queue)
    return Handle(
        tracer_provider,
        meter_provider,
        queue=queue,
        own_meter_provider=own_meter_provider,
        phoenix_url=plan.phoenix_url,
        project=plan.project or ("default" if plan.phoenix_url else None),
        receiver=None if plan.traces is None else _without_credentials(address(plan.traces)),
        exit_timeout=exit_timeout,
    )


def _without_credentials(url: SplitResult) -> str:
    """An address as it may be shown: without a user and a password."""
    return url._replace(netloc=url.netloc.rpartition("@")[2]).geturl()


def _resource(service_name: str | None, project: str | None) -> Resource:
    """The SDK's resource (which reads OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES) with what was given.

    The SDK's random `service.instance.id` stays: without it the counters of two workers would be one series,
    each overwriting the other's.
    """
    given = {SERVICE_NAME: service_name, PROJECT_NAME: project}
    return Resource.create({name: value for name, value in given.items() if value is not None})


def _queue_limits(environ: Mapping[str, str]) -> Limits:
    usual = Limits()
    max_spans = _positive(environ, "OTEL_BSP_MAX_QUEUE_SIZE", usual.max_spans)
    max_batch = _positive(environ, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", min(usual.max_batch, max_spans))
    if max_batch > max_spans:
        raise ConfigurationError(
            f"OTEL_BSP_MAX_EXPORT_BATCH_SIZE={max_batch}: it should be at most OTEL_BSP_MAX_QUEUE_SIZE, "
            f"which is {max_spans}"
        )
    delay = _positive(environ, "OTEL_BSP_SCHEDULE_DELAY", round(usual.delay * 1000))
    return Limits(max_spans, max_batch, delay / 1000)


def _positive(environ: Mapping[str, str], name: str, default: int) -> int:
    text = variable(name, environ)
    if text is None:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise ConfigurationError(f"{name}={text!r}: it should be a whole number above 0")
    return int(text)


def _span_exporter(destination: Destination) -> SpanExporter:
    headers = dict(destination.headers)
    if destination.protocol == "grpc":
        _require_grpc()
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter

        return GrpcExporter(endpoint=destination.endpoint, headers=headers)
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=destination.endpoint, headers=headers)


def _metric_exporter(destination: Destination) -> MetricExporter:
    headers = dict(destination.headers)
    if destination.protocol == "grpc":
        _require_grpc()
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter

        return GrpcExporter(endpoint=destination.endpoint, headers=headers)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter(endpoint=destination.endpoint, headers=headers)


def _require_grpc() -> None:
    try:
        import opentelemetry.exporter.otlp.proto.grpc  # noqa: F401
    except ImportError:
        raise ConfigurationError("protocol 'grpc' needs the gRPC exporter: pip install 'agui-otel[grpc]'") from None
