"""The spans of runs and subagents: their names, their place in the graph of agents, and how they ended."""

from __future__ import annotations

import sys
from collections.abc import Callable

from opentelemetry.trace import Link

from agui_otel.protocol import transitions as t
from agui_otel.protocol.entities import Agent, Outcome, Run, Subagent
from agui_otel.tracing import semconv as s
from agui_otel.tracing.content import short
from agui_otel.tracing.events import SpanEvents
from agui_otel.tracing.gauges import Heard
from agui_otel.tracing.handles import AgentHandle, Attributes
from agui_otel.tracing.links import link_to
from agui_otel.tracing.metrics import Instruments
from agui_otel.tracing.runs import RECENT_RUNS
from agui_otel.tracing.starting import Placement, Starter, put
from agui_otel.tracing.waiting import WaitingEvents

MAX_REMEMBERED = 1024
"""Characters of a description that are kept once it has been told."""

MAX_PATH = 1024
"""Characters of ``graph.node.id``; a deeper path keeps its end."""


class AgentSpans:
    """Writes the spans of agents. `place` says where the next run's span goes; `heard` is the stream, for gauges."""

    def __init__(
        self,
        start: Starter,
        events: SpanEvents,
        waiting: WaitingEvents,
        metrics: Instruments,
        *,
        place: Callable[[], Placement],
        heard: Heard,
    ) -> None:
        self._start = start
        self._content = start.content
        self._events = events
        self._waiting = waiting
        self._metrics = metrics
        self._place = place
        self._heard = heard
        self._protocol_version: str | None = None

    def open_run(self, run: Run) -> None:
        """Start the root of a run's tree."""
        placement = self._place()
        attributes = self._start.identify(run).copy()
        attributes.update(placement.attributes)
        attributes[s.SPAN_KIND] = "AGENT"
        path = self._describe_run(run, attributes)
        asked = run.input.last_user_message() if run.input is not None else None
        if asked is not None:
            self._content.agent_input(asked, attributes)
        span = self._start.entity(_span_name(run), run, placement.context, attributes, placement.links)
        token = self._metrics.opened("run", run.name, heard=self._heard)
        run.handle = AgentHandle(span, attributes, path, token, placement.links)
        self._know(run)

    def announce_run(self, run: Run) -> None:
        """What became known of a run after its span was started."""
        attributes = self._start.identify(run).copy()
        run.handle.path = self._describe_run(run, attributes)
        run.handle.span.update_name(_span_name(run))
        run.handle.set(attributes)
        self._metrics.renamed(run.handle.token, run.name)
        self._know(run)

    def _know(self, run: Run) -> None:
        context = run.handle.span.get_span_context()
        if run.id and context.is_valid:
            RECENT_RUNS.add(run.id, run.thread_id, context)

    def spawned(self, spawned: t.SpawnedBy) -> None:
        """The run names its parent run: a link, where that is known. It means "spawned by", so it is no parent here."""
        run, parent_run_id, remembered = spawned
        handle: AgentHandle = run.handle
        recent = RECENT_RUNS.find(parent_run_id, run.thread_id)
        if recent is not None and recent != handle.span.get_span_context():
            handle.link(Link(recent))
        elif remembered is not None:
            handle.link(link_to(remembered))

    def met(self, met: t.Met) -> None:
        """A run with these ids was seen before: a link, and what it says as attributes."""
        run, how, earlier, _ = met
        handle: AgentHandle = run.handle
        handle.link(link_to(earlier))
        if how == "continued":
            attributes: Attributes = {
                s.CONTINUED: True,
                s.CONTINUES_TRACE_ID: earlier.trace_id,
                s.CONTINUES_SPAN_ID: earlier.span_id,
                s.CONTINUES_RUN_ID: short(earlier.run_id),
            }
        else:
            attributes = {s.REPEATS_TRACE_ID: earlier.trace_id, s.REPEATS_SPAN_ID: earlier.span_id}
        handle.set(attributes)

    def record_with(self, metrics: Instruments) -> None:
        """Use these instruments from now on."""
        self._metrics = metrics
        self._events.record_with(metrics)
        self._waiting.record_with(metrics)

    def _describe_run(self, run: Run, attributes: Attributes) -> str:
        if run.implicit:
            attributes[s.RUN_IMPLICIT] = True
        put(attributes, s.INPUT_RUN_ID, run.input_run_id)
        put(attributes, s.PARENT_RUN_ID, run.parent_run_id)
        put(attributes, s.PROTOCOL_VERSION, run.protocol_version)
        self._protocol_version = run.protocol_version
        return _name(run, None, attributes)

    def open_subagent(self, subagent: Subagent) -> None:
        """Start a subagent's span under the parent that the stream named."""
        above, parent = subagent.parent_agent, subagent.parent
        assert above is not None
        assert parent is not None
        attributes = self._start.owned(subagent, "AGENT")
        path = _name(subagent, above.handle.path, attributes)
        self._describe_subagent(subagent, attributes)
        told = self._tell_input(subagent, attributes)
        links = list(map(link_to, subagent.links))
        span = self._start.entity(_span_name(subagent), subagent, parent.handle.context, attributes, links)
        known = subagent.announced or subagent.name is not None
        token = self._metrics.opened("subagent", subagent.name, announced=known, heard=self._heard)
        subagent.handle = AgentHandle(span, attributes, path, token, links)
        subagent.handle.told_input = told
        self._let_go_of_description(subagent)

    def announce_subagent(self, subagent: Subagent, at: int) -> None:
        """A subagent that was opened without SUBAGENT_STARTED, or re-opened from thread memory, is announced."""
        above = subagent.parent_agent
        assert above is not None
        attributes: Attributes = {}
        put(attributes, s.SUBAGENT_NAME, subagent.name)
        subagent.handle.path = _name(subagent, above.handle.path, attributes)
        self._describe_subagent(subagent, attributes)
        subagent.handle.told_input = self._tell_input(subagent, attributes)
        subagent.handle.span.update_name(_span_name(subagent))
        subagent.handle.set(attributes)
        self._let_go_of_description(subagent)
        self._metrics.renamed(subagent.handle.token, subagent.name)
        if subagent.restarted:
            self._waiting.resumed(subagent, at)

    def _describe_subagent(self, subagent: Subagent, attributes: Attributes) -> None:
        attributes[s.SUBAGENT_ANNOUNCED] = subagent.announced
        put(attributes, s.PARENT_TOOL_CALL_ID, subagent.parent_tool_call_id)
        put(attributes, s.PARENT_SUBAGENT_RUN_ID, subagent.parent_subagent_id)
        put(attributes, s.PARENT_MESSAGE_ID, subagent.parent_message_id)
        put(attributes, s.PROTOCOL_VERSION, self._protocol_version)
        if subagent.description is not None:
            self._content.description(subagent.description, attributes)

    def _tell_input(self, subagent: Subagent, attributes: Attributes) -> int:
        """A subagent's input: what its announcement says; else its parent tool call's arguments; else its description.

        Returns how many characters of arguments need not be told any more.
        """
        if subagent.asked is not None:
            self._content.agent_input(subagent.asked, attributes)
            return sys.maxsize
        tool = subagent.dispatched_by
        if tool is not None and tool.parts:
            self._content.agent_input(tool.text, attributes, tool.chars)
            return tool.chars
        if subagent.description is not None:
            self._content.agent_input(subagent.description, attributes)
        return 0

    def _let_go_of_description(self, subagent: Subagent) -> None:
        """It has been told; thread memory keeps its beginning, where content is captured."""
        subagent.asked = None
        if subagent.description is not None:
            kept = subagent.description[:MAX_REMEMBERED] if self._content.text_limit else None
            subagent.description = kept

    def _tell_late_input(self, subagent: Subagent, attributes: Attributes) -> None:
        """Where arguments of its parent tool call came after the subagent began, they are told at its end."""
        tool = subagent.dispatched_by
        if tool is not None and tool.parts and tool.chars > subagent.handle.told_input:
            self._content.agent_input(tool.text, attributes, tool.chars)

    def ended(self, run: Run) -> None:
        """The run's terminal event came: it is no longer active, though its span waits."""
        self._metrics.left(run.handle.token)

    def close(self, agent: Agent) -> None:
        """End an agent's span with all that is known of it."""
        handle: AgentHandle = agent.handle
        outcome, end = agent.outcome, agent.ended_at
        assert outcome is not None
        assert end is not None
        if isinstance(agent, Run):
            self._events.folded_state(agent)
        self._events.folded_steps(agent)
        self._events.activities(agent)
        attributes: Attributes = {s.OUTCOME: outcome.value}
        streamless = isinstance(agent, Run) and agent.streamless
        if streamless:
            attributes[s.STREAM] = "none"
        self._count(agent, attributes)
        if agent.first_chunk_at is not None:
            seconds = (agent.first_chunk_at - agent.opened_at) / 1e9
            attributes[s.TIME_TO_FIRST_CHUNK] = seconds
            if self._metrics.on:
                self._metrics.first_chunk(handle.token, seconds, handle.context)
        if isinstance(agent, Subagent):
            self._tell_late_input(agent, attributes)
        self._answer(agent, attributes)
        error_type = self._start.fail(agent, attributes)
        if outcome is Outcome.ERROR:
            attributes[s.CAUSE] = agent.cause
        attributes.update(handle.omissions())
        handle.set(attributes)
        handle.end(end)
        if streamless:
            self._metrics.left(handle.token)
        elif self._metrics.on:
            self._metrics.closed(
                handle.token,
                outcome=outcome.value,
                duration_s=(end - agent.opened_at) / 1e9,
                error_type=error_type,
                cause=agent.cause,
                context=handle.context,
            )

    def _count(self, agent: Agent, attributes: Attributes) -> None:
        attributes[s.EVENTS_COUNT] = agent.events
        if isinstance(agent, Run):
            attributes[s.EVENTS_COUNT] = agent.total_events
            attributes[s.ATTRIBUTION] = agent.attribution
            attributes[s.VIOLATIONS] = agent.violations
            if agent.implicit:
                attributes[s.RUN_IMPLICIT] = True
                if agent.in_midst and not (agent.goes_on or agent.replayed):
                    attributes[s.PARTIAL] = True
        if agent.timestamp is not None:
            attributes[s.EVENT_TIMESTAMP] = agent.timestamp
        if agent.raws:
            attributes[s.RAW_COUNT] = agent.raws
        if agent.encrypted:
            attributes[s.ENCRYPTED_COUNT] = agent.encrypted
        if agent.state_updates:
            attributes[s.STATE_UPDATES] = agent.state_updates
            if agent.state_paths is not None:
                self._events.put_paths(agent.state_paths.kept, agent.state_paths.omitted, attributes)

    def _answer(self, agent: Agent, attributes: Attributes) -> None:
        """A subagent's output is its result, else its last message; a run's the other way round."""
        says = agent.answer
        result_first = isinstance(agent, Subagent) and agent.result is not None
        if says is not None and not result_first:
            self._content.agent_output(says.text, attributes, says.chars)
        elif agent.result is not None:
            self._content.agent_output(agent.result, attributes)
        agent.answer = agent.result = None


def _span_name(agent: Agent) -> str:
    return f"invoke_agent {short(agent.name)}" if agent.name is not None else "invoke_agent"


def _name(agent: Agent, above: str | None, attributes: Attributes) -> str:
    """Name the agent and its place in the graph of agents; returns its path from the root."""
    attributes[s.GEN_AI_OPERATION_NAME] = "invoke_agent"
    label = short(agent.name) if agent.name is not None else "agent" if above is None else "unannounced"
    if agent.name is not None:
        attributes[s.GEN_AI_AGENT_NAME] = attributes[s.AGENT_NAME] = label
    path = label if above is None else f"{above}/{label}"[-MAX_PATH:]
    attributes[s.GRAPH_NODE_ID] = path
    attributes[s.GRAPH_NODE_NAME] = label
    if above is not None:
        attributes[s.GRAPH_NODE_PARENT_ID] = above
    return path
