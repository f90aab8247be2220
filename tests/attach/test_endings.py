"""Each way in which a stream can end (trace model: outcomes): one outcome, once, and what was raised is raised."""

from __future__ import annotations

import asyncio
import contextvars
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from agui_otel import trace_events
from tests.support.sources import DONE, FAILED, HALF, INPUT, RUN, WHOLE, produced, read
from tests.support.watched import Watched, exceptions, values

Ending = tuple[str, str | None, str]
"""A run's outcome, its `error.type`, and its status."""
CUT_OFF = {
    "invoke_agent scout": "aborted",
    "execute_tool search": "aborted",
}
"""What is open in a run that is cut off ends so (trace model: outcomes)."""


class Broken(Exception):  # noqa: N818
    """What a source raises here."""


def ending(watched: Watched) -> Ending:
    """How the only run ended, after the checks that hold for every trace."""
    watched.check()
    run = watched.run
    return str(values(run)["agui.outcome"]), values(run).get("error.type"), run.status.status_code.name


def below(watched: Watched) -> dict[str, Any]:
    """The outcomes of what is in the run."""
    return {name: outcome for name, outcome in watched.outcomes() if name != "invoke_agent"}


class Source:
    """A source that is no generator: it yields `HALF`, then does as it is told, and counts its calls."""

    def __init__(self, then: Callable[[], object], on_close: Callable[[], object] | None = None) -> None:
        self.events = iter(HALF)
        self.then = then
        self.on_close = on_close
        self.closed = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        event = next(self.events, None)
        if event is None:
            self.then()
        return event

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            return self.__next__()
        except StopIteration:
            raise StopAsyncIteration from None

    def close(self) -> None:
        """Count, and do as told."""
        self.closed += 1
        if self.on_close is not None:
            self.on_close()

    async def aclose(self) -> None:
        """Close."""
        self.close()


class Sync:
    """Only the synchronous half of a source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.close = source.close

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self.source)


def raising(error: BaseException) -> Callable[[], object]:
    """A function that raises `error`."""

    def act() -> object:
        raise error

    return act


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (WHOLE, ("success", None, "UNSET")),
        (HALF, ("unfinished", None, "UNSET")),
        ([*HALF, FAILED], ("error", "broke", "ERROR")),
        ([*WHOLE, FAILED], ("error", "broke", "ERROR")),
        ([RUN, {**DONE, "outcome": {"type": "cancelled"}}], ("cancelled", None, "UNSET")),
        ([FAILED], ("error", "broke", "ERROR")),
        ([{"type": "RUN_ERROR", "message": "broken"}], ("error", "agui.run_error", "ERROR")),
    ],
)
def test_an_exhausted_source_leaves_the_stream_its_word(watched: Watched, events: Any, expected: Ending) -> None:
    """The run's terminal event decides; a run without one is unfinished."""
    list(trace_events(iter(events), **watched.keywords))
    assert expected == ending(watched)


def test_an_empty_stream_with_an_input_is_an_unfinished_run(watched: Watched) -> None:
    """The run was announced by its input, at the first pull."""
    assert [] == list(trace_events([], input=INPUT, **watched.keywords))
    assert ("unfinished", None, "UNSET") == ending(watched)
    assert ("thread", "run") == (values(watched.run)["session.id"], values(watched.run)["agui.run.id"])


ERRORS: list[tuple[BaseException, Ending]] = [
    (Broken("no"), ("error", f"{__name__}.Broken", "ERROR")),
    (ValueError("no"), ("error", "ValueError", "ERROR")),
    (TimeoutError(), ("error", "TimeoutError", "ERROR")),
    (KeyboardInterrupt(), ("cancelled", None, "UNSET")),
    (SystemExit(1), ("cancelled", None, "UNSET")),
    (asyncio.CancelledError(), ("cancelled", None, "UNSET")),
    (GeneratorExit(), ("disconnected", None, "UNSET")),
    (BaseException("of another event loop"), ("cancelled", None, "UNSET")),
]


