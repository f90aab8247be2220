"""The state of one run: who is who by id, what is open, and what is to be said about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agui_otel.protocol import again
from agui_otel.protocol.entities import Agent, Entity, Message, Reasoning, Run, Step, Subagent, ToolCall
from agui_otel.protocol.owners import Owners
from agui_otel.protocol.state import StateLedger
from agui_otel.protocol.transitions import Closed, InterruptRaised, Opened, Remark, Transition

if TYPE_CHECKING:
    from agui_otel.protocol.thread import OpenInterrupt, PendingToolCall, SeenRun, ThreadRecord
    from agui_otel.protocol.usage import Usage

_NONE: Mapping[str, SeenRun] = {}
_NAMELESS = (Run, Step)
_IN_MIDST = frozenset(
    {
        "message_not_open", "tool_call_not_open", "reasoning_not_open", "reasoning_message_not_open",
        "subagent_not_active", "step_not_active", "chunk_without_id", "unknown_result",
    }
)  # fmt: skip
"""What is broken or noted where something goes on, or ends, whose beginning was not in the stream."""

ToolFailed = Callable[[str, Any], "bool | str"]

_made = tuple.__new__
"""Makes a transition of its values; the class's own way costs a call more, and these are most of what is said."""


@dataclass(frozen=True, slots=True)
class Options:
    """How much the tracker keeps.

    ``text_limit``: characters kept of each streamed text; 0 keeps none, counting goes on.
    ``max_paths``: JSON Pointers named for one state update.
    ``tool_failed``: called with a tool's name and its result; a true value makes the call an error, a string is its
    ``error.type``. AG-UI has no error flag on results.
    ``steps``: whether each step is told, or only what is folded of them on their owners.
    ``raw_usage``: whether RAW events are searched for the token counts of LangChain's model calls.
    ``borrowed``: whether event dicts stay the caller's, who may change them later: the state that they carry is copied.
    """

    text_limit: int = 16384
    max_paths: int = 64
    tool_failed: ToolFailed | None = None
    borrowed: bool = False
    steps: bool = False
    raw_usage: bool = False


