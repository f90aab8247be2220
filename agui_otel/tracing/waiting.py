"""Transitions to span events: who waits for a human, who answered, and what was decided (trace model: suspension).

What waits and what is answered must not be left out, so these events have no cap of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agui_otel.protocol import transitions as t
from agui_otel.protocol.entities import Subagent
from agui_otel.protocol.thread import OpenInterrupt
from agui_otel.tracing import semconv as s
from agui_otel.tracing.content import Content, short
from agui_otel.tracing.decisions import DECISIONS, Decision, read_decision
from agui_otel.tracing.handles import Attributes
from agui_otel.tracing.links import link_to
from agui_otel.tracing.metrics import Instruments


class WaitingEvents:
    """Writes the span events and links that join runs. `decide` reads a decision, where the host has its own way.

    At most `max_ids` ids stand in one attribute.
    """

    def __init__(self, content: Content, metrics: Instruments, decide: Decision | None, max_ids: int) -> None:
        self._content = content
        self._metrics = metrics
        self._decide = decide
        self._max_ids = max_ids

    def record_with(self, metrics: Instruments) -> None:
        """Use these instruments from now on."""
        self._metrics = metrics

    def suspended(self, suspended: t.Suspended) -> None:
        """A subagent waits; without ids of its own, because a descendant does."""
        attributes: Attributes = {}
        idents = suspended.subagent.interrupt_ids
        if idents:
            shown = idents[: self._max_ids]
            attributes[s.INTERRUPT_IDS] = [short(ident) for ident in shown]
            suspended.subagent.handle.omit("interrupt_ids", len(idents) - len(shown))
        suspended.subagent.handle.add("suspended", None, s.EVENT_SUSPENDED, attributes, suspended.at)

    def resumed(self, subagent: Subagent, at: int) -> None:
        """A suspended subagent starts again under its id."""
        ref = subagent.continues
        assert ref is not None
        attributes: Attributes = {
            s.CONTINUES_TRACE_ID: ref.trace_id,
            s.CONTINUES_SPAN_ID: ref.span_id,
            s.CONTINUES_RUN_ID: short(ref.run_id),
        }
        subagent.handle.add("resumed", None, s.EVENT_RESUMED, attributes, at)

    def interrupt(self, raised: t.InterruptRaised) -> None:
        """What the run waits for, one event each."""
        attributes: Attributes = {s.INTERRUPT_ID: short(raised.id), s.INTERRUPT_REASON: short(raised.reason)}
        if raised.message is not None:
            self._content.output(s.INTERRUPT_MESSAGE, raised.message, attributes)
        if raised.tool_call_id is not None:
            attributes[s.INTERRUPT_TOOL_CALL_ID] = short(raised.tool_call_id)
        if raised.expires_at is not None:
            attributes[s.INTERRUPT_EXPIRES_AT] = short(raised.expires_at)
        if raised.owner is not None:
            attributes[s.SUBAGENT_RUN_ID] = short(raised.owner)
        raised.run.handle.add("interrupts", None, s.EVENT_INTERRUPT, attributes, raised.at)

    def interrupt_answered(self, answered: t.InterruptAnswered) -> None:
        """An answer: how long it was waited for, what was decided, and links to where it was asked."""
        run, ident, record, status, entry, at, missed = answered
        if missed:
            self._metrics.observer_error("thread_memory.unknown")
        attributes: Attributes = {s.INTERRUPT_ID: short(ident)}
        decision = self._decision(entry, record, at)
        attributes[s.INTERRUPT_DECISION] = decision
        if record is not None:
            wait = max(0.0, at / 1e9 - record.since)
            attributes[s.INTERRUPT_WAIT] = wait
            attributes[s.INTERRUPT_REASON] = short(record.reason)
            if record.owner is not None:
                attributes[s.SUBAGENT_RUN_ID] = short(record.owner)
            if not record.answered:
                self._metrics.interrupt_answered(record.reason, decision, wait, context=run.handle.context)
            if record.span is not None:
                run.handle.link(link_to(record.span))
        run.handle.add("answers", None, s.EVENT_INTERRUPT_ANSWERED[status], attributes, at)

    def resumes(self, resumes: t.Resumes) -> None:
        """Which runs this one answers, as links and as attributes: Phoenix keeps no links."""
        run = resumes.run
        for ref in resumes.new:
            run.handle.link(link_to(ref))
        shown = run.resumes[: self._max_ids]
        run.handle.omitted["resumes"] = len(run.resumes) - len(shown)
        run.handle.set(
            {
                s.RESUMES_TRACE_ID: [ref.trace_id for ref in shown],
                s.RESUMES_SPAN_ID: [ref.span_id for ref in shown],
                s.RESUMES_RUN_ID: [short(ref.run_id) for ref in shown],
            }
        )

    def _decision(self, entry: Mapping[str, Any], record: OpenInterrupt | None, at: int) -> str:
        expiry = record.expiry if record is not None else None
        if expiry is not None and expiry < at / 1e9:
            return "expired"
        if self._decide is None:
            return read_decision(entry)
        found = self._decide(entry)
        return found if found in DECISIONS else "unknown"

    def tool_call_answered(self, answered: t.ToolCallAnswered) -> None:
        """The answer to a call that an earlier run left pending: the wait, and a link to the call."""
        run, record, at = answered
        attributes: Attributes = {
            s.GEN_AI_TOOL_CALL_ID: short(record.id),
            s.GEN_AI_TOOL_NAME: short(record.name),
            s.TOOL_CALL_WAIT: max(0.0, at / 1e9 - record.since),
        }
        run.handle.link(link_to(record.span))
        run.handle.add("answers", None, s.EVENT_TOOL_CALL_ANSWERED, attributes, at)
