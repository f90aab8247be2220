"""The demonstration's script: what the reference client accepts, and the tree that it is to show."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

from agui_otel.cli.check import violations
from agui_otel.cli.script import APPROVAL, PLANNER, START, Conversation, Event
from agui_otel.protocol.patch import apply
from agui_otel.testing import Captured, capture
from tests.support.demonstration import tree
from tests.support.oracle import Oracle

GOLDEN = Path(__file__).with_name("demo.tree")


def play() -> tuple[list[list[Event]], Captured]:
    """The events of both runs, and their spans."""
    captured = capture()

    async def both() -> list[list[Event]]:
        conversation, state, runs = Conversation("THREAD", pace=0), START, []
        for number, run in enumerate((conversation.first_run, conversation.second_run), start=1):
            given = conversation.input(number, state=state, resume=[APPROVAL] if number == 2 else None)
            traced = captured.trace_events(run(given), input=given, agent_name=PLANNER)
            runs.append([event async for event in traced])
            for event in runs[-1]:
                if event["type"] == "STATE_SNAPSHOT":
                    state = event["snapshot"]
                elif event["type"] == "STATE_DELTA":
                    state = apply(state, event["delta"])
        return runs

    return asyncio.run(both()), captured


def test_valid() -> None:
    """Neither run breaks a rule."""
    runs, _ = play()
    assert [[], []] == [list(violations(run)) for run in runs]


def test_valid_for_the_reference_client() -> None:
    """AG-UI's reference client accepts both runs, and every event's schema."""
    runs, _ = play()
    with Oracle() as oracle:
        for verdict in oracle.judge(runs):
            assert (None, None) == (verdict.refused, verdict.message)
            assert all(verdict.well_formed)


def test_tree() -> None:
    """The spans of both runs are those of the golden file, which was read by a person."""
    _, captured = play()
    assert GOLDEN.read_text(encoding="utf-8") == tree(captured.spans, thread="THREAD")


def test_concurrent() -> None:
    """The three scouts' events interleave."""
    (events, _), _ = play()
    tags = [event.get("subagentRunId") for event in events]
    scouts = [tag for tag in tags if tag in ("flights-1", "hotel-1", "dinner-1")]
    assert sum(tag != following for tag, following in pairwise(scouts)) > 10


def test_metrics() -> None:
    """Metrics say what the tree says: one failure, one interrupt that was answered, and the tokens."""
    _, captured = play()
    metrics = captured.metrics()
    assert [({"gen_ai.agent.name": "restaurant-scout", "agui.cause": "own"}, 1)] == [
        point for point in metrics["agui.subagent.errors"] if point[1]
    ]
    assert [({"agui.interrupt.reason": "approval", "agui.interrupt.decision": "approved"}, 1)] == metrics[
        "agui.interrupt.wait"
    ]
    assert 2310 + 1480 + 188 + 96 == sum(
        value for labels, value in metrics["agui.tokens"] if labels["gen_ai.request.model"] == "gpt-4.1"
    )
