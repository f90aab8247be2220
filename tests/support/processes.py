"""The processes of this machine, as Linux shows them."""

from __future__ import annotations

from pathlib import Path


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
