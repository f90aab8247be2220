"""The state machine of a stream: an event in, transitions out.

    parse/read -> Expander (chunk shorthand) -> Judge (the reference client's rules) -> a handler per event type

A stream holds runs one after another. A run is open from RUN_STARTED, from its input if that is known earlier
(`begin`), or from the first event that stands outside any run, which makes it *implicit*. Its terminal event decides
its outcome; it is closed when the next run starts or the stream ends, because a RUN_ERROR may follow a RUN_FINISHED.
What comes in between belongs to the run that ended.

The tracker has no clock and does no I/O. It never raises on what a stream holds: what is wrong becomes a ``Remark``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from agui_otel.protocol import again, lifecycle, marks, quirks, streaming, subagents, toolcalls
from agui_otel.protocol.chunks import Expander, Refused
from agui_otel.protocol.deltas import Deltas
from agui_otel.protocol.early import Early
from agui_otel.protocol.entities import Agent, Failure, Outcome, Run, Streamed
from agui_otel.protocol.events import EVENT_TYPES, STATE_FIELDS, Malformed, read, with_own_state
from agui_otel.protocol.inputs import RunInput, read_input
from agui_otel.protocol.interrupts import read_answers
from agui_otel.protocol.rules import Judge
from agui_otel.protocol.scope import Options, Scope
from agui_otel.protocol.thread import Remembered
from agui_otel.protocol.transitions import Announced, Remark, Transition

Event = dict[str, Any]
Handler = Callable[[Scope, Event, int], Agent]
Recall = Callable[[str], "Remembered | None"]

_NOTHING: tuple[Transition, ...] = ()
_NOTHING_KNOWN: Remembered | None = Remembered(None, {}, asked=False)

_HANDLERS: dict[str, Handler] = {
    "TEXT_MESSAGE_START": streaming.text_start,
    "TEXT_MESSAGE_CONTENT": streaming.text_content,
    "TEXT_MESSAGE_END": streaming.text_end,
    "REASONING_START": streaming.reasoning_start,
    "REASONING_MESSAGE_START": streaming.reasoning_message_start,
    "REASONING_MESSAGE_CONTENT": streaming.reasoning_content,
    "REASONING_MESSAGE_END": streaming.reasoning_message_end,
    "REASONING_END": streaming.reasoning_end,
    "REASONING_ENCRYPTED_VALUE": marks.encrypted_value,
    "TOOL_CALL_START": streaming.tool_start,
    "TOOL_CALL_ARGS": streaming.tool_args,
    "TOOL_CALL_END": streaming.tool_end,
    "TOOL_CALL_RESULT": toolcalls.tool_result,
    "MESSAGES_SNAPSHOT": toolcalls.messages_snapshot,
    "STATE_SNAPSHOT": marks.state_snapshot,
    "STATE_DELTA": marks.state_delta,
    "ACTIVITY_SNAPSHOT": marks.activity,
    "ACTIVITY_DELTA": marks.activity,
    "RAW": marks.raw,
    "CUSTOM": marks.custom,
    "STEP_STARTED": marks.step_started,
    "STEP_FINISHED": marks.step_finished,
    "SUBAGENT_STARTED": subagents.subagent_started,
    "SUBAGENT_FINISHED": subagents.subagent_finished,
    "SUBAGENT_ERROR": subagents.subagent_error,
    "RUN_FINISHED": lifecycle.run_finished,
    "RUN_ERROR": lifecycle.run_error,
}

_LIFECYCLE = frozenset({"SUBAGENT_STARTED", "SUBAGENT_FINISHED", "SUBAGENT_ERROR"})


class Tracker:
    """Follows one stream.

    `given` is the stream's RunAgentInput, for its first run. `recall` gives what is remembered of a thread, or None
    where that is not known yet: then nothing may be received before `recalled`. It is asked once a run. `remember` is
    told of a run that the next one ends, before that asks; it sets ``scope.told``, and must not raise. `agent_name`
    names the run's own agent. ``continues`` is the short cut for plain deltas (`Deltas.take`), which `receive` tries
    first. ``said`` is what the last call that was no plain delta has said, also where it raised before it could return
    that.
    """

    def __init__(
        self,
        options: Options = Options(),  # noqa: B008 (frozen)
        *,
        given: RunInput | None = None,
        agent_name: str | None = None,
        recall: Recall | None = None,
        remember: Callable[[Scope, int], None] | None = None,
    ) -> None:
        self.options = options
        self.agent_name = agent_name
        self.scope: Scope | None = None
        self.said: list[Transition] = []
        self._given = given
        self._recall = recall
        self._remember = remember
        self._counts: defaultdict[str, int] = defaultdict(int)
        self._thread_id = given.thread_id if given is not None else None
        self._early = Early()
        self._expander = Expander()
        self._judge = judge = Judge()
        self.deltas = Deltas(judge, self._expander)
        """The plain deltas, for who knows them without reading them."""
        self.continues = self.deltas.take

    @property
    def index(self) -> int:
        """The 0-based index of the last event."""
        return self.deltas.index

    @property
    def last_event_ns(self) -> int:
        """When the last event was received."""
        return self.deltas.last_event_ns

    @last_event_ns.setter
    def last_event_ns(self, at: int) -> None:
        self.deltas.last_event_ns = at

    def begin(self, at: int) -> Sequence[Transition]:
        """Open the run that the input announces, before any event of it."""
        self.last_event_ns = at
        out = self.said = []
        if self.scope is None and self._given is not None:
            self._open_run(None, out, at)
        return out

    def receive(self, raw: object, at: int) -> Sequence[Transition]:
        """Take the stream's next event: a dict in wire form, an event object, or an ``Unreadable``.

        `at` is when it was received. Most deltas change nothing but counters and return an empty sequence.
        """
        return _NOTHING if self.deltas.take(raw, at) else self.receive_other(raw, at)

    def receive_other(self, raw: object, at: int) -> Sequence[Transition]:
        """Take the next event, where that is no plain delta: ``continues`` was asked."""
        deltas = self.deltas
        deltas.index += 1
        deltas.last_event_ns = at
        deltas.ready.clear()
        out = self.said = []
        notes: list[str] = []
        try:
            event = read(raw, notes)
        except Malformed as error:
            self._malformed(error, out, at)
            return out
        kind = event["type"]
        if kind in STATE_FIELDS and event is raw and self.options.borrowed:
            event = with_own_state(event)
        self._counts[kind] += 1
        if kind in _HANDLERS and "metadata" not in event and not self._expander.pending:
            breach = self._judge.judge(event)
            if breach is not None:
                self._violations([breach], kind, out, at)
            self._handle(event, kind, out, at)
        elif kind in EVENT_TYPES:
            self._expand_and_handle(event, kind, out, at)
        else:
            self._handle_unknown(event, out, at)
        if notes and self.scope is not None:
            run = self.scope.run
            out.extend(Remark(run, False, "ill_typed_field", note, self.index, kind, at) for note in notes)
        return out

    def recalled(self, found: Remembered) -> Sequence[Transition]:
        """What is remembered of the thread of the run that was opened last, which was awaited."""
        out = self.said = []
        scope = self.scope
        if scope is not None and scope.awaited:
            scope.out = out
            self._take_in(scope, found, scope.run.opened_at)
        return out

    def take_counts(self) -> dict[str, int]:
        """How many events of each type came since the last call."""
        counts, self._counts = self._counts, defaultdict(int)
        self.deltas.add_counts(counts)
        return counts

    def finish(self, outcome: Outcome, failure: Failure | None, at: int) -> Sequence[Transition]:
        """The stream ended: `outcome` for a run that had no terminal event. Nothing may be received afterwards."""
        out = self.said = []
        if self.scope is None and (self._given is not None or self._early):
            self._implicit(out, at)
        if self.scope is not None:
            self.scope.out = out
            lifecycle.end_stream(self.scope, outcome, failure, at)
        return out

    def note(self, rule: str, message: str, at: int) -> Sequence[Transition]:
        """Advice about the event that is received next, from whoever feeds the tracker."""
        if self.scope is None:
            return _NOTHING
        return [Remark(self.scope.run, False, rule, message, self.index + 1, "", at)]

    def _expand_and_handle(self, event: Event, kind: str, out: list[Transition], at: int) -> None:
        """An event that may stand for others, begins a run or has metadata."""
        remarks: list[tuple[str, str]] = []
        try:
            parts = self._expander.expand(event)
        except Refused as refused:
            remarks.append((refused.rule, refused.message))
            parts = refused.recovered
        remarks += filter(None, map(self._judge.judge, parts))
        begins = kind == "RUN_STARTED" and (self.scope is None or self.scope.run.outcome is not None)
        if remarks and not begins:
            self._violations(remarks, kind, out, at)
        self._handle_parts(parts, event, out, at)
        if remarks and begins:
            self._violations(remarks, kind, out, at)

    def _handle_unknown(self, event: Event, out: list[Transition], at: int) -> None:
        """An event outside the 31 types: opens no run, unless a quirk reads it as one of them."""
        event = quirks.translate(event) or event
        if event["type"] in _HANDLERS:
            self._handle_parts((event,), event, out, at)
        elif self.scope is None:
            self._early.unknown(event, self.index, at)
        else:
            self._place(self.scope, event, out)
            agent = marks.unknown(self.scope, event, at)
            counts = _counting(agent, self.scope)
            counts.events += 1
            counts.last_at = at
            lifecycle.add_usage(self.scope, agent, event)

    def _handle_parts(self, parts: Sequence[Event], event: Event, out: list[Transition], at: int) -> None:
        """Handle what `event` stands for. What its metadata says of usage counts once."""
        agent: Agent | None = None
        for part in parts:
            agent = self._handle(part, part["type"], out, at)
        if "metadata" in event and agent is not None and self.scope is not None:
            lifecycle.add_usage(self.scope, agent, event)

    def _handle(self, event: Event, kind: str, out: list[Transition], at: int) -> Agent:
        if kind == "RUN_STARTED":
            return self._run_started(event, out, at)
        scope = self.scope or self._open_run(None, out, at)
        scope.out, scope.index, scope.type = out, self.deltas.index, kind
        if "subagentId" in event:
            event = quirks.translate(event) or event
        run = scope.run
        if not run.started and not scope.unstarted:
            again.opens_without_start(scope, kind, at)
        if run.attribution != "lifecycle" and event.get("subagentRunId") is not None:
            run.attribution = "lifecycle" if kind in _LIFECYCLE else "tags"
        described = _described_by(scope, event) if "metadata" in event else None
        owner = _HANDLERS[kind](scope, event, at)
        if "metadata" in event:
            streaming.keep_metadata(described or _described_by(scope, event), event)
        counts = owner if owner.ended_at is None else _counting(owner, scope)
        counts.events += 1
        counts.last_at = at
        return owner

    def _place(self, scope: Scope, event: Event, out: list[Transition]) -> None:
        scope.out, scope.index, scope.type = out, self.index, event["type"]

    def _run_started(self, event: Event, out: list[Transition], at: int) -> Run:
        scope = self.scope
        if scope is not None and _is_awaited(scope.run, event):
            self._place(scope, event, out)
            scope.run.implicit = False
            lifecycle.announce_run(scope, event, at)
            out.append(Announced(scope.run, at))
            again.meet(scope, at)
        else:
            if scope is not None:
                cut_short = scope.run.outcome is None
                self._close_run(scope, out, at)
                if cut_short and self._remember is not None:
                    self._remember(scope, at)  # the next run of the thread asks before this one's end is told
            scope = self._open_run(event, out, at)
        scope.run.events += 1
        return scope.run

    def _close_run(self, scope: Scope, out: list[Transition], at: int) -> None:
        scope.out = out
        if scope.run.outcome is None:
            lifecycle.end_stream(scope, Outcome.UNFINISHED, None, at)
        else:
            lifecycle.close_run(scope)

    def _implicit(self, out: list[Transition], at: int) -> Scope:
        """Something outside any run: the run it belongs to is not announced."""
        scope = self.scope or self._open_run(None, out, at)
        scope.run.implicit = not scope.run.started
        return scope

    def _open_run(self, event: Event | None, out: list[Transition], at: int) -> Scope:
        """Begin a run, from its RUN_STARTED `event` or without one.

        The stream's input belongs to the first run. Any later one has its thread, and the input that RUN_STARTED
        repeats.
        """
        given, self._given = self._given, None
        if given is None and event is not None:
            given = read_input(event.get("input"))
        run = Run(given.run_id if given is not None else None, self._thread_id, at, given)
        run.name = self.agent_name
        if run.thread_id is None:
            run.thread_id = given.thread_id if given is not None else None
        if run.thread_id is None and event is not None:
            run.thread_id = event["threadId"]
        scope = self.scope = Scope(run, self.options, out)
        found = _NOTHING_KNOWN
        if self._recall is not None and run.thread_id is not None:
            found = self._recall(run.thread_id)
        scope.awaited = found is None
        if found is not None:
            scope.record, scope.seen, scope.asked = found
        self.deltas.follow(scope)
        scope.opened(run, at)
        if given is not None:
            run.protocol_version = given.protocol_version
            lifecycle.name_parent_run(scope, given.parent_run_id)
        self._early.tell(scope)
        if event is not None:
            self._place(scope, event, out)
            lifecycle.announce_run(scope, event, at)
        if found is not None:
            read_answers(scope, at)
            if run.started:
                again.meet(scope, at)
        return scope

    def _take_in(self, scope: Scope, found: Remembered, at: int) -> None:
        """What `_open_run` does with what is remembered, where that came later."""
        scope.record, scope.seen, scope.asked = found
        scope.awaited = False
        lifecycle.tell_parent_run(scope)
        read_answers(scope, at)
        if scope.run.started:
            again.meet(scope, at)

    def _malformed(self, error: Malformed, out: list[Transition], at: int) -> None:
        """No event, or one that lacks what it needs: said, and used as far as a quirk or the end of a run allows."""
        kind = error.type or ""
        if self.scope is None:
            self._early.malformed(str(error), self.index, kind, at)
        else:
            self._violations([("malformed_event", str(error))], kind, out, at)
        translated = quirks.translate(error.event) if kind else None
        if translated is not None:
            try:
                event = read(translated, [])
            except Malformed:
                return
            self._handle_parts((event,), event, out, at)
        elif kind in ("RUN_FINISHED", "RUN_ERROR"):
            *ends, bare = self._expander.expand({"type": kind})
            for part in (*ends, bare):
                self._judge.judge(part)
            self._handle_parts((*ends, error.event), error.event, out, at)

    def _violations(self, remarks: list[tuple[str, str]], kind: str, out: list[Transition], at: int) -> None:
        scope = self.scope or self._implicit(out, at)
        scope.out, scope.index, scope.type = out, self.index, kind
        for rule, message in remarks:
            scope.violation(rule, message, at)


def _is_awaited(run: Run, event: Event) -> bool:
    """Whether RUN_STARTED is of the open run: of the one that the input opened, also where events came before it."""
    if run.started or run.outcome is not None:
        return False
    return not run.implicit or (run.input is not None and run.input.run_id == event["runId"])


def _counting(agent: Agent, scope: Scope) -> Agent:
    """Who counts an event of `agent`'s: its nearest ancestor that was open when the event came, or itself."""
    return agent if agent.ended_at is None or scope.ends_now(agent) else agent.nearest_open()


def _described_by(scope: Scope, event: Event) -> Streamed | None:
    """The open message or reasoning that an event's metadata describes."""
    kind = event["type"]
    if kind.startswith("TEXT_"):
        return scope.messages.get(event["messageId"])
    if kind.startswith("REASONING_MESSAGE"):
        return scope.reasoning.get(event["messageId"])
    return None
