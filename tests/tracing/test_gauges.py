"""The observable gauges: what is open and how old it is, and interrupts that wait."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from agui_otel.tracing.gauges import MAX_LABEL, InterruptGauges, Names, Watched
from agui_otel.tracing.memory import Figure, InProcessMemory, ThreadMemory, Waiting
from tests.support.measurements import SECOND, Kit, Stream, labels, waits


@pytest.fixture
def kit() -> Iterator[Kit]:
    """Instruments of their own for each test."""
    made = Kit()
    yield made
    made.provider.shutdown()


def test_an_invocation_leaves_under_the_labels_it_came_with(kit: Kit) -> None:
    """A name that became known later is for the histogram and the errors only."""
    it = kit.instruments
    token = it.opened("subagent", None, announced=False)
    it.renamed(token, "researcher")
    assert kit.points("agui.active") == {
        labels(level="subagent", agent="unannounced"): 1,
        labels(level="subagent", agent="researcher"): 0,
    }
    it.closed(token, outcome="error", duration_s=1.0)
    assert set(kit.points("agui.active").values()) == {0}
    assert set(kit.points("gen_ai.invoke_agent.duration")) == {
        labels(level="subagent", agent="researcher", outcome="error")
    }
    assert kit.points("agui.subagent.errors")[labels(agent="researcher", cause="own")] == 1


def test_an_invocation_leaves_once(kit: Kit) -> None:
    """A run leaves at its terminal event, and is timed when its span ends."""
    it = kit.instruments
    token = it.opened("run", "planner")
    it.opened("run", "planner")
    it.left(token)
    it.left(token)
    assert kit.points("agui.active") == {labels(level="run", agent="planner"): 1}
    assert kit.points("gen_ai.invoke_agent.duration") == {}
    it.closed(token, outcome="success", duration_s=1.0)
    assert kit.points("agui.active") == {labels(level="run", agent="planner"): 1}


def test_the_oldest_age_is_that_of_the_oldest_open_invocation(kit: Kit) -> None:
    """And 0 for a name once seen of which nothing is open."""
    it = kit.instruments
    first = it.opened("subagent", "researcher")
    kit.now += 10 * SECOND
    second = it.opened("subagent", "researcher")
    kit.now += 5 * SECOND
    researcher = labels(level="subagent", agent="researcher")
    assert kit.points("agui.active.oldest_age") == {researcher: 15.0}
    it.left(first)
    assert kit.points("agui.active.oldest_age") == {researcher: 5.0}
    it.left(second)
    assert kit.points("agui.active.oldest_age") == {researcher: 0.0}


def test_the_idle_time_is_that_of_the_most_silent_open_run(kit: Kit) -> None:
    """Subagents have none; a run that is not open any more is not silent."""
    it = kit.instruments
    silent, busy = Stream(kit.now - 30 * SECOND), Stream(kit.now)
    token = it.opened("run", "planner", heard=silent)
    it.opened("run", "planner", heard=busy)
    it.opened("subagent", "researcher", heard=silent)
    planner = labels(level="run", agent="planner")
    assert kit.points("agui.active.idle") == {planner: 30.0}
    silent.last_event_ns = kit.now - 2 * SECOND
    assert kit.points("agui.active.idle") == {planner: 2.0}
    it.left(token)
    assert kit.points("agui.active.idle") == {planner: 0.0}


def test_a_clock_that_runs_backwards_gives_no_negative_age(kit: Kit) -> None:
    """Ages and durations are never below 0."""
    token = kit.instruments.opened("run", "planner", heard=kit.stream)
    kit.now -= 5 * SECOND
    kit.instruments.closed(kit.instruments.opened("run", "planner"), outcome="success", duration_s=-1.0)
    assert kit.points("agui.active.oldest_age") == {labels(level="run", agent="planner"): 0.0}
    assert kit.points("agui.active.idle") == {labels(level="run", agent="planner"): 0.0}
    assert list(kit.points("gen_ai.invoke_agent.duration").values()) == [(1, 0.0)]
    kit.instruments.left(token)


def test_a_session_is_not_kept_alive(kit: Kit) -> None:
    """One that was lost without an end is collected, and its invocations are no longer active."""
    stream = Stream(kit.now)
    reference = weakref.ref(stream)
    token = kit.instruments.opened("run", "planner", heard=stream)
    assert kit.points("agui.active") == {labels(level="run", agent="planner"): 1}
    del stream
    gc.collect()
    assert reference() is None
    assert kit.points("agui.active") == {labels(level="run", agent="planner"): 0}
    kit.instruments.closed(token, outcome="disconnected", duration_s=1.0)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("a\0b\ud800", "ab�"),
        ("x" * (MAX_LABEL + 1), "x" * MAX_LABEL),
        ("x" * (MAX_LABEL * 4 + 1), "other"),
        ("", ""),
    ],
)
def test_a_label_can_be_exported(name: str, label: str) -> None:
    """A name from a stream may be anything; a label is short and can be encoded."""
    assert label == Names(200).label(name)


class SlowMemory:
    """A store outside the process whose figure is given, or fails."""

    scope = "shared"
    immediate = False

    def __init__(self, figure: Figure | None = None) -> None:
        self.now = figure
        self.asked = 0

    def figure(self) -> Figure | None:
        """What the store says."""
        self.asked += 1
        return self.now


def test_open_interrupts_are_reported_by_reason_and_store(kit: Kit) -> None:
    """The memories of a process are added up; a reason once seen is 0 when nothing waits any more."""
    one, two = InProcessMemory(), InProcessMemory()
    one.write(waits("t", "i", since=900.0))
    one.write(waits("u", "i", since=950.0))
    two.write(waits("t", "i", since=800.0))
    two.write(waits("u", "i", since=990.0, reason="form"))
    for memory in (one, two, one):
        kit.instruments.watch(memory)
    approval, form = labels(reason="approval", store="process"), labels(reason="form", store="process")
    assert kit.points("agui.interrupts.open") == {approval: 3, form: 1}
    assert kit.points("agui.interrupts.oldest_age") == {approval: 200.0, form: 10.0}
    for memory in (one, two):
        memory.close()
    assert kit.points("agui.interrupts.open") == {approval: 0, form: 0}
    assert kit.points("agui.interrupts.oldest_age") == {approval: 0.0, form: 0.0}


def test_a_memory_is_not_kept_alive(kit: Kit) -> None:
    """Nothing is reported for a store that is gone."""
    memory = InProcessMemory()
    memory.write(waits("t", "i", since=900.0))
    kit.instruments.watch(memory)
    assert len(kit.points("agui.interrupts.open")) == 1
    del memory
    gc.collect()
    assert kit.points("agui.interrupts.open") == {}


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether the condition holds within five seconds."""
    import time

    until = time.monotonic() + 5.0
    while not condition() and time.monotonic() < until:
        time.sleep(0.005)
    return condition()


