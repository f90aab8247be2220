"""The entry point: help, wrong usage, and what a shell is told."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import recordings
from tests.support.command import Command

COMMANDS = ("demo", "replay", "tree", "check", "blame", "doctor")


def test_help(command: Command) -> None:
    """The help names every command, the files beside a recording and the exit statuses."""
    ran = command("--help")
    assert (0, "") == (ran.status, ran.err)
    for word in (*COMMANDS, "NAME.input.json", "NAME.times", "exit status: 0 fine; 1 violations (check) or"):
        assert word in ran.out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_commands(command: Command, name: str) -> None:
    """Each command explains itself."""
    ran = command(name, "--help")
    assert (0, "") == (ran.status, ran.err)
    assert f"usage: agui-otel {name}" in ran.out


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["tree"], ["replay", "--to", "nowhere", "x"], ["check"], ["blame"], ["demo", "--port", "x"]],
)
def test_wrong_usage(command: Command, arguments: list[str]) -> None:
    """Wrong usage is status 2, with the usage on standard error and nothing on standard output."""
    ran = command(*arguments)
    assert (2, "") == (ran.status, ran.out)
    assert "usage: agui-otel" in ran.err


def test_version(command: Command) -> None:
    """The version is printed."""
    ran = command("--version")
    assert 0 == ran.status
    assert ran.out.startswith("agui-otel ")


def test_help_needs_little() -> None:
    """Neither help nor a usage error imports rich, Phoenix or a server."""
    code = (
        "import sys; from agui_otel.cli.main import make_parser; make_parser().format_help(); "
        "print([name for name in ('rich', 'phoenix', 'grpc', 'starlette', 'uvicorn') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]\n" == done.stdout


@pytest.mark.parametrize("name", ["missing.jsonl", ""])
@pytest.mark.parametrize("arguments", [["tree"], ["check"], ["blame"], ["replay", "--to", "json"]])
def test_no_such_file(command: Command, arguments: list[str], name: str) -> None:
    """A file that is not there, or is a directory, is status 2 and named."""
    path = f"{recordings.STREAMS}/{name}"
    ran = command(*arguments, path)
    reason = "No such file or directory" if name else "a directory, not a recording"
    assert (2, "", f"agui-otel: {path}: {reason}\n") == ran


def test_reader_goes_away() -> None:
    """A reader that stops reading ends the command quietly."""
    files = [str(recordings.STREAMS / "raw_single.jsonl"), *[str(recordings.STREAMS / "nested.jsonl")] * 12]
    with subprocess.Popen(
        [sys.executable, "-m", "agui_otel.cli.main", "replay", "--to", "json", *files],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert (b"", 141) == (process.stderr.read(), process.wait())
