"""How long what a store remembers may be: clients and producers choose ids, and a store keeps them for a week.

What waits under a longer id is not remembered, as if there were no store; names and reasons are cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import BaseModel

from agui_otel.protocol.thread import SeenRun, ThreadChange

MAX_LENGTH = 256
"""Characters of an id, a name or a reason in a record."""

_CUT = frozenset({"name", "owner_name", "reason"})
_CONTENT = frozenset({"description"})
"""Cut where it is read."""

_Entry = TypeVar("_Entry", bound=BaseModel)


def bounded(change: ThreadChange) -> tuple[ThreadChange, int]:
    """`change` as a store may have it, and how many entries that leaves out. The thread's id is the caller's."""
    if change.empty:
        return change, 0
    kinds: dict[str, Any] = {}
    lost = 0
    for kind in ("interrupts", "subagents", "tool_calls", "runs"):
        entries = getattr(change, kind)
        kinds[kind] = kept = _bounded(entries)
        lost += len(entries) - len(kept)
    for kind in (
        "forget_interrupts", "forget_subagents", "forget_tool_calls", "answered_interrupts", "answered_tool_calls",
    ):  # fmt: skip
        kinds[kind] = frozenset(ident for ident in getattr(change, kind) if len(ident) <= MAX_LENGTH)
    return replace(change, **kinds), lost


def bounded_run(run: SeenRun) -> SeenRun | None:
    """`run`, likewise."""
    if len(run.id) <= MAX_LENGTH and not run.subagents and not run.tool_calls:
        return run  # its marks are short, and its span has its id
    return _shortened(run)


def _bounded(entries: Iterable[_Entry]) -> tuple[_Entry, ...]:
    return tuple(kept for entry in entries if (kept := _shortened(entry)) is not None)


def _shortened(entry: _Entry) -> _Entry | None:
    """An entry with what is too long cut, or left out where it may be; None where it may not."""
    update: dict[str, Any] = {}
    for name, value in entry:
        if isinstance(value, str):
            if len(value) <= MAX_LENGTH or name in _CONTENT:
                continue
            if name == "expires_at":
                update[name] = None
            elif name in _CUT:
                update[name] = value[:MAX_LENGTH]
            else:
                return None
        elif isinstance(value, BaseModel):
            if _shortened(value) is None:
                return None
        elif isinstance(value, tuple):
            kept = tuple(_short_ones(value))
            if kept != value:
                update[name] = kept
    return entry.model_copy(update=update) if update else entry


def _short_ones(values: tuple[Any, ...]) -> Iterable[Any]:
    for value in values:
        kept = _shortened(value) if isinstance(value, BaseModel) else value if len(value) <= MAX_LENGTH else None
        if kept is not None:
            yield kept
