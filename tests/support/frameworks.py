"""Environments with the packages of one framework and this project: frameworks pin what others cannot be beside."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pytest

from tests.support.services import require

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".venv" / "frameworks"
REQUIREMENTS = ROOT / "tests" / "frameworks" / "requirements"

OLDEST_PYTHON = (3, 11)


@lru_cache
def scripts_of(framework: str) -> Path:
    """The directory of the commands of a framework's environment, which is made where it is not there yet.

    The versions are those that scripts/lock has pinned. uv links what it has in its cache, and downloads the rest.
    """
    if sys.version_info < OLDEST_PYTHON:
        pytest.skip("the frameworks are pinned for Python 3.11 or newer")
    home, pinned = ENVIRONMENTS / framework, REQUIREMENTS / f"{framework}.txt"
    stamp = home / "installed"
    wanted = f"{sys.version}\n{pinned.read_text()}\n{(ROOT / 'pyproject.toml').read_text()}"
    with _alone(framework):
        if not (stamp.is_file() and stamp.read_text() == wanted):
            _make(home, framework, pinned)
            stamp.write_text(wanted)
    return home / "bin"


@contextmanager
def _alone(framework: str) -> Iterator[None]:
    """Among the processes that run tests."""
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    with (ENVIRONMENTS / f"{framework}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(home: Path, framework: str, pinned: Path) -> None:
    uv = [sys.executable, "-m", "uv", "-q"]
    install = [*uv, "pip", "install", "--python", str(home / "bin" / "python")]
    for command in (
        [*uv, "venv", "--clear", "--python", sys.executable, str(home)],
        [*install, "-r", str(pinned)],
        [*install, "--no-deps", "-e", str(ROOT)],
    ):
        made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        require(made.returncode == 0, f"an environment with {framework} ({made.stderr.strip()[-200:]})")
