"""Token usage: entries as RUN_FINISHED and RUN_ERROR report them (AG-UI 1.0, ``TokenUsage``), and their sums."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

_WIRE = {
    "inputTokens": "input",
    "outputTokens": "output",
    "totalTokens": "total",
    "reasoningTokens": "reasoning",
    "cachedInputTokens": "cached_input",
    "cacheWriteInputTokens": "cache_write_input",
}


@dataclass(slots=True)
class Usage:
    """Token counts of one (provider, model).

    ``reasoning``, ``cached_input`` and ``cache_write_input`` are parts of the totals, never added to them. None: not
    reported.
    """

    provider: str | None
    model: str | None
    input: int | None = None
    output: int | None = None
    total: int | None = None
    reasoning: int | None = None
    cached_input: int | None = None
    cache_write_input: int | None = None

    @property
    def key(self) -> tuple[str | None, str | None]:
        """What entries are summed by."""
        return self.provider, self.model

    @property
    def counts(self) -> dict[str, int]:
        """The counts that were reported, by field name."""
        found = ((name, getattr(self, name)) for name in _COUNTS)
        return {name: value for name, value in found if value is not None}

    def add(self, other: Usage) -> None:
        """Add the counts that `other` has."""
        for name, value in other.counts.items():
            setattr(self, name, (getattr(self, name) or 0) + value)

    def minus(self, other: Usage | None) -> Usage | None:
        """What is left of this entry when `other` is counted elsewhere; None when that is nothing."""
        if other is None:
            return self
        parts = (other.input or 0) + (other.output or 0)
        told = {"total": parts, **other.counts}
        left = {name: max(0, value - told.get(name, 0)) for name, value in self.counts.items()}
        return Usage(self.provider, self.model, **left) if any(left.values()) else None


_COUNTS = tuple(field.name for field in fields(Usage) if field.name not in ("provider", "model"))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value < 0:
        return None
    return int(value) if value < 1 << 63 else None


def read_usage(entries: Any) -> list[Usage]:
    """The entries of a ``usage`` list; what is not an entry, or not a count, is passed over."""
    if not isinstance(entries, list):
        return []
    found = []
    for entry in entries:
        if isinstance(entry, dict):
            counts = {name: _count(entry.get(key)) for key, name in _WIRE.items()}
            found.append(Usage(_text(entry.get("provider")), _text(entry.get("model")), **counts))
    return found


def summed(entries: Iterable[Usage]) -> dict[tuple[str | None, str | None], Usage]:
    """One entry for each (provider, model), in the order they were first named."""
    total: dict[tuple[str | None, str | None], Usage] = {}
    for entry in entries:
        if entry.key in total:
            total[entry.key].add(entry)
        else:
            total[entry.key] = Usage(entry.provider, entry.model, **entry.counts)
    return total
