"""Steps, state, activities, custom events and the rest of what is recorded on agents without a span of its own.

Each handler takes the run's scope, a well-formed event and its time, and returns the agent whose event it was.
"""

from __future__ import annotations

from typing import Any

from agui_otel.protocol import quirks
from agui_otel.protocol.entities import ActivityFold, Agent, PathSum, Step, StepFold
from agui_otel.protocol.lineage import opener
from agui_otel.protocol.scope import Scope
from agui_otel.protocol.state import StateWrite
from agui_otel.protocol.transitions import Custom, StateWritten, UnknownEvent
from agui_otel.protocol.usage import add_to, langchain_usage

Event = dict[str, Any]

MAX_RAW_USAGE = 100_000
"""Model calls of one run whose tokens are taken from RAW events: their ids are kept, each counts once."""

MAX_FOLDS = 1000
"""Distinct steps, and activities, kept for one agent; more are folded under the empty name."""


def step_started(scope: Scope, event: Event, at: int) -> Agent:
    """STEP_STARTED: open a step of its owner; one of that name that is open goes on."""
    owner = opener(scope, event.get("subagentRunId"), at)
    name = event["stepName"]
    if name not in owner.steps:
        step = Step(name, owner, at)
        owner.steps[name] = step
        owner.child_failed = False
        scope.open_steps[name] = scope.open_steps.get(name, 0) + 1
        if scope.options.steps:
            scope.opened(step, at)
    return owner


def step_finished(scope: Scope, event: Event, at: int) -> Agent:
    """STEP_FINISHED: end the owner's step of that name or, where it has none, another's (rule step_of_another)."""
    owner, name = scope.writer(event.get("subagentRunId")), event["stepName"]
    holder: Agent | None = owner
    if name not in owner.steps:
        others = (scope.run, *scope.agents) if scope.open_steps.get(name) else ()
        holder = next((agent for agent in others if name in agent.steps), None)
    if holder is not None:
        _fold_step(scope, holder.steps.pop(name), at)
    return owner


def _fold_step(scope: Scope, step: Step, at: int) -> None:
    """Count a closed step where it will be told: on its owner, or on the run once the owner has ended."""
    owner = step.owner
    teller: Agent = owner if owner.ended_at is None else scope.run
    key = None if teller is owner else owner.tag, step.name
    folds = teller.step_folds
    if key not in folds and len(folds) >= MAX_FOLDS:
        key = None, ""
    fold = folds.get(key)
    if fold is None:
        fold = folds[key] = StepFold()
    scope.open_steps[step.name] -= 1
    fold.count += 1
    if at > step.opened_at:
        fold.duration += at - step.opened_at
    fold.unclosed = fold.unclosed or step.unclosed
    if scope.options.steps:
        scope.close(step, at)


def close_steps(scope: Scope, agent: Agent, at: int) -> None:
    """End the steps that `agent` left open: with the agent, or, where it ended before, with the run."""
    for step in agent.steps.values():
        step.unclosed = True
        _fold_step(scope, step, at)
    agent.steps.clear()


def state_snapshot(scope: Scope, event: Event, at: int) -> Agent:
    """STATE_SNAPSHOT: the run's one document is replaced, whoever sends it."""
    writer = scope.writer(event.get("subagentRunId"))
    _written(scope, writer, "snapshot", scope.ledger.snapshot(event["snapshot"], writer, at), at)
    return writer


def state_delta(scope: Scope, event: Event, at: int) -> Agent:
    """STATE_DELTA: the run's one document is patched."""
    writer = scope.writer(event.get("subagentRunId"))
    _written(scope, writer, "delta", scope.ledger.delta(event["delta"], writer, at), at)
    return writer


def _written(scope: Scope, writer: Agent, kind: str, write: StateWrite, at: int) -> None:
    scope.out.append(StateWritten(scope.run, writer, kind, write, at))
    if write.problem is not None:
        scope.note("state_patch", f"a state update could not be applied: {write.problem}", at)
    if writer is not scope.run and writer.is_open:
        writer.state_updates += 1
        if writer.state_paths is None:
            writer.state_paths = PathSum(scope.options.max_paths)
        writer.state_paths.add(write.paths, write.paths_omitted)


def activity(scope: Scope, event: Event, at: int) -> Agent:
    """ACTIVITY_SNAPSHOT, ACTIVITY_DELTA: an update of an activity, which is its owner's."""
    ident, tag, owners = event["messageId"], event.get("subagentRunId"), scope.activity_owners
    if event["type"] == "ACTIVITY_SNAPSHOT" and (event.get("replace") is not False or ident not in owners):
        owners[ident] = tag
    owner = opener(scope, owners.get(ident, tag), at)
    target = owner.nearest_open()
    key = None if target is owner else owner.tag, ident
    folds = target.activities
    if key not in folds and len(folds) >= MAX_FOLDS:
        key = None, ""
    fold = folds.get(key)
    if fold is None:
        fold = folds[key] = ActivityFold(event["activityType"])
    fold.updates += 1
    return owner


def raw(scope: Scope, event: Event, _at: int) -> Agent:
    """RAW: counted, and never looked at, but for the token counts of LangChain's model calls where they are wanted."""
    owner = scope.writer(event.get("subagentRunId"))
    owner.nearest_open().raws += 1
    if scope.options.raw_usage:
        found = langchain_usage(event["event"])
        if found is not None and found[0] not in scope.raw_usage_of and len(scope.raw_usage_of) < MAX_RAW_USAGE:
            scope.raw_usage_of.add(found[0])
            add_to(scope.owner_of_usage(owner).usage, (found[1],))
    return owner


def encrypted_value(scope: Scope, event: Event, at: int) -> Agent:
    """REASONING_ENCRYPTED_VALUE: counted for the owner of what it belongs to; the value is never looked at."""
    ident, tag = event["entityId"], event.get("subagentRunId")
    if event["subtype"] == "tool-call":
        tag = scope.tool_owners.get(ident, tag)
    else:
        tag = scope.message_owners.get(ident, scope.reasoning_owners.get(ident, tag))
    owner = opener(scope, tag, at)
    owner.nearest_open().encrypted += 1
    return owner


def custom(scope: Scope, event: Event, at: int) -> Agent:
    """CUSTOM: a span event; by the name on_interrupt it is an interrupt before AG-UI 1.0 (quirk legacy_interrupt)."""
    owner = scope.writer(event.get("subagentRunId"))
    if event["name"] == quirks.LEGACY_INTERRUPT:
        scope.custom_interrupts.append(owner.tag)
    scope.out.append(Custom(owner.nearest_open(), owner.tag, event["name"], event["value"], at))
    return owner


def unknown(scope: Scope, event: Event, at: int) -> Agent:
    """An event of a type outside the 31."""
    tag = event.get("subagentRunId")
    owner = scope.writer(tag if isinstance(tag, str) else None)
    scope.out.append(UnknownEvent(owner.nearest_open(), owner.tag, event["type"], at))
    return owner
