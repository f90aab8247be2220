"""Traces of agents that are run as before: `agent.run(...)`, without a stream of events."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any
from uuid import uuid4

from opentelemetry.context import Context, get_current
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider
from smolagents.memory import FinalAnswerStep

from agui_otel.attach.observe import observer, start
from agui_otel.config import Settings
from agui_otel.errors import ConfigurationError
from agui_otel.smolagents.bridge import Bridge, asking, name_of
from agui_otel.smolagents.frames import Frame, Within
from agui_otel.smolagents.guard import quietly
from agui_otel.smolagents.hooks import Method, argument, hooks, outermost
from agui_otel.smolagents.steps import Source, follow
from agui_otel.smolagents.values import tool_failed
from agui_otel.tracing.ending import Reason, reason_of
from agui_otel.tracing.host import Attributes
from agui_otel.tracing.session import Session

ThreadId = Callable[[Any], "str | None"]


def trace_smolagents(
    *,
    thread_id: ThreadId | None = None,
    attributes: Attributes | None = None,
    config: Settings | None = None,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    redact: Callable[[str], str] | None = None,
) -> SmolagentsTracing:
    """Trace every run of an agent in this process from now on, with all that it manages, until `uninstall()`.

    What runs return, yield and raise stays as it is. Nothing of the tracing is raised into them.

    Args:
        thread_id: agent -> the id of the conversation that its run belongs to (`session.id`). Where there is none, a
            run with `reset=False` belongs to the agent's last conversation, and any other begins one. So too where it
            raises, which is logged.
        attributes: a mapping, or a callable from the run's input to one, put on every span.
        config, tracer_provider, meter_provider, redact: as for `trace_events`.

    Raises:
        ConfigurationError: agents are traced already, or an environment variable holds a setting that is not allowed.
    """
    how = observer(config, tracer_provider, meter_provider, redact=redact, tool_failed=tool_failed)
    return SmolagentsTracing(partial(start, how, attributes=attributes), thread_id)


class SmolagentsTracing:
    """What `trace_smolagents` returns. As a context manager it uninstalls itself."""

    def __init__(self, begin: Callable[..., Session | None], thread_id: ThreadId | None) -> None:
        if outermost:
            raise ConfigurationError("agents of smolagents are traced already: call uninstall() of that tracing first")
        self._begin = begin
        self._thread_id = thread_id
        self._threads: dict[int, tuple[weakref.ref[Any], str]] = {}  # by identity: agents may be equal, or unhashable
        hooks.acquire()
        outermost.append(self._run)

    def uninstall(self) -> None:
        """Trace no more runs, and leave smolagents as it was. A second time is nothing."""
        if self._run in outermost:
            outermost.remove(self._run)
            hooks.release()

    def __enter__(self) -> SmolagentsTracing:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.uninstall()

    def _run(self, original: Method, agent: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """`MultiStepAgent.run` of an agent that nobody else runs."""

        def begin() -> TracedRun | None:
            return quietly(self._traced, agent, args, kwargs)

        if argument("stream", args, kwargs):
            return _streamed(begin, partial(original, agent, *args, **kwargs))
        run = begin()
        if run is None:
            return original(agent, *args, **kwargs)
        try:
            with Surroundings(run):
                result = original(agent, *args, **kwargs)
        except BaseException as error:
            quietly(run.failed, error)
            raise
        quietly(run.returned, result)
        return result

    def _traced(self, agent: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> TracedRun | None:
        task = argument("task", args, kwargs)
        extra = argument("additional_args", args, kwargs)
        keep = not argument("reset", args, kwargs, True)
        thread, run = self._thread_of(agent, keep=keep), str(uuid4())
        session = self._begin(get_current(), asking(task, thread, run), name_of(agent))
        if session is None:
            return None
        session.begin()
        bridge = Bridge(session.feed, agent, thread_id=thread, run_id=run, session=session)
        bridge.root.awaited = False
        traced = TracedRun(bridge, session)
        try:
            bridge.begin(task, extra)
        except Exception:
            traced.end("exhausted")
            raise
        return traced

    def _thread_of(self, agent: Any, *, keep: bool) -> str:
        given = quietly(self._thread_id, agent) if self._thread_id is not None else None
        key, threads = id(agent), self._threads
        _, last = threads.get(key, (None, None))
        known = given or (last if keep else None) or str(uuid4())
        threads[key] = weakref.ref(agent, lambda _: threads.pop(key, None)), known
        return known


class TracedRun:
    """A run and the session that traces it."""

    def __init__(self, bridge: Bridge, session: Session) -> None:
        self._bridge = bridge
        self.session = session
        self.frame = Frame(bridge.root)

    def returned(self, result: Any) -> None:
        """The run returned."""
        try:
            self._bridge.finish(result)
        finally:
            self.end("exhausted")

    def failed(self, error: BaseException) -> None:
        """The run raised. What is no Exception stops it (Ctrl-C)."""
        if not isinstance(error, Exception):
            self.end(reason_of(error), error)
            return
        try:
            self._bridge.fail(error)
        finally:
            self.end("exhausted")

    def left(self, error: BaseException) -> None:
        """The consumer of the run's steps left. In the middle of a step smolagents makes a RuntimeError of that."""
        self.end("disconnected", error)

    def end(self, reason: Reason, error: BaseException | None = None) -> None:
        """Nothing more of the run is told."""
        self.session.finish(reason, error)
        self._bridge.abandon()


class Surroundings:
    """Where the run's code runs: its frame, and the caller's OpenTelemetry context with the run's span.

    A context manager, entered for each turn of the run. A context that the code has made current stays so for its next
    turn, and the caller's is restored after each.
    """

    def __init__(self, run: TracedRun) -> None:
        self._run = run
        self._left: Context | None = None

    def __enter__(self) -> None:
        left = self._left
        self._given = left if left is not None else self._run.session.surround(get_current())
        self._within = Within(self._run.frame, self._given)
        self._within.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now = get_current()
        self._left = None if now is self._given else now
        self._within.__exit__(kind, error, trace)


def _streamed(begin: Callable[[], TracedRun | None], call: Callable[[], Source]) -> Source:
    """`run(stream=True)`: what it does at once is done at once, and its trace begins there."""
    run = begin()
    if run is None:
        return call()
    around = Surroundings(run)
    try:
        with around:
            source = call()
    except BaseException as error:
        quietly(run.failed, error)
        raise
    steps = _steps(run, around, source)
    weakref.finalize(steps, quietly, run.left, GeneratorExit())
    return steps


def _steps(run: TracedRun, around: Surroundings, source: Source) -> Source:
    last: list[Any] = [None]

    def see(item: Any) -> None:
        if isinstance(item, FinalAnswerStep):
            last[0] = item.output

    try:
        returned = yield from follow(source, lambda: around, see)
    except BaseException as error:
        closed = isinstance(error, GeneratorExit) or isinstance(error.__context__, GeneratorExit)
        quietly(run.left if closed else run.failed, error)
        raise
    quietly(run.returned, last[0])
    return returned
