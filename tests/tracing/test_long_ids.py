"""Clients and producers choose ids: no store keeps more of them than is useful."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as over
from hypothesis import strategies as st
from opentelemetry.context import Context

from agui_otel import Settings
from agui_otel.protocol.bounds import MAX_LENGTH, bounded
from agui_otel.protocol.thread import (
    OpenInterrupt,
    PendingToolCall,
    SeenRun,
    SpanRef,
    SuspendedSubagent,
    ThreadChange,
    ThreadRecord,
)
from agui_otel.testing import capture
from agui_otel.tracing import background
from agui_otel.tracing.memory import InProcessMemory, ThreadMemory
from agui_otel.tracing.observer import Observer
from agui_otel.tracing.session import Session
from agui_otel.tracing.sqlite_memory import SQLiteMemory
from tests.support.wire import flat, interrupted, started, subagent, suspended, tool

HUGE = 100_000


@pytest.fixture(params=["memory", "sqlite"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ThreadMemory]:
    """A store of each kind."""
    made: ThreadMemory = InProcessMemory() if request.param == "memory" else SQLiteMemory(tmp_path / "threads.db")
    yield made
    made.close()


def leave(memory: ThreadMemory, thread: str, interrupt: str, reason: str = "approval") -> dict[str, float]:
    """A run that is interrupted; returns what the observer could not keep."""
    captured = capture()
    observer = Observer(
        Settings(thread_memory_timeout=30), captured.tracer_provider, captured.meter_provider, memory=memory
    )
    session = Session(observer, Context())
    ends = interrupted(interrupt, run="run", thread=thread)
    ends["outcome"]["interrupts"][0]["reason"] = reason
    asks = [tool("c", "task", "{}"), subagent("s", "asker", call="c"), suspended("s", interrupt)]
    for event in flat([started("run", thread), asks, ends]):
        session.feed(event)
    session.finish("exhausted")
    assert background.settle(30)
    return {labels["agui.where"]: count for labels, count in captured.metrics().get("agui.observer.errors", [])}


def test_a_thread_with_a_long_id_is_not_remembered(memory: ThreadMemory) -> None:
    """That is counted once a run."""
    assert {"thread_memory.long": 1} == leave(memory, "t" * HUGE, "i")
    assert [] == list(memory.waiting(10))


def test_an_interrupt_with_a_long_id_is_left_out(memory: ThreadMemory) -> None:
    """What waits beside it is kept."""
    assert {"thread_memory.long": 1} == leave(memory, "thread", "i" * HUGE)
    record = memory.read("thread")
    assert record is not None
    assert ({}, {"s"}, {"c"}) == (record.interrupts, set(record.subagents), set(record.tool_calls))


def test_reasons_are_cut(memory: ThreadMemory) -> None:
    """They are labels, no content."""
    assert {} == leave(memory, "thread", "i", "r" * HUGE)
    record = memory.read("thread")
    assert record is not None
    assert "r" * MAX_LENGTH == record.interrupts["i"].reason


texts = st.integers(0, 2 * MAX_LENGTH).map("x".__mul__)
maybe = st.none() | texts
times = st.just(1.0)
spans = st.builds(SpanRef, trace_id=st.just("a" * 32), span_id=st.just("b" * 16), run_id=texts)
interrupts = st.builds(
    OpenInterrupt, id=texts, owner=maybe, owner_name=maybe, tool_call=maybe, run=spans, span=st.none() | spans,
    since=times, reason=texts, expires_at=maybe,
)  # fmt: skip
subagents = st.builds(
    SuspendedSubagent, id=texts, name=maybe, description=st.none(), parent_tool_call=maybe, parent_subagent=maybe,
    parent_message=maybe, span=spans, interrupt_ids=st.lists(texts, max_size=3).map(tuple), since=times,
)  # fmt: skip
calls = st.builds(PendingToolCall, id=texts, name=texts, owner=maybe, span=spans, since=times)
runs = st.builds(
    SeenRun, id=texts, span=spans, at=times, subagents=st.tuples(subagents), tool_calls=st.tuples(calls),
)  # fmt: skip
changes = st.builds(
    ThreadChange, thread_id=st.just("t"), at=times, interrupts=st.tuples(interrupts), subagents=st.tuples(subagents),
    tool_calls=st.tuples(calls), runs=st.tuples(runs), forget_interrupts=st.frozensets(texts, max_size=2),
)  # fmt: skip


def longest(value: Any) -> int:
    """The longest string in JSON terms."""
    if isinstance(value, dict):
        return max((longest(inner) for inner in value.values()), default=0)
    if isinstance(value, (list, tuple)):
        return max(map(longest, value), default=0)
    return len(value) if isinstance(value, str) else 0


@over(changes)
def test_no_record_has_a_long_string(change: ThreadChange) -> None:
    """Whatever a run leaves; what has none stays as it is."""
    kept, lost = bounded(change)
    record: ThreadRecord = kept.apply(None)
    assert longest(record.model_dump()) <= MAX_LENGTH
    assert (kept, 0) == bounded(kept)
    left = sum(len(getattr(change, kind)) for kind in ("interrupts", "subagents", "tool_calls", "runs"))
    assert left == lost + sum(len(getattr(kept, kind)) for kind in ("interrupts", "subagents", "tool_calls", "runs"))
