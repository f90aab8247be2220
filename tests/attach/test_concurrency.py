"""Many runs at once, in tasks and in threads: every span where it belongs, and nothing left of any of them."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import pkgutil
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import get_current_span

from agui_otel import Settings, TracingSubscriber, trace_events
from agui_otel.tracing.session import Session
from tests.support.sources import WHOLE, Event, finished, message, result, subagent, tool_call
from tests.support.watched import Watched, collected, parent_id, span_id, trace_id, values

RUNS = 100


def story(name: str) -> list[Event]:
    """A run whose ids are those of every other, but for its own and its thread's."""
    ids = {"threadId": f"thread {name}", "runId": name}
    return [
        {"type": "RUN_STARTED", **ids},
        *tool_call("task", f"task {name}"),
        subagent("s", f"scout {name}", parentToolCallId="task"),
        *tool_call("c", f"search {name}", subagentRunId="s"),
        *message("m", name, subagentRunId="s"),
        result("c"),
        finished("s"),
        result("task"),
        {"type": "RUN_FINISHED", **ids},
    ]


LENGTH = len(story(""))


def inside(watched: Watched, name: str, number: int) -> None:
    """A span of the producer's, once the run is known."""
    if number:
        with watched.tracer.start_as_current_span(f"inside {name}"):
            watched.tracer.start_span(f"below {name}").end()


def check_run(watched: Watched, name: str, length: int) -> None:
    """Every span of a run is where it belongs: one trace, one session, and the parents that the ids name."""
    mine = [span for span in watched.captured.spans if values(span)["agui.run.id"] == name]
    assert {f"thread {name}"} == {values(span)["session.id"] for span in mine}
    assert 1 == len({trace_id(span) for span in mine})
    by_name = {span.name: span for span in mine}
    run = next(span for span in mine if span.parent is None)
    task, scout = by_name.get(f"execute_tool task {name}"), by_name.get(f"invoke_agent scout {name}")
    expected = {f"inside {name}": run, f"execute_tool task {name}": run, f"invoke_agent scout {name}": task}
    expected |= {f"execute_tool search {name}": scout, "message assistant": scout}
    for span in mine:
        parent = expected.get(span.name)
        if parent is not None:
            assert span_id(parent) == parent_id(span)
    own = [span for span in mine if not span.name.startswith(("inside", "below"))]
    assert (5 if length >= LENGTH else len(own), 2 * (length - 1)) == (len(own), len(mine) - len(own))


def check_all(watched: Watched, lengths: dict[str, int]) -> None:
    """Every run, and what holds for every trace."""
    watched.check()
    assert lengths.keys() == {values(run)["agui.run.id"] for run in watched.runs}
    for name, length in lengths.items():
        check_run(watched, name, length)


def test_a_hundred_runs_in_tasks(watched: Watched) -> None:
    """Interleaved event by event; each consumer's own context stays its own."""
    elsewhere = TracerProvider().get_tracer("consumer")
    keywords = {**watched.keywords, "config": Settings(ambient="link")}

    async def source(name: str) -> AsyncIterator[Any]:
        for number, event in enumerate(story(name)):
            await asyncio.sleep(0)
            inside(watched, name, number)
            yield event

    async def consume(name: str) -> None:
        with elsewhere.start_as_current_span("consumer") as mine:
            async for _ in trace_events(source(name), **keywords):
                assert get_current_span() is mine
                await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(consume(f"n{number}") for number in range(RUNS)))

    asyncio.run(main())
    check_all(watched, {f"n{number}": LENGTH for number in range(RUNS)})


def test_a_hundred_runs_in_threads(watched: Watched) -> None:
    """All at the same time."""
    together = threading.Barrier(RUNS)

    def source(name: str) -> Iterator[Any]:
        for number, event in enumerate(story(name)):
            inside(watched, name, number)
            yield event

    def consume(number: int) -> None:
        name = f"n{number}"
        together.wait(timeout=30)
        for _ in trace_events(source(name), **watched.keywords):
            assert not get_current_span().get_span_context().is_valid

    with ThreadPoolExecutor(RUNS) as pool:
        list(pool.map(consume, range(RUNS)))
    check_all(watched, {f"n{number}": LENGTH for number in range(RUNS)})


def test_generators_that_other_tasks_pull_and_close(watched: Watched) -> None:
    """Each pull in a task of its own, the closing in yet another one, in a context of its own."""

    async def source(name: str) -> AsyncIterator[Any]:
        for number, event in enumerate(story(name)):
            inside(watched, name, number)
            yield event

    async def main() -> dict[str, int]:
        lengths = {f"n{number}": 1 + number % LENGTH for number in range(RUNS)}
        streams = {name: trace_events(source(name), **watched.keywords) for name in lengths}
        for turn in range(LENGTH):
            await asyncio.gather(
                *(asyncio.ensure_future(stream.__anext__()) for name, stream in streams.items() if turn < lengths[name])
            )
        await asyncio.gather(
            *(contextvars.Context().run(asyncio.ensure_future, stream.aclose()) for stream in streams.values())
        )
        return lengths

    check_all(watched, asyncio.run(main()))


