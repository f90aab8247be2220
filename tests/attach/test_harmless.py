"""The observer is harmless (trace model: promises): on any stream, however it is read and however it ends."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agui_otel import Settings, TracingSubscriber, trace_events
from agui_otel.tracing.boundary import Boundary
from tests.support.defects import write
from tests.support.hostile import VALUES, hostile_stream, json_stream, json_value
from tests.support.sources import INPUT, WHOLE
from tests.support.watched import Watched, alarm, values

Read = Callable[[list[Any], int, dict[str, Any]], list[Any]]
CONFIGS = [
    Settings(capture="full"),
    Settings(capture="full", steps="spans", dialect="openinference", usage_spans="on"),
    Settings(capture="full", messages="off", steps="off", dialect="gen_ai", clock="event"),
    Settings(capture="metadata", max_value=3, max_paths=1, clock="event"),
    Settings(capture="full", max_state_events=128, max_step_events=128, max_custom_events=128, max_note_events=128),
]
INPUTS = [
    None,
    INPUT,
    {**INPUT, "resume": [{"interruptId": "i", "status": "cancelled"}], "messages": [{"role": "user"}]},
]


class Stop(Exception):  # noqa: N818
    """What a source raises here."""


def whole(events: list[Any], _: int, keywords: dict[str, Any]) -> list[Any]:
    """Read to the end."""
    return list(trace_events(iter(events), **keywords))


def partly(events: list[Any], length: int, keywords: dict[str, Any]) -> list[Any]:
    """Leave after so many."""
    stream = trace_events(iter(events), **keywords)
    return [event for event, _ in zip(stream, range(length), strict=False)]


def failing(events: list[Any], length: int, keywords: dict[str, Any]) -> list[Any]:
    """The source raises after so many."""
    found: list[Any] = []

    def source() -> Iterator[Any]:
        yield from events[:length]
        raise Stop

    def consume() -> None:
        for event in trace_events(source(), **keywords):
            found.append(event)  # noqa: PERF402 (what came before the error counts)

    with pytest.raises(Stop):
        consume()
    assert len(events[:length]) == len(found)
    return found


def subscribed(events: list[Any], _: int, keywords: dict[str, Any]) -> list[Any]:
    """By a subscriber."""
    with TracingSubscriber(**keywords) as subscriber:
        for event in events:
            subscriber.on_event(event)
    return events


def concurrently(events: list[Any], length: int, keywords: dict[str, Any]) -> list[Any]:
    """Asynchronously, and cancelled after so many."""
    found: list[Any] = []

    async def source() -> Any:
        for number, event in enumerate(events):
            if number == length:
                await asyncio.sleep(60)
            yield event

    async def consume() -> None:
        async for event in trace_events(source(), **keywords):
            found.append(event)  # noqa: PERF401 (what came before it was cancelled counts)

    async def main() -> None:
        task = asyncio.create_task(consume())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    return found


READERS: list[Read] = [whole, partly, failing, subscribed, concurrently]


def read(events: list[Any], reader: Read, length: int, **keywords: Any) -> Watched:
    """Read a stream while it is traced, and check all that is true of any."""
    watched = Watched()
    with alarm() as heard:
        found = reader(events, length, {**watched.keywords, **keywords})
    assert list(map(id, events[: len(found)])) == list(map(id, found))
    assert [] == [message for message in heard.messages if not message.startswith("agui-otel: ")]
    watched.check()
    watched.close()
    return watched


seeds = st.integers(0, 2**32)


@given(seeds, st.sampled_from(READERS), st.integers(0, 30), st.sampled_from(CONFIGS), st.sampled_from(INPUTS))
@settings(max_examples=1000, deadline=None)
def test_any_stream_of_json_comes_through(
    seed: int, reader: Read, length: int, config: Settings, given_input: Any
) -> None:
    """Nothing of ours fails on it: errors of this package are raised here."""
    assert Boundary.strict
    read(json_stream(seed), reader, length, config=config, input=given_input)


@given(seeds, st.sampled_from(CONFIGS))
@settings(max_examples=60, deadline=None)
def test_no_event_is_changed(seed: int, config: Settings) -> None:
    """In depth: neither what is judged nor what is kept of it."""
    events = write(seed, None)
    before = copy.deepcopy(events)
    read(events, whole, 0, config=config)
    assert before == events


@given(seeds, st.sampled_from(READERS), st.integers(0, 30), st.sampled_from(CONFIGS))
@settings(max_examples=1000, deadline=None)
@pytest.mark.usefixtures("harmless", "heard")
def test_any_objects_come_through(seed: int, reader: Read, length: int, config: Settings) -> None:
    """Whatever they raise and whatever they claim to be."""
    read(hostile_stream(seed), reader, length, config=config)


@pytest.mark.parametrize("number", range(len(VALUES) + 20))
@pytest.mark.usefixtures("harmless", "heard")
def test_any_arguments_come_through(number: int) -> None:
    """The stream is traced as far as they allow."""
    value = VALUES[number]() if number < len(VALUES) else json_value(Random(number))
    read(list(WHOLE), whole, 0, attributes=value)
    read(list(WHOLE), whole, 0, input=value)
    for field in ("messages", "state", "resume", "forwardedProps", "threadId"):
        read(list(WHOLE), whole, 0, input={**INPUT, field: value})


@pytest.mark.parametrize("make", VALUES)
def test_a_hostile_object_alone_is_one_malformed_event(make: Callable[[], Any]) -> None:
    """At most; the trace tells of it, and nothing of ours fails on it."""
    watched = read([WHOLE[0], make(), *WHOLE[1:]], whole, 0)
    assert sum(values(run)["agui.violations"] for run in watched.runs) <= 1