@pytest.mark.parametrize(("error", "expected"), ERRORS, ids=lambda value: type(value).__name__)
def test_what_a_source_raises_is_raised(watched: Watched, error: BaseException, expected: Ending) -> None:
    """The same object; a run fails by an exception, and is cancelled by what stops it."""
    with pytest.raises(type(error)) as caught:
        list(trace_events(Sync(Source(raising(error))), **watched.keywords))
    assert caught.value is error
    assert expected == ending(watched)
    assert CUT_OFF == below(watched)
    assert ([expected[1]] if expected[1] is not None else []) == exceptions(watched.run)


@pytest.mark.parametrize(("error", "expected"), ERRORS, ids=lambda value: type(value).__name__)
def test_what_an_async_source_raises_is_raised(watched: Watched, error: BaseException, expected: Ending) -> None:
    """As from a sync source."""
    stream = trace_events(Source(raising(error)), **watched.keywords)

    async def consume() -> None:
        for _ in HALF:
            await anext(stream)
        await anext(stream)

    consuming = consume()
    with pytest.raises(type(error)) as caught:
        consuming.send(None)
    assert caught.value is error
    assert expected == ending(watched)
    assert CUT_OFF == below(watched)


@pytest.mark.parametrize("stop", [StopIteration(), StopAsyncIteration()], ids=["StopIteration", "StopAsyncIteration"])
def test_a_stop_that_a_consumer_throws_in_is_no_end(watched: Watched, stop: Exception) -> None:
    """A generator turns it into an error, and the run was cut off."""
    stream = trace_events(iter(HALF), **watched.keywords)
    for _ in HALF:
        next(stream)
    with pytest.raises((RuntimeError, StopAsyncIteration)):
        stream.throw(stop)
    assert ("error", type(stop).__name__, "ERROR") == ending(watched)


def test_a_source_that_fails_to_start_is_an_error(watched: Watched) -> None:
    """Its input announced a run."""

    class Unready:
        def __iter__(self) -> Iterator[Any]:
            raise Broken

    with pytest.raises(Broken):
        next(trace_events(Unready(), input=INPUT, **watched.keywords))
    assert ("error", f"{__name__}.Broken", "ERROR") == ending(watched)


def test_an_error_after_the_terminal_event_is_an_error(watched: Watched) -> None:
    """The source failed after RUN_FINISHED; after RUN_ERROR the first error stands."""

    def source(last: Any) -> Iterator[Any]:
        yield from (RUN, last)
        raise Broken

    for last in (DONE, FAILED):
        with pytest.raises(Broken):
            list(trace_events(source(last), **watched.keywords))
    watched.check()
    assert [f"{__name__}.Broken", "broke"] == [values(run).get("error.type") for run in watched.runs]


@pytest.mark.parametrize("leave", ["break", "close"])
def test_a_consumer_that_leaves_has_disconnected(watched: Watched, leave: str) -> None:
    """And the source is closed, once."""
    source = Source(raising(AssertionError()))
    stream = trace_events(Sync(source), **watched.keywords)

    def consume(events: Iterator[Any]) -> None:
        for number, _ in enumerate(events, 1):
            if number == len(HALF):
                return

    consume(stream)
    if leave == "close":
        stream.close()
        stream.close()
    del stream
    assert ("disconnected", None, "UNSET") == ending(watched)
    assert CUT_OFF == below(watched)
    assert 1 == source.closed


@pytest.mark.parametrize("leave", ["aclose", "collect"])
def test_an_async_consumer_that_leaves_has_disconnected(watched: Watched, leave: str) -> None:
    """Also when the loop closes what was collected."""
    source = Source(raising(AssertionError()))

    async def consume() -> None:
        stream = trace_events(source, **watched.keywords)
        for _ in HALF:
            await anext(stream)
        if leave == "aclose":
            await stream.aclose()
            await stream.aclose()
        del stream
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(consume())
    assert ("disconnected", None, "UNSET") == ending(watched)
    assert CUT_OFF == below(watched)
    assert 1 == source.closed


