"""Ways in for code that has the events in its hands: an iterator around them, and a subscriber for each of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
)
from types import TracebackType
from typing import Any, TypeVar, overload

from opentelemetry.context import Context, get_current
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import SpanContext, TracerProvider

from agui_otel.attach.observe import current_context, handle_of, observer, start
from agui_otel.config import Settings
from agui_otel.tracing.ending import reason_of, reason_to_leave
from agui_otel.tracing.host import Attributes
from agui_otel.tracing.inside import session_in
from agui_otel.tracing.observer import Observer
from agui_otel.tracing.session import Session

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
    or dropped. Tracing starts at the first pull, and closing it closes `events`, where that can be closed. Nothing of
    the tracing is raised into the stream.

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
    how = observer(config, tracer_provider, meter_provider, redact=redact, tool_failed=tool_failed, decision=decision)
    return observed(events, how, input, agent_name, attributes)


@overload
def observed(
    events: AsyncIterable[Event], how: Observer, given: Any, agent_name: str | None, attributes: Attributes | None
) -> AsyncGenerator[Event, None]: ...
@overload
def observed(
    events: Iterable[Event], how: Observer, given: Any, agent_name: str | None, attributes: Attributes | None
) -> Generator[Event, None, None]: ...
@overload
def observed(
    events: AsyncIterable[Event] | Iterable[Event],
    how: Observer,
    given: Any,
    agent_name: str | None,
    attributes: Attributes | None,
) -> AsyncGenerator[Event, None] | Generator[Event, None, None]: ...
def observed(
    events: AsyncIterable[Event] | Iterable[Event],
    how: Observer,
    given: Any,
    agent_name: str | None,
    attributes: Attributes | None,
) -> AsyncGenerator[Event, None] | Generator[Event, None, None]:
    """`trace_events`, once it is decided how to observe."""
    if isinstance(events, AsyncIterable):
        return _trace_async(events, how, given, agent_name, attributes)
    return _trace_sync(events, how, given, agent_name, attributes)


class _Surroundings:
    """The context in which the source is pulled next: ``inner``, where the caller's current one is ``outer``.

    That is the caller's with the session and the run's span; or, once the source has left another behind at the end of
    a pull (a span that it keeps current over its own yield), that one. What enters and what leaves it stands in one
    frame. ``inner`` is as it should be while ``outer`` is the current context and ``runs`` the number of runs.
    """

    __slots__ = ("_given", "_session", "get", "inner", "outer", "presence", "reset", "runs", "set")

    def __init__(self, session: Session) -> None:
        self._session = session
        self.presence = session.presence
        self.get, self.set, self.reset = current_context()
        self.inner = self._given = Context()
        self.outer: Context | None = None
        self.runs = -1

    def enter(self) -> Any:
        """Enter it. Returns what `leave` needs."""
        outer, runs = self.get(), self.presence.runs
        if self.inner is self._given and (outer is not self.outer or runs != self.runs):
            self.inner = self._given = self._session.surround(outer)
        self.outer, self.runs = outer, runs
        return self.set(self.inner)

    def leave(self, token: Any) -> None:
        """Leave it, as the source left it."""
        left = self.get()
        try:
            self.reset(token)
        except ValueError:
            return  # a pull that its task never ended, closed elsewhere: nothing was attached here
        if left is not self.inner:
            self.keep(left)

    def keep(self, left: Context) -> None:
        """The source left another context behind than it was pulled in."""
        self.inner, self.runs = left, -1


async def _trace_async(
    events: AsyncIterable[Event],
    how: Observer,
    given: Any,
    agent_name: str | None,
    attributes: Attributes | None,
) -> AsyncGenerator[Event, None]:
    session = start(how, get_current(), given, agent_name, attributes)
    if session is None:
        passed = aiter(events)
        async for event in passed:
            try:
                yield event
            except BaseException:
                await _close(passed)
                raise
        return
    session.begin()
    around = _Surroundings(session)
    feed, enter, leave, presence = session.feed, around.enter, around.leave, session.presence
    get, attach, reset = around.get, around.set, around.reset
    try:
        token = enter()
        try:
            source = aiter(events)
        finally:
            leave(token)
        pull = source.__anext__
        while True:
            known = get() is around.outer and presence.runs == around.runs
            token = attach(around.inner) if known else enter()
            try:
                event = await pull()
            except StopAsyncIteration:
                break
            finally:  # `leave`, written out: most of what a delta costs here are calls
                left = get()
                try:
                    reset(token)
                except ValueError:
                    pass
                else:
                    if left is not around.inner:
                        around.keep(left)
            feed(event)
            try:
                yield event
            except BaseException as error:
                token = enter()
                try:
                    await _close(source)
                finally:
                    leave(token)
                    session.finish(reason_to_leave(error), error)
                raise
    except BaseException as error:
        session.finish(reason_of(error), error)
        raise
    session.finish("exhausted")


async def _close(source: AsyncIterator[Event]) -> None:
    """Close the source, unless somebody does already: a loop that shuts down closes every generator by itself."""
    close = getattr(source, "aclose", None)
    if close is None or (isinstance(source, AsyncGenerator) and (_is_running(source) or _loop_shuts_down())):
        return
    try:
        await close()
    except RuntimeError:
        if not _is_running(source):
            raise


def _is_running(source: Any) -> bool:
    return bool(getattr(source, "ag_running", False))


def _loop_shuts_down() -> bool:
    """Whether the event loop has begun to close its generators: two that close one fail. asyncio tells nobody else."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return False
    return bool(getattr(loop, "_asyncgens_shutdown_called", False))


def _trace_sync(
    events: Iterable[Event], how: Observer, given: Any, agent_name: str | None, attributes: Attributes | None
) -> Generator[Event, None, Any]:
    session = start(how, get_current(), given, agent_name, attributes)
    if session is None:
        return (yield from events)
    session.begin()
    around = _Surroundings(session)
    feed, enter, leave = session.feed, around.enter, around.leave
    try:
        token = enter()
        try:
            source = iter(events)
        finally:
            leave(token)
        pull = source.__next__
        while True:
            token = enter()
            try:
                event = pull()
            except StopIteration as stop:
                returned = stop.value
                break
            finally:
                leave(token)
            feed(event)
            try:
                yield event
            except BaseException as error:
                token = enter()
                try:
                    _close_sync(source)
                finally:
                    leave(token)
                    session.finish(reason_to_leave(error), error)
                raise
    except BaseException as error:
        session.finish(reason_of(error), error)
        raise
    session.finish("exhausted")
    return returned


def _close_sync(source: Iterator[Event]) -> None:
    close = getattr(source, "close", None)
    if close is not None:
        close()


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
        self._lock = threading.RLock()  # a callable of the host may come back here
        self._started = False
        self._session: Session | None = None
        self._outer: Session | None = None  # an observer of the same run, where there is one

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
        session = self._session if self._session is not None else self._outer
        return session.span_context if session is not None else None

    @property
    def trace_url(self) -> str | None:
        """The run's page in Phoenix; None before the first run, or where traces do not go to Phoenix."""
        context, handle = self.span_context, handle_of(self._how)
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
            context = get_current()
            self._session = start(self._how, context, *self._about)
            if self._session is not None:
                self._session.begin()
            elif not self._how.settings.disabled:
                self._outer = session_in(context)
        return self._session

    def _finish(self, error: BaseException | None) -> None:
        with self._lock:
            session = self._start()
            if session is not None:
                session.finish("exhausted" if error is None else reason_of(error), error)
