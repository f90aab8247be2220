"""How streams are observed, and what all sessions of one observer have in common."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from opentelemetry.metrics import MeterProvider, NoOpMeterProvider, get_meter_provider
from opentelemetry.trace import TracerProvider, get_tracer_provider

from agui_otel.config import Settings
from agui_otel.protocol.scope import Options, ToolFailed
from agui_otel.tracing.boundary import Boundary
from agui_otel.tracing.content import content_of
from agui_otel.tracing.decisions import Decision
from agui_otel.tracing.ending import tracer_of
from agui_otel.tracing.host import guarded_decision, guarded_verdict
from agui_otel.tracing.inside import watch_inside
from agui_otel.tracing.memory import ThreadMemory
from agui_otel.tracing.metrics import NO_METRICS, instruments
from agui_otel.tracing.remembering import memory_of


@dataclass(frozen=True, slots=True)
class Observer:
    """How to observe: the settings, the providers, and what has no environment form. Shared by sessions.

    Without providers a session uses the process's global ones. ``redact``: sees every captured string. ``tool_failed``:
    (tool name, result) -> whether the call failed, or its error type. ``decision``: resume entry -> approved, denied,
    edited, expired or unknown. ``phoenix``: whether this process itself exports to Phoenix. ``memory``: the settings'
    where there is none; ``waits``: whether one may wait for it, as no host but a command may. ``clock``: nanoseconds
    since the epoch. ``derived``: what was made of it, by whoever made that, to be made once.
    """

    settings: Settings
    tracer_provider: TracerProvider | None = None
    meter_provider: MeterProvider | None = None
    redact: Callable[[str], str] | None = None
    tool_failed: ToolFailed | None = None
    decision: Decision | None = None
    phoenix: bool = False
    memory: ThreadMemory | None = None
    waits: bool = False
    clock: Callable[[], int] = time.time_ns
    derived: dict[Any, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def common(self) -> Common:
        """What a session that starts now has in common with others: made again where the providers are others."""
        provider = self.tracer_provider if self.tracer_provider is not None else get_tracer_provider()
        meters = self._meters()
        common: Common | None = self.derived.get(Common)
        if common is None or common.provider is not provider or common.meters is not meters:
            common = Common(self, provider, meters)
            if not common.lacks_metrics:
                self.derived[Common] = common
        return common

    def _meters(self) -> MeterProvider | None:
        if self.meter_provider is not None or not self.settings.metrics:
            return self.meter_provider
        try:
            return get_meter_provider()
        except Exception:  # noqa: BLE001 - a host's provider; `instruments` says what is wrong with it
            return None


class Common:
    """What the sessions of an observer have in common, while they use these providers."""

    def __init__(self, observer: Observer, provider: TracerProvider, meters: MeterProvider | None) -> None:
        settings = observer.settings
        self.provider = provider
        self.meters = meters
        self.metrics = metrics = instruments(
            observer.meter_provider, max_names=settings.max_names, enabled=settings.metrics
        )
        self.lacks_metrics = metrics is NO_METRICS and settings.metrics and not isinstance(meters, NoOpMeterProvider)
        """Whether the provider could not make the instruments; it may the next time."""
        self.boundary = boundary = Boundary(metrics)
        self.content = content_of(
            settings, observer.phoenix, observer.redact, on_error=partial(metrics.observer_error, "redact")
        )
        self.keeps_content = settings.capture_content(observer.phoenix) and not settings.hide_inputs
        self.memory = memory_of(settings, observer.memory)
        metrics.watch(self.memory)
        self.watched = watch_inside(provider)
        self.tracer = tracer_of(provider)
        self.decide = guarded_decision(observer.decision, boundary)
        self.options = Options(
            self.content.text_limit,
            settings.max_paths,
            guarded_verdict(observer.tool_failed, boundary),
            borrowed=True,
            steps=settings.steps == "spans",
            raw_usage=settings.raw_usage,
        )
