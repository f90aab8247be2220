"""Memory stays flat: in a long run, over many runs, and however much is wrong with a stream."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Literal

import pytest
from opentelemetry.sdk.trace import TracerProvider

from agui_otel import Settings, trace_events
from agui_otel.tracing.runs import RecentRuns
from tests.support.sources import DONE, RUN, Event, custom, finished, message, result, subagent, tool_call

CAP = 1_000
SETTINGS = Settings(capture="full", max_value=CAP)
SLACK = 64 * 1024
"""Bytes that measuring itself, caches and freed blocks may make."""


def growth(events: Iterable[Event], first: int, more: int) -> int:
    """Bytes that are held after `more` events more than after the `first` ones of a stream."""
    stream = trace_events(iter(events), tracer_provider=TracerProvider(), config=SETTINGS)
    held = []
    gc.collect()
    tracemalloc.start(1)
    try:
        for count in (first, more):
            for _ in islice(stream, count):
                pass
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    stream.close()
    return held[1] - held[0]


DELTAS: dict[str, tuple[Event, Event]] = {
    "text": (
        {"type": "TEXT_MESSAGE_START", "messageId": "m"},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "ten chars "},
    ),
    "arguments": (
        {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "f"},
        {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "ten chars "},
    ),
    "reasoning": (
        {"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "reasoning"},
        {"type": "REASONING_MESSAGE_CONTENT", "messageId": "m", "delta": "ten chars "},
    ),
    "chunks": (
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "ten chars "},
        {"type": "TEXT_MESSAGE_CHUNK", "delta": "ten chars "},
    ),
}


def deltas(kind: str) -> Iterator[Event]:
    """A run of one endless message; each delta is a new object."""
    opener, delta = DELTAS[kind]
    yield RUN
    yield opener
    while True:
        yield dict(delta)


@pytest.mark.slow
def test_a_million_deltas_hold_no_more_than_a_few() -> None:
    """Above the cap text is counted, not kept."""
    assert growth(deltas("text"), 2 * CAP, 1_000_000) < SLACK


@pytest.mark.parametrize("kind", DELTAS)
def test_deltas_of_any_kind_are_not_kept(kind: str) -> None:
    """Nor what they become when they are written out."""
    assert growth(deltas(kind), 2 * CAP, 50_000) < SLACK


def whole_run(number: int) -> list[Event]:
    """A run with ids of its own, of one thread."""
    ids = {"runId": f"run {number}"}
    return [
        {**RUN, **ids},
        subagent(f"s{number}", "scout"),
        *tool_call(f"c{number}", "search", subagentRunId=f"s{number}"),
        result(f"c{number}"),
        *message(f"m{number}", "text"),
        {"type": "STATE_SNAPSHOT", "snapshot": {"k": number}},
        finished(f"s{number}"),
        {**DONE, **ids},
    ]


@pytest.mark.slow
def test_ten_thousand_runs_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a tree of its own, and gone with its end, but for the ids of the last ones: a fixed number."""
    monkeypatch.setattr("agui_otel.tracing.agents.RECENT_RUNS", RecentRuns())
    monkeypatch.setattr("agui_otel.tracing.runs.MAX_IDS", 16)
    length = len(whole_run(0))
    events = (event for number in range(10_000) for event in whole_run(number))
    assert growth(events, 100 * length, 9_900 * length) < SLACK


def test_ids_are_not_kept_however_long() -> None:
    """A client chooses its run's and its thread's."""

    def runs() -> Iterator[Event]:
        for number in range(120):
            ids = {"runId": f"{number} " + "r" * 100_000, "threadId": f"{number} " + "t" * 100_000}
            yield {**RUN, **ids, "parentRunId": f"{number} " + "p" * 100_000}
            yield {**DONE, **ids}

    assert growth(runs(), 40, 200) < SLACK


ENDLESS: dict[str, Callable[[int], list[Event]]] = {
    "violations": lambda _: [{"type": "TEXT_MESSAGE_END", "messageId": "m"}],
    "malformed events": lambda number: [{"type": "TEXT_MESSAGE_START", "messageId": number}],
    "unknown types": lambda number: [{"type": "FUTURE", "number": number}],
    "customs": lambda number: [custom(f"name {number}")],
    "steps": lambda number: [
        {"type": "STEP_STARTED", "stepName": f"step {number}"},
        {"type": "STEP_FINISHED", "stepName": f"step {number}"},
    ],
    "steps of one name": lambda _: [
        {"type": "STEP_STARTED", "stepName": "s"},
        {"type": "STEP_FINISHED", "stepName": "s"},
    ],
    "activities": lambda number: [
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "t", "content": {"n": number}}
    ],
    "state": lambda number: [{"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/k", "value": number}]}],
    "state snapshots": lambda number: [{"type": "STATE_SNAPSHOT", "snapshot": {f"k{number}": number}}],
    "snapshots": lambda _: [{"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "u", "role": "user", "content": "t"}]}],
    "raw": lambda number: [{"type": "RAW", "event": {"n": number}}],
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_however_many_of_a_kind_stay_bounded(kind: str) -> None:
    """What is over a cap is folded or counted."""
    make = ENDLESS[kind]
    count = 100_000 if kind in ("violations", "customs", "steps") else 20_000
    events = (event for number in range(count) for event in make(number))
    assert growth(_run_of(events), 5_000, 2 * count) < SLACK


def _run_of(events: Iterable[Event]) -> Iterator[Event]:
    yield RUN
    yield from events


def told(size: int) -> Iterator[Event]:
    """A run whose subagents and tool calls end, each with so many characters of its own everywhere."""
    yield RUN
    for number in range(10_000):
        content = f"{number:>{size}}"
        yield {**subagent(f"s{number}", "scout"), "description": content}
        yield from tool_call(f"c{number}", content[:size], subagentRunId=f"s{number}")
        yield {**result(f"c{number}"), "content": content}
        yield {**finished(f"s{number}"), "result": content}


@pytest.mark.parametrize("capture", ["full", "metadata"])
def test_what_has_been_told_is_let_go(monkeypatch: pytest.MonkeyPatch, capture: Literal["full", "metadata"]) -> None:
    """Of what ended only its identity stays until the run's end, however much it said."""
    monkeypatch.setattr("tests.attach.test_memory.SETTINGS", Settings(capture=capture, max_value=CAP))
    little, much = growth(told(20), 100, 3_000), growth(told(900), 100, 3_000)
    assert much - little < 3_000 / 6 * 1_500
