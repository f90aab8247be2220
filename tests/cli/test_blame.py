"""`agui-otel blame`: the last writer of each path of the state."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_otel.cli.blame import _shown
from tests.support import recordings
from tests.support.command import Command

EVENTS: list[dict[str, Any]] = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    {"type": "STATE_SNAPSHOT", "snapshot": {"plan": [], "city": "Lisbon"}},
    {"type": "SUBAGENT_STARTED", "subagentRunId": "s1", "name": "writer"},
    {
        "type": "STATE_DELTA",
        "subagentRunId": "s1",
        "delta": [
            {"op": "add", "path": "/plan/-", "value": {"day": 1}},
            {"op": "add", "path": "/a~1b", "value": 1},
        ],
    },
    {"type": "STATE_DELTA", "subagentRunId": "s2", "delta": [{"op": "replace", "path": "/a~1b", "value": [2]}]},
    {"type": "STATE_DELTA", "delta": [{"op": "remove", "path": "/nothing"}]},
]


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A recording with its input and times."""
    file = tmp_path / "run.jsonl"
    file.write_text("".join(json.dumps(event) + "\n" for event in EVENTS))
    given = {"threadId": "t", "runId": "r", "messages": [], "state": {"city": "Lisbon", "plan": 0}}
    (tmp_path / "run.input.json").write_text(json.dumps(given))
    (tmp_path / "run.times").write_text("".join(f"{10 * number}.4\n" for number in range(len(EVENTS))))
    return file


def rows(text: str) -> list[list[str]]:
    """The columns of what was printed."""
    return [[column.strip() for column in line.split("  ") if column.strip()] for line in text.splitlines()]


def test_all_paths(command: Command, recording: Path) -> None:
    """Every path has its last writer, update, event, time, value and what was there before."""
    ran = command("blame", recording)
    assert [
        ["/plan", "the run's own agent", "update 1, event 1, 10 ms", '[{"day":1}]', "(was: 0)"],
        ["/plan/0", "writer", "update 2, event 3, 30 ms", '{"day":1}', "(was: absent)"],
        ["/city", "the run's input", '"Lisbon"'],
        ["/a~1b", "s2", "update 3, event 4, 40 ms", "[2]", "(was: 1)"],
    ] == rows(ran.out)
    assert 0 == ran.status
    assert ran.err.startswith(f"agui-otel: {recording}: the update of event 5 cannot be applied: ")


@pytest.mark.parametrize(
    ("pointer", "expected"),
    [
        ("/a~1b", [["/a~1b", "s2", "update 3, event 4, 40 ms", "[2]", "(was: 1)"]]),
        ("/a~1b/0", [["/a~1b/0", "s2", "update 3, event 4, 40 ms", "2", "(was: absent)"]]),
        ("/plan/0/day", [["/plan/0/day", "writer", "update 2, event 3, 30 ms", "1", "(was: absent)"]]),
        ("/city", [["/city", "the run's input", '"Lisbon"']]),
        (
            "/plan",
            [
                ["/plan", "the run's own agent", "update 1, event 1, 10 ms", '[{"day":1}]', "(was: 0)"],
                ["/plan/0", "writer", "update 2, event 3, 30 ms", '{"day":1}', "(was: absent)"],
            ],
        ),
    ],
)
def test_one_path(command: Command, recording: Path, pointer: str, expected: list[list[str]]) -> None:
    """A pointer shows the last write of that path, also where a path above it was written, and what is below."""
    ran = command("blame", recording, pointer)
    assert (0, expected) == (ran.status, rows(ran.out))


@pytest.mark.parametrize(
    ("pointer", "message"),
    [
        ("/nope", "the state has no /nope"),
        ("/plan/1", "the state has no /plan/1"),
        ("/plan/0/x", "the state has no /plan/0/x"),
        ("/ci", "the state has no /ci"),
        ("plan", "a JSON Pointer is empty or starts with a slash"),
        ("/~2", "in a JSON Pointer a tilde is followed by 0 or 1"),
    ],
)
def test_no_such_path(command: Command, recording: Path, pointer: str, message: str) -> None:
    """A path that is not there, or is none, is status 2."""
    ran = command("blame", recording, pointer)
    assert (2, "") == (ran.status, ran.out)
    assert message in ran.err


def test_without_times_and_input(command: Command, recording: Path) -> None:
    """Without receive times the event says when; the paths are those that were written."""
    (recording.parent / "run.times").unlink()
    (recording.parent / "run.input.json").unlink()
    ran = command("blame", recording, "/city")
    assert [["/city", "the run's own agent", "update 1, event 1", '"Lisbon"', "(was: absent)"]] == rows(ran.out)


