"""The short cut for deltas, which are most of a stream: count, time, append.

A plain delta continues an open message, reasoning or tool call, agrees with its owner, and has nothing beside it that
needs a look. Whatever else comes goes the long way (`Tracker.receive`), with the same result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from agui_otel.protocol.chunks import Expander
from agui_otel.protocol.entities import Agent, Run, Streamed
from agui_otel.protocol.rules import Judge
from agui_otel.protocol.scope import Scope


class _Lane:
    """One kind of delta: where its open entities and their owners stand."""

    __slots__ = ("attribute", "count", "entities", "key", "open", "owners")

    def __init__(self, key: str, attribute: str, opened: set[str], owners: dict[str, str | None]) -> None:
        self.key = key
        self.attribute = attribute
        self.open = opened
        self.owners = owners
        self.entities: Mapping[str, Streamed] = {}
        self.count = 0


Continued = tuple[_Lane, Streamed, Agent, "str | None"]
"""What plain deltas of an id continue: in which lane, whose event it is, and the tag that it may have."""


class Deltas:
    """The plain deltas of a stream, and how far the stream has come.

    ``index``: 0-based, of the last event of any kind. ``last_event_ns``: when it was received. ``ready``: what the next
    deltas continue, by id; it holds until an event comes that is no plain delta.
    """

    __slots__ = ("_expander", "_lanes", "_run", "index", "last_event_ns", "ready")

    def __init__(self, judge: Judge, expander: Expander) -> None:
        self.index = -1
        self.last_event_ns = 0
        self._expander = expander
        self._run: Run | None = None
        self._lanes = {
            "TEXT_MESSAGE_CONTENT": _Lane("messageId", "message_id", judge.open_messages, judge.message_owners),
            "TOOL_CALL_ARGS": _Lane("toolCallId", "tool_call_id", judge.open_tool_calls, judge.tool_call_owners),
            "REASONING_MESSAGE_CONTENT": _Lane("messageId", "message_id", judge.open_reasoning, judge.reasoning_owners),
        }
        self.ready: dict[str, Continued] = {}

    def follow(self, scope: Scope) -> None:
        """A run begins: its open entities are the ones to continue."""
        self._run = scope.run
        self._lanes["TEXT_MESSAGE_CONTENT"].entities = scope.messages
        self._lanes["TOOL_CALL_ARGS"].entities = scope.open_args
        self._lanes["REASONING_MESSAGE_CONTENT"].entities = scope.reasoning

    def add_counts(self, counts: defaultdict[str, int]) -> None:
        """Add how many deltas of each type were taken since the last call."""
        for kind, lane in self._lanes.items():
            if lane.count:
                counts[kind] += lane.count
                lane.count = 0

    def continuing(self, raw: Mapping[str, Any]) -> Continued | None:
        """What the last event continued, if that was `raw`, and a plain delta: it holds as ``ready`` does."""
        try:
            lane = self._lanes.get(raw["type"])
            continued = self.ready.get(raw[lane.key]) if lane is not None else None
        except (KeyError, TypeError):  # no delta, or one without an id
            return None
        return continued if continued is not None and continued[0] is lane else None

    def take_texts(self, continued: Continued, text: str, times: Sequence[int]) -> None:
        """Take plain deltas that continue the same: their texts as one, and when each was received (not empty)."""
        lane, entity, teller, _ = continued
        at = entity.last_at
        for received in times:
            if received - at > entity.max_gap:
                entity.max_gap = received - at
            at = received
        entity.last_at = at
        entity.chunks += len(times)
        entity.chars += len(text)
        if entity.room > 0:
            entity.parts.append(text[: entity.room])
            entity.room -= len(text)
        teller.events += len(times)
        teller.last_at = at
        lane.count += len(times)
        self.index += len(times)
        self.last_event_ns = at

    def _prepare(self, lane: _Lane, ident: str, at: int) -> Continued | None:
        """What deltas of `ident` in `lane` continue, from the one received at `at` on; None where that is not plain."""
        entity = lane.entities.get(ident)
        if entity is None or ident not in lane.open or self._expander.pending:
            return None
        if entity.first_chunk_at is None:
            entity.first_chunk_at = entity.last_at = at
        owner = entity.owner
        if owner.first_chunk_at is None:
            owner.first_chunk_at = at
        teller = owner if owner.ended_at is None else owner.nearest_open()
        # The first tag of a run is no plain delta's: it says that the run has any.
        tag = lane.owners[ident] if self._run is not None and self._run.attribution != "none" else None
        ready = self.ready[ident] = (lane, entity, teller, tag)
        return ready

    def take(self, raw: Any, at: int) -> bool:
        """Whether `raw`, received at `at`, is a plain delta of something open; if so, it is dealt with."""
        try:
            if type(raw) is dict:
                lane = self._lanes.get(raw["type"])
                if lane is None or len(raw) > 4:
                    return False
                ident, delta = raw[lane.key], raw["delta"]
                tag = None
                if len(raw) == 4:
                    tag = raw["subagentRunId"]
                    if tag is None:
                        return False
            else:
                fields = raw.__dict__
                lane = self._lanes.get(fields["type"])
                if lane is None or fields.get("metadata") is not None:
                    return False
                ident, delta, tag = fields[lane.attribute], fields["delta"], fields.get("subagent_run_id")
            if type(delta) is not str or not delta:
                return False
            ready = self.ready.get(ident) or self._prepare(lane, ident, at)
            if ready is None:
                return False
            kind, entity, teller, owner = ready
            if kind is not lane or (tag is not None and tag != owner):
                return False
        except Exception:  # noqa: BLE001 - a host's object may raise anything; `read` says what is wrong with it
            return False
        gap = at - entity.last_at
        if gap > entity.max_gap:
            entity.max_gap = gap
        entity.last_at = at
        entity.chunks += 1
        size = len(delta)
        entity.chars += size
        room = entity.room
        if room > 0:
            entity.parts.append(delta if size <= room else delta[:room])
            entity.room = room - size
        teller.events += 1
        teller.last_at = at
        lane.count += 1
        self.index += 1
        self.last_event_ns = at
        return True
