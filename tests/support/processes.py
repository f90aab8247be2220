"""The processes of this machine, as Linux shows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def servers_in(directory: Path) -> list[int]:
    """The embedded Phoenix servers whose database is in `directory`, by process id."""
    wanted = f"PHOENIX_WORKING_DIR={directory}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def agui_otel_waiting(memory: str, phoenix: str) -> list[dict[str, Any]]:
    """What `agui-otel waiting --json` lists, run as a process of its own."""
    variables = {"AGUI_OTEL_THREAD_MEMORY": memory, "PHOENIX_COLLECTOR_ENDPOINT": phoenix}
    done = subprocess.run(
        [sys.executable, "-m", "agui_otel.cli.main", "waiting", "--json"],
        env={**os.environ, **variables}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]