def test_several_runs(command: Command, recording: Path) -> None:
    """The state goes on from run to run."""
    again = [EVENTS[0], {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/plan/0/day", "value": 2}]}]
    with recording.open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in again)
    ran = command("blame", recording, "/plan/0/day")
    assert [["/plan/0/day", "the run's own agent", "update 5, event 7, 50 ms", "2", "(was: 1)"]] == rows(ran.out)


def test_long_values(command: Command, recording: Path) -> None:
    """In the list a long value is cut; asked for by its path it is whole."""
    long = {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/city", "value": "x" * 500}]}
    with recording.open("a") as file:
        file.write(json.dumps(long) + "\n")
    assert "x" * 61 not in command("blame", recording).out
    assert "x" * 500 in command("blame", recording, "/city").out


def test_no_state(command: Command, tmp_path: Path) -> None:
    """A run without state says so."""
    file = tmp_path / "run.jsonl"
    file.write_text(json.dumps(EVENTS[0]))
    assert command("blame", file) == (0, "the state is empty\n", "")


def test_cut_file(command: Command) -> None:
    """A file that is cut is status 2, after what its good part says."""
    data = (recordings.STREAMS / "nested.jsonl").read_bytes()[:20_000]
    ran = command("blame", "-", stdin=data)
    assert 2 == ran.status
    assert ["/messages", "/files"] == [row[0] for row in rows(ran.out)]
    assert "cut off in the middle of an event" in ran.err


def test_unreadable_file(command: Command, tmp_path: Path) -> None:
    """Of a file that is no recording nothing is said but that, with a pointer too."""
    file = tmp_path / "run.jsonl"
    file.write_text('{"level": "info"}\n')
    for pointer in ([], ["/plan"]):
        ran = command("blame", file, *pointer)
        assert (2, "", 1) == (ran.status, ran.out, len(ran.err.splitlines()))
        assert ran.err.startswith(f"agui-otel: {file}:1: not AG-UI: ")


def test_deep_state(command: Command) -> None:
    """A value is shown however deep it lies and however deep it is; asked for by its path it is whole."""
    piece, pieces = 100, 15
    nested = json.loads("[" * piece + "]" * piece)
    adds = [
        {"op": "add", "path": "/a" + "/0" * (piece * number - 1) + "/-", "value": nested} for number in range(1, pieces)
    ]
    events = [EVENTS[0], {"type": "STATE_SNAPSHOT", "snapshot": {"a": nested}}, {"type": "STATE_DELTA", "delta": adds}]
    stdin = "".join(json.dumps(event) + "\n" for event in events).encode()
    ran = command("blame", "-", stdin=stdin)
    assert (0, "", pieces) == (ran.status, ran.err, len(rows(ran.out)))
    assert ["/a", "the run's own agent", "update 1, event 1", "[" * 59 + "…", "(was: absent)"] == rows(ran.out)[0]
    assert "[" * piece * pieces + "]" * piece * pieces in command("blame", "-", "/a", stdin=stdin).out
    below = "/a" + "/0" * (piece * pieces - 1)
    assert [[below, "the run's own agent", "update 2, event 2", "[]", "(was: absent)"]] == rows(
        command("blame", "-", below, stdin=stdin).out
    )


@pytest.mark.parametrize("pointer", [[], ["/a"]])
def test_shared_state(command: Command, pointer: list[str]) -> None:
    """A state whose parts were copied into each other 40 times, too long to be written down, is shown in part."""
    copies = [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(40)]
    events = [
        EVENTS[0],
        {"type": "STATE_SNAPSHOT", "snapshot": {"a": {"x": 1}}},
        *({"type": "STATE_DELTA", "delta": [copy]} for copy in copies),
    ]
    before = time.process_time()
    ran = command("blame", "-", *pointer, stdin="".join(json.dumps(event) + "\n" for event in events).encode())
    assert (0, "") == (ran.status, ran.err)
    assert ran.out.startswith("/a ")
    assert time.process_time() - before < 10


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    ),
    st.integers(1, 40),
)
def test_values_are_compact_json(value: Any, limit: int) -> None:
    """What is shown of a value is its compact JSON, cut at the limit."""
    whole = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert _shown(value, limit) == (whole if len(whole) <= limit else whole[: limit - 1] + "…")
