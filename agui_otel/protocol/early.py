"""What comes before the first run and opens none: events that were malformed or of an unknown type.

It is told on the first run, or, when the stream ends without one, on an implicit run.
"""

from __future__ import annotations

from typing import Any

from agui_otel.protocol import marks
from agui_otel.protocol.scope import Scope
from agui_otel.protocol.transitions import LeftOut

MAX_EARLY = 16
"""How many of them are kept whole; more are only counted."""

Event = dict[str, Any]


class Early:
    """What came before the first run, in order."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, int, str, Event | str]] = []
        self._malformed = 0
        self._unknown = 0

    def __bool__(self) -> bool:
        return bool(self._kept)

    def malformed(self, message: str, index: int, kind: str, at: int) -> None:
        """Event number `index`, of type `kind` where that could be read, was malformed."""
        if len(self._kept) < MAX_EARLY:
            self._kept.append((index, at, kind, message))
        else:
            self._malformed += 1

    def unknown(self, event: Event, index: int, at: int) -> None:
        """Event number `index` is of an unknown type."""
        if len(self._kept) < MAX_EARLY:
            self._kept.append((index, at, event["type"], {key: event.get(key) for key in ("type", "subagentRunId")}))
        else:
            self._unknown += 1

    def tell(self, scope: Scope) -> None:
        """Tell it on the run of `scope`, and keep nothing."""
        run = scope.run
        for index, at, kind, what in self._kept:
            scope.index, scope.type = index, kind
            if isinstance(what, str):
                scope.violation("malformed_event", what, at)
            else:
                marks.unknown(scope, what, at)
                run.events += 1
        if self._malformed:
            run.violations += self._malformed
            scope.out.append(LeftOut(run, "notes", self._malformed, "malformed_event"))
        if self._unknown:
            run.events += self._unknown
            scope.out.append(LeftOut(run, "unknown", self._unknown, None))
        self._kept, self._malformed, self._unknown = [], 0, 0
