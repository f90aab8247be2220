"""What sessions of one observer have in common is made once, and made again when it has to be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from agui_otel.attach import observe
from agui_otel.config import Settings
from agui_otel.tracing.metrics import NO_METRICS
from agui_otel.tracing.observer import Observer


def test_it_is_made_once() -> None:
    """While the providers are the same."""
    observer = Observer(Settings(), TracerProvider(), MeterProvider())
    assert observer.common() is observer.common()


def test_a_provider_that_is_set_later_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The global providers are asked for each session: the host may set them after ours was made."""
    observer = Observer(Settings())
    before = observer.common()
    tracers, meters = TracerProvider(), MeterProvider()
    monkeypatch.setattr("agui_otel.tracing.observer.get_tracer_provider", lambda: tracers)
    assert observer.common().provider is tracers
    monkeypatch.setattr("agui_otel.tracing.observer.get_meter_provider", lambda: meters)
    assert observer.common().meters is meters
    assert before is not observer.common()


def test_what_failed_is_tried_again() -> None:
    """A meter provider that could not make its instruments once may the next time."""

    class Faltering(MeterProvider):
        fails = True

        def get_meter(self, *args: Any, **kwargs: Any) -> Any:
            if self.fails:
                raise RuntimeError
            return super().get_meter(*args, **kwargs)

    meters = Faltering([InMemoryMetricReader()])
    observer = Observer(Settings(), TracerProvider(), meters)
    assert NO_METRICS is observer.common().metrics
    meters.fails = False
    assert NO_METRICS is not observer.common().metrics
    meters.shutdown()


def test_a_set_up_that_was_shut_down_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made for its providers is kept until the next stream, and made once till then."""
    made = SimpleNamespace(tracer_provider=TracerProvider(), meter_provider=MeterProvider(), exports_to_phoenix=True)
    how = Observer(Settings())
    monkeypatch.setattr(observe, "handle_of", lambda _: made)
    resolved = observe._resolved(how)
    assert made.tracer_provider is resolved.tracer_provider
    assert resolved is observe._resolved(how)
    monkeypatch.setattr(observe, "handle_of", lambda _: None)
    assert how is observe._resolved(how)
    assert {} == how.derived
