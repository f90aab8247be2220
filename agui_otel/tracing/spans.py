"""Transitions to spans: what is started under which parent, what each span says, and how it ends (trace model).

Parents are explicit, always: no span of ours is started in the current context. What a span says of content goes
through `Content`; what is a span event is written by `SpanEvents`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opentelemetry.trace import Tracer

from agui_otel.config import Settings
from agui_otel.protocol import transitions as t
from agui_otel.protocol.entities import Entity, Message, Reasoning, Run, Step, Subagent, ToolCall
from agui_otel.tracing import semconv as s
from agui_otel.tracing.agents import AgentSpans
from agui_otel.tracing.content import Content, short
from agui_otel.tracing.decisions import Decision
from agui_otel.tracing.events import SpanEvents
from agui_otel.tracing.gauges import Heard
from agui_otel.tracing.handles import Attributes, SpanHandle
from agui_otel.tracing.links import link_to
from agui_otel.tracing.metrics import NO_METRICS, Instruments
from agui_otel.tracing.starting import Describe, Placement, Starter, put
from agui_otel.tracing.waiting import WaitingEvents

MAX_LINKS = s.MAX_SPAN_EVENTS
"""Links that one span is started with: as many as the SDK keeps."""


class SpanWriter:
    """Writes the spans of one stream.

    `heard` has the time of the stream's last event. `place` says where the next run's span goes, `describe` which
    attributes the host wants on every span of a run, and `wants_usage`, at a run's end, whether usage spans are
    wanted. `decide` reads a human's decision from a resume entry, where the host has its own way.
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
        describe: Describe,
        wants_usage: Callable[[], bool],
        decide: Decision | None,
    ) -> None:
        self._content = content
        self._metrics = self._all_metrics = metrics
        self._wants_usage = wants_usage
        self._start = Starter(tracer, settings, content, describe)
        self._events = SpanEvents(settings, content, metrics)
        self._waiting = WaitingEvents(content, metrics, decide, settings.max_paths)
        self._agents = AgentSpans(self._start, self._events, self._waiting, metrics, place=place, heard=heard)
        self._messages = settings.messages == "spans"
        self._steps = settings.steps == "spans"

    def write(self, transition: t.Transition) -> None:
        """Write one transition."""
        if isinstance(transition, t.Opened):
            if self._metrics is not self._all_metrics and isinstance(transition.entity, Run):
                self._record_with(self._all_metrics)
            _OPENERS[type(transition.entity)](self, transition.entity)
        elif isinstance(transition, t.Closed):
            _CLOSERS[type(transition.entity)](self, transition.entity)
        else:
            _WRITERS[type(transition)](self, transition)

    @property
    def common(self) -> Attributes:
        """The attributes that every span of the current run carries."""
        return self._start.common

    def describe_more(self, run: Run, attributes: Mapping[str, Any]) -> None:
        """Attributes that became known after the run's span was started: on it, and on every span from now on."""
        self._start.common.update(attributes)
        if run.handle is not None:
            run.handle.span.set_attributes(attributes)

    def rename(self, run: Run, name: str) -> None:
        """A name for a run that had none."""
        run.name = name
        if run.handle is not None:
            self._agents.announce_run(run)

    def _met(self, met: t.Met) -> None:
        """A run was seen before. One that is sent once more was counted then: nothing of it is measured again."""
        self._agents.met(met)
        if met.how == "replayed":
            self.describe_more(met.run, {s.REPLAYED: True})
            self._metrics.left(met.run.handle.token)
            self._record_with(NO_METRICS)

    def _record_with(self, metrics: Instruments) -> None:
        self._metrics = metrics
        self._agents.record_with(metrics)

    def _announced(self, announced: t.Announced) -> None:
        entity = announced.entity
        if isinstance(entity, Run):
            self._agents.announce_run(entity)
        elif isinstance(entity, Subagent):
            self._agents.announce_subagent(entity, announced.at)
        elif isinstance(entity, ToolCall):
            attributes: Attributes = {}
            self._name_tool(entity, attributes)
            put(attributes, s.STEP_NAME, entity.step)
            entity.handle.span.update_name(_tool_span_name(entity))
            entity.handle.set(attributes)

    def _linked(self, linked: t.Linked) -> None:
        linked.entity.handle.link(link_to(linked.target))

    def _open_tool(self, tool: ToolCall) -> None:
        attributes = self._start.owned(tool.owner, "TOOL")
        self._name_tool(tool, attributes)
        if tool.late_children:
            attributes[s.LATE_CHILD_SPAN_ID] = [_span_id(child) for child in tool.late_children[:MAX_LINKS]]
        links = list(map(link_to, tool.links[:MAX_LINKS]))
        if len(tool.links) > len(links):
            attributes[s.OMITTED + "links"] = len(tool.links) - len(links)
        span = self._start.entity(_tool_span_name(tool), tool, tool.owner.handle.context, attributes, links)
        tool.handle = SpanHandle(span, attributes)

    def _name_tool(self, tool: ToolCall, attributes: Attributes) -> None:
        owner = tool.owner
        attributes[s.GEN_AI_OPERATION_NAME] = "execute_tool"
        put(attributes, s.GEN_AI_TOOL_CALL_ID, tool.id)
        put(attributes, s.TOOL_ID, tool.id)
        put(attributes, s.GEN_AI_TOOL_NAME, tool.name)
        put(attributes, s.TOOL_NAME, tool.name)
        put(attributes, s.GEN_AI_AGENT_NAME, owner.name)
        if tool.name is not None:
            self._metrics.tool_opened(tool.name, owner.handle.token)

    def _close_tool(self, tool: ToolCall) -> None:
        handle: SpanHandle = tool.handle
        outcome = tool.outcome
        assert outcome is not None
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
            put(attributes, s.TOOL_ANSWERED_BY, tool.answered_by[0])
            put(attributes, s.TOOL_ANSWERED_BY_NAME, tool.answered_by[1])
        self._start.fail(tool, attributes)
        handle.set(attributes)
        handle.end(tool.ended_at)
        if self._metrics.on:
            self._metrics.tool_closed(
                tool.name or "",
                tool.owner.handle.token,
                outcome=outcome.value,
                duration_s=waited,
                context=handle.context,
            )
        tool.forget()
        tool.result = None

    def _open_message(self, message: Message) -> None:
        if self._messages:
            self._open_streamed(message, f"message {short(message.role)}", message.role)

    def _open_reasoning(self, reasoning: Reasoning) -> None:
        if self._messages:
            self._open_streamed(reasoning, "reasoning", "reasoning")

    def _open_streamed(self, entity: Message | Reasoning, name: str, role: str) -> None:
        attributes = self._start.owned(entity.owner, "CHAIN")
        put(attributes, s.MESSAGE_ID, entity.id)
        put(attributes, s.MESSAGE_ROLE, role)
        span = self._start.entity(name, entity, entity.owner.handle.context, attributes)
        entity.handle = SpanHandle(span, attributes)

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
            if entity.chars and isinstance(entity, Message):
                self._content.message_output(entity.text, entity.role, attributes, entity.chars)
            elif entity.chars:
                self._content.reasoning_output(entity.text, attributes, entity.chars)
            handle.set(attributes)
            handle.end(entity.ended_at)
        entity.forget()

    def _open_step(self, step: Step) -> None:
        if self._steps:
            name = short(step.name)
            attributes = self._start.owned(step.owner, "CHAIN")
            attributes[s.STEP_NAME] = name
            span = self._start.plain(f"step {name}", step.owner.handle.context, attributes, step.opened_at)
            step.handle = SpanHandle(span, attributes)

    def _close_step(self, step: Step) -> None:
        if step.handle is not None:
            if step.unclosed:
                step.handle.span.set_attribute(s.UNCLOSED, True)
            step.handle.end(step.ended_at)

    def _usage(self, reported: t.UsageReported) -> None:
        agent, usage, at = reported
        context = agent.handle.context
        self._metrics.tokens(usage.provider, usage.model, usage.input or 0, usage.output or 0, context=context)
        if self._metrics is not self._all_metrics or not self._wants_usage():
            return
        attributes = self._start.owned(agent, "LLM")
        attributes[s.SYNTHESIZED] = True
        put(attributes, s.LLM_PROVIDER, usage.provider)
        put(attributes, s.GEN_AI_PROVIDER_NAME, usage.provider)
        put(attributes, s.LLM_MODEL_NAME, usage.model)
        put(attributes, s.GEN_AI_REQUEST_MODEL, usage.model)
        for name, count in usage.counts.items():
            attributes[s.LLM_TOKEN_COUNT[name]] = count
            if name in s.GEN_AI_USAGE:
                attributes[s.GEN_AI_USAGE[name]] = count
        name = f"usage {short(usage.model)}" if usage.model is not None else "usage"
        self._start.plain(name, context, attributes, at).end(at)


