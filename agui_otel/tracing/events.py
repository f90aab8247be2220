"""Transitions to span events: who wrote state, what steps there were, what was wrong; caps keep what matters.

Each kind of event has a cap a span, and all together stay under what the SDK keeps, which evicts the oldest. What is
over a cap is folded (state) or counted (the rest), never lost in silence (trace model: state, other span events).
"""

from __future__ import annotations

from collections.abc import Iterable

from agui_otel.config import Settings
from agui_otel.protocol import transitions as t
from agui_otel.protocol.entities import Agent, Run
from agui_otel.protocol.state import StateWrite
from agui_otel.tracing import semconv as s
from agui_otel.tracing.content import Content, short
from agui_otel.tracing.handles import AgentHandle, Attributes, StateFold
from agui_otel.tracing.metrics import Instruments

MAX_OVERWRITES = 16
MAX_SNAPSHOTS = 8
MAX_FOLDS = 16
"""Producers whose state updates beyond the cap are told apart."""


class SpanEvents:
    """Writes span events on agents' spans."""

    def __init__(self, settings: Settings, content: Content, metrics: Instruments) -> None:
        self._settings = settings
        self._content = content
        self._metrics = metrics

    def record_with(self, metrics: Instruments) -> None:
        """Use these instruments from now on."""
        self._metrics = metrics

    def state(self, written: t.StateWritten) -> None:
        """One state update, on the run, with its producer; and the overwrites it made."""
        run, writer, kind, write, at = written
        attributes: Attributes = {s.STATE_SEQ: write.seq, s.STATE_OP_COUNT: write.op_count}
        self._who(writer, attributes)
        self.put_paths(write.paths, write.paths_omitted, attributes)
        if not run.handle.add("state", self._settings.max_state_events, s.EVENT_STATE[kind], attributes, at):
            self._fold(run, writer, write)
        run.handle.omit("overwrites", write.overwrites_omitted)
        for overwrite in write.overwrites:
            told: Attributes = {
                s.STATE_SEQ: write.seq,
                s.STATE_PATH: self._content.state_path(overwrite.path),
            }
            self._who(writer, told)
            previous = overwrite.previous
            if isinstance(previous, Agent) and previous.tag is not None:
                told[s.STATE_PREVIOUS_RUN_ID] = short(previous.tag)
                if previous.name is not None:
                    told[s.STATE_PREVIOUS_NAME] = short(previous.name)
            run.handle.add("overwrites", MAX_OVERWRITES, s.EVENT_STATE_OVERWRITE, told, at)

    def put_paths(self, paths: Iterable[str], omitted: int, into: Attributes) -> None:
        """Put the paths as they may be seen, each once, and how many there are besides."""
        into[s.STATE_PATHS] = list(dict.fromkeys(map(self._content.state_path, paths)))
        if omitted:
            into[s.STATE_PATHS_OMITTED] = omitted

    def _who(self, writer: Agent, attributes: Attributes) -> None:
        if writer.tag is not None:
            attributes[s.SUBAGENT_RUN_ID] = short(writer.tag)
            if writer.name is not None:
                attributes[s.SUBAGENT_NAME] = short(writer.name)

    def _fold(self, run: Run, writer: Agent, write: StateWrite) -> None:
        folds: dict[str | None, StateFold] = run.handle.folds
        tag = writer.tag
        if tag not in folds:
            if len(folds) >= MAX_FOLDS:
                return
            folds[tag] = StateFold(writer.name, write.seq, self._settings.max_paths)
        fold = folds[tag]
        fold.count += 1
        fold.last_seq = write.seq
        fold.paths.add(write.paths, write.paths_omitted)
        run.handle.omit("state", -1)

    def folded_state(self, run: Agent) -> None:
        """At the run's end: the updates beyond the cap, one event a producer."""
        assert run.ended_at is not None
        handle: AgentHandle = run.handle
        for tag, fold in handle.folds.items():
            attributes: Attributes = {
                s.STATE_COUNT: fold.count,
                s.STATE_FIRST_SEQ: fold.first_seq,
                s.STATE_LAST_SEQ: fold.last_seq,
            }
            self.put_paths(fold.paths.kept, fold.paths.omitted, attributes)
            if tag is not None:
                attributes[s.SUBAGENT_RUN_ID] = short(tag)
                if fold.name is not None:
                    attributes[s.SUBAGENT_NAME] = short(fold.name)
            handle.add("folded", None, s.EVENT_STATE_FOLDED, attributes, run.ended_at)

    def folded_steps(self, agent: Agent) -> None:
        """At an agent's end: its steps, one event a name."""
        if self._settings.steps != "events":
            return
        assert agent.ended_at is not None
        for (tag, name), fold in agent.step_folds.items():
            attributes: Attributes = {
                s.STEP_NAME: short(name),
                s.STEP_COUNT: fold.count,
                s.STEP_DURATION: fold.duration / 1e9,
            }
            if tag is not None:
                attributes[s.SUBAGENT_RUN_ID] = short(tag)
            if fold.unclosed:
                attributes[s.UNCLOSED] = True
            agent.handle.add("steps", self._settings.max_step_events, s.EVENT_STEP, attributes, agent.ended_at)

    def activities(self, agent: Agent) -> None:
        """At an agent's end: its activities, one event each."""
        assert agent.ended_at is not None
        for (tag, ident), fold in agent.activities.items():
            attributes: Attributes = {s.ACTIVITY_TYPE: short(fold.type), s.MESSAGE_ID: short(ident)}
            attributes[s.ACTIVITY_UPDATES] = fold.updates
            if tag is not None:
                attributes[s.SUBAGENT_RUN_ID] = short(tag)
            cap = self._settings.max_activity_events
            agent.handle.add("activities", cap, s.EVENT_ACTIVITY, attributes, agent.ended_at)

    def custom(self, custom: t.Custom) -> None:
        """A CUSTOM event, on its owner."""
        attributes: Attributes = {s.CUSTOM_NAME: short(custom.name)}
        self._content.output(s.CUSTOM_VALUE, custom.value, attributes)
        if custom.owner is not None and custom.owner != custom.target.tag:
            attributes[s.SUBAGENT_RUN_ID] = short(custom.owner)
        cap = self._settings.max_custom_events
        custom.target.handle.add("custom", cap, s.EVENT_CUSTOM, attributes, custom.at)

    def unknown(self, unknown: t.UnknownEvent) -> None:
        """An event of an unknown type, on its owner."""
        attributes: Attributes = {s.EVENT_TYPE: short(unknown.type)}
        if unknown.owner is not None and unknown.owner != unknown.target.tag:
            attributes[s.SUBAGENT_RUN_ID] = short(unknown.owner)
        cap = self._settings.max_custom_events
        unknown.target.handle.add("unknown", cap, s.EVENT_UNKNOWN, attributes, unknown.at)

    def messages(self, restated: t.MessagesRestated) -> None:
        """A MESSAGES_SNAPSHOT, on the run: how many messages, and how many of each subagent."""
        attributes: Attributes = {s.MESSAGES_COUNT: restated.total}
        owners = {tag: count for tag, count in restated.by_owner.items() if tag is not None}
        if owners:
            shown = list(owners.items())[: self._settings.max_paths]
            restated.run.handle.omit("owners", len(owners) - len(shown))
            attributes[s.MESSAGES_OWNERS] = [short(tag) for tag, _ in shown]
            attributes[s.MESSAGES_OWNER_COUNTS] = [count for _, count in shown]
        restated.run.handle.add("snapshots", MAX_SNAPSHOTS, s.EVENT_MESSAGES_SNAPSHOT, attributes, restated.at)

    def remark(self, remark: t.Remark) -> None:
        """A violation or a note, on the run."""
        attributes: Attributes = {
            s.RULE: remark.rule,
            s.EVENT_INDEX: remark.event_index,
            s.EVENT_TYPE: short(remark.type),
        }
        self._content.output(s.MESSAGE, remark.message, attributes)
        name = s.EVENT_NOTE
        if remark.violation:
            name = s.EVENT_VIOLATION
            self._metrics.violation(remark.rule, context=remark.run.handle.context)
        remark.run.handle.add("notes", self._settings.max_note_events, name, attributes, remark.at)

    def left_out(self, left_out: t.LeftOut) -> None:
        """Of what came before the first run, so much was not kept."""
        handle: AgentHandle = left_out.run.handle
        handle.omit(left_out.kind, left_out.total)
        if left_out.rule is not None:
            self._metrics.violation(left_out.rule, left_out.total, context=handle.context)
