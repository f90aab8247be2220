"""Environments with the packages of one framework and this project: frameworks pin what others cannot be beside."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

from tests.support.services import require

ROOT = Path(__file__).parents[2]
ENVIRONMENTS = ROOT / ".venv" / "frameworks"

PACKAGES = {
    "langgraph": (
        "ag-ui-langgraph[fastapi]>=0.0.47",
        "deepagents>=0.7",
        "langgraph-checkpoint-sqlite>=3",
        "uvicorn>=0.30",
    ),
    "pydantic": ("pydantic-ai-slim[ag-ui]>=2", "starlette>=0.40", "uvicorn>=0.30"),
}


@lru_cache
def scripts_of(framework: str) -> Path:
    """The directory of the commands of a framework's environment, which is made where it is not there yet.

    By one process at a time: several files of tests may ask for the same.
    """
    ENVIRONMENTS.mkdir(parents=True, exist_ok=True)
    with (ENVIRONMENTS / f"{framework}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _scripts_of(framework)


def _scripts_of(framework: str) -> Path:
    home = ENVIRONMENTS / framework
    stamp = home / "installed"
    wanted = "\n".join([*PACKAGES[framework], (ROOT / "pyproject.toml").read_text()])
    if not (stamp.is_file() and stamp.read_text() == wanted):
        _make(home, framework)
        stamp.write_text(wanted)
    return home / "bin"


def _make(home: Path, framework: str) -> None:
    python = str(home / "bin" / "python")
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(home)],
        [python, "-m", "pip", "install", "-q", "-e", f"{ROOT}[instrument,redis]", *PACKAGES[framework]],
    ):
        made = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        require(made.returncode == 0, f"an environment with {framework} ({made.stderr.strip()[-200:]})")
