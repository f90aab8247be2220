"""Trace model, thread memory: what is held, and traced later, is traced as if nobody had waited."""

from __future__ import annotations

import threading
import time
from typing import Any

from hypothesis import given as over
from hypothesis import settings
from hypothesis import strategies as st
from opentelemetry.context import Context

from agui_otel.protocol.rules import RULES
from agui_otel.protocol.thread import ThreadRecord
from agui_otel.testing import Captured
from agui_otel.tracing import background
from agui_otel.tracing.ending import OUTCOMES, Reason
from agui_otel.tracing.memory import InProcessMemory
from agui_otel.tracing.session import Session
from tests.support.defects import write
from tests.support.traced import SECOND, START, Thread, strict
from tests.support.wire import answers, finished, flat, given, started

LONG = 30.0


class LateMemory(InProcessMemory):
    """A store that answers when it is told to."""

    immediate = False

    def __init__(self) -> None:
        super().__init__(clock=lambda: START / SECOND)
        self.answers = threading.Event()

    def read(self, thread_id: str, _notes: list[str] | None = None, /) -> ThreadRecord | None:
        """Wait, then read."""
        self.answers.wait(LONG)
        return super().read(thread_id)


def run(thread: Thread, memory: LateMemory, stream: list[Any], asked: Any, reason: Reason, answered: int) -> None:
    """Trace a stream of which so many events have come when the store answers."""
    memory.answers.clear()
    with strict():
        session = Session(thread._observer, Context(), given=asked, agent_name="supervisor")
        session.begin(thread._at())
        for number, event in enumerate(flat(stream)):
            if number == answered:
                memory.answers.set()
                assert background._readers.settle(time.monotonic() + LONG)
            thread.now += 1
            session.feed(event, thread._at())
        session.finish(reason, at_ns=thread._at())
        memory.answers.set()
        assert background.settle(LONG)


def points(captured: Captured) -> dict[str, list[str]]:
    """The metrics, but for those that tell the time of day."""
    found = captured.metrics()
    for name in ("agui.active.idle", "agui.active.oldest_age", "agui.interrupts.oldest_age", "agui.interrupts.open"):
        found.pop(name, None)
    return {name: sorted(map(str, values)) for name, values in found.items()}


streams = st.builds(write, st.integers(0, 10**9), st.sampled_from([None, *RULES]))
inputs = st.sampled_from([None, given("r", "t"), given("r", "t", resume=answers("i")), given("other", "t")])


@settings(max_examples=60)
@over(st.lists(st.tuples(streams, inputs, st.sampled_from(list(OUTCOMES))), min_size=1, max_size=3), st.data())
def test_late_is_the_same_as_at_once(runs: list[tuple[list[Any], Any, Reason]], data: st.DataObject) -> None:
    """For any streams, whenever the store answers: the same spans, trees, times and metrics."""
    late = LateMemory()
    at_once, later = Thread(), Thread(memory=late, thread_memory_timeout=LONG)
    for stream, asked, reason in runs:
        at_once.run(stream, given=asked, end=reason)
        run(later, late, stream, asked, reason, data.draw(st.integers(0, len(stream))))
    first, second = at_once.captured, later.captured
    assert first.tree(attributes=("*",)) == second.tree(attributes=("*",))
    assert sorted((span.start_time, span.end_time, span.name) for span in first.spans) == sorted(
        (span.start_time, span.end_time, span.name) for span in second.spans
    )
    assert points(first) == points(second)


class Secret:
    """An object of the host's."""

    def __str__(self) -> str:
        return "hunter2"

    __repr__ = __str__


def test_objects_that_are_held_are_told_as_at_once() -> None:
    """By their class: what an object says of itself may be a secret."""
    late = LateMemory()
    stream: list[Any] = [
        started("r", "t"),
        {"type": "CUSTOM", "name": "n", "value": {"a": Secret(), "b": b"zz", "c": [Secret()], "d": {1, 2}}},
        finished("r", "t"),
    ]
    at_once, later = Thread(), Thread(memory=late, thread_memory_timeout=LONG)
    at_once.run(stream, given=None)
    run(later, late, stream, None, "exhausted", 2)
    expected = at_once.captured.tree(attributes=("*",), event_attributes=("*",))
    assert expected == later.captured.tree(attributes=("*",), event_attributes=("*",))
    assert "Secret" in expected
    assert "hunter2" not in expected
