"""Random streams of well-formed events, legal as far as they can be and then some.

An `Author` writes one stream. It keeps a rough model of what is open and who owns it, so that what it says
is legal most of the time and streams get deep; now and then it says something wild. Ids are few and shared
by all kinds of entities, empty ones among them, because that is where judges go wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.support.vocabulary import (
    ASIDES,
    CHUNKED,
    CLOSES_OWN,
    IDS,
    MESSAGE_FIELDS,
    ORNAMENTS,
    RUN_LEVEL,
    RUN_OUTCOMES,
    SPELLING,
    STEPS,
    SUBAGENT_ENDS,
    SUBAGENTS,
    SUBSTANCE,
    WELL_FORMED,
    Event,
)

_NEW: Any = object()


class Author:
    """Writes one stream into `events`; its model says what is open in the current run."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.events: list[Event] = []
        self.in_run = False
        self.types = tuple(WELL_FORMED)
        self.shunned: frozenset[str] = frozenset()
        self._forget()

    def _forget(self) -> None:
        self.open: dict[str, list[Any]] = {kind: [] for kind in SPELLING}
        self.owners: dict[str, dict[str | None, str | None]] = {
            kind: {} for kind in ("message", "tool", "reasoning", "activity")
        }
        self.steps: list[tuple[str | None, str]] = []
        self.active: list[str] = []
        self.ended: list[str] = []
        self.lanes: dict[str | None, tuple[str, str | None, Event]] = {}

    # Saying things, and what follows from them.

    def say(self, name: str, /, *, tag: str | None = None, **fields: Any) -> None:
        """Append an event, tagged where `tag` is not None, with an allowed oddity here and there."""
        event = {"type": name, **fields}
        if tag is not None:
            event["subagentRunId"] = tag
        if self.chance(0.1):
            event |= self.pick(ORNAMENTS)
        self.events.append(event)
        self._follow(name, event)

    def _follow(self, name: str, event: Event) -> None:
        tag = event.get("subagentRunId")
        if name in CLOSES_OWN or name in ("SUBAGENT_FINISHED", "SUBAGENT_ERROR"):
            self._close_lane(tag)
        elif name in ("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT"):
            for lane in list(self.lanes):
                self._close_lane(lane)
        if name == "RUN_STARTED":
            self._forget()
            self.in_run = True
            self._seed((event.get("input") or {}).get("messages", []))
        elif name in ("RUN_FINISHED", "RUN_ERROR"):
            self.in_run = False
        elif name == "MESSAGES_SNAPSHOT":
            self._seed(event["messages"])
        elif name == "TOOL_CALL_RESULT":
            self.owners["message"][event["messageId"]] = tag
        elif name == "ACTIVITY_SNAPSHOT":
            self.owners["activity"][event["messageId"]] = tag

    def _close_lane(self, lane: str | None) -> None:
        kind, ident, _ = self.lanes.pop(lane, ("message", _NEW, {}))
        if ident in self.open[kind]:
            self.open[kind].remove(ident)

    def _seed(self, messages: list[Event]) -> None:
        for message in messages:
            kind = message["role"] if message["role"] in ("reasoning", "activity") else "message"
            self.owners[kind][message["id"]] = message.get("subagentRunId")
            calls = message.get("toolCalls")
            for call in calls if isinstance(calls, list) else ():
                if isinstance(call, dict) and isinstance(call["id"], str):
                    self.owners["tool"][call["id"]] = message.get("subagentRunId")

    # Choosing.

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random.random() < probability

    def pick(self, values: Any) -> Any:
        """One of `values`."""
        return self.random.choice(list(values))

    def owner_of(self, kind: str, ident: str | None) -> str | None:
        """Who owns an entity, None where nobody is known."""
        return self.owners["reasoning" if kind == "span" else kind].get(ident)

    def tag_for(self, kind: str, ident: str | None) -> str | None:
        """A tag that agrees with the owner of an entity, or any for one that has none yet."""
        owners = self.owners["reasoning" if kind == "span" else kind]
        choices = (None, owners[ident]) if ident in owners else (None, None, *SUBAGENTS)
        return self.random.choice(choices)

    def fresh(self, kind: str) -> str | None:
        """An id under which nothing of this kind is open, None where all are."""
        free = [ident for ident in IDS if ident not in self.open[kind]]
        return self.pick(free) if free else None

    # Legal acts.

    def start_run(self) -> None:
        """Begin a run, perhaps with a history."""
        fields: Event = {"threadId": "thread", "runId": self.pick(IDS)}
        if self.chance(0.3):
            fields["input"] = {"threadId": "thread", "runId": "r", "messages": self.messages(), "tools": None}
        self.say("RUN_STARTED", **fields)

    def messages(self) -> list[Event]:
        """Up to four well-formed messages of any role."""
        return [self.message() for _ in range(self.random.randrange(4))]

    def message(self) -> Event:
        """One well-formed message of any role, with an owner or without."""
        role = self.pick(MESSAGE_FIELDS)
        message = {"id": self.pick(IDS), "role": role, **MESSAGE_FIELDS[role]}
        if self.chance(0.5):
            message["subagentRunId"] = self.pick(SUBAGENTS)
        if role == "assistant" and self.chance(0.5):
            call = {"id": self.pick(IDS), "type": "function", "function": {"name": "f", "arguments": "{}"}}
            message["toolCalls"] = self.pick(([call], [call], None))
        elif role == "user" and self.chance(0.1):
            message["toolCalls"] = self.pick(("no list", None, [None, "s", {"id": 1}, {"id": self.pick(IDS)}]))
        return message

    def open_one(self, kind: str, ident: str | None = None, tag: str | None = None) -> str | None:
        """Open an entity of `kind`; returns its id, None where no id is free."""
        if ident is None:
            ident = self.fresh(kind)
            if ident is None:
                return None
            tag = self.tag_for(kind, ident)
        prefix, _, field = SPELLING[kind]
        extra: Event = {
            "tool": {"toolCallName": self.pick(("f", ""))},
            "reasoning": {"role": "reasoning"},
        }.get(kind, {})
        owner = tag
        if kind == "tool" and self.owners["message"] and self.chance(0.3):
            parent = self.pick(self.owners["message"])
            theirs = self.owners["message"][parent]
            if tag in (None, theirs) and self.owners["tool"].get(ident, theirs) == theirs:
                extra["parentMessageId"] = parent
                owner = theirs
        self.say(f"{prefix}_START", tag=tag, **{field: ident}, **extra)
        self.open[kind].append(ident)
        self.owners["reasoning" if kind == "span" else kind].setdefault(ident, owner)
        return ident

    def go_on(self, kind: str) -> None:
        """Continue an open entity of `kind`."""
        prefix, content, field = SPELLING[kind]
        free = self.unchunked(kind)
        if content is not None and free:
            ident = self.pick(free)
            self.say(f"{prefix}_{content}", tag=self.tag_for(kind, ident), **{field: ident}, delta="x")

    def end_one(self, kind: str) -> None:
        """End an open entity of `kind`."""
        free = self.unchunked(kind)
        if free:
            ident = self.pick(free)
            prefix, _, field = SPELLING[kind]
            self.say(f"{prefix}_END", tag=self.tag_for(kind, ident), **{field: ident})
            self.open[kind].remove(ident)

    def unchunked(self, kind: str) -> list[Any]:
        """What is open of `kind` and was not opened by a chunk."""
        chunked = {ident for held, ident, _ in self.lanes.values() if held == kind}
        return [ident for ident in self.open[kind] if ident not in chunked]

    def chunk_open(self, kind: str, ident: Any = _NEW, tag: str | None = None) -> None:
        """Open an entity of `kind` with a chunk; a null id is one, too."""
        if ident is _NEW:
            ident = self.pick([free for free in (*IDS, None) if free not in self.open[kind]] or [None])
            tag = self.tag_for(kind, ident)
            if ident in self.open[kind]:
                return
        prefix, _, field = SPELLING[kind]
        fixed: Event = {}
        if kind == "message":
            fixed = self.pick(({}, {"role": "user"}, {"role": "assistant", "name": "n"}))
        elif kind == "tool":
            fixed = {"toolCallName": "f"}
            if self.owners["message"].get("a", tag) == tag == self.owners["tool"].get(ident, tag):
                fixed |= self.pick(({}, {"parentMessageId": "a"}))
        self._close_lane(tag)
        self.say(f"{prefix}_CHUNK", tag=tag, **{field: ident}, **fixed, **self.pick(SUBSTANCE))
        self.lanes[tag] = (kind, ident, fixed)
        self.open[kind].append(ident)
        self.owners[kind].setdefault(ident, tag)

    def undercut(self) -> None:
        """End a chunked stream behind its lane's back, so that the lane goes on with what is closed."""
        for lane, (kind, ident, _) in self.lanes.items():
            if lane is not None and ident is not None and ident in self.open[kind] and None not in self.lanes:
                prefix, _, field = SPELLING[kind]
                self.say(f"{prefix}_END", **{field: ident})
                self.open[kind].remove(ident)
                return

    def chunk_on(self) -> None:
        """Continue a chunked stream in one of the forms that leave out its id, its tag or both."""
        if not self.lanes:
            return
        lane = self.pick(self.lanes)
        kind, ident, fixed = self.lanes[lane]
        prefix, _, field = SPELLING[kind]
        rivals = [other for other, held in self.lanes.items() if held[0] == kind]
        fields: Event = {field: ident} if self.chance(0.5) else {}
        tag = lane if self.chance(0.5) else None
        if not fields and tag is None and lane is not None and len(rivals) > 1:
            tag = lane
        fields |= {name: value for name, value in fixed.items() if self.chance(0.3)}
        self.say(f"{prefix}_CHUNK", tag=tag, **fields, **self.pick(SUBSTANCE))

    def step(self) -> None:
        """Start or finish a step."""
        if self.steps and self.chance(0.5):
            owner, name = self.steps.pop(self.random.randrange(len(self.steps)))
            self.say("STEP_FINISHED", tag=owner, stepName=name)
            return
        owner, name = self.pick((None, *SUBAGENTS)), self.pick(STEPS)
        if (owner, name) not in self.steps:
            self.say("STEP_STARTED", tag=owner, stepName=name)
            self.steps.append((owner, name))

    def subagent(self) -> None:
        """Start a subagent, or end an active one."""
        free = [ident for ident in SUBAGENTS if ident not in self.active and ident not in self.ended]
        if free and self.chance(0.6):
            ident = self.pick(free)
            fields = self.pick(({}, {"description": "d", "parentToolCallId": "a"}, {"parentMessageId": "b"}))
            if (self.active or self.ended) and self.chance(0.5):
                fields = fields | {"parentSubagentRunId": self.pick(self.active + self.ended)}
            self.say("SUBAGENT_STARTED", subagentRunId=ident, name="worker", **fields)
            self.active.append(ident)
        elif self.active:
            self.end_subagent(self.pick(self.active))

    def end_subagent(self, ident: str) -> None:
        """End an active subagent, well or badly."""
        name, fields = self.pick(SUBAGENT_ENDS)
        self.say(name, subagentRunId=ident, **fields)
        self.active.remove(ident)
        self.ended.append(ident)

    def aside(self) -> None:
        """Say something that opens and closes nothing of its own."""
        name = self.pick(ASIDES)
        tag = self.pick((None, *SUBAGENTS))
        if name == "MESSAGES_SNAPSHOT":
            self.say(name, messages=self.messages())
        elif name == "TOOL_CALL_RESULT":
            free = [ident for ident in IDS if ident not in self.open["message"]] or ["z"]
            self.say(name, tag=tag, messageId=self.pick(free), toolCallId=self.pick(IDS), content="42")
        elif name == "ACTIVITY_SNAPSHOT":
            self.say(name, messageId=self.pick(IDS), activityType="t", content={}, tag=tag)
        elif name == "ACTIVITY_DELTA":
            ident = self.pick(IDS)
            tag = self.tag_for("activity", ident)
            self.say(name, messageId=ident, activityType="t", patch=[], tag=tag)
        elif name == "REASONING_ENCRYPTED_VALUE":
            ident, subtype = self.pick(IDS), self.pick(("tool-call", "message"))
            kind = "tool" if subtype == "tool-call" else "message"
            if kind == "message" and ident not in self.owners["message"]:
                kind = "reasoning"
            self.say(name, tag=self.tag_for(kind, ident), entityId=ident, subtype=subtype, encryptedValue="x")
        else:
            self.say(name, tag=tag, **ASIDES[name])

    def close(self, *kinds: str) -> None:
        """End everything that is open of these kinds; "step" and "subagent" are kinds too."""
        if "step" in kinds:
            for owner, name in self.steps:
                self.say("STEP_FINISHED", tag=owner, stepName=name)
            self.steps.clear()
        for kind in SPELLING:
            if kind in kinds:
                for lane in [lane for lane, held in self.lanes.items() if held[0] == kind]:
                    self.say("CUSTOM", tag=lane, name="closes the lane", value=1)
                while self.open[kind]:
                    self.end_one(kind)
        if "subagent" in kinds:
            for ident in list(self.active):
                self.end_subagent(ident)

    def finish_run(self) -> None:
        """End everything, then the run."""
        self.close("step", *SPELLING, "subagent")
        self.say("RUN_FINISHED", threadId="thread", runId="r", **self.pick(RUN_OUTCOMES))

    def fail_run(self) -> None:
        """End the run with whatever is open."""
        self.say("RUN_ERROR", message="broken", **self.pick(({}, {"code": None}, {"code": "c"})))

    def act(self) -> None:
        """Do one thing that is legal as far as the model knows; outside a run, begin one."""
        if not self.in_run:
            self.start_run()
            return
        acts: tuple[tuple[float, Callable[[], object]], ...] = (
            (3, lambda: self.open_one(self.pick(SPELLING))),
            (4, lambda: self.go_on(self.pick(CHUNKED))),
            (3, lambda: self.end_one(self.pick(SPELLING))),
            (3, lambda: self.chunk_open(self.pick(CHUNKED))),
            (4, self.chunk_on),
            (3, self.step),
            (3, self.subagent),
            (4, self.aside),
            (0.2, self.undercut),
            (0.6, self.finish_run),
            (0.3, self.fail_run),
        )
        self.random.choices([act for _, act in acts], [weight for weight, _ in acts])[0]()

    def narrow(self) -> None:
        """Keep what is wild to a few types, ids and subagents, so that it meets itself again."""
        self.types = tuple(self.random.sample(self.types, self.random.randrange(3, 9)))
        self.shunned = frozenset((*self.random.sample(IDS, 4), *self.random.sample(SUBAGENTS, 2)))

    def wild(self) -> None:
        """Say anything well-formed, at any time."""
        name = self.pick(self.types)
        required, optional = WELL_FORMED[name]
        fields = {field: self.value(values) for field, values in required.items()}
        fields |= {field: self.value(values) for field, values in optional.items() if self.chance(0.3)}
        if name not in RUN_LEVEL and "subagentRunId" not in required and self.chance(0.4):
            fields["subagentRunId"] = self.value((*SUBAGENTS, *SUBAGENTS, None))
        if name == "MESSAGES_SNAPSHOT":
            fields["messages"] = self.messages()
        self.say(name, **fields)

    def value(self, values: Any) -> Any:
        """One of `values`, of those that are not shunned if there are any."""
        return self.pick(
            [value for value in values if not isinstance(value, str) or value not in self.shunned] or values
        )