def test_a_consumer_that_leaves_after_the_end_changes_nothing(watched: Watched) -> None:
    """The terminal event has decided, also where the stream is closed before it is exhausted, or after."""
    for length in (len(WHOLE), len(WHOLE) + 1):
        stream = trace_events(iter(WHOLE), **watched.keywords)
        for _ in range(length):
            next(stream, None)
        stream.close()
    watched.check()
    assert ["success", "success"] == [values(run)["agui.outcome"] for run in watched.runs]


def test_a_cancelled_consumer_cancels_the_run(watched: Watched) -> None:
    """The task that pulls is cancelled while the source waits."""

    async def source() -> AsyncIterator[Any]:
        for event in HALF:
            yield event
        await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(read(trace_events(source(), **watched.keywords)))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ("cancelled", None, "UNSET") == ending(watched)
    assert CUT_OFF == below(watched)


def test_a_source_that_survives_its_cancellation_goes_on(watched: Watched) -> None:
    """The cancellation reaches the source first, as it does without tracing."""

    async def source() -> AsyncIterator[Any]:
        for event in HALF:
            yield event
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            for event in WHOLE[len(HALF) :]:
                yield event

    async def main() -> list[Any]:
        task = asyncio.create_task(read(trace_events(source(), **watched.keywords)))
        await asyncio.sleep(0.01)
        task.cancel()
        return await task

    assert list(WHOLE) == asyncio.run(main())
    assert ("success", None, "UNSET") == ending(watched)


@pytest.mark.parametrize("error", [Broken(), KeyboardInterrupt()], ids=lambda error: type(error).__name__)
def test_an_exception_in_the_cleanup_is_raised_and_the_consumer_had_left(
    watched: Watched, error: BaseException
) -> None:
    """Whichever is first decides: the consumer stopped reading."""
    source = Source(raising(AssertionError()), raising(error))
    stream = trace_events(Sync(source), **watched.keywords)
    for _ in HALF:
        next(stream)
    with pytest.raises(type(error)) as caught:
        stream.close()
    assert caught.value is error
    assert ("disconnected", None, "UNSET") == ending(watched)


def test_an_exception_in_an_async_cleanup_is_raised(watched: Watched) -> None:
    """Likewise."""
    error = Broken()

    async def main() -> None:
        stream = trace_events(Source(raising(AssertionError()), raising(error)), **watched.keywords)
        for _ in HALF:
            await anext(stream)
        await stream.aclose()

    with pytest.raises(Broken) as caught:
        asyncio.run(main())
    assert caught.value is error
    assert ("disconnected", None, "UNSET") == ending(watched)


@pytest.mark.parametrize("context", ["same", "other"])
def test_a_pull_that_never_ends_is_closed_where_its_coroutine_dies(watched: Watched, context: str) -> None:
    """Its loop is gone: nothing is detached in a context that never had it, and the run has ended."""
    waited = object()

    class Forever:
        def __await__(self) -> Any:
            yield waited

    async def waiting() -> AsyncIterator[Any]:
        for event in HALF:
            yield event
        await Forever()

    async def consume(events: AsyncIterator[Any]) -> None:
        async for _ in events:
            pass

    task = contextvars.copy_context()
    consuming = consume(trace_events(waiting(), **watched.keywords))
    assert waited is task.run(consuming.send, None)
    if context == "same":
        task.run(consuming.close)
    else:
        consuming.close()
    assert ("disconnected", None, "UNSET") == ending(watched)


def test_a_stream_that_no_loop_closes_has_ended_all_the_same(watched: Watched) -> None:
    """Its loop is closed when it is collected, so that none of its code runs any more."""
    loop = asyncio.new_event_loop()
    held = []

    async def consume() -> None:
        stream = trace_events(produced(HALF), **watched.keywords)
        for _ in HALF:
            await anext(stream)
        held.append(stream)

    loop.run_until_complete(consume())
    loop.close()
    held.clear()
    gc.collect()
    assert ("disconnected", None, "UNSET") == ending(watched)
    assert CUT_OFF == below(watched)
