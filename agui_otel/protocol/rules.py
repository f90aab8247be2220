"""What a stream may say when: the rules that AG-UI's reference client enforces, as a table and its judge.

`RULES` is the table: each rule, what it says, and how tracing goes on after a breach. `Judge` applies the
rules of `verifyEvents`, in its order, to events without chunks. The `chunk_…` rules are applied where chunks
are written out, and `malformed_event` where events are read. On well-formed events the first breach falls on
the event that the reference client refuses. After a breach the judge takes for granted what the event
presupposed, so that one defect is one breach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from agui_otel.protocol.owners import Breach, Entities, Event, Owners, mismatch, owner_name

__all__ = ["RULES", "Breach", "Judge", "Rule"]


class Rule(NamedTuple):
    """A rule of the protocol: `says` what holds, `recovery` what tracing does when it does not."""

    says: str
    recovery: str


_ABSENT = "The null counts as absent."
_CLOSED = "The run finishes all the same."
_ENDED = "It belongs to the run that ended."
_IMPLICIT = "An implicit run begins."
_OPENED = "More of it opens it, an end is dropped."
_STAYS = "The open one goes on."
_UNTAGGED = "The owner stays; the event counts as untagged."

RULES: dict[str, Rule] = {
    "malformed_event": Rule("An event is a JSON object with its required fields.", "The event is skipped."),
    # The run.
    "first_event": Rule("The first event is RUN_STARTED or RUN_ERROR.", _IMPLICIT),
    "run_active": Rule("RUN_STARTED comes outside a run.", "The open run ends, the next one begins."),
    "after_run_finished": Rule("After RUN_FINISHED come RUN_STARTED or RUN_ERROR only.", _ENDED),
    "after_run_error": Rule("After RUN_ERROR comes RUN_STARTED only.", _ENDED),
    "unclosed_steps": Rule("At RUN_FINISHED every step is finished.", _CLOSED),
    "unclosed_messages": Rule("At RUN_FINISHED every text message is ended.", _CLOSED),
    "unclosed_reasoning_messages": Rule("At RUN_FINISHED every reasoning message is ended.", _CLOSED),
    "unclosed_reasoning": Rule("At RUN_FINISHED every span of reasoning is ended.", _CLOSED),
    "unclosed_tool_calls": Rule("At RUN_FINISHED every tool call is ended.", _CLOSED),
    "unclosed_subagents": Rule("At RUN_FINISHED every subagent is finished.", _CLOSED),
    # Messages, reasoning, tool calls, and who owns them.
    "message_already_open": Rule("A text message is opened once until it ends.", _STAYS),
    "message_not_open": Rule("Text continues or ends a message that is open.", _OPENED),
    "reasoning_message_already_open": Rule("A reasoning message is opened once until it ends.", _STAYS),
    "reasoning_message_not_open": Rule("Reasoning continues or ends a message that is open.", _OPENED),
    "reasoning_already_open": Rule("A span of reasoning is opened once until it ends.", _STAYS),
    "reasoning_not_open": Rule("REASONING_END ends a span that is open.", "The event is dropped."),
    "tool_call_already_open": Rule("A tool call is opened once until it ends.", _STAYS),
    "tool_call_not_open": Rule("Arguments continue or end a tool call that is open.", _OPENED),
    "owner_mismatch": Rule("A tag names the owner of what the event reopens or continues.", _UNTAGGED),
    "parent_message_mismatch": Rule("A tool call has its parent message's owner.", "Its tag or first owner counts."),
    # Steps.
    "step_already_active": Rule("An owner has one open step of a name.", _STAYS),
    "step_not_active": Rule("STEP_FINISHED names a step that is open.", "The event is dropped."),
    "step_of_another": Rule("A step is finished by its owner.", "The open step of that name is finished."),
    # Subagents.
    "subagent_already_active": Rule("A subagent is started once until it ends.", _STAYS),
    "subagent_restarted": Rule("A subagent is started once in a run.", "It has a second span."),
    "subagent_not_active": Rule("A subagent ends while it is active.", "It counts as ended."),
    "parent_subagent_unknown": Rule("parentSubagentRunId names one of this run.", "It counts as one of this run."),
    # Values.
    "null_owner": Rule("subagentRunId is absent rather than null.", _ABSENT),
    "null_message_owner": Rule("A message's subagentRunId is absent rather than null.", _ABSENT),
    "null_interrupt_owner": Rule("An interrupt's subagentRunId is absent rather than null.", _ABSENT),
    "null_subagent_field": Rule("Optional fields of SUBAGENT_* are absent rather than null.", _ABSENT),
    "subagent_outcome": Rule("An outcome in SUBAGENT_* is of type success or suspended.", "It is ignored."),
    "interrupt_id_type": Rule("The interruptIds of a subagent's outcome are strings.", "They are ignored."),
    "tool_calls_type": Rule("A message's toolCalls are a list.", "They are ignored."),
    # Chunks.
    "chunk_owner_mismatch": Rule("A chunk's tag names the owner of the stream it continues.", _UNTAGGED),
    "chunk_ambiguous": Rule("A chunk without id and tag fits one open stream.", "The chunk is dropped."),
    "chunk_field_changed": Rule("A chunk repeats its opener's fields unchanged.", "The opener's fields stay."),
    "chunk_without_id": Rule("A chunk that opens has an id.", "It closes its lane and is dropped."),
    "chunk_without_name": Rule("A chunk that opens a tool call has its name.", "The call opens without a name."),
}
"""Every rule by its id."""

_UNKNOWN: Any = object()
_SHOWN = 8


class Judge:
    """The rules' view of one stream; its public attributes hold what is open in the run, and who owns it.

    Keys are ids (None where a chunk's id was null), values of the maps of owners are subagent ids, None being
    the run's own agent. The containers stay the same objects from run to run, and are empty
    outside one.
    """

    def __init__(self) -> None:
        self.message_owners: Owners = {}
        self.tool_call_owners: Owners = {}
        self.reasoning_owners: Owners = {}
        self.activity_owners: Owners = {}
        self._messages = Entities("message", "messageId", self.message_owners)
        self._tool_calls = Entities("tool call", "toolCallId", self.tool_call_owners)
        self._reasoning = Entities("reasoning message", "messageId", self.reasoning_owners)
        self._spans = Entities("reasoning", "messageId", self.reasoning_owners)
        self.open_messages = self._messages.open
        self.open_tool_calls = self._tool_calls.open
        self.open_reasoning = self._reasoning.open
        self.open_reasoning_spans = self._spans.open
        self.open_steps: dict[str | None, dict[str, None]] = {}
        self.active_subagents: dict[str, None] = {}
        self.ended_subagents: set[str] = set()
        self.in_run = False
        self._announced = False  # whether RUN_STARTED began the current run
        self._outside = "first_event"  # the rule that an event outside a run breaks

    def judge(self, event: Event) -> Breach | None:
        """What `event` breaks, if anything; its effect is taken either way.

        `event` is well-formed and no chunk. Types outside the 31 are not judged and have no effect.
        """
        name = event["type"]
        handler = _HANDLERS.get(name)
        if handler is None:
            return None
        breach = None
        if not self.in_run or name == "RUN_STARTED":
            breach = self._enter(name)
        if breach is None and "subagentRunId" in event and event["subagentRunId"] is None:
            breach = Breach("null_owner", f"{name} has subagentRunId null")
        attribute, judged = handler
        found = judged(self if attribute is None else getattr(self, attribute), event)
        return breach or found

    def _enter(self, name: str) -> Breach | None:
        """Begin a run where there is none, and where one is announced."""
        if name == "RUN_ERROR":
            late = self._outside == "after_run_error"
            return Breach("after_run_error", "RUN_ERROR after RUN_ERROR") if late else None
        breach = None
        if name != "RUN_STARTED":
            breach = Breach(self._outside, f"{name} outside a run")
        elif self.in_run and self._announced:
            breach = Breach("run_active", "RUN_STARTED inside a run")
        self._forget()
        self.in_run = True
        self._announced = name == "RUN_STARTED"
        return breach

    def _leave(self, rule: str) -> None:
        """End the run; `rule` is what the next event breaks unless it may follow."""
        self._forget()
        self.in_run = False
        self._outside = rule

    def _forget(self) -> None:
        for kept in (
            *(self.open_messages, self.open_tool_calls, self.open_reasoning, self.open_reasoning_spans),
            *(self.message_owners, self.tool_call_owners, self.reasoning_owners, self.activity_owners),
            *(self.open_steps, self.active_subagents, self.ended_subagents),
        ):
            kept.clear()

    def _run_started(self, event: Event) -> Breach | None:
        history = (event.get("input") or {}).get("messages") or ()
        return self._take_owners(history, restated=False)

    def _run_error(self, _event: Event) -> Breach | None:
        self._leave("after_run_error")
        return None

    def _run_finished(self, event: Event) -> Breach | None:
        unclosed = [(rule, names) for rule, names in self._unclosed().items() if names]
        self._leave("after_run_finished")
        outcome = event.get("outcome")
        if isinstance(outcome, dict) and outcome.get("type") == "interrupt":
            for interrupt in outcome["interrupts"]:
                if interrupt.get("subagentRunId", "") is None:
                    return _null_owner("null_interrupt_owner", "interrupt", interrupt["id"])
        if not unclosed:
            return None
        listed = "; ".join(f"{rule[9:].replace('_', ' ')} {_listed(names)}" for rule, names in unclosed)
        return Breach(unclosed[0][0], f"RUN_FINISHED while still open: {listed}")

    def _unclosed(self) -> dict[str, list[str]]:
        """What is open, in words, under the rules that forbid it at RUN_FINISHED and in their order."""
        steps = [
            f"'{name}'" if owner is None else f"'{name}' of {owner_name(owner)}"
            for owner, names in self.open_steps.items()
            for name in names
        ]
        return {
            "unclosed_steps": steps,
            "unclosed_messages": _quoted(self.open_messages),
            "unclosed_reasoning_messages": _quoted(self.open_reasoning),
            "unclosed_reasoning": _quoted(self.open_reasoning_spans),
            "unclosed_tool_calls": _quoted(self.open_tool_calls),
            "unclosed_subagents": _quoted(self.active_subagents),
        }

    def _tool_call_start(self, event: Event) -> Breach | None:
        ident = event["toolCallId"]
        parent = event.get("parentMessageId", _UNKNOWN)
        inherited = _UNKNOWN if parent is _UNKNOWN else self.message_owners.get(parent, _UNKNOWN)
        if inherited is _UNKNOWN or ident in self.open_tool_calls:
            return self._tool_calls.start(event)
        tag = event.get("subagentRunId")
        owner = self.tool_call_owners.setdefault(ident, inherited if tag is None else tag)
        self.open_tool_calls.add(ident)
        if inherited != (owner if tag is None else tag):
            whose = f"belongs to {owner_name(owner)}" if tag is None else f"is tagged '{tag}'"
            owned = f"its parent message '{parent}' belongs to {owner_name(inherited)}"

            return Breach("parent_message_mismatch", f"tool call '{ident}' {whose}, {owned}")
        return mismatch(event, "tool call", ident, owner)

    def _tool_call_result(self, event: Event) -> Breach | None:
        self.message_owners[event["messageId"]] = event.get("subagentRunId")
        return None

    def _encrypted_value(self, event: Event) -> Breach | None:
        ident, tag = event["entityId"], event.get("subagentRunId")
        if event["subtype"] == "tool-call":
            return mismatch(event, "tool call", ident, self.tool_call_owners.get(ident, tag))
        owner = self.message_owners.get(ident, self.reasoning_owners.get(ident, tag))
        return mismatch(event, "message", ident, owner)

    def _activity_snapshot(self, event: Event) -> Breach | None:
        ident = event["messageId"]
        if event.get("replace") is not False or ident not in self.activity_owners:
            self.activity_owners[ident] = event.get("subagentRunId")
        return None

    def _activity_delta(self, event: Event) -> Breach | None:
        ident = event["messageId"]
        owner = self.activity_owners.get(ident, event.get("subagentRunId"))
        return mismatch(event, "activity", ident, owner)

    def _messages_snapshot(self, event: Event) -> Breach | None:
        return self._take_owners(event["messages"], restated=True)

    def _take_owners(self, messages: Iterable[Event], *, restated: bool) -> Breach | None:
        """Take the owners that `messages` state; those of a snapshot replace earlier ones."""
        breach: Breach | None = None
        of_role = {"reasoning": self.reasoning_owners, "activity": self.activity_owners}
        for message in messages:
            ident, owner = message["id"], message.get("subagentRunId")
            if owner is None and "subagentRunId" in message:
                breach = breach or _null_owner("null_message_owner", "message", ident)
            owners = of_role.get(message["role"], self.message_owners)
            if restated or ident not in owners:
                owners[ident] = owner
            calls = message.get("toolCalls")
            if isinstance(calls, (int, float, dict)):
                breach = breach or Breach("tool_calls_type", f"toolCalls of message '{ident}' are no list")
                continue
            for call in calls or ():
                name = call.get("id") if isinstance(call, dict) else None
                if isinstance(name, str) and (restated or name not in self.tool_call_owners):
                    self.tool_call_owners[name] = owner
        return breach

    def _step_started(self, event: Event) -> Breach | None:
        owner, name = event.get("subagentRunId"), event["stepName"]
        names = self.open_steps.setdefault(owner, {})
        if name in names:
            return Breach("step_already_active", f"step '{name}' of {owner_name(owner)} is already active")
        names[name] = None
        return None

    def _step_finished(self, event: Event) -> Breach | None:
        owner, name = event.get("subagentRunId"), event["stepName"]
        names = self.open_steps.get(owner)
        if names is not None and name in names:
            del names[name]
            if not names:
                del self.open_steps[owner]
            return None
        for other, names in self.open_steps.items():
            if name in names:
                del names[name]
                message = f"step '{name}' of {owner_name(other)} is finished by {owner_name(owner)}"
                return Breach("step_of_another", message)
        return Breach("step_not_active", f"step '{name}' of {owner_name(owner)} is not active")

    def _subagent_started(self, event: Event) -> Breach | None:
        ident, parent = event["subagentRunId"], event.get("parentSubagentRunId")
        breach = _subagent_values(event)
        if ident in self.active_subagents:
            return breach or Breach("subagent_already_active", f"subagent '{ident}' is already active")
        if ident in self.ended_subagents:
            breach = breach or Breach("subagent_restarted", f"subagent '{ident}' has ended in this run")
            self.ended_subagents.discard(ident)
        if parent is not None and parent not in self.active_subagents and parent not in self.ended_subagents:
            breach = breach or Breach("parent_subagent_unknown", f"parent '{parent}' of '{ident}' was not started")
            self.ended_subagents.add(parent)
        self.active_subagents[ident] = None
        return breach

    def _subagent_ended(self, event: Event) -> Breach | None:
        ident = event["subagentRunId"]
        breach = _subagent_values(event)
        if ident not in self.active_subagents:
            message = f"{event['type']}: subagent '{ident}' is not active"
            breach = breach or Breach("subagent_not_active", message)
        self.active_subagents.pop(ident, None)
        self.ended_subagents.add(ident)
        return breach


def _quoted(idents: Iterable[str]) -> list[str]:
    return sorted(f"'{ident}'" for ident in idents)


def _listed(names: list[str]) -> str:
    """The first few names, and how many there are besides."""
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def _null_owner(rule: str, noun: str, ident: str) -> Breach:
    return Breach(rule, f"{noun} '{ident}' has subagentRunId null")


_NULLABLE = {
    "SUBAGENT_STARTED": ("description", "parentSubagentRunId", "parentToolCallId", "parentMessageId"),
    "SUBAGENT_FINISHED": ("outcome",),
    "SUBAGENT_ERROR": ("code",),
}


def _subagent_values(event: Event) -> Breach | None:
    """What the fields of a SUBAGENT_* event break by themselves; an outcome counts in all three."""
    for field in _NULLABLE[event["type"]]:
        if field in event and event[field] is None:
            return Breach("null_subagent_field", f"{event['type']} has {field} null")
    outcome = event.get("outcome")
    if outcome is None:
        return None
    if not isinstance(outcome, dict) or outcome.get("type") not in ("success", "suspended"):
        return Breach("subagent_outcome", f"{event['type']} has an outcome of another type")
    interrupts = outcome.get("interruptIds", ())
    if interrupts is None:
        return Breach("null_subagent_field", f"{event['type']} has outcome.interruptIds null")
    if isinstance(interrupts, list) and not all(isinstance(ident, str) for ident in interrupts):
        return Breach("interrupt_id_type", f"{event['type']} has an interrupt id that is no string")
    return None


def _nothing(_judge: Judge, _event: Event) -> Breach | None:
    return None


_HANDLERS: dict[str, tuple[str | None, Callable[[Any, Event], Breach | None]]] = {
    "RUN_STARTED": (None, Judge._run_started),
    "RUN_FINISHED": (None, Judge._run_finished),
    "RUN_ERROR": (None, Judge._run_error),
    "STEP_STARTED": (None, Judge._step_started),
    "STEP_FINISHED": (None, Judge._step_finished),
    "TEXT_MESSAGE_START": ("_messages", Entities.start),
    "TEXT_MESSAGE_CONTENT": ("_messages", Entities.proceed),
    "TEXT_MESSAGE_END": ("_messages", Entities.end),
    "TOOL_CALL_START": (None, Judge._tool_call_start),
    "TOOL_CALL_ARGS": ("_tool_calls", Entities.proceed),
    "TOOL_CALL_END": ("_tool_calls", Entities.end),
    "TOOL_CALL_RESULT": (None, Judge._tool_call_result),
    "REASONING_START": ("_spans", Entities.start),
    "REASONING_END": ("_spans", Entities.end),
    "REASONING_MESSAGE_START": ("_reasoning", Entities.start),
    "REASONING_MESSAGE_CONTENT": ("_reasoning", Entities.proceed),
    "REASONING_MESSAGE_END": ("_reasoning", Entities.end),
    "REASONING_ENCRYPTED_VALUE": (None, Judge._encrypted_value),
    "ACTIVITY_SNAPSHOT": (None, Judge._activity_snapshot),
    "ACTIVITY_DELTA": (None, Judge._activity_delta),
    "MESSAGES_SNAPSHOT": (None, Judge._messages_snapshot),
    "SUBAGENT_STARTED": (None, Judge._subagent_started),
    "SUBAGENT_FINISHED": (None, Judge._subagent_ended),
    "SUBAGENT_ERROR": (None, Judge._subagent_ended),
    **dict.fromkeys(("STATE_SNAPSHOT", "STATE_DELTA", "RAW", "CUSTOM"), (None, _nothing)),
}
"""By type, what judges an event: a method of the judge, or one of the entities in this attribute of it."""
