"""The trees of the recordings, as `tests/test_golden.py` compares them.

    python -m tests.support.golden approve_3_resume [steps]

prints the tree of a recording. A golden file is written by hand from what the recording says and the trace model
asks for; the command's output may be saved in its place only after it has been read against both.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal

from opentelemetry.context import Context

from agui_otel import Settings
from agui_otel.protocol.events import parse
from agui_otel.testing import Captured, capture
from agui_otel.tracing.memory import InProcessMemory
from agui_otel.tracing.session import Observer, Session

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

START = 1_767_225_600_000_000_000


def names() -> list[str]:
    """The recordings."""
    return sorted(path.stem for path in STREAMS.glob("*.jsonl"))


def spans(name: str, steps: Literal["events", "spans"] = "events", **settings: Any) -> Captured:
    """A recording traced with its receive times, after the earlier runs of its thread."""
    captured = capture()
    observer = Observer(
        Settings(capture="full", steps=steps, **settings),
        captured.tracer_provider,
        captured.meter_provider,
        memory=InProcessMemory(clock=lambda: START / 1e9),
    )
    before = next((runs[: runs.index(name)] for runs in THREADS.values() if name in runs), ())
    for number, run in enumerate((*before, name)):
        _trace(observer, run, START + number * 60_000_000_000)
    return captured


def tree(name: str, steps: Literal["events", "spans"] = "events") -> str:
    """The tree of a recording's own run; links into the earlier runs are named after the spans they lead to."""
    text = spans(name, steps).tree(attributes=ATTRIBUTES, event_attributes=EVENT_ATTRIBUTES)
    last = max(index for index, line in enumerate(text.splitlines()) if not line.startswith(" "))
    return "\n".join(text.splitlines()[last:]) + "\n"


def _trace(observer: Observer, name: str, start: int) -> None:
    given = _json(STREAMS / f"{name}.input.json")
    times = STREAMS / f"{name}.times"
    lines = (STREAMS / f"{name}.jsonl").read_bytes().splitlines()
    received = [float(line) for line in times.read_text().split()] if times.exists() else list(range(len(lines)))
    session = Session(observer, Context(), given=given, agent_name="supervisor")
    session.begin(start)
    at = start
    for line, milliseconds in zip(lines, received, strict=True):
        at = start + round(milliseconds * 1_000_000)
        session.feed(parse(line), at)
    session.finish("disconnected" if name == "disconnect" else "exhausted", at_ns=at)


def _json(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


if __name__ == "__main__":
    print(tree(sys.argv[1], "spans" if "steps" in sys.argv[2:] else "events"), end="")  # noqa: T201
