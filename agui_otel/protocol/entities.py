"""What a run is made of: the things that become spans, and what is known of each.

The tracker creates and changes them; whoever consumes its transitions may keep one value of its own on each
(``handle``), for instance the span it made. Times are integer nanoseconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from agui_otel.protocol.inputs import RunInput
    from agui_otel.protocol.thread import SpanRef
    from agui_otel.protocol.usage import Usage

MAX_TOLD_APART = 4096
"""Paths beyond the limit that a `PathSum` counts once each."""


class Outcome(str, Enum):
    """How a run, a subagent or a tool call ended (trace model: outcomes)."""

    SUCCESS = "success"
    SUSPENDED = "suspended"
    INTERRUPT = "interrupt"
    CANCELLED = "cancelled"
    DISCONNECTED = "disconnected"
    UNFINISHED = "unfinished"
    ERROR = "error"
    ABORTED = "aborted"
    PENDING = "pending"
    UNREPORTED = "unreported"


class Failure(NamedTuple):
    """Why something failed: a low-cardinality type, the message as it was sent, and where it was raised, if it was.

    ``refused``: a server turned the run's request down.
    """

    type: str
    message: str
    stacktrace: str | None = None
    refused: bool = False


class Answer(NamedTuple):
    """What an agent said last: its text up to the limit, its real length in characters, and when it was said."""

    text: str
    chars: int
    at: int


class PathSum:
    """Distinct JSON Pointers: the first `limit` of them in ``kept``, and in ``omitted`` how many more there were."""

    __slots__ = ("_limit", "_more", "kept", "omitted")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._more: set[int] = set()
        self.kept: dict[str, None] = {}
        self.omitted = 0

    def add(self, paths: Iterable[str], unnamed: int = 0) -> None:
        """Take the paths of one update, and how many it had besides. Of very many, some are counted twice."""
        for path in paths:
            if path in self.kept:
                continue
            if len(self.kept) < self._limit:
                self.kept[path] = None
                continue
            key = hash(path)
            if key not in self._more:
                self.omitted += 1
                if len(self._more) < MAX_TOLD_APART:
                    self._more.add(key)
        self.omitted += unnamed


class Entity:
    """Anything that is opened, may be continued, and is closed exactly once."""

    ended_at: int | None = None
    outcome: Outcome | None = None
    failure: Failure | None = None
    step: str | None = None
    announced = True
    unclosed = False
    continues: SpanRef | None = None
    links: Sequence[Entity | SpanRef] = ()
    handle: Any = None

    def __init__(self, ident: str, owner: Agent | None, at: int) -> None:
        self.id = ident
        self.owner = owner
        self.opened_at = at
        self.last_at = at

    def link(self, target: Entity | SpanRef) -> None:
        """It has to do with `target`, which is not its parent."""
        if isinstance(self.links, list):
            self.links.append(target)
        else:
            self.links = [target]

    def continue_from(self, ref: SpanRef) -> None:
        """It goes on with what an earlier run of the thread left behind."""
        self.continues = ref
        self.link(ref)

    @property
    def is_open(self) -> bool:
        """Whether it has not ended yet."""
        return self.ended_at is None


class Streamed(Entity):
    """An entity whose text arrives in deltas: counted and timed whole, kept up to a limit of characters."""

    owner: Agent
    chunks = 0
    chars = 0
    first_chunk_at: int | None = None
    max_gap = 0
    metadata: dict[str, Any] | None = None

    def __init__(self, ident: str, owner: Agent, at: int, room: int) -> None:
        self.id = ident
        self.owner = owner
        self.opened_at = self.last_at = self.touched_at = at
        self.parts: list[str] = []
        self.room = room

    def append(self, delta: str, at: int) -> None:
        """Take the next delta, received at `at`."""
        if self.first_chunk_at is None:
            self.first_chunk_at = at
        else:
            gap = at - self.last_at
            if gap > self.max_gap:
                self.max_gap = gap
        self.last_at = at
        self.chunks += 1
        self.chars += len(delta)
        if self.room > 0:
            self.parts.append(delta if len(delta) <= self.room else delta[: self.room])
            self.room -= len(delta)

    @property
    def last_event_at(self) -> int:
        """When its last event came: a delta (``last_at``), or one that said nothing (``touched_at``)."""
        return max(self.last_at, self.touched_at)

    def forget(self) -> None:
        """Give back the text: it has been told, and only counts matter from now on."""
        self.parts = []
        self.room = 0

    @property
    def text(self) -> str:
        """The text so far, up to the limit; ``chars`` is its real length."""
        if len(self.parts) > 1:
            self.parts = ["".join(self.parts)]
        return self.parts[0] if self.parts else ""


class Message(Streamed):
    """A text message."""

    def __init__(self, ident: str, owner: Agent, at: int, room: int, role: str) -> None:
        super().__init__(ident, owner, at, room)
        self.role = role

    def become_answer(self) -> None:
        """What an assistant said last, so far, is its agent's answer."""
        if self.chars and self.role == "assistant":
            said = self.owner.answer
            if said is None or said.at <= self.last_at:
                self.owner.answer = Answer(self.text, self.chars, self.last_at)


