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


MAX_MODELS = 100
"""Models told apart in one sum."""

Totals = dict[tuple[str | None, str | None], "Usage"]


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
        for name in _COUNTS:
            value = getattr(other, name)
            if value is not None:
                setattr(self, name, min(MAX_TOKENS, (getattr(self, name) or 0) + value))

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


MAX_TOKENS = 10**12
"""No run uses more: a higher count is none. Sums of counts have to fit in the 64 bits that exporters have."""


def _count(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_TOKENS:
        return None
    return int(value)


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


def add_to(total: Totals, entries: Iterable[Usage]) -> None:
    """Add `entries` to what was counted before; models beyond `MAX_MODELS` count as one without a name."""
    for entry in entries:
        key = entry.key if entry.key in total or len(total) < MAX_MODELS else (None, None)
        if key not in total:
            total[key] = Usage(*key)
        total[key].add(entry)


def summed(entries: Iterable[Usage]) -> Totals:
    """One entry for each (provider, model), in the order they were first named."""
    total: Totals = {}
    add_to(total, entries)
    return total


def langchain_usage(raw: Any) -> tuple[str, Usage] | None:
    """The message id and the token counts of a LangChain ``on_chat_model_end`` event, as ag-ui-langgraph sends it raw.

    Its output message has ``usage_metadata`` (``input_tokens``, ``output_tokens``, ``total_tokens`` and the details of
    both) and names the model in ``response_metadata``; the event's metadata has ``ls_provider``. Nothing else of it is
    looked at. None for any other event.
    """
    if not isinstance(raw, dict) or raw.get("event") != "on_chat_model_end":
        return None
    message = _dict(_dict(raw.get("data")).get("output"))
    counts, ident = message.get("usage_metadata"), _text(message.get("id"))
    if not isinstance(counts, dict) or ident is None:
        return None
    about, given, made = (
        _dict(raw.get("metadata")),
        _dict(counts.get("input_token_details")),
        _dict(counts.get("output_token_details")),
    )
    model = _text(_dict(message.get("response_metadata")).get("model_name")) or _text(about.get("ls_model_name"))
    return ident, Usage(
        _text(about.get("ls_provider")),
        model,
        input=_count(counts.get("input_tokens")),
        output=_count(counts.get("output_tokens")),
        total=_count(counts.get("total_tokens")),
        reasoning=_count(made.get("reasoning")),
        cached_input=_count(given.get("cache_read")),
        cache_write_input=_count(given.get("cache_creation")),
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