_WRITERS: dict[type, Callable[[SpanWriter, Any], None]] = {
    t.Announced: SpanWriter._announced,
    t.Linked: SpanWriter._linked,
    t.RunEnded: lambda writer, ended: writer._agents.ended(ended.run),
    t.SpawnedBy: lambda writer, spawned: writer._agents.spawned(spawned),
    t.LeftOut: lambda writer, left_out: writer._events.left_out(left_out),
    t.UsageReported: SpanWriter._usage,
    t.StateWritten: lambda writer, written: writer._events.state(written),
    t.Suspended: lambda writer, suspended: writer._waiting.suspended(suspended),
    t.InterruptRaised: lambda writer, raised: writer._waiting.interrupt(raised),
    t.InterruptAnswered: lambda writer, answered: writer._waiting.interrupt_answered(answered),
    t.Resumes: lambda writer, resumes: writer._waiting.resumes(resumes),
    t.Met: SpanWriter._met,
    t.ToolCallAnswered: lambda writer, answered: writer._waiting.tool_call_answered(answered),
    t.Custom: lambda writer, custom: writer._events.custom(custom),
    t.UnknownEvent: lambda writer, unknown: writer._events.unknown(unknown),
    t.MessagesRestated: lambda writer, restated: writer._events.messages(restated),
    t.Remark: lambda writer, remark: writer._events.remark(remark),
}
_OPENERS: dict[type, Callable[[SpanWriter, Any], None]] = {
    Run: lambda writer, run: writer._agents.open_run(run),
    Subagent: lambda writer, subagent: writer._agents.open_subagent(subagent),
    ToolCall: SpanWriter._open_tool,
    Message: SpanWriter._open_message,
    Reasoning: SpanWriter._open_reasoning,
    Step: SpanWriter._open_step,
}
_CLOSERS: dict[type, Callable[[SpanWriter, Any], None]] = {
    Run: lambda writer, run: writer._agents.close(run),
    Subagent: lambda writer, subagent: writer._agents.close(subagent),
    ToolCall: SpanWriter._close_tool,
    Message: SpanWriter._close_streamed,
    Reasoning: SpanWriter._close_streamed,
    Step: SpanWriter._close_step,
}


def _tool_span_name(tool: ToolCall) -> str:
    return f"execute_tool {short(tool.name)}" if tool.name is not None else "execute_tool"


def _span_id(entity: Entity) -> str:
    return f"{entity.handle.span.get_span_context().span_id:016x}"
