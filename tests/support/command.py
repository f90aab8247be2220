"""The command line, run in this process."""

from __future__ import annotations

import io
import sys
from typing import NamedTuple

import pytest

from agui_otel.cli.main import main


class Ran(NamedTuple):
    """The exit status and what was printed."""

    status: int
    out: str
    err: str


class Command:
    """Runs `agui-otel` with arguments and, when given, standard input."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *arguments: object, stdin: bytes = b"") -> Ran:
        """Run `agui-otel` with these arguments."""
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        self._capsys.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as exit_:
            status = exit_.code if isinstance(exit_.code, int) else -1
        out, err = self._capsys.readouterr()
        return Ran(status, out, err)