class Reasoning(Streamed):
    """A reasoning span together with the reasoning messages of the same owner inside it."""

    inside = 0

    def __init__(self, ident: str, owner: Agent, at: int, room: int, *, bracketed: bool) -> None:
        super().__init__(ident, owner, at, room)
        self.bracketed = bracketed


class ToolMessage(NamedTuple):
    """What a tool message in a MESSAGES_SNAPSHOT says of a call that got no result event."""

    at: int
    content: Any
    error: str | None


class ToolCall(Streamed):
    """A tool call; its streamed text is its arguments."""

    args_ended_at: int | None = None
    result: Any = None
    result_at: int | None = None
    answer: ToolMessage | None = None
    answered_by: tuple[str, str | None] | None = None
    late_children: tuple[Subagent, ...] = ()

    def __init__(self, ident: str, owner: Agent, at: int, room: int, name: str | None) -> None:
        super().__init__(ident, owner, at, room)
        self.name = name
        self.dispatched: list[Subagent] = []


class Step:
    """One step of an owner: many, short and without children, so it has no more than it needs."""

    ended_at: int | None = None
    unclosed = False
    handle: Any = None

    def __init__(self, name: str, owner: Agent, at: int) -> None:
        self.name = name
        self.owner = owner
        self.opened_at = at


class StepFold:
    """All closed steps of one (owner, name): how many, and nanoseconds in sum."""

    __slots__ = ("count", "duration", "unclosed")

    def __init__(self) -> None:
        self.count = 0
        self.duration = 0
        self.unclosed = False


class ActivityFold:
    """All updates of one activity message."""

    __slots__ = ("type", "updates")

    def __init__(self, kind: str) -> None:
        self.type = kind
        self.updates = 0


class Agent(Entity):
    """The run's own agent, or one subagent invocation: who owns messages, tool calls, steps and subagents."""

    name: str | None = None
    description: str | None = None
    events = 0
    first_chunk_at: int | None = None
    answer: Answer | None = None
    result: Any = None
    timestamp: int | None = None
    raws = 0
    encrypted = 0
    state_updates = 0
    state_paths: PathSum | None = None
    child_failed = False
    cause = "own"
    open_above: Agent | None = None  # an ancestor that was open when it was last looked for

    def __init__(self, ident: str, parent: Agent | ToolCall | None, at: int) -> None:
        super().__init__(ident, None, at)
        self.parent = parent
        self.parent_agent: Agent | None = parent.owner if isinstance(parent, ToolCall) else parent
        self.steps: dict[str, Step] = {}
        self.step_folds: dict[tuple[str | None, str], StepFold] = {}
        self.activities: dict[tuple[str | None, str], ActivityFold] = {}
        self.usage: dict[tuple[str | None, str | None], Usage] = {}

    @property
    def tag(self) -> str | None:
        """The ``subagentRunId`` of its events; None for the run's own agent."""
        return self.id

    def current_step(self) -> str | None:
        """The name of the most recently started step that is open."""
        return next(reversed(self.steps)) if self.steps else None

    def is_ancestor_of(self, other: Agent) -> bool:
        """Whether this agent is on the way from `other` (not counting itself) to the run."""
        above = other.parent_agent
        while above is not None:
            if above is self:
                return True
            above = above.parent_agent
        return False

    def nearest_open(self) -> Agent:
        """This agent while it is open, else its nearest open ancestor, at last the run."""
        passed: list[Agent] = []
        agent: Agent = self
        while not agent.is_open and agent.parent_agent is not None:
            passed.append(agent)
            agent = agent.open_above or agent.parent_agent
        for ended in passed:
            ended.open_above = agent
        return agent


class Subagent(Agent):
    """One invocation of a subagent."""

    parent_tool_call_id: str | None = None
    parent_subagent_id: str | None = None
    parent_message_id: str | None = None
    dispatched_by: ToolCall | None = None
    asked: str | None = None
    interrupt_ids: tuple[str, ...] = ()
    restarted = False

    def __init__(self, ident: str, parent: Agent | ToolCall, at: int) -> None:
        super().__init__(ident, parent, at)

    def place(self, parent: Agent | ToolCall, at: int) -> None:
        """It was known by its id only, and is opened now under `parent`."""
        self.parent = parent
        self.parent_agent = parent.owner if isinstance(parent, ToolCall) else parent
        self.open_above = None
        self.opened_at = self.last_at = at
        self.ended_at = None

    def be_dispatched_by(self, tool: ToolCall) -> None:
        """`tool` is the call that its ``parentToolCallId`` names."""
        if self.dispatched_by is not tool:
            self.dispatched_by = tool
            tool.dispatched.append(self)


class Run(Agent):
    """The run itself, which is also its own agent."""

    input_run_id: str | None = None
    streamless = False
    implicit = False
    in_midst = False
    cut_off = False
    goes_on = False
    replayed = False
    started = False
    parent_run_id: str | None = None
    protocol_version: str | None = None
    attribution = "none"
    violations = 0
    total_events = 0

    def __init__(self, run_id: str | None, thread_id: str | None, at: int, given: RunInput | None = None) -> None:
        super().__init__(run_id or "", None, at)
        self.thread_id = thread_id
        self.input = given
        self.resumes: list[SpanRef] = []

    @property
    def tag(self) -> str | None:
        """None: the events of the run's own agent have no tag."""
        return None
