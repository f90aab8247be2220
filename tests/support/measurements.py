"""Instruments on an SDK provider of their own, and what they recorded."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider
from opentelemetry.sdk.metrics import TraceBasedExemplarFilter
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint

from agui_otel.protocol.thread import OpenInterrupt, SpanRef, ThreadChange
from agui_otel.tracing.memory import InProcessMemory
from agui_otel.tracing.metrics import Instruments

Labels = frozenset[tuple[str, Any]]
SECOND = 1_000_000_000


class Stream:
    """What a session is to the metrics."""

    def __init__(self, last_event_ns: int = 0) -> None:
        self.last_event_ns = last_event_ns


class Kit:
    """Instruments on an SDK provider of their own, with a clock that stands still, and what they recorded."""

    def __init__(self, max_names: int = 200) -> None:
        self.now = 1000 * SECOND
        self.reader = InMemoryMetricReader()
        self.provider = SdkMeterProvider([self.reader], exemplar_filter=TraceBasedExemplarFilter())
        self.instruments = Instruments(self.provider.get_meter("test"), max_names, lambda: self.now)
        self.stream = Stream(self.now)
        self.memory = InProcessMemory()

    def metrics(self) -> dict[str, Any]:
        """Each metric that has data, by name."""
        data = self.reader.get_metrics_data()
        found = data.resource_metrics if data is not None else []
        return {
            metric.name: metric for resource in found for scope in resource.scope_metrics for metric in scope.metrics
        }

    def points(self, name: str) -> dict[Labels, Any]:
        """A metric's values by labels: a number, or (count, sum) of a histogram."""
        metric = self.metrics().get(name)
        return {} if metric is None else {_labels(point): _value(point) for point in metric.data.data_points}


def _labels(point: NumberDataPoint | HistogramDataPoint) -> Labels:
    return frozenset((point.attributes or {}).items())


def _value(point: NumberDataPoint | HistogramDataPoint) -> Any:
    return (point.count, point.sum) if isinstance(point, HistogramDataPoint) else point.value


def labels(**values: Any) -> Labels:
    """Labels by short names."""
    names = {
        "agent": "gen_ai.agent.name",
        "tool": "gen_ai.tool.name",
        "level": "agui.level",
        "outcome": "agui.outcome",
        "error": "error.type",
        "cause": "agui.cause",
        "reason": "agui.interrupt.reason",
        "decision": "agui.interrupt.decision",
        "store": "agui.store",
        "provider": "gen_ai.provider.name",
        "model": "gen_ai.request.model",
        "token": "gen_ai.token.type",
    }
    return frozenset((names[name], value) for name, value in values.items())


def waits(thread: str, *idents: str, since: float, reason: str = "approval") -> ThreadChange:
    """A run of `thread` that was interrupted."""
    run = SpanRef(trace_id="1" * 32, span_id="1" * 16, run_id="run-1")
    opened = tuple(OpenInterrupt(id=ident, run=run, since=since, reason=reason) for ident in idents)
    return ThreadChange(thread_id=thread, at=since, interrupts=opened)
