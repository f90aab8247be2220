"""`TracingSubscriber`: events dispatched elsewhere, each ending, and what it shows of the run."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agui_otel import TracingSubscriber, setup, trace_events
from agui_otel.tracing.memory import open_memory
from tests.support.receivers import http_receiver
from tests.support.sources import DONE, FAILED, HALF, INPUT, RUN, WHOLE, custom
from tests.support.watched import Watched, collected, exceptions, values

Act = Callable[[TracingSubscriber], object]


def ending(watched: Watched) -> tuple[Any, Any, str]:
    """Outcome, `error.type` and status of the only run, after the checks that hold for every trace."""
    watched.check()
    found = values(watched.run)
    return found["agui.outcome"], found.get("error.type"), watched.run.status.status_code.name


def fail(error: BaseException) -> Act:
    """Tell of an error."""
    return lambda subscriber: subscriber.on_run_failed(error)


def finalise(subscriber: TracingSubscriber) -> None:
    """Tell of the end."""
    subscriber.on_run_finalized()


@pytest.mark.parametrize(
    ("events", "acts", "expected"),
    [
        (WHOLE, [finalise], ("success", None, "UNSET")),
        (HALF, [finalise], ("unfinished", None, "UNSET")),
        ([*HALF, FAILED], [finalise], ("error", "broke", "ERROR")),
        (HALF, [fail(ValueError("no")), finalise], ("error", "ValueError", "ERROR")),
        (HALF, [finalise, fail(ValueError("no")), finalise], ("unfinished", None, "UNSET")),
        (HALF, [fail(asyncio.CancelledError())], ("cancelled", None, "UNSET")),
        (WHOLE, [fail(ValueError("no"))], ("error", "ValueError", "ERROR")),
        ([], [fail(ValueError("no"))], ("error", "ValueError", "ERROR")),
        ([], [finalise], ("unfinished", None, "UNSET")),
    ],
)
def test_a_subscriber_ends_the_run_once(watched: Watched, events: Any, acts: list[Act], expected: Any) -> None:
    """The first word about the end counts, whether or not events came before it."""
    subscriber = TracingSubscriber(input=INPUT, **watched.keywords)
    for event in events:
        subscriber.on_event(event)
    for act in acts:
        act(subscriber)
    assert expected == ending(watched)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, ("unfinished", None, "UNSET")),
        (ValueError("no"), ("error", "ValueError", "ERROR")),
        (KeyboardInterrupt(), ("cancelled", None, "UNSET")),
        (asyncio.CancelledError(), ("cancelled", None, "UNSET")),
        (GeneratorExit(), ("disconnected", None, "UNSET")),
    ],
)
def test_a_block_ends_the_run(watched: Watched, error: BaseException | None, expected: Any) -> None:
    """By what it raised, which goes on."""

    def block() -> None:
        with TracingSubscriber(input=INPUT, **watched.keywords) as subscriber:
            for event in HALF:
                subscriber.on_event(event)
            if error is not None:
                raise error

    if error is None:
        block()
    else:
        with pytest.raises(type(error)) as caught:
            block()
        assert caught.value is error
    assert expected == ending(watched)
    assert ([expected[1]] if expected[1] else []) == exceptions(watched.run)


def test_a_run_begins_with_the_block(watched: Watched) -> None:
    """Where an input announces it."""
    with TracingSubscriber(input=INPUT, **watched.keywords) as subscriber:
        assert subscriber.span_context is not None
    assert watched.run.get_span_context() == subscriber.span_context


def test_a_subscriber_without_events_and_without_input_is_nothing(watched: Watched) -> None:
    """There was no run."""
    for act in (finalise, fail(ValueError())):
        subscriber = TracingSubscriber(**watched.keywords)
        act(subscriber)
        assert subscriber.span_context is None
    assert [] == watched.spans


def test_a_subscriber_that_is_dropped_leaves_an_unfinished_run(watched: Watched) -> None:
    """Nothing says why the stream ended."""
    subscriber = TracingSubscriber(**watched.keywords)
    for event in HALF:
        subscriber.on_event(event)
    del subscriber
    gc.collect()
    assert ("unfinished", None, "UNSET") == ending(watched)


def test_events_after_the_end_are_not_taken(watched: Watched) -> None:
    """Nothing is opened that nobody would end, nothing is set on what has ended."""
    subscriber = TracingSubscriber(**watched.keywords)
    for event in WHOLE:
        subscriber.on_event(event)
    subscriber.on_run_finalized()
    for event in (*WHOLE, custom("late"), FAILED):
        subscriber.on_event(event)
    subscriber.on_run_finalized()
    assert ("success", None, "UNSET") == ending(watched)


def test_it_shows_the_current_run(watched: Watched) -> None:
    """The one before it until RUN_STARTED, and the last one after the end."""
    subscriber = TracingSubscriber(**watched.keywords)
    shown = [subscriber.span_context]
    for event in ({**RUN, "runId": "a"}, {**DONE, "runId": "a"}, {**RUN, "runId": "b"}, {**DONE, "runId": "b"}):
        subscriber.on_event(event)
        shown.append(subscriber.span_context)
    subscriber.on_run_finalized()
    shown.append(subscriber.span_context)
    first, second = (run.get_span_context() for run in watched.runs)
    assert [None, first, first, second, second, second] == shown


def test_it_shows_the_page_in_phoenix() -> None:
    """Where `setup` exports there."""
    with http_receiver() as phoenix, setup(phoenix=phoenix.url, set_global=False) as handle:
        subscriber = TracingSubscriber(tracer_provider=handle.tracer_provider)
        before = subscriber.trace_url
        subscriber.on_event(RUN)
        context = subscriber.span_context
        assert context is not None
        assert [None, f"{phoenix.url}/redirects/traces/{context.trace_id:032x}"] == [before, subscriber.trace_url]
        subscriber.on_run_finalized()


def test_it_shows_no_page_without_phoenix(watched: Watched) -> None:
    """A provider of the host's own exports anywhere."""
    subscriber = TracingSubscriber(**watched.keywords)
    subscriber.on_event(RUN)
    assert subscriber.trace_url is None
    subscriber.on_run_finalized()


