"""What is remembered of a thread between its runs, so that an answer finds what asked (trace model: thread
memory).

A record is a value: versioned, frozen, the same in every store. A run never replaces a record; it hands
over a `ThreadChange`, which a store applies to what it holds at that moment, so that two runs of one thread
that overlap, or a run that could not read the record, lose nothing of each other's. Times are seconds since
the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    FiniteFloat,
    StringConstraints,
    ValidationError,
    field_serializer,
    field_validator,
)

VERSION: Final = 1
MAX_ENTRIES = 256
"""Entries of one kind in one record; the oldest are dropped beyond, and counted in `ThreadRecord.dropped`."""
MAX_RUNS = 16
"""Runs in one record; the oldest are dropped beyond."""

TraceId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
SpanId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class SpanRef(_Record):
    """A span of an earlier run: its ids in lower-case hex, and the run it belongs to."""

    trace_id: TraceId
    span_id: SpanId
    run_id: str


class OpenInterrupt(_Record):
    """An interrupt that waits for an answer.

    `owner` is the `subagentRunId` of the subagent that was interrupted and `owner_name` its name; None for
    the run's own agent. `run` is the run that first opened it, `span` the owner's span (None: the run's).
    `since` is when it was first opened. `legacy` marks one without a protocol id. `answered` is true after
    its first answer.
    """

    id: str
    owner: str | None = None
    owner_name: str | None = None
    tool_call: str | None = None
    run: SpanRef
    span: SpanRef | None = None
    since: FiniteFloat
    reason: str
    expires_at: str | None = None
    legacy: bool = False
    answered: bool = False

    @property
    def expiry(self) -> float | None:
        """When it expires (a time without an offset is UTC); None: never, or no ISO 8601 time."""
        if self.expires_at is None:
            return None
        text = self.expires_at.strip()
        try:
            moment = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in ("Z", "z") else text)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=timezone.utc)
            return moment.timestamp()
        except ValueError:
            return None


class SuspendedSubagent(_Record):
    """A subagent that was suspended: who it is, under what it ran, and its span.

    `description` is content: None where content is not captured.
    """

    id: str
    name: str | None = None
    description: str | None = None
    parent_tool_call: str | None = None
    parent_subagent: str | None = None
    parent_message: str | None = None
    span: SpanRef
    interrupt_ids: tuple[str, ...] = ()
    since: FiniteFloat


class PendingToolCall(_Record):
    """A tool call that ended `pending`: `since` when it waits, and its owner's `subagentRunId` or None."""

    id: str
    name: str
    owner: str | None = None
    span: SpanRef
    since: FiniteFloat
    answered: bool = False


class SeenRun(_Record):
    """A run that was traced, so that its stream is known when it comes again (trace model: streams that come again).

    `marks` are short hashes of the ids that it opened first. `cut_off` is true where its stream broke off before its
    end: then `subagents` and `tool_calls` are what was open at that moment.
    """

    id: str
    span: SpanRef
    at: FiniteFloat
    cut_off: bool = False
    marks: tuple[str, ...] = ()
    subagents: tuple[SuspendedSubagent, ...] = ()
    tool_calls: tuple[PendingToolCall, ...] = ()


class Remembered(NamedTuple):
    """What is known of a thread when a run of it begins: its record, and the runs that were seen, by id.

    `asked` is false where nobody remembers such threads.
    """

    record: ThreadRecord | None
    seen: Mapping[str, SeenRun]
    asked: bool = True


class ThreadRecord(_Record):
    """All that is remembered of one thread, each entry under its id.

    Treat the mappings as frozen too: records are shared. Written down, they are lists.
    """

    version: Literal[1] = VERSION
    thread_id: str
    interrupts: dict[str, OpenInterrupt] = {}
    subagents: dict[str, SuspendedSubagent] = {}
    tool_calls: dict[str, PendingToolCall] = {}
    runs: dict[str, SeenRun] = {}
    dropped: int = 0
    updated: FiniteFloat

    @field_serializer("interrupts", "subagents", "tool_calls", "runs")
    def _listed(self, entries: Mapping[str, _Record]) -> list[Any]:
        return list(entries.values())

    @field_validator("interrupts", "subagents", "tool_calls", "runs", mode="before")
    @classmethod
    def _by_id(cls, entries: Any) -> Any:
        if not isinstance(entries, list):
            return entries
        return {str(entry.get("id")) if isinstance(entry, dict) else "": entry for entry in entries}

    @property
    def empty(self) -> bool:
        """Whether nothing of the thread waits for an answer."""
        return not (self.interrupts or self.subagents or self.tool_calls)

    def since(self) -> float:
        """Since when the oldest entry waits; infinity where nothing does."""
        kinds = (self.interrupts, self.subagents, self.tool_calls)
        return min((entry.since for entries in kinds for entry in entries.values()), default=float("inf"))

    def encode(self) -> bytes:
        """The record as JSON in UTF-8, surrogates included, for a store outside the process."""
        try:
            return self.model_dump_json().encode()
        except ValueError:
            return json.dumps(self.model_dump(), ensure_ascii=False).encode("utf-8", "surrogatepass")


def decode(data: bytes | str, notes: list[str]) -> ThreadRecord | None:
    """The record that `encode` made; None, and a sentence in `notes`, for another version or anything else.

    Never raises, and notes quote nothing of the data but a version number.
    """
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        notes.append("thread memory: a record that is not JSON was ignored")
        return None
    version = value.get("version") if isinstance(value, dict) else None
    if isinstance(version, int) and version != VERSION:
        notes.append(f"thread memory: a record of version {version} was ignored; this is version {VERSION}")
        return None
    try:
        return ThreadRecord.model_validate({"version": None, **value} if isinstance(value, dict) else value)
    except ValidationError:
        notes.append("thread memory: a record with missing or wrong fields was ignored")
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadChange:
    """What one run changes in its thread's record, at the time `at`.

    `forget_*`: ids of what it answered or continued, when it ended well. `interrupts`, `subagents` and
    `tool_calls`: what it suspended or left pending. `answered_*`: ids of what it answered, whatever its
    end. `runs`: the run itself, where another process is to know that it was seen.
    """

    thread_id: str
    at: float
    interrupts: tuple[OpenInterrupt, ...] = ()
    subagents: tuple[SuspendedSubagent, ...] = ()
    tool_calls: tuple[PendingToolCall, ...] = ()
    runs: tuple[SeenRun, ...] = ()
    forget_interrupts: frozenset[str] = frozenset()
    forget_subagents: frozenset[str] = frozenset()
    forget_tool_calls: frozenset[str] = frozenset()
    answered_interrupts: frozenset[str] = frozenset()
    answered_tool_calls: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether it changes nothing: such a change needs no write."""
        return not (
            self.interrupts or self.subagents or self.tool_calls
            or self.forget_interrupts or self.forget_subagents or self.forget_tool_calls
            or self.answered_interrupts or self.answered_tool_calls or self.runs
        )  # fmt: skip

    def apply(self, record: ThreadRecord | None) -> ThreadRecord:
        """The record after this change; None stands for a thread of which nothing is remembered.

        What is forgotten leaves first, then what is new comes in under its id. An interrupt that was known
        keeps its first owner, run, span and time, and takes the new reason and expiry; whether it was
        answered is kept only while it was not forgotten.
        """
        old = ThreadRecord(thread_id=self.thread_id, updated=self.at) if record is None else record
        interrupts = _marked(old.interrupts, self.forget_interrupts, self.answered_interrupts)
        for new in self.interrupts:
            first = old.interrupts.get(new.id)
            interrupts[new.id] = new if first is None else _restated(first, new, new.id in interrupts)
        subagents = {ident: entry for ident, entry in old.subagents.items() if ident not in self.forget_subagents}
        subagents.update((entry.id, entry) for entry in self.subagents)
        tool_calls = _marked(old.tool_calls, self.forget_tool_calls, self.answered_tool_calls)
        tool_calls.update((entry.id, entry) for entry in self.tool_calls)
        runs = {**old.runs, **{run.id: run for run in self.runs}}
        return ThreadRecord(
            thread_id=old.thread_id,
            interrupts=_newest(interrupts),
            subagents=_newest(subagents),
            tool_calls=_newest(tool_calls),
            runs=dict(sorted(runs.items(), key=lambda item: item[1].at)[-MAX_RUNS:]),
            dropped=old.dropped + sum(_surplus(len(of)) for of in (interrupts, subagents, tool_calls)),
            updated=max(self.at, old.updated),
        )


_Answerable = TypeVar("_Answerable", OpenInterrupt, PendingToolCall)
_Entry = TypeVar("_Entry", OpenInterrupt, SuspendedSubagent, PendingToolCall)


def _marked(
    entries: Mapping[str, _Answerable], forgotten: Iterable[str], answered: Iterable[str]
) -> dict[str, _Answerable]:
    kept = {ident: entry for ident, entry in entries.items() if ident not in forgotten}
    for ident in answered:
        if ident in kept and not kept[ident].answered:
            kept[ident] = kept[ident].model_copy(update={"answered": True})
    return kept


def _restated(first: OpenInterrupt, new: OpenInterrupt, still_kept: bool) -> OpenInterrupt:
    answered = first.answered if still_kept else False
    return first.model_copy(update={"reason": new.reason, "expires_at": new.expires_at, "answered": answered})


def _surplus(count: int) -> int:
    return max(0, count - MAX_ENTRIES)


def _newest(entries: dict[str, _Entry]) -> dict[str, _Entry]:
    if not _surplus(len(entries)):
        return entries
    newest = sorted(entries.values(), key=lambda entry: entry.since)[-MAX_ENTRIES:]
    kept = {entry.id for entry in newest}
    return {ident: entry for ident, entry in entries.items() if ident in kept}
