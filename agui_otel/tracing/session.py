"""One observed stream: events in, spans and metrics out, finalised once.

A session holds everything of its stream; nothing about a stream is kept anywhere else. Whoever attaches it calls `begin`,
`feed` for each event and `finish` for its end; none of them raises or blocks.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import SpanContext, Tracer, TracerProvider, get_tracer_provider, set_span_in_context

from agui_otel.config import Settings
from agui_otel.protocol import transitions as t
from agui_otel.protocol.entities import Entity, Failure, Outcome, Run
from agui_otel.protocol.inputs import read_input
from agui_otel.protocol.interrupts import thread_change
from agui_otel.protocol.scope import Options, ToolFailed
from agui_otel.protocol.thread import SpanRef, ThreadRecord
from agui_otel.protocol.tracker import Tracker
from agui_otel.tracing import ambient
from agui_otel.tracing.boundary import Boundary
from agui_otel.tracing.clock import EventClock
from agui_otel.tracing.content import Content, clean
from agui_otel.tracing.decisions import Decision
from agui_otel.tracing.inside import OPEN_RUNS, SCOPE, inherited, watch_inside, with_session
from agui_otel.tracing.links import reference
from agui_otel.tracing.memory import ThreadMemory, open_memory
from agui_otel.tracing.metrics import instruments
from agui_otel.tracing.spans import SpanWriter
from agui_otel.tracing.starting import Placement

Reason = Literal["exhausted", "error", "cancelled", "disconnected"]
Attributes = Mapping[str, Any] | Callable[[Any], Mapping[str, Any]]

_OUTCOMES: dict[str, Outcome] = {
    "exhausted": Outcome.UNFINISHED,
    "error": Outcome.ERROR,
    "cancelled": Outcome.CANCELLED,
    "disconnected": Outcome.DISCONNECTED,
}
REPORT_NS = 5_000_000_000
"""How often a long stream's event counts are recorded."""


@dataclass(frozen=True, slots=True)
class Observer:
    """How to observe: the settings, the providers, and what has no environment form. Shared by sessions.

    ``redact``: sees every captured string. ``tool_failed``: (tool name, result) -> whether the call failed, or its error
    type. ``decision``: resume entry -> approved, denied, edited, expired or unknown. ``phoenix``: whether this process
    itself exports to Phoenix. ``clock``: nanoseconds since the epoch.
    """

    settings: Settings
    tracer_provider: TracerProvider | None = None
    meter_provider: MeterProvider | None = None
    redact: Callable[[str], str] | None = None
    tool_failed: ToolFailed | None = None
    decision: Decision | None = None
    phoenix: bool = False
    memory: ThreadMemory | None = None
    clock: Callable[[], int] = time.time_ns


