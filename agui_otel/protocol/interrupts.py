"""Suspended here, resumed there: interrupts, answers, and what the thread is to remember (trace model: suspension)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

from agui_otel.protocol import quirks
from agui_otel.protocol.again import MAX_MARKS, marks_of
from agui_otel.protocol.entities import Agent, Entity, Outcome, Run, Subagent, ToolCall
from agui_otel.protocol.scope import Scope
from agui_otel.protocol.thread import (
    MAX_ENTRIES,
    OpenInterrupt,
    PendingToolCall,
    SeenRun,
    SpanRef,
    SuspendedSubagent,
    ThreadChange,
    ThreadRecord,
)
from agui_otel.protocol.toolcalls import decide
from agui_otel.protocol.transitions import InterruptAnswered, InterruptRaised, Resumes, ToolCallAnswered

RefOf = Callable[[Entity], SpanRef]


def read_answers(scope: Scope, at: int) -> None:
    """What the input answers: interrupts by resume entries or the legacy command, pending calls by tool messages."""
    given, record = scope.run.input, scope.record
    if given is None:
        return
    for entry in given.resume:
        ident = entry.get("interruptId")
        if isinstance(ident, str) and ident not in scope.answered:
            known = record.interrupts.get(ident) if record is not None else None
            status = "cancelled" if entry.get("status") == "cancelled" else "resolved"
            _answer(scope, ident, known, status, entry, at)
    if record is None:
        return
    if not given.resume and given.legacy_resume is not None:
        for interrupt in record.interrupts.values():
            if interrupt.legacy:
                _answer(scope, interrupt.id, interrupt, "resolved", {"payload": given.legacy_resume}, at)
    if scope.run.resumes:
        scope.out.append(Resumes(scope.run, tuple(scope.run.resumes)))
    for message in given.messages:
        pending = record.tool_calls.get(message.get("toolCallId", "")) if message.get("role") == "tool" else None
        if pending is not None and pending.id not in scope.answered_calls:
            scope.answered_calls[pending.id] = pending
            scope.out.append(ToolCallAnswered(scope.run, pending, at))


def _answer(scope: Scope, ident: str, known: OpenInterrupt | None, status: str, entry: dict[str, Any], at: int) -> None:
    if known is not None:
        scope.answered[ident] = known
        if known.run not in scope.run.resumes:
            scope.run.resumes.append(known.run)
    missed = known is None and scope.asked
    scope.out.append(InterruptAnswered(scope.run, ident, known, status, entry, at, missed))
    if missed:
        scope.note("unknown_interrupt", f"an answer to interrupt {ident!r}, which is not remembered", at)


def raise_interrupts(scope: Scope, outcome: dict[str, Any] | None, at: int) -> bool:
    """Record the interrupts with which the run finished; whether there are any."""
    if outcome is None:
        raised = list(_legacy(scope, at)) if scope.custom_interrupts else []
    elif outcome.get("type") == "interrupt":
        interrupts = outcome.get("interrupts")
        listers = _listers(scope)
        raised = [
            _from_wire(scope, item, listers, at)
            for item in (interrupts if isinstance(interrupts, list) else [])
            if isinstance(item, dict) and isinstance(item.get("id"), str)
        ]
    else:
        return False
    for interrupt in raised:
        scope.named(interrupt.id, at)
        scope.raised[interrupt.id] = interrupt
        scope.out.append(interrupt)
    return outcome is not None or bool(raised)


def _from_wire(scope: Scope, item: dict[str, Any], listers: dict[str, str], at: int) -> InterruptRaised:
    def text(key: str) -> str | None:
        value = item.get(key)
        return value if isinstance(value, str) else None

    ident = item["id"]
    known = scope.record.interrupts.get(ident) if scope.record is not None else None
    said = text("subagentRunId")
    owner = known.owner if known is not None else said if said is not None else listers.get(ident)
    return InterruptRaised(
        scope.run, ident, text("reason") or "", text("message"), text("toolCallId"), text("expiresAt"), owner,
        known is not None, at,
    )  # fmt: skip


def _listers(scope: Scope) -> dict[str, str]:
    """Who lists which interrupt: the first suspended subagent that does."""
    listers: dict[str, str] = {}
    for subagent in scope.agents:
        for ident in subagent.interrupt_ids:
            listers.setdefault(ident, subagent.id)
    return listers


def _legacy(scope: Scope, at: int) -> Iterator[InterruptRaised]:
    """Interrupts before 1.0 (quirk legacy_interrupt): what suspended subagents list, then surplus CUSTOM events."""
    remembered = scope.record.interrupts if scope.record is not None else {}

    def raised(ident: str, owner: str | None) -> InterruptRaised:
        known = remembered.get(ident)
        first_owner = known.owner if known is not None else owner
        return InterruptRaised(
            scope.run, ident, quirks.LEGACY_INTERRUPT, None, None, None, first_owner, known is not None, at
        )

    unmatched: dict[str | None, int] = {}
    for subagent in scope.subagents.values():
        for ident in subagent.interrupt_ids:
            yield raised(ident, subagent.id)
            unmatched[subagent.id] = unmatched.get(subagent.id, 0) + 1
    restated = [known for known in remembered.values() if known.legacy] if _asks_again(scope) else []
    surplus = 0
    for owner in scope.custom_interrupts:
        if unmatched.get(owner, 0) > 0:
            unmatched[owner] -= 1
        elif restated:
            yield raised(restated.pop(0).id, owner)
        else:
            surplus += 1
            yield raised(f"legacy:{scope.run.id}:{surplus}", owner)


def _asks_again(scope: Scope) -> bool:
    """Whether the run does not resume anything: what it asks was asked before."""
    given = scope.run.input
    resumes = given is not None and given.answers
    return not resumes and not any(subagent.announced for subagent in scope.agents)


def thread_change(scope: Scope, at: int, ref_of: RefOf, *, keep_content: bool) -> ThreadChange:
    """What the run, which ended with its outcome at `at`, changes in the memory of its thread.

    `ref_of` gives the span of an entity. Descriptions are kept only with `keep_content`.
    """
    run = scope.run
    assert run.thread_id is not None
    seconds = at / 1e9
    if run.replayed:
        return ThreadChange(thread_id=run.thread_id, at=seconds)
    if run.outcome not in (Outcome.SUCCESS, Outcome.INTERRUPT):
        return ThreadChange(
            thread_id=run.thread_id,
            at=seconds,
            answered_interrupts=frozenset(scope.answered),
            answered_tool_calls=frozenset(scope.answered_calls),
        )
    suspended = [s for s in scope.subagents.values() if s.outcome is Outcome.SUSPENDED]
    settled = _settled(scope)
    return ThreadChange(
        thread_id=run.thread_id,
        at=seconds,
        interrupts=tuple(_open_interrupt(scope, raised, ref_of) for raised in scope.raised.values()),
        subagents=tuple(_suspended(s, at, ref_of, keep_content) for s in suspended),
        tool_calls=tuple(_pending_calls(scope, run, at, ref_of)),
        forget_interrupts=frozenset(scope.answered),
        forget_subagents=frozenset(scope.continued_subagents | settled.subagents),
        forget_tool_calls=frozenset(scope.continued_calls | scope.answered_calls.keys() | settled.tool_calls),
    )


def seen_run(scope: Scope, at: int, ref_of: RefOf, *, keep_content: bool) -> SeenRun:
    """The run as it is to be known when its stream comes again. One that goes on keeps the span of its first part."""
    run, earlier = scope.run, scope.earlier
    own = marks_of(scope.idents)
    if earlier is None or not (run.goes_on or run.replayed):
        marks, span = own, ref_of(run)
    else:
        marks, span = tuple(dict.fromkeys((*earlier.marks, *own)))[:MAX_MARKS], earlier.span
    cut_off = run.cut_off and not run.replayed
    return SeenRun(
        id=run.id,
        span=span,
        at=at / 1e9,
        cut_off=cut_off,
        marks=marks,
        subagents=tuple(
            _suspended(each, at, ref_of, keep_content)
            for each in scope.subagents.values()
            if cut_off and _was_open(each)
        )[-MAX_ENTRIES:],
        tool_calls=tuple(
            PendingToolCall(id=tool.id, name=tool.name or "", owner=tool.owner.tag, span=ref_of(tool), since=at / 1e9)
            for ident, tool in scope.tools.items()
            if cut_off and _was_open(tool) and ident is not None
        )[-MAX_ENTRIES:],
    )


def _was_open(entity: Entity) -> bool:
    """Whether it was open when its stream broke off, which ended it."""
    return entity.outcome in (None, Outcome.ABORTED, Outcome.UNREPORTED)


class _Waiting(NamedTuple):
    """Remembered subagents and tool calls."""

    subagents: set[str]
    tool_calls: set[str]


def _settled(scope: Scope) -> _Waiting:
    """What waited for the answered interrupts, their owners and those above them, and for no other one.

    A producer that goes on under new ids continues none of it.
    """
    answered, waiting = _Waiting(set(), set()), _Waiting(set(), set())
    record = scope.record
    if record is not None and scope.answered:
        for interrupt in record.interrupts.values():
            is_over = interrupt.id in scope.answered and interrupt.id not in scope.raised
            _add_what_waits(record, interrupt, answered if is_over else waiting)
    return _Waiting(answered.subagents - waiting.subagents, answered.tool_calls - waiting.tool_calls)


def _add_what_waits(record: ThreadRecord, interrupt: OpenInterrupt, into: _Waiting) -> None:
    """Add the owner of `interrupt` and its tool call, and all that are above them."""
    owners = [s.id for s in record.subagents.values() if s.id == interrupt.owner or interrupt.id in s.interrupt_ids]
    calls = [interrupt.tool_call] if interrupt.tool_call is not None else []
    while owners or calls:
        subagent = record.subagents.get(owners.pop()) if owners else None
        if subagent is not None and subagent.id not in into.subagents:
            into.subagents.add(subagent.id)
            owners.extend([subagent.parent_subagent] if subagent.parent_subagent is not None else [])
            calls.extend([subagent.parent_tool_call] if subagent.parent_tool_call is not None else [])
        call = record.tool_calls.get(calls.pop()) if calls else None
        if call is not None and call.id not in into.tool_calls:
            into.tool_calls.add(call.id)
            owners.extend([call.owner] if call.owner is not None else [])


def _open_interrupt(scope: Scope, raised: InterruptRaised, ref_of: RefOf) -> OpenInterrupt:
    owner: Agent | None = scope.subagents.get(raised.owner) if raised.owner is not None else None
    return OpenInterrupt(
        id=raised.id,
        owner=raised.owner,
        owner_name=owner.name if owner is not None else None,
        tool_call=raised.tool_call_id,
        run=ref_of(scope.run),
        span=ref_of(owner) if owner is not None else None,
        since=raised.at / 1e9,
        reason=raised.reason,
        expires_at=raised.expires_at,
        legacy=raised.reason == quirks.LEGACY_INTERRUPT,
    )


def _suspended(subagent: Subagent, at: int, ref_of: RefOf, keep_content: bool) -> SuspendedSubagent:
    return SuspendedSubagent(
        id=subagent.id,
        name=subagent.name,
        description=subagent.description if keep_content else None,
        parent_tool_call=subagent.parent_tool_call_id,
        parent_subagent=subagent.parent_subagent_id,
        parent_message=subagent.parent_message_id,
        span=ref_of(subagent),
        interrupt_ids=subagent.interrupt_ids,
        since=(at if subagent.ended_at is None else subagent.ended_at) / 1e9,
    )


def _pending_calls(scope: Scope, run: Run, at: int, ref_of: RefOf) -> Iterator[PendingToolCall]:
    assert run.outcome is not None
    pending: list[tuple[int, ToolCall]] = []
    for ident, tool in scope.tools.items():
        outcome, end = (tool.outcome, tool.ended_at) if not tool.is_open else decide(tool, run.outcome, at)
        if outcome is Outcome.PENDING and end is not None and ident is not None:  # a chunk's id may be null
            pending.append((end, tool))
    for end, tool in sorted(pending, key=itemgetter(0))[-MAX_ENTRIES:]:
        yield PendingToolCall(
            id=tool.id, name=tool.name or "", owner=tool.owner.tag, span=ref_of(tool), since=end / 1e9
        )
