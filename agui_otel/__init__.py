"""Traces of AG-UI agent runs: a stream of events becomes OpenTelemetry spans that follow the stream's own ids."""

from agui_otel.attach.asgi import TracingMiddleware
from agui_otel.attach.stream import TracingSubscriber, trace_events
from agui_otel.config import Settings
from agui_otel.errors import AguiOtelError, ConfigurationError, InputError
from agui_otel.exporting import Handle, setup

__all__ = [
    "AguiOtelError",
    "ConfigurationError",
    "Handle",
    "InputError",
    "Settings",
    "TracingMiddleware",
    "TracingSubscriber",
    "setup",
    "trace_events",
]
