"""Running an agent as a stream of AG-UI events: the agents work in a thread, the events come as they happen."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import suppress
from contextvars import copy_context
from inspect import signature
from queue import SimpleQueue
from typing import Any
from uuid import uuid4

from ag_ui.core import Event
from pydantic import TypeAdapter
from smolagents import MultiStepAgent

from agui_otel.smolagents.bridge import Bridge, name_of
from agui_otel.smolagents.frames import Frame, Within
from agui_otel.smolagents.guard import quietly
from agui_otel.smolagents.hooks import hooks
from agui_otel.tracing.inside import session_in
from agui_otel.tracing.session import Session

_event: TypeAdapter[Event] = TypeAdapter(Event)

Put = Callable[[Event | None], None]


def run_agui(
    agent: MultiStepAgent,
    task: str,
    *,
    thread_id: str | None = None,
    run_id: str | None = None,
    **run_kwargs: Any,
) -> Generator[Event, None, None]:
    """Run an agent, with all that it manages, and yield what happens as AG-UI 1.0 events, while it happens.

    The agent runs in a thread of its own, from the first pull on. A run that fails yields RUN_ERROR and ends; nothing
    of it is raised. Closing the generator asks all agents to stop, which they do where their next step would begin: a
    model call, a tool or code that runs cannot be stopped, and closing does not wait for it.

    Args:
        agent: a CodeAgent, a ToolCallingAgent, or one of their subclasses; any nesting of `managed_agents`.
        task: what the agent is to do.
        thread_id, run_id: AG-UI's; new ones where none are given.
        run_kwargs: further arguments of `agent.run`, but for `stream`.

    Raises:
        TypeError: the agent is none, or `agent.run` has no such argument.
    """
    _check(agent, task, run_kwargs)
    return _pulled(agent, task, thread_id, run_id, run_kwargs)


def arun_agui(
    agent: MultiStepAgent,
    task: str,
    *,
    thread_id: str | None = None,
    run_id: str | None = None,
    **run_kwargs: Any,
) -> AsyncGenerator[Event, None]:
    """`run_agui` for an event loop: cancelling the task that pulls it, or closing it, asks the agents to stop."""
    _check(agent, task, run_kwargs)
    return _awaited(agent, task, thread_id, run_id, run_kwargs)


def _check(agent: Any, task: Any, run_kwargs: dict[str, Any]) -> None:
    if not isinstance(agent, MultiStepAgent):
        raise TypeError(f"agent should be an agent of smolagents (a MultiStepAgent), not {type(agent).__name__}")
    if not isinstance(task, str):
        raise TypeError(f"task should be a string, not {type(task).__name__}")
    if "stream" in run_kwargs:
        raise TypeError("stream is no argument here: the events always come as they happen")
    signature(agent.run).bind(task, **run_kwargs)


def _pulled(
    agent: Any, task: str, thread_id: str | None, run_id: str | None, run_kwargs: Any
) -> Generator[Event, None, None]:
    queue: SimpleQueue[Event | None] = SimpleQueue()
    bridge = _start(queue.put, agent, task, thread_id, run_id, run_kwargs)
    try:
        while True:
            bridge.pulled = True
            event = queue.get()
            bridge.pulled = False
            if event is None:
                return
            yield event
    except BaseException:
        bridge.stop()
        raise


async def _awaited(
    agent: Any, task: str, thread_id: str | None, run_id: str | None, run_kwargs: Any
) -> AsyncGenerator[Event, None]:
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Event | None] = asyncio.Queue()

    def put(event: Event | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            loop.call_soon_threadsafe(queue.put_nowait, event)

    bridge = _start(put, agent, task, thread_id, run_id, run_kwargs)
    try:
        while True:
            bridge.pulled = True
            event = await queue.get()
            bridge.pulled = False
            if event is None:
                return
            yield event
    except BaseException:
        bridge.stop()
        raise


def _start(put: Put, agent: Any, task: str, thread_id: str | None, run_id: str | None, run_kwargs: Any) -> Bridge:
    """Start the thread. It inherits the context of whoever pulls: the run's span is current in it, where one traces."""
    bridge = Bridge(
        lambda event: put(_event.validate_python(event)),
        agent,
        thread_id=thread_id or str(uuid4()),
        run_id=run_id or str(uuid4()),
        session=_session(agent),
    )
    worker = threading.Thread(
        target=copy_context().run,
        args=(_work, bridge, put, agent, task, run_kwargs),
        name=f"agui {name_of(agent)}",
        daemon=True,
    )
    try:
        worker.start()
    except RuntimeError as error:  # no more threads
        bridge.begin(task, run_kwargs.get("additional_args"))
        bridge.fail(error)
        put(None)
    return bridge


def _session(agent: Any) -> Session | None:
    """The session that traces this stream: the one in whose context it is pulled, before it has seen a run start."""
    session: Session | None = session_in()
    if session is None or not session.serves(None):
        return None
    session.adopt(name_of(agent), None, None)
    return session


def _work(bridge: Bridge, put: Put, agent: Any, task: str, run_kwargs: Any) -> None:
    try:
        quietly(bridge.begin, task, run_kwargs.get("additional_args"))
        try:
            with hooks.held(), Within(Frame(bridge.root), quietly(bridge.context_of, bridge.root)):
                result = agent.run(task, **run_kwargs)
        except BaseException as error:  # noqa: BLE001 - whatever ends the agent ends the stream
            quietly(bridge.fail, error)
        else:
            quietly(bridge.finish, result)
        if bridge.root.is_open:
            quietly(bridge.fail, RuntimeError("the end of the run could not be told"))
    finally:
        put(None)
