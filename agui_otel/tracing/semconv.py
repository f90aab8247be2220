"""Every attribute and span event name this package writes, once.

Three vocabularies meet here: OpenInference (what Phoenix reads), OpenTelemetry's GenAI conventions, and ``agui.*`` for
what neither has a word for. docs/trace-model.md says what each of ours means.
"""

from __future__ import annotations

from typing import Final

# OpenInference
SPAN_KIND: Final = "openinference.span.kind"
SESSION_ID: Final = "session.id"
USER_ID: Final = "user.id"
METADATA: Final = "metadata"
INPUT_VALUE: Final = "input.value"
INPUT_MIME_TYPE: Final = "input.mime_type"
OUTPUT_VALUE: Final = "output.value"
OUTPUT_MIME_TYPE: Final = "output.mime_type"
AGENT_NAME: Final = "agent.name"
GRAPH_NODE_ID: Final = "graph.node.id"
GRAPH_NODE_NAME: Final = "graph.node.name"
GRAPH_NODE_PARENT_ID: Final = "graph.node.parent_id"
TOOL_NAME: Final = "tool.name"
TOOL_ID: Final = "tool.id"
TOOL_PARAMETERS: Final = "tool.parameters"
LLM_PROVIDER: Final = "llm.provider"
LLM_MODEL_NAME: Final = "llm.model_name"
LLM_TOKEN_COUNT: Final = {
    "input": "llm.token_count.prompt",
    "output": "llm.token_count.completion",
    "total": "llm.token_count.total",
    "cached_input": "llm.token_count.prompt_details.cache_read",
    "cache_write_input": "llm.token_count.prompt_details.cache_write",
    "reasoning": "llm.token_count.completion_details.reasoning",
}

# OpenTelemetry, general and GenAI
ERROR_TYPE: Final = "error.type"
EXCEPTION: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
GEN_AI_AGENT_DESCRIPTION: Final = "gen_ai.agent.description"
GEN_AI_INPUT_MESSAGES: Final = "gen_ai.input.messages"
GEN_AI_OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
GEN_AI_TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
GEN_AI_TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
GEN_AI_TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_USAGE: Final = {
    "input": "gen_ai.usage.input_tokens",
    "output": "gen_ai.usage.output_tokens",
    "cached_input": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_input": "gen_ai.usage.cache_creation.input_tokens",
    "reasoning": "gen_ai.usage.reasoning.output_tokens",
}

# Metrics only
TOKEN_TYPE: Final = "gen_ai.token.type"
LEVEL: Final = "agui.level"
STORE: Final = "agui.store"
EXPORT_RESULT: Final = "agui.result"
WHERE: Final = "agui.where"

# What we say: identity
THREAD_ID: Final = "agui.thread.id"
RUN_ID: Final = "agui.run.id"
RUN_IMPLICIT: Final = "agui.run.implicit"
INPUT_RUN_ID: Final = "agui.input.run_id"
PARENT_RUN_ID: Final = "agui.parent_run.id"
PROTOCOL_VERSION: Final = "agui.protocol.version"
SUBAGENT_RUN_ID: Final = "agui.subagent.run_id"
SUBAGENT_NAME: Final = "agui.subagent.name"
SUBAGENT_ANNOUNCED: Final = "agui.subagent.announced"
PARENT_TOOL_CALL_ID: Final = "agui.parent_tool_call.id"
PARENT_SUBAGENT_RUN_ID: Final = "agui.parent_subagent.run_id"
PARENT_MESSAGE_ID: Final = "agui.parent_message.id"
LATE_CHILD_SPAN_ID: Final = "agui.late_child.span_id"
STEP_NAME: Final = "agui.step.name"
MESSAGE_ID: Final = "agui.message.id"
MESSAGE_ROLE: Final = "agui.message.role"
AMBIENT_TRACE_ID: Final = "agui.ambient.trace_id"
AMBIENT_SPAN_ID: Final = "agui.ambient.span_id"

# What we say: how it went
OUTCOME: Final = "agui.outcome"
CAUSE: Final = "agui.cause"
STREAM: Final = "agui.stream"
EVENTS_COUNT: Final = "agui.events.count"
EVENT_TIMESTAMP: Final = "agui.event.timestamp"
ATTRIBUTION: Final = "agui.attribution"
VIOLATIONS: Final = "agui.violations"
UNCLOSED: Final = "agui.unclosed"
CHUNKS: Final = "agui.chunks"
CHARS: Final = "agui.chars"
TIME_TO_FIRST_CHUNK: Final = "agui.time_to_first_chunk"
MAX_CHUNK_GAP: Final = "agui.max_chunk_gap"
TOOL_ARGS_MS: Final = "agui.tool_call.args_ms"
TOOL_ANSWERED_BY: Final = "agui.tool_call.answered_by"
TOOL_ANSWERED_BY_NAME: Final = "agui.tool_call.answered_by_name"
RAW_COUNT: Final = "agui.raw.count"
ENCRYPTED_COUNT: Final = "agui.encrypted.count"
TRUNCATED: Final = "agui.truncated"
SYNTHESIZED: Final = "agui.synthesized"
OMITTED: Final = "agui.omitted."
"""Prefix: how many of a kind a span's caps left out, ``agui.omitted.custom`` for instance."""

