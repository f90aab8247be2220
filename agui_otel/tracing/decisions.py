"""What a human decided, read from a resume entry (trace model: decision)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Decision = Callable[[Mapping[str, Any]], "str | None"]

DECISIONS = frozenset({"approved", "denied", "edited", "expired", "unknown"})

_WORDS = {
    "approve": "approved", "approved": "approved", "accept": "approved", "accepted": "approved", "yes": "approved",
    "reject": "denied", "rejected": "denied", "deny": "denied", "denied": "denied", "decline": "denied", "no": "denied",
    "edit": "edited", "edited": "edited",
}  # fmt: skip


def read_decision(entry: Mapping[str, Any]) -> str:
    """The decision that common payloads state: a boolean, ``approved``, ``accepted``, ``type`` or ``decisions[].type``.

    `entry` is a resume entry (AG-UI 1.0): ``status`` and ``payload``. An approval with ``editedArgs`` is an edit. Of
    several decisions in one payload a denial counts before an edit, an edit before an approval. A payload that states
    none is ``unknown``, and so is a cancelled entry: nobody decided. A denial is a resolved one.
    """
    if entry.get("status") == "cancelled":
        return "unknown"
    found = _from_payload(entry.get("payload"))
    return found or "unknown"


def _from_payload(payload: Any) -> str | None:
    if isinstance(payload, bool):
        return "approved" if payload else "denied"
    if isinstance(payload, str):
        return _WORDS.get(payload.strip().lower())
    if not isinstance(payload, Mapping):
        return None
    for key in ("approved", "accepted"):
        if isinstance(payload.get(key), bool):
            edited = payload[key] and payload.get("editedArgs") is not None
            return "edited" if edited else "approved" if payload[key] else "denied"
    decisions = payload.get("decisions")
    words = [payload, *decisions] if isinstance(decisions, list) else [payload]
    stated = {_word(item) for item in words}
    return next((word for word in ("denied", "edited", "approved") if word in stated), None)


def _word(item: Any) -> str | None:
    kind = item.get("type") if isinstance(item, Mapping) else None
    return _WORDS.get(kind.strip().lower()) if isinstance(kind, str) else None
