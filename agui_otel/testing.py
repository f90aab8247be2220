"""What a test of traced code needs: an in-memory provider, fixed ids, a fixed clock, the span tree as text.

    captured = capture()
    for event in captured.trace_events(events):
        ...
    assert expected == captured.tree()

`span_tree` leaves out what differs from run to run (ids, times), so its text can be kept in a file beside
the test. It takes the SDK's spans, their parsed JSON and the spans of Phoenix's REST API alike: the same
expectation can be held against what arrived there.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable
from fnmatch import fnmatchcase
from typing import Any, TypeVar, overload

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator

from agui_otel.attach.stream import observed
from agui_otel.config import Settings
from agui_otel.forest import AnySpan, Node, forest
from agui_otel.tracing.host import Attributes
from agui_otel.tracing.memory import InProcessMemory
from agui_otel.tracing.observer import Observer
from agui_otel.tracing.semconv import EXCEPTION_STACKTRACE, MAX_CHUNK_GAP, OUTCOME, TIME_TO_FIRST_CHUNK

Event = TypeVar("Event")

VOLATILE = (
    "*.trace_id",
    "*.span_id",
    "*.duration",
    "*.wait",
    "*.args_ms",
    TIME_TO_FIRST_CHUNK,
    MAX_CHUNK_GAP,
    EXCEPTION_STACKTRACE,
)
"""Attributes that differ from run to run: `span_tree` shows one only where a pattern is its exact name."""


class FixedIds(IdGenerator):
    """Trace and span ids 1, 2, 3, …: the same spans get the same ids in every run. Safe among threads."""

    def __init__(self) -> None:
        self._traces = itertools.count(1)
        self._spans = itertools.count(1)

    def generate_trace_id(self) -> int:
        """Return the next trace id."""
        return next(self._traces)

    def generate_span_id(self) -> int:
        """Return the next span id."""
        return next(self._spans)


class FixedClock:
    """A clock that each reading moves on by `step`; all in nanoseconds, `start` since the epoch.

    The default starts at 2026-01-01T00:00:00Z and steps by a millisecond.
    """

    def __init__(self, start: int = 1_767_225_600_000_000_000, *, step: int = 1_000_000) -> None:
        self.now = start
        self.step = step

    def __call__(self) -> int:
        """Return the time, and move on."""
        now = self.now
        self.now += self.step
        return now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += round(seconds * 1_000_000_000)


class Captured:
    """Providers that keep what they are given, a clock, and a thread memory of their own. Made by `capture`."""

    def __init__(self) -> None:
        self.clock = FixedClock()
        self._memory = InProcessMemory(clock=lambda: self.clock.now / 1e9)
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracer_provider = TracerProvider(id_generator=FixedIds())
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meter_provider = MeterProvider(metric_readers=[self._reader])

    @overload
    def trace_events(
        self,
        events: AsyncIterable[Event],
        *,
        input: Any = None,
        agent_name: str | None = None,
        attributes: Attributes | None = None,
        config: Settings | None = None,
    ) -> AsyncGenerator[Event, None]: ...
    @overload
    def trace_events(
        self,
        events: Iterable[Event],
        *,
        input: Any = None,
        agent_name: str | None = None,
        attributes: Attributes | None = None,
        config: Settings | None = None,
    ) -> Generator[Event, None, None]: ...
    def trace_events(
        self,
        events: AsyncIterable[Event] | Iterable[Event],
        *,
        input: Any = None,  # noqa: A002 (as in agui_otel.trace_events)
        agent_name: str | None = None,
        attributes: Attributes | None = None,
        config: Settings | None = None,
    ) -> AsyncGenerator[Event, None] | Generator[Event, None, None]:
        """`agui_otel.trace_events` for a test: recorded here, timed by `clock`, with threads that no other test knows.

        Content is captured, unless `config` says otherwise.
        """
        how = Observer(
            settings=Settings(capture="full") if config is None else config,
            tracer_provider=self.tracer_provider,
            meter_provider=self.meter_provider,
            memory=self._memory,
            clock=self.clock,
        )
        return observed(events, how, input, agent_name, attributes)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """The spans that have ended, in the order of their end."""
        return self._exporter.get_finished_spans()

    def tree(
        self, *, attributes: Iterable[str] = (), event_attributes: Iterable[str] = ("*",), links: bool = True
    ) -> str:
        """The spans that have ended as text: see `span_tree`."""
        return span_tree(self.spans, attributes=attributes, event_attributes=event_attributes, links=links)

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], float]]]:
        """The points of each instrument: attributes with the value or, of a histogram, the count."""
        data = self._reader.get_metrics_data()
        found: dict[str, list[tuple[dict[str, Any], float]]] = {}
        for resource in data.resource_metrics if data is not None else ():
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    points = found.setdefault(metric.name, [])
                    for point in metric.data.data_points:
                        if isinstance(point, HistogramDataPoint):
                            points.append((dict(point.attributes or {}), point.count))
                        elif isinstance(point, NumberDataPoint):
                            points.append((dict(point.attributes or {}), point.value))
        return found

    def clear(self) -> None:
        """Forget the spans so far."""
        self._exporter.clear()


def capture() -> Captured:
    """Return new providers with fixed ids, for one test: see `Captured`."""
    return Captured()


def span_tree(
    spans: Iterable[AnySpan],
    *,
    attributes: Iterable[str] = (),
    event_attributes: Iterable[str] = ("*",),
    links: bool = True,
) -> str:
    """Render spans as trees, without ids and times: a text to compare, or to keep as a golden file.

    One line a span: name, `[KIND]`, outcome, `!ERROR description` where its status is one, and the
    attributes whose names match one of the patterns `attributes` (`*` and `?` as in file names). Below it,
    indented: its span events (`*`, with the attributes that match `event_attributes`), its links (`>`, with
    the name of the span they lead to, or `elsewhere`), and its children by start, then name.

    `spans` are the SDK's `ReadableSpan`, the parsed form of its `to_json()`, or spans of Phoenix's REST API
    (which keeps no links: compare with `links=False`).
    """
    roots = forest(spans)
    names = {(node.trace_id, node.span_id): node.name for root in roots for node in root.walk()}
    patterns = tuple(attributes)
    event_patterns = tuple(event_attributes)
    lines: list[str] = []
    pending = [(root, 0) for root in reversed(roots)]
    while pending:
        node, depth = pending.pop()
        indent = "  " * depth
        lines.append(indent + _span_line(node, patterns))
        lines += (f"{indent}  * {event.name}{_chosen(event.attributes, event_patterns)}" for event in node.events)
        if links:
            for link in node.links:
                target = names.get((link.trace_id, link.span_id), "elsewhere")
                lines.append(f"{indent}  > {target}{_chosen(link.attributes, event_patterns)}")
        pending.extend((child, depth + 1) for child in reversed(node.children))
    return "\n".join(lines)


def _span_line(node: Node, patterns: tuple[str, ...]) -> str:
    parts = [node.name]
    if node.kind:
        parts.append(f"[{node.kind}]")
    outcome = node.attributes.get(OUTCOME)
    if outcome is not None:
        parts.append(str(outcome))
    if node.status == "ERROR":
        parts.append(f"!ERROR {_value(node.description)}")
    return " ".join(parts) + _chosen(node.attributes, patterns, but=OUTCOME)


def _chosen(attributes: dict[str, Any], patterns: tuple[str, ...], *, but: str | None = None) -> str:
    return "".join(
        f" {key}={_value(attributes[key])}" for key in sorted(attributes) if key != but and _matches(key, patterns)
    )


def _matches(key: str, patterns: tuple[str, ...]) -> bool:
    if key in patterns:
        return True
    if any(fnmatchcase(key, volatile) for volatile in VOLATILE):
        return False
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _value(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
