"""Write the boards as JSON, as Grafana takes them, or check that they are current.

    python -m dashboards.generate [--check]

Needs the test extra, and Python 3.11.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards.boards.glance import glance
from dashboards.boards.humans import humans
from dashboards.boards.protocol import protocol
from dashboards.boards.subagents import subagents

BOARDS = {"glance": glance, "humans": humans, "protocol": protocol, "subagents": subagents}
"""Each board by the name of its file."""
JSON_FOLDER = Path(__file__).parent / "json"


def text(name: str) -> str:
    """The JSON of a board."""
    return json.dumps(BOARDS[name]().build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def main() -> int:
    """Write, or with --check say which are not current and return 1."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, say what is not current")
    checked = parser.parse_args().check
    stale = []
    for name in BOARDS:
        path = JSON_FOLDER / f"{name}.json"
        if checked:
            if not path.exists() or path.read_text() != text(name):
                stale.append(path.name)
        else:
            path.write_text(text(name))
    if stale:
        print(f"not current: {', '.join(stale)}; run: python -m dashboards.generate", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
