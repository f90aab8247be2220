"""`trace_events`: what comes out of it is what went in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from ag_ui.core import EventType, RunFinishedEvent, RunStartedEvent, TextMessageChunkEvent

from agui_otel import TracingSubscriber, trace_events
from agui_otel.attach.asgi import TracingMiddleware
from agui_otel.errors import ConfigurationError
from tests.support.sources import DONE, INPUT, RUN, WHOLE, produced, produced_sync, read
from tests.support.watched import Watched

MODELS: list[Any] = [
    RunStartedEvent(type=EventType.RUN_STARTED, thread_id="thread", run_id="run"),
    TextMessageChunkEvent(type=EventType.TEXT_MESSAGE_CHUNK, message_id="m", delta="Hello"),
    RunFinishedEvent(type=EventType.RUN_FINISHED, thread_id="thread", run_id="run"),
]


@pytest.mark.parametrize("events", [WHOLE, MODELS, [RUN, 1, None, "x", b"{}", object(), DONE]])
def test_the_same_objects_come_out_in_the_same_order(watched: Watched, events: Any) -> None:
    """Whatever they are: dicts, models of ag-ui-protocol, and what is no event at all."""
    assert list(map(id, events)) == list(map(id, trace_events(iter(events), **watched.keywords)))
    assert list(map(id, events)) == list(map(id, asyncio.run(read(trace_events(produced(events), **watched.keywords)))))
    assert 2 == len(watched.runs)
    watched.check()


def test_no_object_is_changed(watched: Watched) -> None:
    """Neither dicts nor models."""
    before = [repr(event) for event in (*WHOLE, *MODELS)]
    list(trace_events(iter([*WHOLE, *MODELS]), input=INPUT, **watched.keywords))
    assert before == [repr(event) for event in (*WHOLE, *MODELS)]


def test_any_iterable_is_a_source(watched: Watched) -> None:
    """A list, a tuple, an iterator, and an object that only has `__getitem__`."""

    class Sequenced:
        def __getitem__(self, index: int) -> Any:
            return WHOLE[index]

    sources: list[Any] = [list(WHOLE), WHOLE, iter(WHOLE), Sequenced()]
    for source in sources:
        assert list(WHOLE) == list(trace_events(source, **watched.keywords))
    assert 4 == len(watched.runs)


def test_a_source_returns_its_value(watched: Watched) -> None:
    """`yield from` gives what the source returned."""

    def source() -> Any:
        yield from WHOLE
        return "value"

    def consumer() -> Any:
        return (yield from trace_events(source(), **watched.keywords))

    stream = consumer()
    assert list(WHOLE) == [next(stream) for _ in WHOLE]
    with pytest.raises(StopIteration) as stopped:
        next(stream)
    assert "value" == stopped.value.value


def test_an_empty_stream_is_no_run(watched: Watched) -> None:
    """Nothing was announced, nothing came."""
    assert [] == list(trace_events([], **watched.keywords))
    assert [] == asyncio.run(read(trace_events(produced([]), **watched.keywords)))
    assert [] == watched.spans
    watched.check()


def test_a_stream_that_is_never_read_is_nothing(watched: Watched) -> None:
    """Tracing starts at the first pull: nothing is opened, and the source stays as it was."""
    source = produced_sync(WHOLE)
    trace_events(source, input=INPUT, **watched.keywords).close()
    asyncio.run(trace_events(produced(WHOLE), input=INPUT, **watched.keywords).aclose())
    watched.check()
    assert [] == watched.spans
    assert RUN == next(source)


@pytest.mark.parametrize(
    "way",
    [
        lambda config: trace_events([], config=config),
        lambda config: TracingSubscriber(config=config),
        lambda config: TracingMiddleware(nothing, config=config),
    ],
    ids=["trace_events", "TracingSubscriber", "TracingMiddleware"],
)
def test_settings_are_settings(way: Callable[[Any], object]) -> None:
    """A dict in the place of settings is refused at the call, by every way in."""
    with pytest.raises(ConfigurationError, match=r"^config should be a Settings, not dict$"):
        way({"capture": "full"})


async def nothing(*_: object) -> None:
    """An application that does nothing."""
