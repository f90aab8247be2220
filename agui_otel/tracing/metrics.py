"""The metrics (trace model: metrics): every instrument, its unit, its labels and its buckets, once.

They are recorded whether or not a span is sampled, with the span's context for exemplars. Labels are names
and outcomes, never ids, and bounded. One `Instruments` serves all sessions of a meter provider;
`instruments()` finds it. Nothing here raises.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from opentelemetry.context import Context
from opentelemetry.metrics import (
    CallbackOptions,
    Counter,
    Histogram,
    Meter,
    MeterProvider,
    NoOpMeter,
    NoOpMeterProvider,
    Observation,
    get_meter_provider,
)

from agui_otel.tracing import semconv as s
from agui_otel.tracing.forking import renewed
from agui_otel.tracing.gauges import (
    UNANNOUNCED,
    Group,
    Heard,
    InterruptGauges,
    Invocations,
    Labels,
    Level,
    Names,
    Open,
)
from agui_otel.tracing.memory import ThreadMemory

_logger = logging.getLogger(__name__)

SCOPE = "agui_otel"
RUN_SECONDS = tuple(round(0.1 * 2**n, 1) for n in range(13))
TOOL_SECONDS = tuple(round(0.01 * 2**n, 2) for n in range(14))
WAIT_SECONDS = (
    1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 900.0, 1800.0, 3600.0,
    4 * 3600.0, 12 * 3600.0, 86400.0, 2 * 86400.0, 4 * 86400.0, 7 * 86400.0,
)  # fmt: skip

CAUSES: dict[Level, tuple[str, ...]] = {
    "run": ("own", "subagent", "refused"),
    "subagent": ("own", "subagent"),
}

REPORT_NS = 5_000_000_000
"""How often a long stream's event counts are recorded."""


