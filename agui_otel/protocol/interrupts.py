"""Suspended here, resumed there: interrupts, their answers, and what the thread is to remember (trace model: suspension)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from agui_otel.protocol import quirks
from agui_otel.protocol.entities import Agent, Entity, Outcome, Run, Subagent
from agui_otel.protocol.scope import Scope
from agui_otel.protocol.thread import (
    OpenInterrupt,
    PendingToolCall,
    SpanRef,
    SuspendedSubagent,
    ThreadChange,
)
from agui_otel.protocol.toolcalls import decide
from agui_otel.protocol.transitions import InterruptAnswered, InterruptRaised, Resumes, ToolCallAnswered

RefOf = Callable[[Entity], SpanRef]


def read_answers(scope: Scope, at: int) -> None:
    """What the run's input answers: interrupts by resume entries (or the legacy command), pending calls by tool messages."""
    given, record = scope.run.input, scope.record
    if given is None:
        return
    for entry in given.resume:
        ident = entry.get("interruptId")
        if isinstance(ident, str):
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
        pending = (
            record.tool_calls.get(message.get("toolCallId", "")) if message.get("role") == "tool" else None
        )
        if pending is not None and pending.id not in scope.answered_calls:
            scope.answered_calls[pending.id] = pending
            scope.out.append(ToolCallAnswered(scope.run, pending, at))


def _answer(
    scope: Scope, ident: str, known: OpenInterrupt | None, status: str, entry: dict[str, Any], at: int
) -> None:
    if known is not None:
        scope.answered[ident] = known
        if known.run not in scope.run.resumes:
            scope.run.resumes.append(known.run)
    scope.out.append(InterruptAnswered(scope.run, ident, known, status, entry, at))


def raise_interrupts(scope: Scope, outcome: dict[str, Any] | None, at: int) -> bool:
    """Record the interrupts with which the run finished; whether there are any."""
    if outcome is None:
        raised = list(_legacy(scope, at)) if scope.custom_interrupts else []
    elif outcome.get("type") == "interrupt":
        interrupts = outcome.get("interrupts")
        raised = [
            _from_wire(scope, item, at)
            for item in (interrupts if isinstance(interrupts, list) else [])
            if isinstance(item, dict) and isinstance(item.get("id"), str)
        ]
    else:
        return False
    for interrupt in raised:
        scope.run.interrupts.append(interrupt.id)
        scope.raised[interrupt.id] = interrupt
        scope.out.append(interrupt)
    return outcome is not None or bool(raised)


def _from_wire(scope: Scope, item: dict[str, Any], at: int) -> InterruptRaised:
    def text(key: str) -> str | None:
        value = item.get(key)
        return value if isinstance(value, str) else None

    ident = item["id"]
    known = scope.record.interrupts.get(ident) if scope.record is not None else None
    owner = known.owner if known is not None else text("subagentRunId") or _lister(scope, ident)
    return InterruptRaised(
        scope.run, ident, text("reason") or "", text("message"), text("toolCallId"), text("expiresAt"), owner,
        known is not None, at,
    )  # fmt: skip


def _lister(scope: Scope, ident: str) -> str | None:
    return next((s.id for s in scope.subagents.values() if ident in s.interrupt_ids), None)


def _legacy(scope: Scope, at: int) -> Iterator[InterruptRaised]:
    """Interrupts before 1.0 (quirk legacy_interrupt): those that suspended subagents list, then surplus CUSTOM events."""
    remembered = list(scope.record.interrupts.values()) if scope.record is not None else []

    def raised(ident: str, owner: str | None, known: bool) -> InterruptRaised:
        return InterruptRaised(scope.run, ident, quirks.LEGACY_INTERRUPT, None, None, None, owner, known, at)

    unmatched: dict[str | None, int] = {}
    for subagent in scope.subagents.values():
        for ident in subagent.interrupt_ids:
            yield raised(ident, subagent.id, any(r.id == ident for r in remembered))
            unmatched[subagent.id] = unmatched.get(subagent.id, 0) + 1
    asked_again = not scope.answered and not any(s.announced for s in scope.subagents.values())
    restated = [r for r in remembered if r.legacy] if asked_again else []
    surplus = 0
    for owner in scope.custom_interrupts:
        if unmatched.get(owner, 0) > 0:
            unmatched[owner] -= 1
        elif restated:
            first = restated.pop(0)
            yield raised(first.id, first.owner, True)
        else:
            surplus += 1
            yield raised(f"legacy:{scope.run.id}:{surplus}", owner, False)


def thread_change(scope: Scope, at: int, ref_of: RefOf, *, keep_content: bool) -> ThreadChange:
    """What the run, which ended with its outcome at `at`, changes in the memory of its thread.

    `ref_of` gives the span of an entity. Descriptions are kept only with `keep_content`.
    """
    run = scope.run
    assert run.thread_id is not None
    seconds = at / 1e9
    if run.outcome not in (Outcome.SUCCESS, Outcome.INTERRUPT):
        return ThreadChange(
            thread_id=run.thread_id,
            at=seconds,
            answered_interrupts=frozenset(scope.answered),
            answered_tool_calls=frozenset(scope.answered_calls),
        )
    suspended = [s for s in scope.subagents.values() if s.outcome is Outcome.SUSPENDED]
    return ThreadChange(
        thread_id=run.thread_id,
        at=seconds,
        interrupts=tuple(_open_interrupt(scope, raised, ref_of) for raised in scope.raised.values()),
        subagents=tuple(_suspended(s, ref_of, keep_content) for s in suspended),
        tool_calls=tuple(_pending_calls(scope, run, at, ref_of)),
        forget_interrupts=frozenset(scope.answered),
        forget_subagents=frozenset(scope.continued_subagents),
        forget_tool_calls=frozenset(scope.continued_calls | set(scope.answered_calls)),
    )


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


def _suspended(subagent: Subagent, ref_of: RefOf, keep_content: bool) -> SuspendedSubagent:
    assert subagent.ended_at is not None
    return SuspendedSubagent(
        id=subagent.id,
        name=subagent.name,
        description=subagent.description if keep_content else None,
        parent_tool_call=subagent.parent_tool_call_id,
        parent_subagent=subagent.parent_subagent_id,
        parent_message=subagent.parent_message_id,
        span=ref_of(subagent),
        interrupt_ids=subagent.interrupt_ids,
        since=subagent.ended_at / 1e9,
    )


def _pending_calls(scope: Scope, run: Run, at: int, ref_of: RefOf) -> Iterator[PendingToolCall]:
    assert run.outcome is not None
    for tool in scope.tools.values():
        outcome, end = (tool.outcome, tool.ended_at) if not tool.is_open else decide(tool, run.outcome, at)
        if outcome is Outcome.PENDING and end is not None:
            yield PendingToolCall(
                id=tool.id, name=tool.name or "", owner=tool.owner.tag, span=ref_of(tool), since=end / 1e9
            )
