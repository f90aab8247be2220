"""Ways in for code that has the events in its hands: an iterator around them, and a subscriber for each of them."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Generator, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar, overload

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import SpanContext, TracerProvider

from agui_otel.attach.observe import observer, start
from agui_otel.config import Settings
from agui_otel.exporting import current_handle, handle_for
from agui_otel.tracing.session import Attributes, Observer, Session, reason_of

Event = TypeVar("Event")


@overload
def trace_events(
    events: AsyncIterable[Event],
    *,
    input: Any = None,
    agent_name: str | None = None,
    attributes: Attributes | None = None,
    config: Settings | None = None,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    redact: Callable[[str], str] | None = None,
    tool_failed: Callable[[str, Any], bool | str] | None = None,
    decision: Callable[[Mapping[str, Any]], str | None] | None = None,
) -> AsyncGenerator[Event, None]: ...
@overload
def trace_events(
    events: Iterable[Event],
    *,
    input: Any = None,
    agent_name: str | None = None,
    attributes: Attributes | None = None,
    config: Settings | None = None,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    redact: Callable[[str], str] | None = None,
    tool_failed: Callable[[str, Any], bool | str] | None = None,
    decision: Callable[[Mapping[str, Any]], str | None] | None = None,
) -> Generator[Event, None, None]: ...
def trace_events(
    events: AsyncIterable[Event] | Iterable[Event],
    *,
    input: Any = None,  # noqa: A002 (AG-UI's word)
    agent_name: str | None = None,
    attributes: Attributes | None = None,
    config: Settings | None = None,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    redact: Callable[[str], str] | None = None,
    tool_failed: Callable[[str, Any], bool | str] | None = None,
    decision: Callable[[Mapping[str, Any]], str | None] | None = None,
) -> AsyncGenerator[Event, None] | Generator[Event, None, None]:
    """Trace a stream of AG-UI events while it is consumed; yields the same objects, in the same order.

    The run's span is current while `events` is pulled, so that spans of other instrumentations land under it, and never
    while the consumer runs. The trace is finalised once, however the stream ends: exhausted, failed, closed, cancelled
    or dropped. Tracing starts at the first pull. Nothing of the tracing is raised into the stream.

    Args:
        events: an async or a sync iterable of events: objects of any `ag-ui-protocol` version, or dicts in wire form.
        input: the run's RunAgentInput, an object or a dict; with it the run's span starts at the first pull.
        agent_name: the name of the run's own agent.
        attributes: a mapping, or a callable from `input` to one, put on every span of the stream's first run.
        config: settings; those of the environment where there are none.
        tracer_provider, meter_provider: those of `setup()`, else the process's global ones, where none are given.
        redact: sees every captured string and returns what may be exported.
        tool_failed: (tool name, result) -> whether the call failed, or its error type.
        decision: resume entry -> "approved", "denied", "edited", "expired" or "unknown".

    Raises:
        ConfigurationError: an environment variable holds a setting that is not allowed.
    """
    how = observer(
        config, tracer_provider, meter_provider, redact=redact, tool_failed=tool_failed, decision=decision
    )
    if isinstance(events, AsyncIterable):
        return _trace_async(events, how, input, agent_name, attributes)
    return _trace_sync(events, how, input, agent_name, attributes)


class _Surroundings:
    """The context in which the source is pulled next.

    The caller's current one with the session and the run's span; or, once the source has left another behind at the end
    of a pull (a span that it keeps current over its own yield), that one.
    """

    __slots__ = ("_base", "_given", "_left", "_runs", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._base: Context | None = None
        self._runs = -1
        self._given = Context()
        self._left: Context | None = None

    def enter(self) -> Any:
        if self._left is None:
            base, session = get_current(), self._session
            if base is not self._base or session.runs != self._runs:
                self._base, self._runs = base, session.runs
                self._given = session.surround(base)
            return attach(self._given)
        return attach(self._left)

    def leave(self, token: Any) -> None:
        left = get_current()
        self._left = None if left is self._given else left
        detach(token)


async def _trace_async(
    events: AsyncIterable[Event],
    how: Observer,
    given: Any,
    agent_name: str | None,
    attributes: Attributes | None,
) -> AsyncGenerator[Event, None]:
    source = events.__aiter__()
    session = start(how, get_current(), given, agent_name, attributes)
    if session is None:
        async for event in events:
            yield event
        return
    session.begin()
    around = _Surroundings(session)
    pull, feed, enter, leave = source.__anext__, session.feed, around.enter, around.leave
    try:
        while True:
            token = enter()
            try:
                event = await pull()
            finally:
                leave(token)
            feed(event)
            yield event
    except StopAsyncIteration:
        session.finish("exhausted")
    except BaseException as error:
        close = getattr(source, "aclose", None)
        try:
            if isinstance(error, GeneratorExit) and close is not None:
                token = enter()
                try:
                    await close()
                finally:
                    leave(token)
        finally:
            session.finish(reason_of(error), error)
        raise


def _trace_sync(
    events: Iterable[Event], how: Observer, given: Any, agent_name: str | None, attributes: Attributes | None
) -> Generator[Event, None, None]:
    source = iter(events)
    session = start(how, get_current(), given, agent_name, attributes)
    if session is None:
        yield from source
        return
    session.begin()
    around = _Surroundings(session)
    pull, feed, enter, leave = source.__next__, session.feed, around.enter, around.leave
    try:
        while True:
            token = enter()
            try:
                event = pull()
            finally:
                leave(token)
            feed(event)
            yield event
    except StopIteration:
        session.finish("exhausted")
    except BaseException as error:
        close = getattr(source, "close", None)
        try:
            if isinstance(error, GeneratorExit) and close is not None:
                token = enter()
                try:
                    close()
                finally:
                    leave(token)
        finally:
            session.finish(reason_of(error), error)
        raise


class TracingSubscriber:
    """Trace a stream whose events are dispatched elsewhere: call `on_event` for each, `on_run_finalized` at the end.

    The methods are those of the AG-UI client's AgentSubscriber. As a context manager it finalises itself: with an error
    when the block raised one. Arguments and errors as for `trace_events`. No method raises.
    """

    def __init__(
        self,
        *,
        input: Any = None,  # noqa: A002 (AG-UI's word)
        agent_name: str | None = None,
        attributes: Attributes | None = None,
        config: Settings | None = None,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        redact: Callable[[str], str] | None = None,
        tool_failed: Callable[[str, Any], bool | str] | None = None,
        decision: Callable[[Mapping[str, Any]], str | None] | None = None,
    ) -> None:
        self._how = observer(
            config, tracer_provider, meter_provider, redact=redact, tool_failed=tool_failed, decision=decision
        )
        self._about = (input, agent_name, attributes)
        self._lock = threading.Lock()
        self._started = False
        self._session: Session | None = None

    def on_event(self, event: object) -> None:
        """Take the stream's next event. Threads may call it, one event after another."""
        with self._lock:
            session = self._start()
            if session is not None:
                session.feed(event)

    def on_run_failed(self, error: BaseException) -> None:
        """The run failed with `error`."""
        self._finish(error)

    def on_run_finalized(self) -> None:
        """The stream has ended. Calls after the first, or after `on_run_failed`, do nothing."""
        self._finish(None)

    @property
    def span_context(self) -> SpanContext | None:
        """The span context of the current run, or of the last one; None before the first."""
        return self._session.span_context if self._session is not None else None

    @property
    def trace_url(self) -> str | None:
        """The run's page in Phoenix; None before the first run, or where traces do not go to Phoenix."""
        context, provider = self.span_context, self._how.tracer_provider
        handle = handle_for(provider) if provider is not None else current_handle()
        return handle.trace_url(context.trace_id) if handle is not None and context is not None else None

    def __enter__(self) -> TracingSubscriber:
        with self._lock:
            self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._finish(error)

    def __del__(self) -> None:
        session = getattr(self, "_session", None)
        if session is not None:
            session.finish("exhausted")

    def _start(self) -> Session | None:
        if not self._started:
            self._started = True
            self._session = start(self._how, get_current(), *self._about)
            if self._session is not None:
                self._session.begin()
        return self._session

    def _finish(self, error: BaseException | None) -> None:
        with self._lock:
            session = self._start() if error is not None else self._session
            if session is not None:
                session.finish("exhausted" if error is None else reason_of(error), error)
