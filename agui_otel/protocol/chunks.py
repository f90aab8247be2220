"""Chunks, the shorthand of AG-UI, written out as the events they stand for.

A chunk continues "the same stream as before": its id, its tag or both may be missing. Streams are assembled
in **lanes**, one for each subagent and one for the run's own agent (None); a lane holds at most one stream:

    text       TEXT_MESSAGE_CHUNK       ->  TEXT_MESSAGE_START, _CONTENT, _END
    tool       TOOL_CALL_CHUNK          ->  TOOL_CALL_START, _ARGS, _END
    reasoning  REASONING_MESSAGE_CHUNK  ->  REASONING_MESSAGE_START, _CONTENT, _END

Which lane a chunk belongs to:

    its id is open in a lane      that lane; a tag that names another one is refused
    its id is open nowhere        the lane of its tag, where it opens
    no id, but a tag              the lane of the tag
    neither                       the run's own lane if such a stream is open there, else the only lane where
                                  one is; several are refused as ambiguous; none: the chunk lacks its id

There, a chunk of the same kind without an id or with the same one continues; any other closes what is open
and opens. Other events close what they interrupt: the run's events and MESSAGES_SNAPSHOT every lane, a
subagent's end that subagent's lane, events of content, state and steps their own lane, the others none.

All this is in the order of AG-UI's reference client (`transformChunks`). Null is not absent here: a null id
is an id (so an id in a written-out event can be None), and a null where the opener had nothing is a change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from agui_otel.protocol.owners import Event, owner_name

_ABSENT: Any = object()


class Refused(Exception):  # noqa: N818  (named for what happened)
    """A chunk that cannot be written out; `recovered` are the events that tracing takes in its place."""

    def __init__(self, rule: str, message: str, recovered: tuple[Event, ...] = ()) -> None:
        super().__init__(message)
        self.rule = rule
        self.message = message
        self.recovered = recovered


class _Kind(NamedTuple):
    """One kind of stream: its words, its events, and the fields that a continuation may only repeat."""

    noun: str
    id_field: str
    start: str
    content: str
    end: str
    fixed: tuple[str, ...]
    known: frozenset[str]


_COMMON = ("type", "timestamp", "rawEvent", "metadata", "subagentRunId", "delta")


def _kind(noun: str, prefix: str, content: str, id_field: str, *fixed: str) -> _Kind:
    names = (f"{prefix}_START", f"{prefix}_{content}", f"{prefix}_END")
    return _Kind(noun, id_field, *names, fixed, frozenset((*_COMMON, id_field, *fixed)))


_KINDS: dict[str, _Kind] = {
    "TEXT_MESSAGE_CHUNK": _kind("text message", "TEXT_MESSAGE", "CONTENT", "messageId", "role", "name"),
    "TOOL_CALL_CHUNK": _kind("tool call", "TOOL_CALL", "ARGS", "toolCallId", "toolCallName", "parentMessageId"),
    "REASONING_MESSAGE_CHUNK": _kind("reasoning message", "REASONING_MESSAGE", "CONTENT", "messageId"),
}

CHUNK_TYPES: frozenset[str] = frozenset(_KINDS)
"""The three event types that are shorthand."""

_CLOSES_ALL = frozenset(("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT"))
_CLOSES_SUBAGENT = frozenset(("SUBAGENT_FINISHED", "SUBAGENT_ERROR"))
_CLOSES_OWN = frozenset(
    (
        *(name for kind in _KINDS.values() for name in (kind.start, kind.content, kind.end)),
        *("TOOL_CALL_RESULT", "STATE_SNAPSHOT", "STATE_DELTA", "CUSTOM"),
        *("STEP_STARTED", "STEP_FINISHED", "REASONING_START", "REASONING_END"),
    )
)


class _Stream:
    """What a lane is assembling, with what its opener set; `_ABSENT` stands for what it did not."""

    __slots__ = ("fixed", "id", "kind", "owner")

    def __init__(self, kind: _Kind, ident: str | None, owner: Any, fixed: dict[str, Any]) -> None:
        self.kind = kind
        self.id = ident
        self.owner = owner
        self.fixed = fixed

    def end(self) -> Event:
        event = {"type": self.kind.end, self.kind.id_field: self.id}
        if self.owner is not _ABSENT:
            event["subagentRunId"] = self.owner
        return event


class Expander:
    """The chunk stage of one stream: events in, events without chunks out.

    `pending` is truthy while a lane holds a stream; without one, any event but a chunk comes back as it is.
    """

    __slots__ = ("_lanes", "pending")

    def __init__(self) -> None:
        self.pending: dict[str | None, _Stream] = {}
        self._lanes: dict[tuple[str, Any], str | None] = {}  # where the stream of a kind and an id is

    def expand(self, event: Event) -> Sequence[Event]:
        """The events that `event`, in normal form, stands for. Raises `Refused` for an impossible chunk."""
        name = event["type"]
        if name in _KINDS:
            return self._expand_chunk(event, _KINDS[name])
        if not self.pending:
            return (event,)
        if name in _CLOSES_OWN:
            return (*self._close(event.get("subagentRunId")), event)
        if name in _CLOSES_ALL:
            ends = [stream.end() for stream in self.pending.values()]
            self.pending.clear()
            self._lanes.clear()
            return (*ends, event)
        if name in _CLOSES_SUBAGENT and event.get("subagentRunId") is not None:
            return (*self._close(event["subagentRunId"]), event)
        return (event,)

    def _close(self, lane: str | None) -> tuple[Event, ...]:
        stream = self.pending.pop(lane, None)
        if stream is None:
            return ()
        del self._lanes[stream.kind.noun, stream.id]
        return (stream.end(),)

    def _expand_chunk(self, chunk: Event, kind: _Kind) -> Sequence[Event]:
        ident = chunk.get(kind.id_field, _ABSENT)
        lane = self._lane(chunk, kind, ident)
        stream = self.pending.get(lane)
        if stream is not None and stream.kind is kind and (ident is _ABSENT or ident == stream.id):
            self._require_agreement(chunk, stream)
            return _continuation(chunk, stream)
        ends = self._close(lane)
        if ident is _ABSENT:
            raise Refused("chunk_without_id", f"the first {chunk['type']} has no {kind.id_field}", ends)
        stream = _Stream(kind, ident, chunk.get("subagentRunId", _ABSENT), _opening_fields(chunk, kind))
        self.pending[lane] = stream
        self._lanes[kind.noun, ident] = lane
        opening = (*ends, _start(chunk, stream), *_content(chunk, stream))
        if stream.fixed.get("toolCallName") is _ABSENT:
            raise Refused("chunk_without_name", f"tool call '{ident}' opens with no toolCallName", opening)
        return opening

    def _lane(self, chunk: Event, kind: _Kind, ident: Any) -> Any:
        tag: str | None = chunk.get("subagentRunId")
        if ident is not _ABSENT:
            lane = self._lanes.get((kind.noun, ident), _ABSENT)
            if lane is _ABSENT:
                return tag
            if tag is not None and tag != lane:
                raise self._foreign_tag(chunk, self.pending[lane], lane)
            return lane
        if tag is not None:
            return tag
        lanes = [lane for lane, stream in self.pending.items() if stream.kind is kind]
        if None in lanes or not lanes:
            return None
        if len(lanes) > 1:
            message = f"a {chunk['type']} without {kind.id_field} and tag fits {len(lanes)} open {kind.noun}s"
            raise Refused("chunk_ambiguous", message)
        return lanes[0]

    def _foreign_tag(self, chunk: Event, stream: _Stream, lane: str | None) -> Refused:
        message = (
            f"{chunk['type']} is tagged '{chunk['subagentRunId']}', "
            f"but {stream.kind.noun} '{stream.id}' belongs to {owner_name(lane)}"
        )
        untagged = {key: value for key, value in chunk.items() if key != "subagentRunId"}
        return Refused("chunk_owner_mismatch", message, _continuation(untagged, stream))

    def _require_agreement(self, chunk: Event, stream: _Stream) -> None:
        for field in stream.kind.fixed:
            value = chunk.get(field, _ABSENT)
            established = stream.fixed[field]
            if value is _ABSENT or (established is not _ABSENT and value == established):
                continue
            if established is _ABSENT and field == "toolCallName":
                stream.fixed[field] = value  # the opener was refused for its lack; this is the cure
                continue
            message = f"{chunk['type']} changes the {field} of {stream.kind.noun} '{stream.id}'"
            raise Refused("chunk_field_changed", message, _continuation(chunk, stream))


def _opening_fields(chunk: Event, kind: _Kind) -> dict[str, Any]:
    fields = {field: chunk.get(field, _ABSENT) for field in kind.fixed}
    if fields.get("role") is _ABSENT:
        fields["role"] = "assistant"
    return fields


def _written(chunk: Event, stream: _Stream, name: str) -> Event:
    """An event of type `name` with what every written-out event takes from its chunk."""
    event = {key: value for key, value in chunk.items() if key not in stream.kind.known}
    event["type"] = name
    event[stream.kind.id_field] = stream.id
    owner = chunk.get("subagentRunId", stream.owner)
    if owner is not _ABSENT:
        event["subagentRunId"] = owner
    for key in ("metadata", "timestamp"):
        if key in chunk:
            event[key] = chunk[key]
    return event


def _start(chunk: Event, stream: _Stream) -> Event:
    event = _written(chunk, stream, stream.kind.start)
    for field, value in stream.fixed.items():
        if value is not _ABSENT:
            event[field] = value
    if stream.kind.start == "TOOL_CALL_START" and event.get("toolCallName") is None:
        event["toolCallName"] = ""
    if stream.kind.start == "REASONING_MESSAGE_START":
        event["role"] = "reasoning"
    return event


def _content(chunk: Event, stream: _Stream) -> tuple[Event, ...]:
    """The content event of a chunk that has a delta or a provider's payload."""
    if "delta" not in chunk and "rawEvent" not in chunk:
        return ()
    event = _written(chunk, stream, stream.kind.content)
    delta = chunk.get("delta")
    event["delta"] = "" if delta is None else delta
    if "rawEvent" in chunk:
        event["rawEvent"] = chunk["rawEvent"]
    return (event,)


def _continuation(chunk: Event, stream: _Stream) -> tuple[Event, ...]:
    """The content event of a chunk that continues; none where the chunk says nothing new."""
    content = _content(chunk, stream)
    if content:
        return content
    says_more = (
        "metadata" in chunk
        or ("subagentRunId" in chunk and chunk["subagentRunId"] is None)
        or any(key not in stream.kind.known for key in chunk)
    )
    return (_written(chunk, stream, stream.kind.content) | {"delta": ""},) if says_more else ()