class Instruments:
    """The instruments on a meter, for all sessions of its provider. On a no-op meter it does nothing.

    No method raises or blocks. ``on``: whether anything is recorded, for who would have to prepare what is.
    `swallowed` counts measurements lost to a provider that raised.
    """

    def __init__(self, meter: Meter, max_names: int, clock: Callable[[], int] = time.time_ns) -> None:
        self.on = type(meter) is not NoOpMeter
        self.swallowed = 0
        self._agents = Names(max_names)
        self._tools = Names(max_names)
        self._errors = Names(max_names)
        self._reasons = Names(max_names)
        self._types = Names(max_names)
        self._models = Names(max_names)
        self._providers = Names(max_names)
        self._tools_seen: set[tuple[str, str | None]] = set()
        self._invocations = Invocations(clock)
        self._interrupts = InterruptGauges(self._reasons, clock)
        self._create(meter)
        self._observe(meter)

    def _create(self, meter: Meter) -> None:
        counter = meter.create_counter
        self._duration = _histogram(
            meter, "gen_ai.invoke_agent.duration", "Duration of runs and subagents.", RUN_SECONDS
        )
        self._tool_duration = _histogram(
            meter,
            "gen_ai.execute_tool.duration",
            "Time from a tool call's arguments to its result.",
            TOOL_SECONDS,
        )
        self._wait = _histogram(
            meter, "agui.interrupt.wait", "Time from an interrupt to its first answer.", WAIT_SECONDS
        )
        self._first_chunk = _histogram(
            meter, "agui.time_to_first_chunk", "Time from an agent's start to its first delta.", TOOL_SECONDS
        )
        self._agent_errors: dict[Level, Counter] = {
            "run": counter("agui.run.errors", "{error}", "Runs that ended in an error."),
            "subagent": counter("agui.subagent.errors", "{error}", "Subagents that ended in an error."),
        }
        self._tool_errors = counter("agui.tool.errors", "{error}", "Tool calls that ended in an error.")
        self._tokens = counter("agui.tokens", "{token}", "Tokens that runs reported.")
        self._exported = counter("agui.export.spans", "{span}", "What became of the spans given to the exporter.")
        self._violations = counter("agui.violations", "{violation}", "Broken rules of the AG-UI protocol.")
        self._events = counter("agui.events", "{event}", "Events received.")
        self._observer_errors = counter("agui.observer.errors", "{error}", "Errors that the observer kept to itself.")

    def _observe(self, meter: Meter) -> None:
        meter.create_observable_up_down_counter(
            "agui.active", [self._active], "{invocation}", "Open runs and subagents."
        )
        gauge = meter.create_observable_gauge
        gauge("agui.active.oldest_age", [self._oldest_ages], "s", "Age of the oldest open invocation.")
        gauge("agui.active.idle", [self._idle], "s", "Time since the last event of the most silent open run.")
        gauge(
            "agui.interrupts.open",
            [self._open_interrupts],
            "{interrupt}",
            "Interrupts that wait for an answer.",
        )
        gauge("agui.interrupts.oldest_age", [self._interrupt_ages], "s", "Age of the oldest waiting interrupt.")

    def opened(self, level: Level, name: str | None, *, announced: bool = True, heard: Heard | None = None) -> Open:
        """A run or subagent began. The token stands for it in what follows.

        `heard` is its stream, held weakly: without it a run has no idle time; when it is gone, the
        invocation is no longer active. A name of None gives no name label, an unannounced subagent the
        label `unannounced`.
        """
        return self._invocations.enter(self._group(level, name, announced), heard) if self.on else _NO_INVOCATION

    def renamed(self, token: Open, name: str | None, *, announced: bool = True) -> None:
        """It was given a name: later records have it, what is active keeps the first."""
        if self.on:
            token.named = self._group(token.named.level, name, announced)

    def left(self, token: Open) -> None:
        """It is no longer active, and out of the age gauges. A second time is nothing."""
        self._invocations.leave(token)

    def closed(
        self,
        token: Open,
        *,
        outcome: str,
        duration_s: float,
        error_type: str | None = None,
        cause: str = "own",
        context: Context | None = None,
    ) -> None:
        """It ended: its duration, an error when `outcome` is `error`, and `left` if that was not said."""
        self.left(token)
        group = token.named
        labels: Labels = {**group.labels, s.OUTCOME: str.__str__(outcome)}
        if error_type is not None:
            labels[s.ERROR_TYPE] = self._errors.label(error_type)
        self._record(self._duration, duration_s, labels, context)
        if outcome == "error":
            self._add(self._agent_errors[group.level], 1, _error_labels(group, cause), context)

    def first_chunk(self, token: Open, seconds: float, context: Context | None = None) -> None:
        """Its first text, reasoning or argument delta came so long after its start."""
        self._record(self._first_chunk, seconds, token.named.labels, context)

    def tool_opened(self, name: str, owner: Open) -> None:
        """A tool call began: its error counter starts at 0 when the name is new."""
        if not self.on:
            return
        labels = self._tool_labels(name, owner)
        key = labels[s.GEN_AI_TOOL_NAME], owner.named.name
        if key not in self._tools_seen:
            self._tools_seen.add(key)
            self._add(self._tool_errors, 0, labels)

    def tool_closed(
        self,
        name: str,
        owner: Open,
        *,
        outcome: str,
        duration_s: float | None = None,
        context: Context | None = None,
    ) -> None:
        """A tool call ended, `duration_s` after its TOOL_CALL_END; None where not both were seen."""
        self.tool_opened(name, owner)
        labels = self._tool_labels(name, owner)
        if outcome == "error":
            self._add(self._tool_errors, 1, labels, context)
        if duration_s is not None:
            self._record(self._tool_duration, duration_s, {**labels, s.OUTCOME: str.__str__(outcome)}, context)

    def interrupt_answered(self, reason: str, decision: str, wait_s: float, context: Context | None = None) -> None:
        """An interrupt had its first answer after so many seconds."""
        labels: Labels = {
            s.INTERRUPT_REASON: self._reasons.label(reason),
            s.INTERRUPT_DECISION: decision,
        }
        self._record(self._wait, wait_s, labels, context)

    def tokens(
        self, provider: str | None, model: str | None, input_tokens: int, output_tokens: int,
        context: Context | None = None,
    ) -> None:  # fmt: skip
        """Token usage of one model."""
        if not self.on:
            return
        labels: Labels = {}
        if provider is not None:
            labels[s.GEN_AI_PROVIDER_NAME] = self._providers.label(provider)
        if model is not None:
            labels[s.GEN_AI_REQUEST_MODEL] = self._models.label(model)
        for kind, count in (("input", input_tokens), ("output", output_tokens)):
            if count > 0:
                self._add(self._tokens, count, {**labels, s.TOKEN_TYPE: kind}, context)

    def violation(self, rule: str, count: int = 1, context: Context | None = None) -> None:
        """A rule of the protocol was broken."""
        self._add(self._violations, count, {s.RULE: rule}, context)

    def events(self, counts: Mapping[str, int]) -> None:
        """Events received by type since the last time."""
        if not self.on:
            return
        for kind, count in counts.items():
            self._add(self._events, count, {s.EVENT_TYPE: self._types.label(kind)})

    def exported(self, result: Literal["exported", "refused", "dropped"], count: int) -> None:
        """What became of so many spans, where our exporter sent them."""
        self._add(self._exported, count, {s.EXPORT_RESULT: result})

    def observer_error(self, where: str, count: int = 1) -> None:
        """The harmlessness boundary swallowed an error."""
        self._add(self._observer_errors, count, {s.WHERE: where})

    def watch(self, memory: ThreadMemory) -> None:
        """Report the interrupts that wait in `memory`. Called for each session; cheap."""
        self._interrupts.watch(memory)

    def _group(self, level: Level, name: str | None, announced: bool) -> Group:
        label = UNANNOUNCED if not announced else None if name is None else self._agents.label(name)
        group, new = self._invocations.group(level, label)
        if new:
            for cause in CAUSES[level]:
                self._add(self._agent_errors[level], 0, _error_labels(group, cause))
        return group

    def _tool_labels(self, name: str, owner: Open) -> Labels:
        labels: Labels = {s.GEN_AI_TOOL_NAME: self._tools.label(name)}
        if owner.named.name is not None:
            labels[s.GEN_AI_AGENT_NAME] = owner.named.name
        return labels

    def _add(self, counter: Counter, amount: int, labels: Labels, context: Context | None = None) -> None:
        try:
            counter.add(amount, labels, context)
        except Exception:  # noqa: BLE001 - a host's provider costs a measurement, never the run
            self.swallowed += 1

    def _record(self, histogram: Histogram, value: float, labels: Labels, context: Context | None) -> None:
        try:
            histogram.record(max(0.0, value), labels, context)
        except Exception:  # noqa: BLE001 - a host's provider costs a measurement, never the run
            self.swallowed += 1

    def _active(self, _: CallbackOptions) -> Iterable[Observation]:
        return _observations(self._invocations.active())

    def _oldest_ages(self, _: CallbackOptions) -> Iterable[Observation]:
        return _observations(self._invocations.oldest_ages())

    def _idle(self, _: CallbackOptions) -> Iterable[Observation]:
        return _observations(self._invocations.idle_times())

    def _open_interrupts(self, _: CallbackOptions) -> Iterable[Observation]:
        return _observations(self._interrupts.open_counts())

    def _interrupt_ages(self, _: CallbackOptions) -> Iterable[Observation]:
        return _observations(self._interrupts.oldest_ages())


