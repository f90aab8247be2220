"""The processes of this machine, as Linux shows them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from ipaddress import ip_address
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


def listening(process: int) -> set[str]:
    """Where a process listens on TCP, as `ADDRESS:PORT`."""
    sockets = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):
            sockets.add(descriptor.readlink().name.removeprefix("socket:[").removesuffix("]"))
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            if state == "0A" and rest[5] in sockets:
                address, _, port = local.partition(":")
                packed = bytes.fromhex(address)
                words = (packed[at : at + 4][::-1] for at in range(0, len(packed), 4))
                heard = ip_address(b"".join(words))
                found.add(f"{getattr(heard, 'ipv4_mapped', None) or heard}:{int(port, 16)}")
    return found
