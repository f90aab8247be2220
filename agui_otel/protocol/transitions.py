"""What the tracker says has happened, one value each, in order.

Entities are live objects: at ``Opened`` their identity is known, at ``Closed`` everything is. All times are integer
nanoseconds since the epoch. Fields marked *content* hold what the user or a model said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from agui_otel.protocol.entities import Agent, Entity, Run, Step, Subagent
    from agui_otel.protocol.scope import Scope
    from agui_otel.protocol.state import StateWrite
    from agui_otel.protocol.thread import OpenInterrupt, PendingToolCall, SpanRef
    from agui_otel.protocol.usage import Usage


class Opened(NamedTuple):
    """A run, subagent, tool call, message, reasoning or step began."""

    entity: Entity | Step
    at: int


class Announced(NamedTuple):
    """The identity of an open entity became known, or better known, after it was opened."""

    entity: Entity
    at: int


class Linked(NamedTuple):
    """An open entity has to do with another one that is not its parent."""

    entity: Entity
    target: Entity | SpanRef


class Closed(NamedTuple):
    """An entity ended at `at`; its outcome is decided."""

    entity: Entity | Step
    at: int


class RunEnded(NamedTuple):
    """The run's terminal event came. Its span stays open until the stream shows that nothing follows (trace model).

    ``scope`` has what the run leaves to the memory of its thread.
    """

    run: Run
    at: int
    scope: Scope


class SpawnedBy(NamedTuple):
    """The run names its parent run; ``span`` is that run's where thread memory knows it."""

    run: Run
    parent_run_id: str
    span: SpanRef | None


class LeftOut(NamedTuple):
    """Of what came before the first run, so much was not kept. ``rule``: which rule it broke, if any."""

    run: Run
    kind: str  # "notes" | "unknown"
    total: int
    rule: str | None


class StateWritten(NamedTuple):
    """STATE_SNAPSHOT or STATE_DELTA: the one document of the run was written by `writer`."""

    run: Run
    writer: Agent
    kind: str  # "snapshot" | "delta"
    write: StateWrite
    at: int


class Suspended(NamedTuple):
    """A subagent was suspended; an ancestor that lists no interrupts waits for a descendant."""

    subagent: Subagent
    at: int


class InterruptRaised(NamedTuple):
    """The run waits for a human: one each."""

    run: Run
    id: str
    reason: str
    message: str | None  # content
    tool_call_id: str | None
    expires_at: str | None
    owner: str | None
    known: bool  # restates an interrupt that is already waiting
    at: int


class InterruptAnswered(NamedTuple):
    """A resume entry (or the restart of a subagent whose input is unknown) answers an interrupt."""

    run: Run
    id: str
    record: OpenInterrupt | None  # None: nothing is remembered of it
    status: str  # "resolved" | "cancelled"
    entry: dict[str, Any]  # content
    at: int
    missed: bool = False  # thread memory should have known it


class Resumes(NamedTuple):
    """The run answers interrupts of earlier runs: each run that first opened one, once; ``run.resumes`` has all."""

    run: Run
    new: tuple[SpanRef, ...]


class Met(NamedTuple):
    """A run with these ids was seen before: this one goes on with it, is it once more, or is another one."""

    run: Run
    how: str  # "continued" | "replayed" | "repeated"
    earlier: SpanRef
    at: int


class ToolCallAnswered(NamedTuple):
    """A tool message in the input, or a result, answers a call that an earlier run left pending."""

    run: Run
    record: PendingToolCall
    at: int


class Custom(NamedTuple):
    """A CUSTOM event; `target` is its owner, or the nearest open ancestor of an ended one."""

    target: Agent
    owner: str | None
    name: str
    value: Any  # content
    at: int


class UnknownEvent(NamedTuple):
    """An event of a type that this version does not know."""

    target: Agent
    owner: str | None
    type: str
    at: int


class MessagesRestated(NamedTuple):
    """A MESSAGES_SNAPSHOT: how many messages, and how many of each owner (None: the run's own agent)."""

    run: Run
    total: int
    by_owner: dict[str | None, int]
    at: int


class Remark(NamedTuple):
    """A violation of a rule, or a note: advice that the reference client does not give."""

    run: Run
    violation: bool
    rule: str
    message: str  # content: it may quote ids and values of the stream
    event_index: int  # 0-based, of the event in its stream
    type: str
    at: int


class UsageReported(NamedTuple):
    """Token usage of one (provider, model) under an agent, at the end of the run."""

    agent: Agent
    usage: Usage
    at: int


Transition = (
    Opened | Announced | Linked | Closed | RunEnded | SpawnedBy | StateWritten | Suspended | InterruptRaised
    | InterruptAnswered | Resumes | ToolCallAnswered | Custom | UnknownEvent | MessagesRestated | Remark | LeftOut
    | UsageReported | Met
)  # fmt: skip
