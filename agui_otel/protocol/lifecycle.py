"""How a run begins, ends, and takes with it what is still open (trace model: spans, outcomes)."""

from __future__ import annotations

from typing import Any

from agui_otel.protocol import again
from agui_otel.protocol.entities import Agent, Failure, Outcome, Subagent
from agui_otel.protocol.interrupts import raise_interrupts
from agui_otel.protocol.marks import close_steps
from agui_otel.protocol.scope import Scope
from agui_otel.protocol.streaming import close_streamed
from agui_otel.protocol.subagents import close_subagent
from agui_otel.protocol.toolcalls import close_without_result, cuts_off, take_owners
from agui_otel.protocol.transitions import RunEnded, SpawnedBy, UsageReported
from agui_otel.protocol.usage import add_to, read_usage, summed

Event = dict[str, Any]


def announce_run(scope: Scope, event: Event, at: int) -> None:
    """RUN_STARTED for a run that is open: what it says of the run becomes known."""
    run = scope.run
    run.started = True
    run.timestamp = event.get("timestamp")
    run_id, thread_id = event["runId"], event["threadId"]
    if run.id and run_id != run.id:
        run.input_run_id = run.id
        scope.note("input_run_id", f"the input's runId {run.id!r} is not RUN_STARTED's {run_id!r}", at)
    run.id = run_id
    if run.thread_id is None:
        run.thread_id = thread_id
    elif thread_id != run.thread_id:
        scope.note("thread_id_mismatch", f"the input's threadId is not RUN_STARTED's {thread_id!r}", at)
    run.protocol_version = event.get("protocolVersion") or run.protocol_version
    name_parent_run(scope, event.get("parentRunId"))
    echoed = event.get("input")
    if echoed is not None:
        take_owners(scope, echoed["messages"], restated=False)


def name_parent_run(scope: Scope, ident: str | None) -> None:
    """The run, or its input, names the run that it was spawned by."""
    run = scope.run
    if ident is None or ident == run.parent_run_id:
        return
    run.parent_run_id = ident
    if not scope.awaited:
        tell_parent_run(scope)


def tell_parent_run(scope: Scope) -> None:
    """Say by which run this one was spawned, where that was named, and which span it has, where that is remembered."""
    ident = scope.run.parent_run_id
    if ident is not None:
        interrupts = scope.record.interrupts.values() if scope.record is not None else ()
        span = next((interrupt.run for interrupt in interrupts if interrupt.run.run_id == ident), None)
        scope.out.append(SpawnedBy(scope.run, ident, span))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def run_finished(scope: Scope, event: Event, at: int) -> Agent:
    """RUN_FINISHED. The run is over, but its span waits: a RUN_ERROR may still follow."""
    run = scope.run
    if run.outcome is not None:
        return run
    run_id = event.get("runId")
    if isinstance(run_id, str) and run.id and run_id != run.id:
        scope.note("run_id_mismatch", f"RUN_FINISHED's runId {run_id!r} is not RUN_STARTED's {run.id!r}", at)
    run.result = event.get("result")
    outcome = event.get("outcome")
    outcome = outcome if isinstance(outcome, dict) else None
    if raise_interrupts(scope, outcome, at):
        run.outcome = Outcome.INTERRUPT
    elif outcome is not None and outcome.get("type") == "cancelled":
        run.outcome = Outcome.CANCELLED
    else:
        run.outcome = Outcome.SUCCESS
    _ended(scope, event, at)
    return run


def run_error(scope: Scope, event: Event, at: int) -> Agent:
    """RUN_ERROR, also after RUN_FINISHED: the run failed, at the time its first terminal event came."""
    run = scope.run
    if run.outcome is Outcome.ERROR:
        return run
    code, message = event.get("code"), event.get("message")
    fail_run(scope, Failure(code if isinstance(code, str) and code else "agui.run_error", _text(message) or ""))
    _ended(scope, event, at)
    return run


def fail_run(scope: Scope, failure: Failure) -> None:
    """The run failed; its cause is a subagent's failure where nothing came after that."""
    run = scope.run
    run.outcome, run.failure = Outcome.ERROR, failure
    run.cause = "refused" if failure.refused else "subagent" if run.child_failed else "own"


def _ended(scope: Scope, event: Event, at: int) -> None:
    run = scope.run
    for usage in summed(read_usage(event.get("usage"))).values():
        scope.reported_usage[usage.key] = usage
    if scope.terminal_at is None:
        scope.terminal_at = at
    again.settle(scope, at)
    scope.out.append(RunEnded(run, scope.terminal_at, scope))


def end_stream(scope: Scope, outcome: Outcome, failure: Failure | None, at: int) -> None:
    """The stream ended in `outcome`; a run that had its terminal event keeps it, unless the source failed after it."""
    run = scope.run
    if run.outcome is None or (outcome is Outcome.ERROR and run.outcome is not Outcome.ERROR):
        if outcome is Outcome.ERROR and failure is not None:
            fail_run(scope, failure)
        else:
            run.outcome = outcome
            run.cut_off = True
        scope.terminal_at = scope.terminal_at or at
        again.settle(scope, at)
        scope.out.append(RunEnded(run, scope.terminal_at, scope))
    close_run(scope)


def close_run(scope: Scope) -> None:
    """Close everything that is open: what agents say, the subagents, then tool calls, which ask how those ended."""
    run, at = scope.run, scope.terminal_at
    assert run.outcome is not None
    assert at is not None
    for entity in (
        *scope.messages.values(),
        *dict.fromkeys((*scope.reasoning.values(), *scope.reasoning_spans.values())),
    ):
        entity.unclosed = True
        close_streamed(scope, entity, entity.last_event_at)
    for subagent in reversed([subagent for subagent in scope.agents if subagent.is_open]):
        subagent.outcome = _without_end(subagent, run.outcome)
        end = subagent.last_at if subagent.outcome is Outcome.UNREPORTED else at
        close_steps(scope, subagent, end)
        close_subagent(scope, subagent, end)
    for tool in scope.tools.values():
        if tool.is_open:
            close_without_result(scope, tool, run.outcome, at)
    for agent in (*scope.agents, run):
        close_steps(scope, agent, at)
    _report_usage(scope, at)
    run.total_events = run.events + sum(subagent.events for subagent in scope.agents)
    scope.close(run, at)


def _without_end(subagent: Subagent, outcome: Outcome) -> Outcome:
    if not subagent.announced:
        return Outcome.UNREPORTED
    return Outcome.ABORTED if cuts_off(outcome) else Outcome.UNFINISHED


def _report_usage(scope: Scope, at: int) -> None:
    """Usage by owner where the stream told it, then what is left of the run's own entries, which include all."""
    agents: list[Agent] = [scope.run, *scope.agents]
    told = summed(usage for agent in agents for usage in agent.usage.values())
    for agent in agents:
        for usage in agent.usage.values():
            scope.out.append(UsageReported(agent, usage, at))
    for usage in scope.reported_usage.values():
        left = usage.minus(told.get(usage.key))
        if left is not None:
            scope.out.append(UsageReported(scope.run, left, at))


def add_usage(scope: Scope, owner: Agent, event: Event) -> None:
    """Usage in an event's metadata counts under the event's owner; under the run where no span stands for that."""
    metadata = event.get("metadata")
    if isinstance(metadata, dict) and "usage" in metadata:
        add_to(scope.owner_of_usage(owner).usage, read_usage(metadata["usage"]))