def _error_labels(group: Group, cause: str) -> Labels:
    labels: Labels = {s.CAUSE: cause}
    if group.name is not None:
        labels[s.GEN_AI_AGENT_NAME] = group.name
    return labels


def _observations(found: Iterable[tuple[float, Labels]]) -> list[Observation]:
    """All or nothing: a callback never raises into the reader."""
    try:
        return [Observation(value, labels) for value, labels in found]
    except Exception:  # noqa: BLE001
        return []


def _histogram(meter: Meter, name: str, description: str, buckets: tuple[float, ...]) -> Histogram:
    try:
        return meter.create_histogram(name, "s", description, explicit_bucket_boundaries_advisory=buckets)
    except TypeError:  # a provider written before the advisory parameter
        return meter.create_histogram(name, "s", description)


_NO_INVOCATION = Open(Group("run", None), 0, None)
"""The token of every invocation where nothing is recorded."""
NO_METRICS = Instruments(NoOpMeter(SCOPE), 0)
"""They do nothing."""

_made: weakref.WeakKeyDictionary[MeterProvider, weakref.ref[Instruments]] = weakref.WeakKeyDictionary()
_finding = renewed(sys.modules[__name__], "_finding", threading.Lock)


def instruments(provider: MeterProvider | None = None, *, max_names: int = 200, enabled: bool = True) -> Instruments:
    """The instruments of a meter provider (None: the global one), made once, with the first caller's
    `max_names`.

    They live as long as the provider, which holds the gauges' callbacks. Where `enabled` is false, or the
    provider cannot make them, they do nothing.
    """
    if not enabled:
        return NO_METRICS
    try:
        with _finding:
            current = get_meter_provider()
            chosen = current if provider is None else provider
            if isinstance(chosen, NoOpMeterProvider):
                return NO_METRICS
            found = _known(chosen, is_global=chosen is current)
            if found is None:
                found = Instruments(chosen.get_meter(SCOPE, _version()), max_names)
                _made[chosen] = weakref.ref(found)
            return found
    except Exception as error:  # noqa: BLE001 - a host's provider costs the metrics, never the run
        _logger.warning("agui-otel records no metrics: the meter provider raised %s", type(error).__name__)
        return NO_METRICS


def _known(provider: MeterProvider, *, is_global: bool) -> Instruments | None:
    """What was made on this provider, or on the proxy that stood for the global one before it was set.

    What the proxy made records to the provider that was set, and has its gauges there: a meter that is asked
    for a gauge again keeps the first callbacks.
    """
    found = _dereferenced(_made.get(provider))
    if found is None and is_global:
        proxied = (ref for other, ref in list(_made.items()) if hasattr(other, "on_set_meter_provider"))
        found = next(filter(None, map(_dereferenced, proxied)), None)
        if found is not None:
            _made[provider] = weakref.ref(found)
    return found


def _dereferenced(reference: weakref.ref[Instruments] | None) -> Instruments | None:
    return None if reference is None else reference()


def _version() -> str | None:
    try:
        return version("agui-otel")
    except PackageNotFoundError:
        return None