class Session:
    """The observer of one stream.

    `given` is its RunAgentInput (an object or JSON), `attributes` what the host wants on every span of its first run.
    `context` is where it starts: by it the run is placed.
    """

    def __init__(
        self,
        observer: Observer,
        context: Context,
        *,
        given: Any = None,
        agent_name: str | None = None,
        attributes: Attributes | None = None,
    ) -> None:
        settings = observer.settings
        provider = observer.tracer_provider or get_tracer_provider()
        self.saw_llm_span = False
        self._observer = observer
        self._given = given
        self._attributes = attributes
        self._context = context
        self._metrics = instruments(
            observer.meter_provider, max_names=settings.max_names, enabled=settings.metrics
        )
        self._boundary = Boundary(self._metrics)
        self._clock = EventClock() if settings.clock == "event" else None
        self._now = observer.clock
        self._watched = watch_inside(provider)
        self._done = False
        self._run: Run | None = None
        self._runs = 0
        self._first: Run | None = None
        self._extra: dict[str, Any] = {}
        content = Content(
            capture=settings.capture_content(observer.phoenix),
            hide_inputs=settings.hide_inputs,
            hide_outputs=settings.hide_outputs,
            max_value=settings.max_value,
            redact=observer.redact,
            dialect=settings.dialect,
            on_error=lambda: self._metrics.observer_error("redact"),
        )
        self._keeps_content = settings.capture_content(observer.phoenix) and not settings.hide_inputs
        self._memory = observer.memory or open_memory(
            settings.thread_memory, ttl=settings.thread_memory_ttl, size=settings.thread_memory_size
        )
        self._metrics.watch(self._memory)
        self._tracker = Tracker(
            Options(content.text_limit, settings.max_paths, observer.tool_failed),
            given=read_input(given),
            agent_name=agent_name or settings.agent_name,
            recall=self._recall,
        )
        self._writer = SpanWriter(
            _tracer(provider),
            settings,
            content,
            self._metrics,
            heard=self._tracker,
            place=self._place,
            describe=self._describe,
            wants_usage=self._wants_usage,
            decide=observer.decision,
        )
        self._receive = self._tracker.receive
        self._report_at = 0
        _open_sessions.add(self)

    # the stream

    def begin(self, at_ns: int | None = None) -> None:
        """Open the run that the input announces, if there is one. `at_ns`: nanoseconds since the epoch; None is now."""
        try:
            at = self._now() if at_ns is None else at_ns
            self._write(self._tracker.begin(at))
        except Exception as error:  # noqa: BLE001 - the boundary
            self._boundary.swallow("begin", error)

    def feed(self, event: object, at_ns: int | None = None) -> None:
        """Take the stream's next event: a dict in wire form, an event object, or an ``Unreadable``. It is not changed."""
        try:
            at = self._now() if at_ns is None else at_ns
            if self._clock is not None:
                at = self._timed(event, at)
            transitions = self._receive(event, at)
            if transitions:
                self._write(transitions)
            if at > self._report_at:
                self._report(at)
        except Exception as error:  # noqa: BLE001 - the boundary
            self._boundary.swallow("feed", error)

    def finish(self, reason: Reason, error: BaseException | None = None, at_ns: int | None = None) -> None:
        """The stream ended. Only the first call counts."""
        if self._done:
            return
        self._done = True
        try:
            at = self._now() if at_ns is None else at_ns
            if self._clock is not None:
                at = self._clock.end(at)
            failure = _failure(error) if error is not None else None
            if reason == "error" and failure is None:
                failure = Failure("agui.run_error", "")
            self._write(self._tracker.finish(_OUTCOMES[reason], failure, at))
            self._metrics.events(self._tracker.take_counts())
        except Exception as caught:  # noqa: BLE001 - the boundary
            self._boundary.swallow("finish", caught)
        finally:
            _open_sessions.discard(self)

    def _timed(self, event: object, at: int) -> int:
        assert self._clock is not None
        at, note = self._clock.read(event, at)
        if note is not None:
            self._write(self._tracker.note("clock_backwards", note, at))
        return at

    def _report(self, at: int) -> None:
        if self._report_at:
            self._metrics.events(self._tracker.take_counts())
        self._report_at = at + REPORT_NS

    def _write(self, transitions: Any) -> None:
        for transition in transitions:
            try:
                self._writer.write(transition)
                kind = type(transition)
                if kind is t.Opened:
                    if type(transition.entity) is Run:
                        self._entered(transition.entity)
                elif kind is t.RunEnded:
                    self._remember(transition.run, transition.at)
                elif kind is t.Closed and type(transition.entity) is Run:
                    self._left(transition.entity)
            except Exception as error:  # noqa: BLE001 - the boundary: one transition's, not its neighbours'
                self._boundary.swallow(type(transition).__name__, error)

    def _entered(self, run: Run) -> None:
        self._run = run
        self._runs += 1
        self.saw_llm_span = False
        OPEN_RUNS.enter(run.handle.span.get_span_context().trace_id, self)

    def _left(self, run: Run) -> None:
        OPEN_RUNS.leave(run.handle.span.get_span_context().trace_id, self)

    # thread memory

    def _recall(self, thread_id: str) -> ThreadRecord | None:
        if thread_id in self._observer.settings.anonymous_threads:
            return None
        try:
            return self._memory.read(thread_id)
        except Exception as error:  # noqa: BLE001 - a store that is down costs the links
            self._boundary.swallow("thread_memory.read", error)
            return None

    def _remember(self, run: Run, at: int) -> None:
        scope = self._tracker.scope
        if (
            scope is None
            or run.thread_id is None
            or run.thread_id in self._observer.settings.anonymous_threads
        ):
            return

        def ref_of(entity: Entity) -> SpanRef:
            return reference(entity, run.id)

        change = thread_change(scope, at, ref_of, keep_content=self._keeps_content)
        if not change.empty:
            try:
                self._memory.write(change)
            except Exception as error:  # noqa: BLE001 - a store that is down costs the links
                self._boundary.swallow("thread_memory.write", error)

    # what the writer asks

    def _place(self) -> Placement:
        settings = self._observer.settings
        return ambient.place(self._context, settings.ambient, phoenix=self._observer.phoenix)

    def _describe(self, run: Run) -> Mapping[str, Any]:
        """The host's attributes, which belong to the stream's first run."""
        if self._first is None:
            self._first = run
            self._extra = self._read_attributes(self._attributes, self._given)
        return self._extra if run is self._first else {}

    def _read_attributes(self, attributes: Attributes | None, given: Any) -> dict[str, Any]:
        if attributes is None:
            return {}
        try:
            return _exportable(attributes(given) if callable(attributes) else attributes)
        except Exception as error:  # noqa: BLE001 - the boundary: the host's callable
            self._boundary.swallow("attributes", error)
            return {}

    def _wants_usage(self) -> bool:
        wanted = self._observer.settings.usage_spans
        return wanted == "on" or (wanted == "auto" and self._watched and not self.saw_llm_span)

    # what the ways in ask

    def surround(self, context: Context) -> Context:
        """`context` with this session and, once there is one, its run's span: where the producer's code is to run."""
        run = self._run
        if run is None or run.handle is None or self._done:
            return with_session(context, self)
        return with_session(set_span_in_context(run.handle.span, context), self)

    @property
    def runs(self) -> int:
        """How many runs were opened; `surround` changes with it."""
        return self._runs

    @property
    def inherited(self) -> dict[str, Any]:
        """The attributes of the current run that spans inside it get."""
        return inherited(self._writer.common)

    @property
    def span_context(self) -> SpanContext | None:
        """The span context of the current (or last) run; None before the first."""
        if self._run is None or self._run.handle is None:
            return None
        context: SpanContext = self._run.handle.span.get_span_context()
        return context

    def serves(self, given: Any) -> bool:
        """Whether an observer that finds this session is to pass through: it is open, and follows the same run."""
        if self._done:
            return False
        wanted, run = read_input(given), self._run
        if wanted is None:
            return run is None or not (run.started or run.implicit)
        return run is not None and (wanted.thread_id, wanted.run_id) == (run.thread_id, run.id)

    def adopt(self, agent_name: str | None, attributes: Attributes | None, given: Any) -> None:
        """Take from an observer that passes through what this session lacks."""
        try:
            lacking = {
                key: value
                for key, value in self._read_attributes(attributes, given).items()
                if key not in self._writer.common
            }
            self._extra.update(lacking)
            if self._tracker.agent_name is None:
                self._tracker.agent_name = agent_name
            run = self._run
            if run is not None and lacking:
                self._writer.describe_more(run, lacking)
            if run is not None and run.name is None and agent_name is not None:
                self._writer.rename(run, agent_name)
        except Exception as error:  # noqa: BLE001 - the boundary
            self._boundary.swallow("adopt", error)


