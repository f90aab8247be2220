"""The strict reader of dashboards, built once."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import services

SOURCE = Path(__file__).parent / "strict"


@pytest.fixture(scope="session")
def strict() -> Callable[..., list[str]]:
    """What Grafana's own SDK finds wrong with these files, a line each. It is built by the hash of its source."""
    files = [SOURCE / name for name in ("main.go", "go.mod", "go.sum")]
    key = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agui-otel" / "strict"
    binary = cache / key
    if not binary.exists():
        services.require(shutil.which("go") is not None, "Go")
        cache.mkdir(parents=True, exist_ok=True)
        new = cache / f"{key}.{os.getpid()}"
        subprocess.run(["go", "build", "-o", new, "."], cwd=SOURCE, check=True)
        new.replace(binary)

    def check(*boards: Path) -> list[str]:
        ran = subprocess.run([binary, *boards], capture_output=True, text=True, check=False)
        assert "" == ran.stderr
        return ran.stdout.splitlines()

    return check
