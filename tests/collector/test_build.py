"""scripts/build-collector, as far as it goes without building."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.collectors import REPOSITORY, binary

TOOLS = ("bash", "cat", "cut", "dirname", "env", "head", "sed", "sha256sum", "sort", "uname")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of commands in which there is no Go."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in TOOLS:
        (folder / name).symlink_to(shutil.which(name) or name)
    return folder


def _build(cache: Path, path: Path) -> tuple[int, str, str]:
    environment = {**os.environ, "PATH": str(path), "XDG_CACHE_HOME": str(cache)}
    command = [REPOSITORY / "scripts/build-collector"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout, ended.stderr


def test_without_go(tmp_path: Path, tools: Path) -> None:
    """It says which Go is needed, and that there is an image."""
    status, printed, told = _build(tmp_path, tools)
    assert (2, "") == (status, printed)
    assert "Go 1.26 or newer is needed, and there is no 'go' in PATH" in told
    assert "otel/opentelemetry-collector-contrib:0.161.0" in told


def test_with_an_old_go(tmp_path: Path, tools: Path) -> None:
    """Version numbers are compared as such: 1.9 is older than 1.26."""
    go = tools / "go"
    go.write_text("#!/usr/bin/env bash\necho go1.9.7\n")
    go.chmod(0o755)
    status, printed, told = _build(tmp_path, tools)
    assert (2, "") == (status, printed)
    assert f"Go 1.26 or newer is needed, and {go} is 1.9.7" in told


@pytest.mark.slow
def test_what_was_built_needs_no_go(tools: Path) -> None:
    """The binary of an unchanged manifest is found again."""
    cache = binary().parents[3]
    assert (0, f"{binary()}\n", "") == _build(cache, tools)