_open_sessions: weakref.WeakSet[Session] = weakref.WeakSet()
_tracers: weakref.WeakKeyDictionary[TracerProvider, Tracer] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def _tracer(provider: TracerProvider) -> Tracer:
    """This package's tracer of a provider.

    A provider is new here when it exports at exit already: sessions that are open then have to end before it does.
    """
    tracer = _tracers.get(provider)
    if tracer is None:
        with _making:
            tracer = provider.get_tracer(SCOPE, _version())
            _tracers[provider] = tracer
            atexit.unregister(_end_all)
            atexit.register(_end_all)
    return tracer


def _end_all() -> None:
    """The interpreter exits: what is open is cancelled."""
    for session in list(_open_sessions):
        session.finish("cancelled")


def _version() -> str:
    try:
        return version("agui-otel")
    except PackageNotFoundError:
        return ""


def _failure(error: BaseException) -> Failure:
    kind = type(error)
    name = (
        kind.__qualname__
        if kind.__module__ in ("builtins", "__main__")
        else f"{kind.__module__}.{kind.__qualname__}"
    )
    try:
        message = str(error)
        stacktrace = "".join(traceback.format_exception(error))
    except Exception:  # noqa: BLE001 - an exception whose __str__ raises
        message, stacktrace = "", None
    return Failure(name, message, stacktrace)


def _exportable(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The host's attributes as OpenTelemetry takes them: what is no attribute value becomes a string."""
    found: dict[str, Any] = {}
    for key, value in attributes.items():
        if isinstance(value, str):
            found[str(key)] = clean(value)
        elif isinstance(value, bool | int | float):
            found[str(key)] = value
        elif isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            found[str(key)] = [clean(item) for item in value]
        elif value is not None:
            found[str(key)] = clean(str(value))
    return found


def reason_of(error: BaseException) -> Reason:
    """How a stream ended that ended with `error`: the consumer left, the producer was stopped, or it failed."""
    if isinstance(error, GeneratorExit):
        return "disconnected"
    if isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit):
        return "cancelled"
    return "error"