def test_sync_generators_that_other_threads_pull_and_close(watched: Watched) -> None:
    """Each pull and the closing in any of the pool's threads, in a context of its own."""

    def source(name: str) -> Iterator[Any]:
        for number, event in enumerate(story(name)):
            inside(watched, name, number)
            yield event

    lengths = {f"n{number}": 1 + number % LENGTH for number in range(RUNS)}
    streams = {name: trace_events(source(name), **watched.keywords) for name in lengths}
    with ThreadPoolExecutor(8) as pool:
        for turn in range(LENGTH):
            pulled = [contextvars.Context().run for name in streams if turn < lengths[name]]
            reading = [stream for name, stream in streams.items() if turn < lengths[name]]
            list(pool.map(lambda run, stream: run(next, stream), pulled, reading))
        list(pool.map(lambda stream: contextvars.Context().run(stream.close), streams.values()))
    check_all(watched, lengths)


@pytest.mark.parametrize(
    "inside_a_lock",
    [
        "agui_otel.protocol.thread.ThreadChange.apply",
        "agui_otel.tracing.gauges.clean",
        "agui_otel.tracing.runs.OrderedDict",
    ],
)
def test_a_stream_that_ends_inside_another_one_s_lock_waits_for_nothing(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, inside_a_lock: str
) -> None:
    """The garbage collector may end a stream anywhere, also where this package holds a lock."""
    ended: list[str] = []
    original = pkgutil.resolve_name(inside_a_lock)

    def collecting(*arguments: Any) -> Any:
        if not ended:
            ended.append("meanwhile")
            list(trace_events(pending("meanwhile"), **watched.keywords))
        return original(*arguments)

    monkeypatch.setattr(inside_a_lock, collecting)
    thread = threading.Thread(target=lambda: list(trace_events(pending("first"), **watched.keywords)), daemon=True)
    thread.start()
    thread.join(timeout=20)
    assert (False, ["meanwhile"]) == (thread.is_alive(), ended)
    assert {"first", "meanwhile"} == {values(run)["agui.run.id"] for run in watched.runs}


def pending(name: str) -> list[Event]:
    """A run that leaves something to thread memory, with names and ids that nobody has used before."""
    ids = {"threadId": f"thread {name}", "runId": name}
    return [{"type": "RUN_STARTED", **ids}, *tool_call("c", f"tool {name}"), {"type": "RUN_FINISHED", **ids}]


@pytest.fixture
def references(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Any]]:
    """Weak references to every session, its tracker and its writer."""
    found: list[weakref.ref[Any]] = []
    original = Session.__init__

    def watching(session: Session, *args: Any, **keywords: Any) -> None:
        original(session, *args, **keywords)
        found.extend(weakref.ref(held) for held in (session, session._tracker, session._writer))

    monkeypatch.setattr(Session, "__init__", watching)
    return found


def read(stream: Iterator[Any], length: int) -> None:
    """So many events, or all; then the stream is dropped."""
    for number, _ in enumerate(stream, 1):
        if number == length:
            return


@pytest.mark.parametrize("length", [1, 7, LENGTH, LENGTH + 1])
def test_nothing_is_left_of_a_stream(watched: Watched, references: list[weakref.ref[Any]], length: int) -> None:
    """Neither of one that ended nor of one that was left, without waiting for the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        stream = trace_events(iter(story("n")), **watched.keywords)
        generator = weakref.ref(stream)
        read(stream, length)
        del stream
        left = [reference() for reference in (generator, *references)]
    finally:
        gc.enable()
    assert [None] * 4 == left
    watched.check()


def test_nothing_is_left_of_many_streams(watched: Watched, references: list[weakref.ref[Any]]) -> None:
    """Async ones that were read, left, cancelled or failed, and subscribers."""

    async def source(then: BaseException | None) -> AsyncIterator[Any]:
        for event in story("n"):
            yield event
        if then is not None:
            raise then

    async def main() -> None:
        for then in (None, ValueError(), asyncio.CancelledError(), KeyboardInterrupt()):
            stream = trace_events(source(then), **watched.keywords)
            generators.append(weakref.ref(stream))
            for _ in range(LENGTH):
                await anext(stream)
            with pytest.raises(StopAsyncIteration if then is None else type(then)):
                await anext(stream)
            del stream
        left = trace_events(source(None), **watched.keywords)
        generators.append(weakref.ref(left))
        await anext(left)

    generators: list[weakref.ref[Any]] = []
    asyncio.run(main())
    with TracingSubscriber(**watched.keywords) as subscriber:
        for event in WHOLE:
            subscriber.on_event(event)
    del subscriber
    collected()
    assert [None] * 23 == [reference() for reference in (*generators, *references)]
    watched.check()


def test_a_context_that_outlives_its_stream_keeps_no_session(
    watched: Watched, references: list[weakref.ref[Any]]
) -> None:
    """Only its identity, for the spans that are still to come."""
    contexts: list[contextvars.Context] = []

    def source() -> Iterator[Any]:
        for event in WHOLE:
            contexts.append(contextvars.copy_context())
            yield event

    list(trace_events(source(), **watched.keywords))
    collected()
    assert [None, None, None] == [reference() for reference in references]
    contexts[-1].run(lambda: watched.tracer.start_span("late").end())
    assert "thread" == values(watched.named("late"))["session.id"]
