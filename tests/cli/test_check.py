"""`agui-otel check`: violations with their places, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import recordings
from tests.support.command import Command

START = '{"type":"RUN_STARTED","threadId":"t","runId":"r"}\n'
END = '{"type":"RUN_FINISHED","threadId":"t","runId":"r"}\n'


def written(folder: Path, content: str) -> Path:
    """A recording with this content."""
    file = folder / "stream.jsonl"
    file.write_text(content)
    return file


def test_recordings(command: Command) -> None:
    """Of all recordings one breaks a rule, a text that never ends; one has a run without end, which is no violation."""
    files = sorted(recordings.STREAMS.glob("*.jsonl"))
    ran = command("check", *files)
    (line,) = ran.out.splitlines()
    open_run = f"agui-otel: {recordings.STREAMS}/disconnect.jsonl: the last run has no end\n"
    assert (1, open_run) == (ran.status, ran.err)
    assert line.startswith(f"{recordings.STREAMS}/error_model_recovered.jsonl: event 82: unclosed_messages: ")
    assert command("check", *(file for file in files if "recovered" not in file.name)) == (
        0,
        "no violations\n",
        open_run,
    )


def test_forms_agree(command: Command) -> None:
    """The same run in another form has the same violations at the same events."""
    lines, sse = (
        json.loads(command("check", "--json", recordings.STREAMS / f"error_model_recovered.{form}").out)
        for form in ("jsonl", "sse")
    )
    assert {**lines, "file": sse["file"]} == sse


def test_json(command: Command, tmp_path: Path) -> None:
    """`--json` prints file, event, rule and message, a line each, and nothing when all is well."""
    file = written(tmp_path, START + 'nonsense\n{"type":"TEXT_MESSAGE_END","messageId":"é"}\n' + END)
    ran = command("check", "--json", file)
    first, second = (json.loads(line) for line in ran.out.splitlines())
    assert (1, "") == (ran.status, ran.err)
    assert {"file": str(file), "at": 1, "rule": "malformed_event", "message": "not JSON (at character 1)"} == {
        **first,
        "message": "not JSON (at character 1)",
    }
    assert ["file", "at", "rule", "message"] == list(second)
    assert (2, "message_not_open") == (second["at"], second["rule"])
    assert command("check", "--json", written(tmp_path, START + END)) == (0, "", "")


def test_every_violation_is_reported(command: Command, tmp_path: Path) -> None:
    """There is no cap: each of many bad lines, also before the run starts, is reported."""
    file = written(tmp_path, "{x\n{}\n" * 50 + START + "[]\n" * 50 + END)
    ran = command("check", "--json", file)
    assert [*range(100), *range(101, 151)] == [json.loads(line)["at"] for line in ran.out.splitlines()]


def test_chunks_and_unknown_types(command: Command, tmp_path: Path) -> None:
    """Chunk shorthand is judged as the reference client resolves it, and types that it does not know are not."""
    file = written(
        tmp_path,
        START + '{"type":"FUTURE"}\n{"type":"TEXT_MESSAGE_CHUNK","delta":"x"}\n' + END + '{"type":"LATER"}\n',
    )
    ran = command("check", "--json", file)
    (row,) = (json.loads(line) for line in ran.out.splitlines())
    assert 2 == row["at"]
    assert row["rule"].startswith("chunk_")


def test_wrong_file(command: Command, tmp_path: Path) -> None:
    """A file that is cut is status 2, after its violations and those of the other files."""
    file = written(tmp_path, START + START + '{"type":')
    good = recordings.STREAMS / "single.jsonl"
    ran = command("check", "--json", file, good)
    assert [1] == [json.loads(line)["at"] for line in ran.out.splitlines()]
    assert (2, f"agui-otel: {file}:3: cut off in the middle of an event\n") == (ran.status, ran.err)


def test_standard_input(command: Command) -> None:
    """`-` reads standard input."""
    ran = command("check", "-", stdin=(START + START + END).encode())
    assert (1, "") == (ran.status, ran.err)
    assert ran.out.startswith("-: event 1: run_active: ")


@pytest.mark.parametrize("more", [[], ["--json"]])
@pytest.mark.parametrize(
    ("content", "is_open"),
    [
        (START, True),
        (START + END + START, True),
        ('{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"x"}\n', True),
        (START + END, False),
        (START + '{"type":"RUN_ERROR","message":"no"}\n', False),
    ],
)
def test_a_run_without_end(command: Command, tmp_path: Path, content: str, is_open: bool, more: list[str]) -> None:
    """A run that the stream leaves open is said on standard error, and is no violation."""
    file = written(tmp_path, content)
    ran = command("check", *more, file)
    assert (f"agui-otel: {file}: the last run has no end\n" if is_open else "") == ran.err
    assert ran.status == (0 if content.startswith(START) else 1)


def test_a_missing_file_does_not_stop_it(command: Command, tmp_path: Path) -> None:
    """The files after one that is not there are read; the status is 2."""
    missing = tmp_path / "missing.jsonl"
    ran = command("check", missing, written(tmp_path, START + START + END))
    assert (2, f"agui-otel: {missing}: No such file or directory\n") == (ran.status, ran.err)
    assert "event 1: run_active: " in ran.out


def test_text_is_shown_in_the_direction_of_reading(command: Command, tmp_path: Path) -> None:
    """Characters that turn the direction of text do not reach the terminal."""
    turned = "a\u202ab\u202ec\u2066d\u2069e"
    message = {"type": "TEXT_MESSAGE_END", "messageId": turned}
    ran = command("check", written(tmp_path, START + json.dumps(message) + "\n" + END))
    assert "a\ufffdb\ufffdc\ufffdd\ufffde" in ran.out
