"""One observed stream: events in, spans and metrics out, finalised once.

A session holds everything of its stream; nothing about a stream is kept anywhere else. Whoever attaches it calls
`begin`, `feed` for each event and `finish` for its end; none of them raises or blocks. Nothing that a session holds
refers back to it, so that it is gone, and its run ended, when whoever attached it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, set_span_in_context

from agui_otel.protocol import transitions as t
from agui_otel.protocol.deltas import Continued
from agui_otel.protocol.entities import Entity, Failure, Outcome, Run, Step
from agui_otel.protocol.events import Kept
from agui_otel.protocol.tracker import Tracker
from agui_otel.tracing import ambient, background, ending
from agui_otel.tracing.clock import EventClock, TimedByEvents
from agui_otel.tracing.ending import OUTCOMES, Reason, failure_of, refusal
from agui_otel.tracing.holding import Held, dropped, never
from agui_otel.tracing.host import Attributes, HostAttributes, guarded_input
from agui_otel.tracing.inside import Presence, wants_usage, with_presence
from agui_otel.tracing.metrics import REPORT_NS
from agui_otel.tracing.observer import Observer
from agui_otel.tracing.remembering import Remembering
from agui_otel.tracing.spans import SpanWriter


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
        settings, common = observer.settings, observer.common()
        self._boundary = boundary = common.boundary
        self._metrics = common.metrics
        self.presence = presence = Presence(self)
        self._host = host = HostAttributes(attributes, given, boundary)
        self._threads = Remembering(
            common.memory, boundary, settings, keep_content=common.keeps_content, waits=observer.waits
        )
        self._tracker = tracker = Tracker(
            common.options,
            given=guarded_input(given, boundary),
            agent_name=agent_name or settings.agent_name,
            recall=self._threads.recall,
            remember=self._threads.remember_early,
        )
        self._writer = SpanWriter(
            common.tracer,
            settings,
            common.content,
            common.metrics,
            heard=tracker,
            place=partial(ambient.place, context, settings.ambient, phoenix=observer.phoenix),
            describe=host.of,
            wants_usage=partial(wants_usage, settings.usage_spans, common.watched, presence),
            decide=common.decide,
        )
        self._now = observer.clock
        self._clock = EventClock() if settings.clock == "event" else None
        self._receive: Callable[[object, int], Sequence[t.Transition]] = (
            tracker.receive_other if self._clock is None else TimedByEvents(tracker, self._clock).receive
        )
        self._plain: Callable[[object, int], bool] = tracker.continues if self._clock is None else never
        self._continues: Callable[[object, int], bool] = self._plain
        self._held: Held | None = None
        self._tracing = threading.RLock()  # what was held may be traced by who asks, while the stream goes on
        self._ending = threading.Lock()  # taken once, never given back
        self._open: dict[Entity | Step, None] = {}
        self._run: Run | None = None
        self._current: Span | None = None
        self._has_started = False
        self._report_at = 0
        self.span_context: SpanContext | None = None
        """The span context of the current (or last) run; None before the first."""
        ending.opened(self, common.provider)

    def begin(self, at_ns: int | None = None) -> None:
        """Open the run that the input announces, if there is one. `at_ns`: nanoseconds since the epoch; None is now."""
        try:
            at = self._now() if at_ns is None else at_ns
            try:
                self._tracker.begin(at)
            except Exception as error:  # noqa: BLE001 - the boundary
                self._boundary.swallow("begin", error)
            if self._tracker.said and self._clock is not None:
                self._clock.begin(at)
            self._write(self._tracker.said)
            self._route()
        except Exception as error:  # noqa: BLE001 - the boundary
            self._boundary.swallow("begin", error)

    def feed(self, event: object, at_ns: int | None = None) -> None:
        """Take the stream's next event: a dict in wire form, an object or an ``Unreadable``. It is not changed."""
        try:
            at = self._now() if at_ns is None else at_ns
            continues = self._continues
            if not continues(event, at):
                with self._tracing:
                    self._take(event, at, continues)
            if at > self._report_at:
                self._report(at)
        except Exception as error:  # noqa: BLE001 - the boundary
            self._boundary.swallow("feed", error)

    def continuing(self, event: object) -> Continued | None:
        """What the event that was fed last continued, if that was `event`, and more like it is for `feed_texts`."""
        return self._tracker.deltas.continuing(event) if type(event) is dict and self._is_plain() else None

    def feed_texts(self, continued: Continued, text: str, times: Sequence[int]) -> None:
        """Take deltas that differ in nothing but their texts, here as one, from what was fed last (`continuing`)."""
        try:
            if self._is_plain():
                self._tracker.deltas.take_texts(continued, text, times)
                if times[-1] > self._report_at:
                    self._report(times[-1])
        except Exception as error:  # noqa: BLE001 - the boundary
            self._boundary.swallow("feed", error)

    def _is_plain(self) -> bool:
        """Whether events are traced as they come, each at the time that is told of it."""
        return self._continues is self._tracker.continues

    def _take(self, event: object, at: int, asked: Callable[[object, int], bool]) -> None:
        """Take what `asked` has not; whether events are held may have changed since then."""
        while self._held is not None or asked is not self._continues:
            self._catch_up()
            asked = self._continues
            if asked(event, at):
                return
        self._trace(event, at)

    def _trace(self, event: object, at: int) -> None:
        try:
            transitions = self._receive(event, at)
        except Exception as error:  # noqa: BLE001 - the boundary
            transitions = self._tracker.said
            self._boundary.swallow("feed", error)
        if transitions:
            self._write(transitions)
        if self._threads.reading is not None:
            self._route()

    def _route(self) -> None:
        """What becomes of events: they are traced, or held while a thread is being read, or after the end dropped."""
        if self._threads.reading is not None:
            self._held, self._threads.reading = Held(self._threads.reading, self._tracing), None
        if self._ending.locked():
            self._continues = dropped
        else:
            self._continues = self._plain if self._held is None else self._held.take

    def _catch_up(self) -> Held | None:
        """Trace what is held, once its thread was read, or cannot be. A run that begins in there may hold the rest:
        what is held now, while nobody else is at it.
        """
        with self._tracing:
            held = self._held
            if held is not None and held.reading.over:
                self._go_on(held)
            return self._held

    def _look(self) -> None:
        """`_catch_up`, for who asks what was traced: from any thread, so never where somebody is at it."""
        if self._held is not None and self._tracing.acquire(blocking=False):
            try:
                self._catch_up()
            finally:
                self._tracing.release()

    def _go_on(self, held: Held) -> None:
        self._held = None
        try:
            self._write(self._tracker.recalled(self._threads.result(held.reading)))
        except Exception as error:  # noqa: BLE001 - the boundary
            self._boundary.swallow("thread_memory", error)
        for event, at in held.events:
            if not self._hold(event, at) and not self._plain(event, at):
                self._trace(event, at)
        self._route()

    def _hold(self, event: dict[str, Any] | Kept, at: int) -> bool:
        if self._held is not None:
            self._held.add(event, at)
        return self._held is not None

    def finish(self, reason: Reason, error: BaseException | None = None, at_ns: int | None = None) -> None:
        """The stream ended. Only the first call counts, and nothing is taken afterwards."""
        self._finish(OUTCOMES[reason], partial(failure_of, error) if reason == "error" else None, at_ns)

    def refuse(self, status: int, at_ns: int | None = None) -> None:
        """The run's request was answered with an HTTP status of 400 or more: the run failed (trace model: outcomes)."""
        self._finish(Outcome.ERROR, partial(refusal, status), at_ns)

    def dismiss(self, at_ns: int | None = None) -> None:
        """The run's request was answered, with what is no AG-UI stream: no failure, no metric, no memory."""
        if self._run is not None:
            self._run.streamless = True
        self._finish(Outcome.SUCCESS, None, at_ns)

    def _finish(self, outcome: Outcome, failed: Callable[[], Failure] | None, at_ns: int | None) -> None:
        if not self._ending.acquire(blocking=False):
            return
        ending.ended(self)
        at, failure = 0, None
        try:
            at = self._now() if at_ns is None else at_ns
            failure = failed() if failed is not None else None
            with self._tracing:
                self._route()
                held = self._catch_up()
            if held is not None:
                if background.end_later(held.reading, partial(self._complete, outcome, failure, at), self._boundary):
                    return
                held.reading.give_up(background.OverloadError())
        except Exception as caught:  # noqa: BLE001 - the boundary
            self._boundary.swallow("finish", caught)
        self._complete(outcome, failure, at)

    def _complete(self, outcome: Outcome, failure: Failure | None, at: int) -> None:
        """Trace what is held, and end everything: where the host does not wait, if a thread is still being read."""
        try:
            while (held := self._catch_up()) is not None:
                held.reading.wait()
            if self._clock is not None:
                at = self._clock.end(at)
            try:
                self._tracker.finish(outcome, failure, at)
            except Exception as caught:  # noqa: BLE001 - the boundary
                self._boundary.swallow("finish", caught)
            self._write(self._tracker.said)
            self._metrics.events(self._tracker.take_counts())
        except Exception as caught:  # noqa: BLE001 - the boundary
            self._boundary.swallow("finish", caught)
        finally:
            for entity in reversed(list(self._open)):
                self._end(entity, at)
            self.presence.leave()

    def forget(self) -> None:
        """In a forked child: the open spans are the parent's, and end there."""
        if self._ending.acquire(blocking=False):
            self._continues, self._held = dropped, None
            self._open.clear()
            self.presence.leave()

    def __del__(self) -> None:
        if hasattr(self, "_ending") and not self._ending.locked():
            self.finish("disconnected")

    def _report(self, at: int) -> None:
        if self._report_at:
            self._metrics.events(self._tracker.take_counts())
        self._report_at = at + REPORT_NS

    def _write(self, transitions: Iterable[t.Transition]) -> None:
        write = self._writer.write
        for transition in transitions:
            try:
                write(transition)
                if isinstance(transition, t.Opened):
                    self._opened(transition.entity)
                elif isinstance(transition, t.Closed):
                    self._open.pop(transition.entity, None)
                    if transition.entity is self._run:
                        self.presence.leave()
                elif isinstance(transition, t.Announced) and transition.entity is self._run:
                    self.presence.identify(self._writer.common)
                elif isinstance(transition, t.RunEnded) and not transition.run.streamless:
                    self._threads.remember(transition.scope, transition.at)
            except Exception as error:  # noqa: BLE001 - the boundary: one transition's, not its neighbours'
                if isinstance(transition, t.Closed):
                    self._end(transition.entity, transition.at)
                self._boundary.swallow(type(transition).__name__, error)

    def _opened(self, entity: Entity | Step) -> None:
        if isinstance(entity, Run):
            self._has_started = self.has_started
            self._run, self._current = entity, None
        if entity.handle is None:
            return
        self._open[entity] = None
        if isinstance(entity, Run):
            span: Span = entity.handle.span
            context = span.get_span_context()
            self.presence.enter(context.trace_id)
            self.presence.identify(self._writer.common)
            self._current = span if context.is_valid else None
            self.span_context = context

    def _end(self, entity: Entity | Step, at: int) -> None:
        """End a span of which what it was to say could not be said: no span stays open."""
        self._open.pop(entity, None)
        try:
            if entity.handle is not None and entity.handle.span.is_recording():
                entity.handle.span.end(max(at, entity.opened_at))
        except Exception as error:  # noqa: BLE001 - the boundary
            self._boundary.swallow("end", error)

    def surround(self, context: Context) -> Context:
        """`context` with this session and, once there is one, its run's span: where the producer's code is to run.

        A provider that makes no real spans leaves the current span as it is.
        """
        if self._current is not None:
            context = set_span_in_context(self._current, context)
        return with_presence(context, self.presence)

    def span_of(self, subagent_run_id: str | None, tool_call_id: str | None) -> Span | None:
        """The span of a tool call, or, where none is named, of a subagent, or of the run; None while there is none.

        For the producer's side: it may be asked from any thread.
        """
        self._look()
        scope = self._tracker.scope
        entity = scope.named_by(subagent_run_id, tool_call_id) if scope is not None else None
        return entity.handle.span if entity is not None and entity.handle is not None else None

    @property
    def has_started(self) -> bool:
        """Whether a RUN_STARTED was seen."""
        held = self._held
        return self._has_started or (self._run is not None and self._run.started) or (held is not None and held.started)

    def serves(self, given: Any) -> bool:
        """Whether an observer that finds this session is to pass through: it is open, and follows the same run.

        That is so when `given`, the observer's input, has this session's threadId and runId; without an input, when no
        RUN_STARTED was seen yet (trace model: one observer a stream).
        """
        if self._ending.locked():
            return False
        self._look()
        wanted, run = guarded_input(given, self._boundary), self._run
        if wanted is None or wanted.run_id is None:
            return not self.has_started
        return run is not None and wanted.thread_id == run.thread_id and wanted.run_id in (run.id, run.input_run_id)

    def adopt(self, agent_name: str | None, attributes: Attributes | None, given: Any) -> None:
        """Take from an observer that passes through what this session lacks."""
        try:
            lacking = self._host.adopt(attributes, given, present=self._writer.common)
            if self._tracker.agent_name is None:
                self._tracker.agent_name = agent_name
            run = self._run
            if run is None or not run.is_open:
                return
            if lacking:
                self._writer.describe_more(run, lacking)
            if run.name is None and agent_name is not None:
                self._writer.rename(run, agent_name)
            self.presence.identify(self._writer.common)
        except Exception as error:  # noqa: BLE001 - the boundary
            self._boundary.swallow("adopt", error)
