"""Steps, state, activities, custom events and the rest of what is recorded on agents without a span of its own."""

from __future__ import annotations

from typing import Any

from agui_otel.protocol import quirks
from agui_otel.protocol.entities import ActivityFold, Agent, Step, StepFold
from agui_otel.protocol.lineage import opener
from agui_otel.protocol.scope import Scope
from agui_otel.protocol.streaming import merge_metadata
from agui_otel.protocol.transitions import Custom, StateWritten, UnknownEvent

Event = dict[str, Any]

MAX_FOLDS = 1000
"""Distinct steps, and activities, kept for one agent; more are folded under the empty name."""


def step_started(scope: Scope, event: Event, at: int) -> Agent:
    owner = opener(scope, event.get("subagentRunId"), at)
    name = event["stepName"]
    if name not in owner.steps:
        step = Step(name, owner, at)
        owner.steps[name] = step
        owner.child_failed = False
        scope.opened(step, at)
    return owner


def step_finished(scope: Scope, event: Event, at: int) -> Agent:
    owner = scope.writer(event.get("subagentRunId"))
    step = owner.steps.pop(event["stepName"], None)
    if step is not None:
        _fold_step(scope, step, at)
    return owner


def _fold_step(scope: Scope, step: Step, at: int) -> None:
    """Count a closed step where it will be told: on its owner, or on the run once the owner has ended."""
    owner = step.owner
    teller: Agent = owner if owner.is_open else scope.run
    key = (None if teller is owner else owner.tag, step.name if len(teller.step_folds) < MAX_FOLDS else "")
    fold = teller.step_folds.get(key)
    if fold is None:
        fold = teller.step_folds[key] = StepFold()
    fold.count += 1
    fold.duration += max(0, at - step.opened_at)
    fold.unclosed = fold.unclosed or step.unclosed
    scope.close(step, at)


def close_steps(scope: Scope, agent: Agent, at: int) -> None:
    """End the steps that `agent` left open: with the agent, or, where it ended before, with the run."""
    for step in agent.steps.values():
        step.unclosed = True
        _fold_step(scope, step, at)
    agent.steps.clear()


def state_snapshot(scope: Scope, event: Event, at: int) -> Agent:
    writer = scope.writer(event.get("subagentRunId"))
    _written(scope, writer, "snapshot", scope.ledger.snapshot(event["snapshot"], writer, at), at)
    return writer


def state_delta(scope: Scope, event: Event, at: int) -> Agent:
    writer = scope.writer(event.get("subagentRunId"))
    _written(scope, writer, "delta", scope.ledger.delta(event["delta"], writer, at), at)
    return writer


def _written(scope: Scope, writer: Agent, kind: str, write: Any, at: int) -> None:
    scope.out.append(StateWritten(scope.run, writer, kind, write, at))
    if write.problem is not None:
        scope.note("state_patch", f"a state update could not be applied: {write.problem}", at)
    if writer is not scope.run:
        writer.state_updates += 1
        for path in write.paths:
            if len(writer.state_paths) < scope.options.max_paths:
                writer.state_paths[path] = None


def activity(scope: Scope, event: Event, at: int) -> Agent:
    owner = opener(scope, event.get("subagentRunId"), at)
    target = owner.nearest_open()
    ident = event["messageId"] if len(target.activities) < MAX_FOLDS else ""
    key = (None if target is owner else owner.tag, ident)
    fold = target.activities.get(key)
    if fold is None:
        fold = target.activities[key] = ActivityFold(event["activityType"])
    fold.updates += 1
    return owner


def raw(scope: Scope, event: Event, _at: int) -> Agent:
    owner = scope.writer(event.get("subagentRunId"))
    owner.nearest_open().raws += 1
    return owner


def encrypted_value(scope: Scope, event: Event, _at: int) -> Agent:
    tag, entity = event.get("subagentRunId"), event["entityId"]
    owner: Agent | None = None
    if tag is None:
        tool = scope.tools.get(entity) if event["subtype"] == "tool-call" else None
        owner = tool.owner if tool is not None else scope.message_owners.get(entity)
    owner = owner or scope.writer(tag)
    owner.nearest_open().encrypted += 1
    return owner


def custom(scope: Scope, event: Event, at: int) -> Agent:
    owner = scope.writer(event.get("subagentRunId"))
    if event["name"] == quirks.LEGACY_INTERRUPT:
        scope.custom_interrupts.append(owner.tag)
    scope.out.append(Custom(owner.nearest_open(), owner.tag, event["name"], event["value"], at))
    return owner


def unknown(scope: Scope, event: Event, at: int) -> Agent:
    tag = event.get("subagentRunId")
    owner = scope.writer(tag if isinstance(tag, str) else None)
    scope.out.append(UnknownEvent(owner.nearest_open(), owner.tag, event["type"], at))
    merge_metadata(None, event, owner)
    return owner
