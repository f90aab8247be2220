"""The trees of the recordings, as `tests/test_golden.py` compares them.

    python -m tests.support.golden approve_3_resume [steps] [minted]

prints the tree of a recording, or of the same run with new ids. A golden file is written by hand from what the
recording says and the trace model asks for; the command's output may be saved in its place only after it has been read
against both.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from opentelemetry.context import Context

from agui_otel import Settings
from agui_otel.protocol.events import parse
from agui_otel.testing import Captured, capture
from agui_otel.tracing.background import settle
from agui_otel.tracing.memory import InProcessMemory, ThreadMemory
from agui_otel.tracing.observer import Observer
from agui_otel.tracing.session import Session

STREAMS = Path(__file__).parents[1] / "fixtures" / "streams"

THREADS = {
    "approve": ("approve_1", "approve_2_replay_no_resume", "approve_3_resume"),
    "nested_approve": ("nested_approve_1", "nested_approve_2_replay_no_resume", "nested_approve_3_resume"),
}
"""Recordings that are runs of one thread, in order: each finds what those before it left in thread memory."""

ATTRIBUTES = (
    "graph.node.id", "gen_ai.tool.call.id", "input.value", "output.value", "error.type", "agui.cause",
    "agui.parent_*", "agui.step.name", "agui.subagent.name", "agui.subagent.announced", "agui.late_child.*",
    "agui.continued", "agui.continues.run_id", "agui.resumes.run_id", "agui.tool_call.answered_by*", "agui.unclosed",
    "agui.attribution", "agui.violations", "agui.events.count", "agui.chunks", "agui.omitted.*", "agui.raw.count",
    "llm.token_count.prompt", "llm.token_count.completion",
)  # fmt: skip
"""What a tree shows of its spans. What every span of a run has in common (session, run, owner) the test checks once."""

EVENT_ATTRIBUTES = (
    "agui.[!c]*", "agui.custom.name", "agui.continues.run_id", "exception.*", "gen_ai.*",
)  # fmt: skip

Minted = Callable[[str, Any, list[Any]], tuple[Any, list[Any]]]
"""A recording's name, input and events -> the input and events with other ids."""

START = 1_767_225_600_000_000_000


def names() -> list[str]:
    """The recordings."""
    return sorted(path.stem for path in STREAMS.glob("*.jsonl"))


def clock() -> float:
    """The time of the runs that are replayed here, in seconds since the epoch."""
    return START / 1e9


def spans(
    name: str,
    steps: Literal["events", "spans"] = "events",
    memory: ThreadMemory | None = None,
    minted: Minted | None = None,
    **settings: Any,
) -> Captured:
    """A recording traced with its receive times, after the earlier runs of its thread.

    `memory`: an empty thread memory, with the time of `clock`; one in the process where none is given. `minted` gives
    each run's events and input other ids.
    """
    captured = capture()
    observer = Observer(
        Settings(capture="full", steps=steps, thread_memory_timeout=20, **settings),
        captured.tracer_provider,
        captured.meter_provider,
        memory=InProcessMemory(clock=clock) if memory is None else memory,
    )
    before = next((runs[: runs.index(name)] for runs in THREADS.values() if name in runs), ())
    for number, run in enumerate((*before, name)):
        _trace(observer, run, START + number * 60_000_000_000, minted)
        assert settle(20)
    return captured


def tree(
    name: str,
    steps: Literal["events", "spans"] = "events",
    memory: ThreadMemory | None = None,
    attributes: tuple[str, ...] = ATTRIBUTES,
    events: tuple[str, ...] = EVENT_ATTRIBUTES,
    minted: Minted | None = None,
) -> str:
    """The tree of a recording's own run; links into the earlier runs are named after the spans they lead to."""
    captured = spans(name, steps, memory, minted)
    text = captured.tree(attributes=attributes, event_attributes=events)
    last = max(index for index, line in enumerate(text.splitlines()) if not line.startswith(" "))
    return "\n".join(text.splitlines()[last:]) + "\n"


def _trace(observer: Observer, name: str, start: int, minted: Minted | None) -> None:
    given = _json(STREAMS / f"{name}.input.json")
    times = STREAMS / f"{name}.times"
    lines = (STREAMS / f"{name}.jsonl").read_bytes().splitlines()
    events = [parse(line) for line in lines]
    if minted is not None:
        given, events = minted(name, given, events)
    received = [float(line) for line in times.read_text().split()] if times.exists() else list(range(len(lines)))
    session = Session(observer, Context(), given=given, agent_name="supervisor")
    session.begin(start)
    at = start
    for event, milliseconds in zip(events, received, strict=True):
        at = start + round(milliseconds * 1_000_000)
        session.feed(event, at)
    session.finish("disconnected" if name == "disconnect" else "exhausted", at_ns=at)


def _json(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


_IDS = frozenset(
    {"subagentRunId", "parentSubagentRunId", "toolCallId", "parentToolCallId", "messageId", "parentMessageId"}
)


def mint(name: str, given: Any, events: list[Any]) -> tuple[Any, list[Any]]:
    """A resumed run of a producer that keeps no id: all are new but those of the thread, its run and its interrupts."""
    return (given, [_minted(event) for event in events]) if name.endswith("_3_resume") else (given, events)


def _minted(value: Any) -> Any:
    if isinstance(value, list):
        return [_minted(item) for item in value]
    if not isinstance(value, dict):
        return value
    named = "role" in value or "function" in value  # a message, or a tool call in one
    return {
        key: f"new-{item}" if isinstance(item, str) and (key in _IDS or (key == "id" and named)) else _minted(item)
        for key, item in value.items()
    }


if __name__ == "__main__":
    steps: Literal["events", "spans"] = "spans" if "steps" in sys.argv[2:] else "events"
    print(tree(sys.argv[1], steps, minted=mint if "minted" in sys.argv[2:] else None), end="")  # noqa: T201