class Scope:
    """All that one run's handlers share. ``out`` collects transitions until the tracker hands them over.

    ``unstarted``: events came without a RUN_STARTED. ``told``: the memory of the thread has this run already.
    ``record`` and ``seen`` are what is remembered of the thread, if that was ``asked``; ``awaited`` while it is not
    known yet. ``earlier`` is the run that had this one's ids, ``undecided`` whether it is the same, ``idents`` the
    first ids opened here.

    ``agents`` are the subagents in the order they were opened, ``subagents`` the latest of each id. The maps of owners
    hold, for each id, the tag of who owns it, None being the run's own agent (AG-UI 1.0: an id keeps its owner).
    """

    def __init__(self, run: Run, options: Options, out: list[Transition]) -> None:
        self.run = run
        self.options = options
        self.record: ThreadRecord | None = None
        self.seen: Mapping[str, SeenRun] = _NONE
        self.told = False
        self.unstarted = False
        self.asked = False
        self.awaited = False
        self.earlier: SeenRun | None = None
        self.undecided = False
        self.idents: list[str] = []
        self.out = out
        self.agents: list[Subagent] = []
        self.subagents: dict[str, Subagent] = {}
        self.strangers: dict[str, Subagent] = {}
        self.tools: dict[str, ToolCall] = {}
        self.open_args: dict[str, ToolCall] = {}
        self.messages: dict[str, Message] = {}
        self.message_owners: Owners = {}
        self.tool_owners: Owners = {}
        self.reasoning_owners: Owners = {}
        self.activity_owners: Owners = {}
        self.reasoning: dict[str, Reasoning] = {}
        self.reasoning_spans: dict[str, Reasoning] = {}
        self.open_steps: dict[str, int] = {}
        self.late: dict[str, list[Subagent]] = {}
        self.reopening: set[str] = set()
        self.answered: dict[str, OpenInterrupt] = {}
        self.answered_calls: dict[str, PendingToolCall] = {}
        self.continued_subagents: set[str] = set()
        self.continued_calls: set[str] = set()
        self.raised: dict[str, InterruptRaised] = {}
        self.raw_usage_of: set[str] = set()
        self.reported_usage: dict[tuple[str | None, str | None], Usage] = {}
        self.terminal_at: int | None = None
        self.custom_interrupts: list[str | None] = []
        self.index = -1
        self.type = ""
        given = run.input
        self.ledger = StateLedger(
            given.state if given is not None and given.state is not None else {},
            conflicts=_may_lose_an_update,
            max_paths=options.max_paths,
            keep_before=False,
        )

    def opened(self, entity: Entity | Step, at: int) -> None:
        """Say that `entity` began."""
        if type(entity) not in _NAMELESS:
            self.named(entity.id, at)  # type: ignore[union-attr]
        self.out.append(_made(Opened, (entity, at)))

    def named(self, ident: str, at: int) -> None:
        """The run opens what has this id: it may show that the run was seen before."""
        if len(self.idents) < again.MAX_MARKS and type(ident) is str:  # a chunk's may be null
            self.idents.append(ident)
            if self.undecided:
                again.decide(self, ident, at)

    def close(self, entity: Entity | Step, at: int) -> None:
        """End `entity`, whose outcome is decided, at `at` or, were that earlier, at its start."""
        entity.ended_at = end = at if at > entity.opened_at else entity.opened_at
        self.out.append(_made(Closed, (entity, end)))

    def ends_now(self, entity: Entity) -> bool:
        """Whether the current event ended `entity`."""
        return any(isinstance(said, Closed) and said.entity is entity for said in self.out)

    def note(self, rule: str, message: str, at: int) -> None:
        """Advice about the current event: never a violation."""
        self.run.in_midst |= rule in _IN_MIDST
        self.out.append(Remark(self.run, False, rule, message, max(self.index, 0), self.type, at))

    def violation(self, rule: str, message: str, at: int) -> None:
        """The current event broke a rule."""
        self.run.violations += 1
        self.run.in_midst |= rule in _IN_MIDST
        self.out.append(Remark(self.run, True, rule, message, self.index, self.type, at))

    def owner_of_usage(self, owner: Agent) -> Agent:
        """Who tokens of `owner` are told under: the run where no span stands for that agent."""
        return self.run if owner.tag in self.strangers else owner

    def named_by(self, subagent_run_id: str | None, tool_call_id: str | None) -> Entity | None:
        """The tool call, or, where none is named, the subagent, or the run; None while there is none."""
        if tool_call_id is not None:
            return self.tools.get(tool_call_id)
        return self.run if subagent_run_id is None else self.subagents.get(subagent_run_id)

    def writer(self, tag: str | None) -> Agent:
        """Who `tag` names, for events that open nothing: an unknown id is a stranger, known by its id only.

        No tag names the run's own agent.
        """
        if tag is None:
            return self.run
        known = self.subagents.get(tag)
        if known is not None:
            return known
        stranger = self.strangers.get(tag)
        if stranger is None:
            stranger = self.strangers[tag] = Subagent(tag, self.run, self.run.opened_at)
            stranger.ended_at = self.run.opened_at
            remembered = self.record.subagents.get(tag) if self.record is not None else None
            stranger.name = remembered.name if remembered is not None else None
        return stranger


def _may_lose_an_update(previous: Any, writer: Any) -> bool:
    """Whether `writer` writing over `previous` is the lost update of concurrent agents (trace model: state)."""
    if not isinstance(previous, Agent) or not isinstance(writer, Agent) or not previous.is_open:
        return False
    return not (previous.is_ancestor_of(writer) or writer.is_ancestor_of(previous))
