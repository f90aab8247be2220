"""The command line for the tests of its commands."""

from __future__ import annotations

import pytest

from tests.support.command import Command


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """`agui-otel`, run in this process."""
    return Command(capsys, monkeypatch)
