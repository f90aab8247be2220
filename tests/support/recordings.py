"""The recorded streams that tests replay."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STREAMS = Path(__file__).parent.parent / "fixtures" / "streams"

NAMES = sorted(path.stem for path in STREAMS.glob("*.jsonl"))
SSE_NAMES = sorted(path.stem for path in STREAMS.glob("*.sse"))


def events(name: str) -> list[dict[str, Any]]:
    """The events of a recording, as the standard library reads them."""
    lines = (STREAMS / f"{name}.jsonl").read_bytes().splitlines()
    return [json.loads(line) for line in lines]


def cut(data: bytes, positions: list[int]) -> Iterator[bytes]:
    """`data` in pieces, cut at `positions` (any integers; they are taken modulo the length)."""
    last = 0
    for position in sorted(position % (len(data) + 1) for position in positions):
        yield data[last:position]
        last = position
    yield data[last:]