def test_a_slow_store_is_asked_on_a_thread_of_its_own() -> None:
    """Reading the gauge gives the last figure and never asks the store itself."""
    store: Any = SlowMemory(Figure({"approval": Waiting(2, 900.0)}))
    gauges = InterruptGauges(Names(200), lambda: 1000 * SECOND, every=0.01)
    gauges.watch(store)
    assert store.asked == 0
    labels = {"agui.interrupt.reason": "approval", "agui.store": "shared"}
    assert eventually(lambda: list(gauges.open_counts()) == [(2, labels)])
    assert list(gauges.oldest_ages()) == [(100.0, labels)]
    store.now = Figure({"approval": Waiting(1, 950.0)})
    assert eventually(lambda: list(gauges.oldest_ages()) == [(50.0, labels)])


def test_a_slow_store_that_is_gone_is_not_asked_any_more() -> None:
    """Its thread ends with it."""
    store: Any = SlowMemory(Figure())
    gauges = InterruptGauges(Names(200), lambda: 1000 * SECOND, every=0.01)
    gauges.watch(store)
    list(gauges.open_counts())
    (watched,) = gauges._watched.values()
    thread = watched._thread
    assert thread is not None
    del store, watched
    gc.collect()
    assert eventually(lambda: not thread.is_alive())
    assert list(gauges.open_counts()) == []


def test_an_old_figure_is_not_reported() -> None:
    """A store that cannot say leaves its last figure, until that is too old."""
    store: Any = SlowMemory(Figure({"approval": Waiting(1, 900.0)}))
    watched = Watched(store, every=3600.0, stale=0.05)
    assert watched.refresh()
    store.now = None
    assert watched.refresh()
    fresh = watched.current(store)
    assert fresh is None or fresh.reasons == {"approval": Waiting(1, 900.0)}
    assert eventually(lambda: watched.current(store) is None)


class SlottedMemory:
    """A store of the host's that cannot be referred to weakly."""

    __slots__ = ()
    scope = "shared"
    immediate = True

    def figure(self) -> Figure:
        """Four forms wait."""
        return Figure({"form": Waiting(4, 900.0)})


def test_a_store_that_cannot_be_held_weakly_is_held(kit: Kit) -> None:
    """A host's own store need not allow weak references."""
    store: Any = SlottedMemory()
    kit.instruments.watch(store)
    del store
    assert kit.points("agui.interrupts.open") == {labels(reason="form", store="shared"): 4}


def test_a_callback_raises_nothing(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    """A stream that cannot say when it was last heard costs one gauge its values."""

    class Silent:
        @property
        def last_event_ns(self) -> int:
            raise RuntimeError

    stream: Any = Silent()
    kit.instruments.opened("run", "planner", heard=stream)
    assert kit.points("agui.active.idle") == {}
    assert kit.points("agui.active") == {labels(level="run", agent="planner"): 1}
    assert caplog.records == []


class BrokenMemory(InProcessMemory):
    """A host's own store that breaks its promise."""

    def figure(self) -> NoReturn:
        """Raise."""
        raise RuntimeError


def test_a_broken_store_does_not_reach_the_reader(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    """The callback raises nothing and reports nothing."""
    memory: ThreadMemory = BrokenMemory()
    kit.instruments.watch(memory)
    assert kit.points("agui.interrupts.open") == {}
    assert caplog.records == []
