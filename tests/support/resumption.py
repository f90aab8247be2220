"""A thread that asks and is answered: what the tests of suspension and of thread memory have in common."""

from __future__ import annotations

from typing import Any

from tests.support.traced import Thread, Traced
from tests.support.wire import Event, answers, given, interrupted, started, subagent, suspended, tool

RUN = "invoke_agent supervisor"


def asking(thread: Thread, *interrupts: str) -> Traced:
    """A first run: call `c-x` dispatches subagent `s-x`, which suspends with interrupt `x`, for each of them."""
    return thread.run(
        started("one"),
        [[tool(f"c-{i}", "task", "{}"), subagent(f"s-{i}", f"asker-{i}", call=f"c-{i}")] for i in interrupts],
        [suspended(f"s-{i}", i) for i in interrupts],
        interrupted(*interrupts, run="one"),
    )


def resuming(*interrupts: str, run: str = "two", **fields: Any) -> Event:
    """The input of a run that answers."""
    return given(run, resume=answers(*interrupts, payload={"approved": True}), **fields)


def kept(thread: Thread) -> dict[str, list[str]]:
    """The ids that thread memory has, by kind; kinds without any are left out."""
    record = thread.memory.read("thread")
    kinds = ("interrupts", "subagents", "tool_calls")
    found = {kind: sorted(getattr(record, kind)) for kind in kinds} if record is not None else {}
    return {kind: ids for kind, ids in found.items() if ids}


def told(traced: Traced, *names: str) -> list[Any]:
    """Events of the run by name, each with its id, decision and wait."""
    keys = (
        "agui.interrupt.id",
        "gen_ai.tool.call.id",
        "agui.interrupt.decision",
        "agui.interrupt.wait",
        "agui.tool_call.wait",
    )
    return [(name, *(a[key] for key in keys if key in a)) for name, a in traced.events(RUN, *names)]
