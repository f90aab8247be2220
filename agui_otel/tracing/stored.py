"""What the shared stores of thread memory have in common: how long a record stays, what of it is open, ids as bytes."""

from __future__ import annotations

from collections.abc import Iterator

from agui_otel.protocol.thread import OpenInterrupt, ThreadRecord

SETTLED = 1 / 7
"""How much of its time a thread has in a shared store in which nothing waits: it only says which runs were seen."""


def is_gone(record: ThreadRecord) -> bool:
    """Whether nothing of a thread is left to be stored."""
    return record.empty and not record.runs


def expiry_of(record: ThreadRecord, ttl: float, now: float) -> float:
    """When a record that is written at `now` leaves the store (seconds since the epoch)."""
    return now + ttl * (SETTLED if record.empty else 1)


def open_in(record: ThreadRecord, expires: float, now: float) -> Iterator[tuple[OpenInterrupt, float]]:
    """The interrupts of a record that count as open, each with the time until which it does."""
    for interrupt in record.interrupts.values():
        own = interrupt.expiry
        until = expires if own is None else min(expires, own)
        if until > now:
            yield interrupt, until


def as_bytes(text: str) -> bytes:
    """An id as it is stored: ids are opaque, and may hold lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def as_text(data: bytes) -> str:
    """What `as_bytes` made bytes of."""
    return data.decode("utf-8", "surrogatepass")
