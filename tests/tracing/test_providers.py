"""One set of instruments for each meter provider, whatever the provider does."""

from __future__ import annotations

import gc
import weakref
from typing import Any, NoReturn

import pytest
from opentelemetry import metrics as api
from opentelemetry.metrics import Meter, MeterProvider, NoOpMeter, NoOpMeterProvider
from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from agui_otel.tracing.metrics import instruments
from tests.support.measurements import Stream


class BrokenMeter(NoOpMeter):
    """A meter whose instruments raise, and which knows no bucket advice."""

    def create_counter(self, *_: Any, **__: Any) -> Any:
        """An instrument that raises."""
        return Broken()

    def create_histogram(self, *_: Any, **advice: Any) -> Any:
        """An instrument that raises."""
        if advice:
            raise TypeError
        return Broken()


class Broken:
    """An instrument that raises."""

    def add(self, *_: Any) -> NoReturn:
        """Raise."""
        raise RuntimeError

    record = add


class ProviderOf(MeterProvider):
    """A provider that gives one meter, or raises."""

    def __init__(self, meter: Meter | None) -> None:
        self.meter = meter

    def get_meter(self, *_: Any, **__: Any) -> Meter:
        """The meter."""
        if self.meter is None:
            raise RuntimeError
        return self.meter


def test_a_meter_that_raises_costs_measurements_only() -> None:
    """Each lost one is counted."""
    it = instruments(ProviderOf(BrokenMeter("broken")))
    token = it.opened("run", "planner")
    it.tool_closed("search", token, outcome="error", duration_s=1.0)
    it.closed(token, outcome="error", duration_s=1.0)
    it.events({"RUN_STARTED": 1})
    assert it.swallowed == 3 + 3 + 2 + 1


def test_a_provider_that_raises_gives_instruments_that_do_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """With one line in the log."""
    it = instruments(ProviderOf(None))
    it.closed(it.opened("run", "planner"), outcome="success", duration_s=1.0)
    assert [record.getMessage() for record in caplog.records] == [
        "agui-otel records no metrics: the meter provider raised RuntimeError"
    ]


def test_metrics_that_are_off_cost_nothing_and_know_nothing() -> None:
    """One object for all sessions, whatever the provider."""
    off = instruments(enabled=False)
    assert off is instruments(SdkMeterProvider(shutdown_on_exit=False), enabled=False)
    assert off is instruments(NoOpMeterProvider())
    token = off.opened("run", "planner", heard=Stream())
    off.tool_closed("search", token, outcome="error", duration_s=1.0)
    off.closed(token, outcome="error", duration_s=1.0, error_type="boom")
    assert token.group.open == {}


def test_a_provider_has_one_set_of_instruments() -> None:
    """All its sessions share them, so that gauges are registered once; another provider has its own."""
    provider, other = SdkMeterProvider(shutdown_on_exit=False), SdkMeterProvider(shutdown_on_exit=False)
    assert instruments(provider) is instruments(provider, max_names=1)
    assert instruments(provider) is not instruments(other)


def test_instruments_live_with_their_provider() -> None:
    """Between sessions a name once seen is still known; with the provider all is gone."""
    reader = InMemoryMetricReader()
    provider = SdkMeterProvider([reader], shutdown_on_exit=False)
    reference = weakref.ref(instruments(provider))
    gc.collect()
    assert reference() is instruments(provider)
    provider.shutdown()
    del provider, reader
    gc.collect()
    assert reference() is None


@pytest.fixture
def no_global_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in which no meter provider was set yet, and nothing was asked of the one that stands for it."""
    from opentelemetry.metrics import _internal
    from opentelemetry.util._once import Once

    from agui_otel.tracing import metrics

    monkeypatch.setattr(metrics, "_made", weakref.WeakKeyDictionary())
    monkeypatch.setattr(_internal, "_METER_PROVIDER", None)
    monkeypatch.setattr(_internal, "_METER_PROVIDER_SET_ONCE", Once())
    monkeypatch.setattr(_internal, "_PROXY_METER_PROVIDER", _internal._ProxyMeterProvider())


@pytest.mark.usefixtures("no_global_provider")
def test_instruments_made_before_the_global_provider_record_to_it() -> None:
    """What is asked for afterwards, by the global provider or by its name, is the same, gauges and all."""
    early = instruments()
    token = early.opened("run", "planner")
    reader = InMemoryMetricReader()
    provider = SdkMeterProvider([reader], shutdown_on_exit=False)
    api.set_meter_provider(provider)
    assert early is instruments() is instruments(provider)
    early.closed(token, outcome="success", duration_s=1.0)
    data = reader.get_metrics_data()
    assert data is not None
    names = {metric.name for metric in data.resource_metrics[0].scope_metrics[0].metrics}
    assert {"agui.active", "agui.active.oldest_age", "gen_ai.invoke_agent.duration"} <= names
    provider.shutdown()
