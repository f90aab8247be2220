"""The protocol core alone, bytes to transitions, against the reference client's pipeline on Node.

    python -m benchmarks.protocol

Needs Node and tests/oracle/node_modules (`npm ci` there). Both are warm, and each side's best round counts.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from agui_otel.protocol.entities import Outcome
from agui_otel.protocol.events import parse
from agui_otel.protocol.tracker import Tracker
from benchmarks.timing import best, report

RECORDING = Path(__file__).parents[1] / "tests" / "fixtures" / "streams" / "nested.jsonl"
TURNS = 6


def main() -> None:
    """Time both in turns."""
    lines = RECORDING.read_bytes().splitlines()

    def track() -> None:
        for _ in range(5):
            tracker = Tracker()
            for at, line in enumerate(lines):
                tracker.receive(parse(line), at)
            tracker.finish(Outcome.UNFINISHED, None, len(lines))

    ours = reference = float("inf")
    for _ in range(TURNS):
        (seconds,) = best(60, track)
        ours = min(ours, seconds / 5 / len(lines) * 1e6)
        command = ["node", str(Path(__file__).with_name("reference.mjs")), str(RECORDING), "200"]
        reference = min(reference, float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    detail = f"{ours:.2f} µs an event, the reference client {reference:.2f} µs"
    report("the reference client's time / the protocol core's", reference / ours, ">= 2", detail)


if __name__ == "__main__":
    main()
