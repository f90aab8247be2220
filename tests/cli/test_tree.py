"""`agui-otel tree`: recordings as trees, and what it says of wrong files."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import recordings
from tests.support.command import Command

NESTED = recordings.STREAMS / "nested.jsonl"


def test_one_recording(command: Command) -> None:
    """The tree of a recording: its agents under the calls that dispatched them, with outcomes and durations."""
    ran = command("tree", recordings.STREAMS / "parallel.jsonl")
    assert (0, "") == (ran.status, ran.err)
    lines = ran.out.splitlines()
    assert lines[0].startswith("invoke_agent  success  ")
    assert ["researcher"] * 3 == [
        line.split("invoke_agent ")[1].split()[0] for line in lines[1:] if "invoke_agent" in line
    ]


def test_every_recording(command: Command) -> None:
    """All recordings can be shown at once; each has its heading."""
    files = sorted(recordings.STREAMS.glob("*.jsonl"))
    ran = command("tree", *files)
    assert (0, "") == (ran.status, ran.err)
    assert [f"{file}:" for file in files] == [line for line in ran.out.splitlines() if line.endswith(".jsonl:")]


def test_resumed_run(command: Command) -> None:
    """Files of one call share a memory: the resumed run continues the first, whose spans its links name."""
    names = ("approve_1", "approve_3_resume")
    ran = command("tree", *(recordings.STREAMS / f"{name}.jsonl" for name in names))
    assert 0 == ran.status
    _, _, resumed = ran.out.partition("approve_3_resume.jsonl:")
    assert "continues run run-approve_1" in resumed
    assert "→ invoke_agent mailer of run run-approve_1" in resumed


def test_standard_input(command: Command) -> None:
    """`-` reads standard input."""
    ran = command("tree", "-", stdin=(recordings.STREAMS / "single.sse").read_bytes())
    assert (0, "") == (ran.status, ran.err)
    assert ran.out.startswith("invoke_agent  success")
    assert (2, "", "agui-otel: -: standard input can be read once only\n") == command("tree", "-", "-")


def test_environment(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings come from the environment; a wrong one is status 2."""
    monkeypatch.setenv("AGUI_OTEL_STEPS", "spans")
    assert "── step model" in command("tree", NESTED).out.replace("├─ ", "── ").replace("└─ ", "── ")
    monkeypatch.setenv("AGUI_OTEL_STEPS", "nonsense")
    ran = command("tree", NESTED)
    assert (2, "") == (ran.status, ran.out)
    assert "AGUI_OTEL_STEPS" in ran.err


@pytest.mark.parametrize(
    ("content", "shown", "message"),
    [
        (NESTED.read_bytes()[:9_000], "invoke_agent  unfinished", "{}:62: cut off in the middle of an event"),
        (NESTED.read_bytes() + b'{"a":"\xff"}\n', "invoke_agent  success", "{}:190: not UTF-8"),
        (b"", "", "{}: empty"),
        (b"hello\n", "", "{}:1: not AG-UI: neither JSON lines, nor server-sent events, nor a JSON array of events"),
        (b'{"level":"info"}\n', "", "{}:1: not AG-UI: no event of a known type"),
    ],
)
def test_wrong_files(command: Command, tmp_path: Path, content: bytes, shown: str, message: str) -> None:
    """A wrong file is status 2 and said with its line, after its good part and the files beside it were shown."""
    file = tmp_path / "wrong.jsonl"
    file.write_bytes(content)
    ran = command("tree", file)
    assert (2, f"agui-otel: {message.format(file)}\n") == (ran.status, ran.err)
    assert shown == ran.out[: len(shown) or None]
    both = command("tree", file, NESTED)
    assert 2 == both.status
    assert "invoke_agent lead  success" in both.out


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nested.input.json", b"[]", "not a RunAgentInput: an object with threadId, runId and messages"),
        ("nested.times", b"1\nx\n", "not a time in milliseconds"),
    ],
)
def test_wrong_companions(command: Command, tmp_path: Path, name: str, content: bytes, message: str) -> None:
    """What stands beside a recording and is wrong is status 2 and named."""
    (tmp_path / "nested.jsonl").write_bytes(NESTED.read_bytes())
    (tmp_path / name).write_bytes(content)
    ran = command("tree", tmp_path / "nested.jsonl")
    assert (2, "") == (ran.status, ran.out)
    assert str(tmp_path / name) in ran.err
    assert message in ran.err


def test_control_characters(command: Command, tmp_path: Path) -> None:
    """What a recording says cannot command the terminal."""
    file = tmp_path / "evil.jsonl"
    file.write_text(
        '{"type":"RUN_STARTED","threadId":"t","runId":"r"}\n'
        '{"type":"SUBAGENT_STARTED","subagentRunId":"s","name":"\\u001b]0;owned\\u0007"}\n'
    )
    ran = command("tree", file)
    assert "invoke_agent \ufffd]0;owned\ufffd" in ran.out
    assert "\x1b" not in ran.out


def in_terminal(*arguments: object) -> str:
    """What the command writes on a terminal, to both of its streams."""
    main, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "agui_otel.cli.main", *map(str, arguments)],
        stdout=other,
        stderr=other,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(other)
    written = b""
    try:
        while chunk := os.read(main, 65536):
            written += chunk
    except OSError:
        pass  # Linux's way to say that nobody has the other end any more
    os.close(main)
    assert 0 == process.wait()
    return written.decode()


def test_colours_on_a_terminal() -> None:
    """On a terminal the tree has colours; piped it has none."""
    shown = in_terminal("tree", recordings.STREAMS / "error_model_recovered.jsonl")
    assert "\x1b[1;31m" in shown
    assert "\x1b[31m✗ unclosed_messages" in shown


def test_progress_of_long_files(tmp_path: Path) -> None:
    """A long file has a progress bar on a terminal; a short one has none."""
    file = tmp_path / "long.jsonl"
    file.write_bytes(recordings.STREAMS.joinpath("raw_single.jsonl").read_bytes() * 10)
    assert "MB" in in_terminal("tree", file)
    assert "MB" not in in_terminal("tree", NESTED)


def test_an_input_is_no_recording(command: Command) -> None:
    """What was posted, given in the place of the recording beside it, is told for what it is."""
    file = recordings.STREAMS / "nested.input.json"
    assert (2, "", f"agui-otel: {file}: not AG-UI: a RunAgentInput, not a recording\n") == command("tree", file)


def test_no_sampler_leaves_anything_out(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's sampler is for what is sent."""
    shown = command("tree", NESTED).out
    assert "researcher" in shown
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "false")
    assert shown == command("tree", NESTED).out