def test_threads_may_feed_it_in_turn(watched: Watched) -> None:
    """One event after another, whoever brings it."""
    subscriber = TracingSubscriber(**watched.keywords)
    with ThreadPoolExecutor(4) as pool:
        for event in WHOLE:
            pool.submit(subscriber.on_event, event).result()
        pool.submit(subscriber.on_run_finalized).result()
    assert ("success", None, "UNSET") == ending(watched)
    assert len(WHOLE) == values(watched.run)["agui.events.count"]


def test_it_traces_what_a_stream_traces(watched: Watched) -> None:
    """The same tree from the same events."""
    other = Watched()
    list(trace_events(WHOLE, agent_name="a", attributes={"k": 1}, **other.keywords))
    open_memory("memory://").close()  # what comes twice is told
    with TracingSubscriber(agent_name="a", attributes={"k": 1}, **watched.keywords) as subscriber:
        for event in WHOLE:
            subscriber.on_event(event)
    assert other.captured.tree(attributes=["*"]) == watched.captured.tree(attributes=["*"])


def test_nothing_is_left_of_it(watched: Watched) -> None:
    """Neither of a subscriber that ended nor of one that was dropped."""
    references = []
    for ended in (True, False):
        subscriber = TracingSubscriber(**watched.keywords)
        for event in HALF:
            subscriber.on_event(event)
        if ended:
            subscriber.on_run_finalized()
        references.append(weakref.ref(subscriber))
        del subscriber
    collected()
    assert [None, None] == [reference() for reference in references]
    watched.check()
