"""Transitions to spans: what is started under which parent, what each span says, and how it ends (trace model).

Parents are explicit, always: no span of ours is started in the current context. What a span says of content goes
through `Content`; what is a span event is written by `SpanEvents`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer

from agui_otel.config import Settings
from agui_otel.protocol import transitions as t
from agui_otel.protocol.entities import (
    Agent,
    Entity,
    Message,
    Outcome,
    Reasoning,
    Run,
    Step,
    Subagent,
    ToolCall,
)
from agui_otel.tracing import semconv as s
from agui_otel.tracing.content import Content, clean
from agui_otel.tracing.events import SpanEvents
from agui_otel.tracing.gauges import Heard
from agui_otel.tracing.handles import AgentHandle, Attributes, SpanHandle
from agui_otel.tracing.links import link_to
from agui_otel.tracing.metrics import Instruments

MAX_PATH = 1024
"""Characters of ``graph.node.id``; a deeper path keeps its end."""

_INTERNAL = SpanKind.INTERNAL


@dataclass(slots=True)
class Placement:
    """Where a run's root span goes: its parent's context, links, and attributes that say what links say."""

    context: Context
    links: list[Link] = field(default_factory=list)
    attributes: Attributes = field(default_factory=dict)


class SpanWriter:
    """Writes the spans of one stream.

    `heard` has the time of the stream's last event. `place` says where the next run's span goes; `describe` gives the attributes that the host wants on every span of a
    run; `wants_usage` says, at a run's end, whether usage spans are wanted.
    """

    def __init__(
        self,
        tracer: Tracer,
        settings: Settings,
        content: Content,
        metrics: Instruments,
        *,
        heard: Heard,
        place: Callable[[], Placement],
        describe: Callable[[Run], Mapping[str, Any]],
        wants_usage: Callable[[], bool],
        decide: Callable[[Mapping[str, Any]], str | None] | None,
    ) -> None:
        self._tracer = tracer
        self._settings = settings
        self._content = content
        self._metrics = metrics
        self._place = place
        self._describe = describe
        self._wants_usage = wants_usage
        self._common: Attributes = {}
        self._heard = heard
        self.events = SpanEvents(settings, content, metrics, decide)
        self._messages = settings.messages == "spans"
        self._steps = settings.steps == "spans"
        events = self.events
        self._writers: dict[type, Callable[[Any], None]] = {
            t.Opened: self._opened,
            t.Announced: self._announced,
            t.Linked: self._linked,
            t.Closed: self._closed,
            t.RunEnded: self._run_ended,
            t.UsageReported: self._usage,
            t.StateWritten: events.state,
            t.Suspended: events.suspended,
            t.InterruptRaised: events.interrupt,
            t.InterruptAnswered: events.interrupt_answered,
            t.Resumes: events.resumes,
            t.ToolCallAnswered: events.tool_call_answered,
            t.Custom: events.custom,
            t.UnknownEvent: events.unknown,
            t.MessagesRestated: events.messages,
            t.Remark: events.remark,
        }
        self._openers: dict[type, Callable[[Any], None]] = {
            Run: self._open_run,
            Subagent: self._open_subagent,
            ToolCall: self._open_tool,
            Message: self._open_message,
            Reasoning: self._open_reasoning,
            Step: self._open_step,
        }
        self._closers: dict[type, Callable[[Any], None]] = {
            Run: self._close_agent,
            Subagent: self._close_agent,
            ToolCall: self._close_tool,
            Message: self._close_streamed,
            Reasoning: self._close_streamed,
            Step: self._close_step,
        }

    def write(self, transition: t.Transition) -> None:
        """Write one transition."""
        self._writers[type(transition)](transition)

    @property
    def common(self) -> Attributes:
        """The attributes that every span of the current run carries."""
        return self._common

    def describe_more(self, run: Run, attributes: Mapping[str, Any]) -> None:
        """Attributes that became known after the run's span was started: on it, and on every span from now on."""
        self._common.update(attributes)
        if run.handle is not None:
            run.handle.span.set_attributes(attributes)

    def rename(self, run: Run, name: str) -> None:
        """A name for a run that had none."""
        run.name = name
        if run.handle is not None:
            self._announced(t.Announced(run, run.opened_at))

    # opening

    def _opened(self, opened: t.Opened) -> None:
        self._openers[type(opened.entity)](opened.entity)

    def _start(
        self, name: str, entity: Entity, parent: Context, attributes: Attributes, links: Sequence[Link] | None = None
    ) -> Span:
        if entity.continues is not None:
            attributes[s.CONTINUED] = True
            attributes[s.CONTINUES_TRACE_ID] = entity.continues.trace_id
            attributes[s.CONTINUES_SPAN_ID] = entity.continues.span_id
            attributes[s.CONTINUES_RUN_ID] = clean(entity.continues.run_id)
        if entity.step is not None:
            attributes[s.STEP_NAME] = clean(entity.step)
        if entity.links:
            links = [*(links or ()), *(link_to(target) for target in entity.links)]
        return self._tracer.start_span(
            name, context=parent, kind=_INTERNAL, attributes=attributes, links=links, start_time=entity.opened_at
        )

    def _owned(self, owner: Agent, kind: str) -> Attributes:
        """What every span of `owner`'s carries."""
        attributes = self._common.copy()
        attributes[s.SPAN_KIND] = kind
        if type(owner) is Subagent:
            attributes[s.SUBAGENT_RUN_ID] = clean(owner.id)
            if owner.name is not None:
                attributes[s.SUBAGENT_NAME] = clean(owner.name)
        return attributes

    def _open_run(self, run: Run) -> None:
        self._common = self._identity(run)
        placement = self._place()
        attributes = self._common.copy()
        attributes.update(placement.attributes)
        attributes[s.SPAN_KIND] = "AGENT"
        path = self._name_agent(run, None, attributes)
        if run.implicit:
            attributes[s.RUN_IMPLICIT] = True
        _put(attributes, s.INPUT_RUN_ID, run.input_run_id)
        _put(attributes, s.PARENT_RUN_ID, run.parent_run_id)
        _put(attributes, s.PROTOCOL_VERSION, run.protocol_version)
        asked = run.input.last_user_message() if run.input is not None else None
        if asked is not None:
            self._content.agent_input(asked, attributes)
        span = self._start(_agent_span_name(run), run, placement.context, attributes, placement.links)
        token = self._metrics.opened("run", run.name, heard=self._heard)
        run.handle = AgentHandle(span, path, token)

    def _identity(self, run: Run) -> Attributes:
        identity: Attributes = {}
        thread = run.thread_id
        if thread is not None:
            identity[s.THREAD_ID] = clean(thread)
            if thread not in self._settings.anonymous_threads:
                identity[s.SESSION_ID] = identity[s.GEN_AI_CONVERSATION_ID] = clean(thread)
        if run.id:
            identity[s.RUN_ID] = clean(run.id)
        if self._settings.user_id is not None:
            identity[s.USER_ID] = self._settings.user_id
        identity.update(self._describe(run))
        return identity

    def _name_agent(self, agent: Agent, above: str | None, attributes: Attributes) -> str:
        """Name the agent and its place in the graph of agents; returns its path."""
        attributes[s.GEN_AI_OPERATION_NAME] = "invoke_agent"
        label = agent.name if agent.name is not None else "agent" if above is None else "unannounced"
        label = clean(label)
        if agent.name is not None:
            attributes[s.GEN_AI_AGENT_NAME] = attributes[s.AGENT_NAME] = label
        path = label if above is None else f"{above}/{label}"[-MAX_PATH:]
        attributes[s.GRAPH_NODE_ID] = path
        attributes[s.GRAPH_NODE_NAME] = label
        if above is not None:
            attributes[s.GRAPH_NODE_PARENT_ID] = above
        return path

    def _open_subagent(self, subagent: Subagent) -> None:
        above = subagent.parent_agent
        assert above is not None and subagent.parent is not None
        attributes = self._owned(subagent, "AGENT")
        path = self._name_agent(subagent, above.handle.path, attributes)
        self._describe_subagent(subagent, attributes)
        parent = subagent.parent.handle.context
        span = self._start(_agent_span_name(subagent), subagent, parent, attributes)
        token = self._metrics.opened(
            "subagent", subagent.name, announced=subagent.announced or subagent.name is not None, heard=self._heard
        )
        subagent.handle = AgentHandle(span, path, token)

    def _describe_subagent(self, subagent: Subagent, attributes: Attributes) -> None:
        attributes[s.SUBAGENT_ANNOUNCED] = subagent.announced
        _put(attributes, s.PARENT_TOOL_CALL_ID, subagent.parent_tool_call_id)
        _put(attributes, s.PARENT_SUBAGENT_RUN_ID, subagent.parent_subagent_id)
        _put(attributes, s.PARENT_MESSAGE_ID, subagent.parent_message_id)
        if subagent.description is not None:
            self._content.description(subagent.description, attributes)
        parent = subagent.parent
        if isinstance(parent, ToolCall) and parent.chars:
            self._content.agent_input(parent.text, attributes, parent.chars)
        elif subagent.description is not None:
            self._content.agent_input(subagent.description, attributes)

    def _open_tool(self, tool: ToolCall) -> None:
        owner = tool.owner
        assert owner is not None
        attributes = self._owned(owner, "TOOL")
        self._name_tool(tool, owner, attributes)
        if tool.late_children:
            attributes[s.LATE_CHILD_SPAN_ID] = [_span_id(child) for child in tool.late_children]
        tool.handle = SpanHandle(self._start(_tool_span_name(tool), tool, owner.handle.context, attributes))

    def _name_tool(self, tool: ToolCall, owner: Agent, attributes: Attributes) -> None:
        attributes[s.GEN_AI_OPERATION_NAME] = "execute_tool"
        if isinstance(tool.id, str):
            attributes[s.GEN_AI_TOOL_CALL_ID] = attributes[s.TOOL_ID] = clean(tool.id)
        if tool.name is not None:
            attributes[s.GEN_AI_TOOL_NAME] = attributes[s.TOOL_NAME] = clean(tool.name)
            self._metrics.tool_opened(tool.name, owner.handle.token)
        if owner.name is not None:
            attributes[s.GEN_AI_AGENT_NAME] = clean(owner.name)

    def _open_message(self, message: Message) -> None:
        if self._messages:
            self._open_streamed(message, f"message {clean(message.role)}", message.role)

    def _open_reasoning(self, reasoning: Reasoning) -> None:
        if self._messages:
            self._open_streamed(reasoning, "reasoning", "reasoning")

    def _open_streamed(self, entity: Message | Reasoning, name: str, role: str) -> None:
        owner = entity.owner
        assert owner is not None
        attributes = self._owned(owner, "CHAIN")
        _put(attributes, s.MESSAGE_ID, entity.id)
        attributes[s.MESSAGE_ROLE] = clean(role)
        entity.handle = SpanHandle(self._start(name, entity, owner.handle.context, attributes))

    def _open_step(self, step: Step) -> None:
        if self._steps:
            name = clean(step.name)
            attributes = self._owned(step.owner, "CHAIN")
            attributes[s.STEP_NAME] = name
            span = self._tracer.start_span(
                f"step {name}", context=step.owner.handle.context, attributes=attributes, start_time=step.opened_at
            )
            step.handle = SpanHandle(span)

    # what becomes known later

    def _announced(self, announced: t.Announced) -> None:
        entity = announced.entity
        span: Span = entity.handle.span
        attributes: Attributes = {}
        if isinstance(entity, ToolCall):
            assert entity.owner is not None
            self._name_tool(entity, entity.owner, attributes)
            if entity.step is not None:
                attributes[s.STEP_NAME] = clean(entity.step)
            span.update_name(_tool_span_name(entity))
        elif isinstance(entity, Run):
            self._common = self._identity(entity)
            attributes.update(self._common)
            entity.handle.path = self._name_agent(entity, None, attributes)
            _put(attributes, s.INPUT_RUN_ID, entity.input_run_id)
            _put(attributes, s.PARENT_RUN_ID, entity.parent_run_id)
            _put(attributes, s.PROTOCOL_VERSION, entity.protocol_version)
            span.update_name(_agent_span_name(entity))
            self._metrics.renamed(entity.handle.token, entity.name)
        elif isinstance(entity, Subagent):
            above = entity.parent_agent
            assert above is not None
            if entity.name is not None:
                attributes[s.SUBAGENT_NAME] = clean(entity.name)
            entity.handle.path = self._name_agent(entity, above.handle.path, attributes)
            self._describe_subagent(entity, attributes)
            span.update_name(_agent_span_name(entity))
            self._metrics.renamed(entity.handle.token, entity.name)
            if entity.restarted:
                self.events.resumed(entity, announced.at)
        span.set_attributes(attributes)

    def _linked(self, linked: t.Linked) -> None:
        link = link_to(linked.target)
        if linked.entity.handle is not None:
            linked.entity.handle.span.add_link(link.context, link.attributes)

    # closing

    def _closed(self, closed: t.Closed) -> None:
        self._closers[type(closed.entity)](closed.entity)

    def _run_ended(self, ended: t.RunEnded) -> None:
        self._metrics.left(ended.run.handle.token)

    def _close_agent(self, agent: Agent) -> None:
        handle: AgentHandle = agent.handle
        outcome, end = agent.outcome, agent.ended_at
        assert outcome is not None and end is not None
        if type(agent) is Run:
            self.events.folded_state(agent)
        self.events.folded_steps(agent)
        self.events.activities(agent)
        attributes: Attributes = {s.OUTCOME: outcome.value, s.EVENTS_COUNT: agent.events}
        if isinstance(agent, Run):
            self._about_run(agent, attributes)
        if agent.timestamp is not None:
            attributes[s.EVENT_TIMESTAMP] = agent.timestamp
        if agent.first_chunk_at is not None:
            seconds = (agent.first_chunk_at - agent.opened_at) / 1e9
            attributes[s.TIME_TO_FIRST_CHUNK] = seconds
            self._metrics.first_chunk(handle.token, seconds, handle.context)
        if agent.raws:
            attributes[s.RAW_COUNT] = agent.raws
        if agent.encrypted:
            attributes[s.ENCRYPTED_COUNT] = agent.encrypted
        if agent.state_updates:
            attributes[s.STATE_UPDATES] = agent.state_updates
            attributes[s.STATE_PATHS] = self.events.paths(agent.state_paths)
        self._answer(agent, attributes)
        error_type = self._fail(agent, attributes, "own" if outcome is not Outcome.ERROR else agent.cause)
        attributes.update(handle.omissions())
        handle.span.set_attributes(attributes)
        handle.span.end(end)
        self._metrics.closed(
            handle.token, outcome=outcome.value, duration_s=(end - agent.opened_at) / 1e9, error_type=error_type,
            cause=agent.cause, context=handle.context,
        )  # fmt: skip

    def _about_run(self, run: Run, attributes: Attributes) -> None:
        attributes[s.EVENTS_COUNT] = run.total_events
        attributes[s.ATTRIBUTION] = run.attribution
        attributes[s.VIOLATIONS] = run.violations
        if run.implicit:
            attributes[s.RUN_IMPLICIT] = True

    def _answer(self, agent: Agent, attributes: Attributes) -> None:
        """A subagent's output is its result, else its last message; a run's the other way round."""
        says = agent.answer
        result_first = type(agent) is Subagent and agent.result is not None
        if says is not None and not result_first:
            self._content.agent_output(says.text, attributes, says.chars)
        elif agent.result is not None:
            self._content.agent_output(agent.result, attributes)

    def _fail(self, entity: Entity, attributes: Attributes, cause: str | None = None) -> str | None:
        """Status, error attributes and the exception event of what failed; returns its ``error.type``."""
        failure = entity.failure
        if entity.outcome is not Outcome.ERROR or failure is None:
            return None
        kind = clean(failure.type)
        attributes[s.ERROR_TYPE] = kind
        if cause is not None:
            attributes[s.CAUSE] = cause
        exception: Attributes = {s.EXCEPTION_TYPE: kind}
        message = self._content.error_message(failure.message, exception) if failure.message else None
        if failure.stacktrace:
            self._content.output(s.EXCEPTION_STACKTRACE, failure.stacktrace, exception)
        span: Span = entity.handle.span
        span.add_event(s.EXCEPTION, exception, entity.ended_at)
        span.set_status(Status(StatusCode.ERROR, message or kind))
        return kind

    def _close_tool(self, tool: ToolCall) -> None:
        handle: SpanHandle = tool.handle
        owner, outcome = tool.owner, tool.outcome
        assert owner is not None and outcome is not None
        attributes: Attributes = {s.OUTCOME: outcome.value}
        if tool.chars:
            self._content.tool_arguments(tool.text, attributes, tool.chars)
        if tool.result is not None:
            self._content.tool_result(tool.result, attributes)
        waited = None
        if tool.args_ended_at is not None:
            attributes[s.TOOL_ARGS_MS] = (tool.args_ended_at - tool.opened_at) / 1e6
            if tool.result_at is not None:
                waited = (tool.result_at - tool.args_ended_at) / 1e9
        if tool.answered_by is not None:
            attributes[s.TOOL_ANSWERED_BY] = clean(tool.answered_by[0])
            _put(attributes, s.TOOL_ANSWERED_BY_NAME, tool.answered_by[1])
        self._fail(tool, attributes)
        handle.span.set_attributes(attributes)
        handle.span.end(tool.ended_at)
        self._metrics.tool_closed(
            tool.name or "", owner.handle.token, outcome=outcome.value, duration_s=waited, context=handle.context
        )
        tool.forget()
        tool.result = None

    def _close_streamed(self, entity: Message | Reasoning) -> None:
        handle: SpanHandle | None = entity.handle
        if handle is not None:
            attributes: Attributes = {s.CHUNKS: entity.chunks, s.CHARS: entity.chars}
            if entity.first_chunk_at is not None:
                attributes[s.TIME_TO_FIRST_CHUNK] = (entity.first_chunk_at - entity.opened_at) / 1e9
                attributes[s.MAX_CHUNK_GAP] = entity.max_gap / 1e9
            if entity.unclosed:
                attributes[s.UNCLOSED] = True
            if entity.metadata is not None:
                self._content.output(s.METADATA, entity.metadata, attributes)
            if entity.chars:
                if isinstance(entity, Message):
                    self._content.message_output(entity.text, entity.role, attributes, entity.chars)
                else:
                    self._content.reasoning_output(entity.text, attributes, entity.chars)
            handle.span.set_attributes(attributes)
            handle.span.end(entity.ended_at)
        entity.forget()

    def _close_step(self, step: Step) -> None:
        if step.handle is not None:
            if step.unclosed:
                step.handle.span.set_attribute(s.UNCLOSED, True)
            step.handle.span.end(step.ended_at)

    def _usage(self, reported: t.UsageReported) -> None:
        agent, usage, at = reported
        self._metrics.tokens(
            usage.provider, usage.model, usage.input or 0, usage.output or 0, context=agent.handle.context
        )
        if self._settings.usage_spans == "off" or not self._wants_usage():
            return
        attributes = self._owned(agent, "LLM")
        attributes[s.SYNTHESIZED] = True
        if usage.provider is not None:
            attributes[s.LLM_PROVIDER] = attributes[s.GEN_AI_PROVIDER_NAME] = clean(usage.provider)
        if usage.model is not None:
            attributes[s.LLM_MODEL_NAME] = attributes[s.GEN_AI_REQUEST_MODEL] = clean(usage.model)
        for name, count in usage.counts.items():
            attributes[s.LLM_TOKEN_COUNT[name]] = count
            if name in s.GEN_AI_USAGE:
                attributes[s.GEN_AI_USAGE[name]] = count
        name = f"usage {clean(usage.model)}" if usage.model is not None else "usage"
        span = self._tracer.start_span(
            name, context=agent.handle.context, kind=_INTERNAL, attributes=attributes, start_time=at
        )
        span.end(at)


def _put(attributes: Attributes, key: str, value: str | None) -> None:
    if isinstance(value, str):
        attributes[key] = clean(value)


def _agent_span_name(agent: Agent) -> str:
    return f"invoke_agent {clean(agent.name)}" if agent.name is not None else "invoke_agent"


def _tool_span_name(tool: ToolCall) -> str:
    return f"execute_tool {clean(tool.name)}" if tool.name is not None else "execute_tool"


def _span_id(entity: Entity) -> str:
    return f"{entity.handle.span.get_span_context().span_id:016x}"