# What we say: suspension and resumption
CONTINUED: Final = "agui.continued"
CONTINUES_TRACE_ID: Final = "agui.continues.trace_id"
CONTINUES_SPAN_ID: Final = "agui.continues.span_id"
CONTINUES_RUN_ID: Final = "agui.continues.run_id"
REPLAYED: Final = "agui.replayed"
PARTIAL: Final = "agui.partial"
REPEATS_TRACE_ID: Final = "agui.repeats.trace_id"
REPEATS_SPAN_ID: Final = "agui.repeats.span_id"
RESUMES_TRACE_ID: Final = "agui.resumes.trace_id"
RESUMES_SPAN_ID: Final = "agui.resumes.span_id"
RESUMES_RUN_ID: Final = "agui.resumes.run_id"
INTERRUPT_ID: Final = "agui.interrupt.id"
INTERRUPT_IDS: Final = "agui.interrupt.ids"
INTERRUPT_REASON: Final = "agui.interrupt.reason"
INTERRUPT_MESSAGE: Final = "agui.interrupt.message"
INTERRUPT_TOOL_CALL_ID: Final = "agui.interrupt.tool_call_id"
INTERRUPT_EXPIRES_AT: Final = "agui.interrupt.expires_at"
INTERRUPT_WAIT: Final = "agui.interrupt.wait"
INTERRUPT_DECISION: Final = "agui.interrupt.decision"
TOOL_CALL_WAIT: Final = "agui.tool_call.wait"

# What we say: span events and what they carry
EVENT_STATE: Final = {"snapshot": "agui.state.snapshot", "delta": "agui.state.delta"}
EVENT_STATE_OVERWRITE: Final = "agui.state.overwrite"
EVENT_STATE_FOLDED: Final = "agui.state.updates_folded"
EVENT_STEP: Final = "agui.step"
EVENT_CUSTOM: Final = "agui.custom"
EVENT_ACTIVITY: Final = "agui.activity"
EVENT_MESSAGES_SNAPSHOT: Final = "agui.messages.snapshot"
EVENT_UNKNOWN: Final = "agui.unknown_event"
EVENT_VIOLATION: Final = "agui.violation"
EVENT_NOTE: Final = "agui.note"
EVENT_SUSPENDED: Final = "agui.subagent.suspended"
EVENT_RESUMED: Final = "agui.subagent.resumed"
EVENT_INTERRUPT: Final = "agui.interrupt"
EVENT_INTERRUPT_ANSWERED: Final = {
    "resolved": "agui.interrupt.resolved",
    "cancelled": "agui.interrupt.cancelled",
}
EVENT_TOOL_CALL_ANSWERED: Final = "agui.tool_call.answered"
STATE_SEQ: Final = "agui.state.seq"
STATE_FIRST_SEQ: Final = "agui.state.first_seq"
STATE_LAST_SEQ: Final = "agui.state.last_seq"
STATE_COUNT: Final = "agui.state.count"
STATE_OP_COUNT: Final = "agui.state.op_count"
STATE_PATH: Final = "agui.state.path"
STATE_PATHS: Final = "agui.state.paths"
STATE_PATHS_OMITTED: Final = "agui.state.paths_omitted"
STATE_UPDATES: Final = "agui.state.updates"
STATE_PREVIOUS_RUN_ID: Final = "agui.state.previous.subagent.run_id"
STATE_PREVIOUS_NAME: Final = "agui.state.previous.subagent.name"
STEP_COUNT: Final = "agui.step.count"
STEP_DURATION: Final = "agui.step.duration"
CUSTOM_NAME: Final = "agui.custom.name"
CUSTOM_VALUE: Final = "agui.custom.value"
ACTIVITY_TYPE: Final = "agui.activity.type"
ACTIVITY_UPDATES: Final = "agui.activity.updates"
MESSAGES_COUNT: Final = "agui.messages.count"
MESSAGES_OWNERS: Final = "agui.messages.owners"
MESSAGES_OWNER_COUNTS: Final = "agui.messages.owner_counts"
EVENT_TYPE: Final = "agui.event.type"
EVENT_INDEX: Final = "agui.event.index"
RULE: Final = "agui.rule"
MESSAGE: Final = "agui.message"

MAX_SPAN_EVENTS: Final = 128
"""What the SDK keeps of a span's events, and of its links, by default; it evicts the oldest: we stop before."""
