"""The fields of the 31 event types. The authority is the event schema of AG-UI 1.0.

One optional field is stricter than `checks` says: a RUN_FINISHED outcome of a *known* type with a broken inside is
wrong as a whole, because without it an interrupted run would read as a success.
"""

from __future__ import annotations

from agui_otel.protocol.checks import (
    ANYTHING,
    BOOLEAN,
    JSON_POINTER,
    LARGEST_INTEGER,
    MAPPING,
    STRING,
    Array,
    Check,
    OneOf,
    Shape,
    Tagged,
    TextOr,
    integer,
)


def _optional_strings(*names: str) -> dict[str, Check]:
    return dict.fromkeys(names, STRING)


_COUNT = integer(0)
_STRINGS = Array(STRING)

_SOURCE = Tagged(
    "type",
    {
        "data": Shape({"value": STRING, "mimeType": STRING}, {}),
        "url": Shape({"value": STRING}, {"mimeType": STRING}),
        "file": Shape({"value": STRING}, {"provider": STRING, "mimeType": STRING}),
    },
)
_MEDIA = Shape({"source": _SOURCE}, {"id": STRING, "metadata": ANYTHING})
_PARTS = Array(
    Tagged(
        "type",
        {
            "text": Shape({"text": STRING}, {"id": STRING, "metadata": ANYTHING}),
            **dict.fromkeys(("image", "audio", "video", "document"), _MEDIA),
        },
    )
)

_WITH_VALUE = Shape({"path": JSON_POINTER, "value": ANYTHING}, {})
_WITH_FROM = Shape({"path": JSON_POINTER, "from": JSON_POINTER}, {})
_PATCH = Array(
    Tagged(
        "op",
        {
            "add": _WITH_VALUE,
            "replace": _WITH_VALUE,
            "test": _WITH_VALUE,
            "remove": Shape({"path": JSON_POINTER}, {}),
            "move": _WITH_FROM,
            "copy": _WITH_FROM,
        },
    )
)

_FUNCTION = Shape({"name": STRING, "arguments": STRING}, {})
_TOOL_CALL = Shape(
    {"id": STRING, "type": OneOf("function"), "function": _FUNCTION},
    {"encryptedValue": STRING, "metadata": MAPPING},
)


def _message(required: dict[str, Check], *optional: str, **other: Check) -> Shape:
    common: dict[str, Check] = {"subagentRunId": STRING, "metadata": MAPPING}
    return Shape({"id": STRING, **required}, {**common, **_optional_strings(*optional), **other})


_MESSAGES = Array(
    Tagged(
        "role",
        {
            "developer": _message({"content": STRING}, "name", "encryptedValue"),
            "system": _message({"content": STRING}, "name", "encryptedValue"),
            "assistant": _message({}, "name", "encryptedValue", "content", toolCalls=Array(_TOOL_CALL)),
            "user": _message({"content": TextOr(_PARTS)}, "name", "encryptedValue"),
            "tool": _message({"content": TextOr(_PARTS), "toolCallId": STRING}, "error", "encryptedValue"),
            "activity": _message({"activityType": STRING, "content": MAPPING}),
            "reasoning": _message({"content": STRING}, "encryptedValue"),
        },
    )
)

_INPUT = Shape(
    {"threadId": STRING, "runId": STRING, "messages": _MESSAGES},
    {
        **_optional_strings("protocolVersion", "parentRunId"),
        "state": ANYTHING,
        "tools": Array(Shape({"name": STRING, "description": STRING}, {"parameters": ANYTHING, "metadata": MAPPING})),
        "context": Array(Shape({"description": STRING, "value": STRING}, {})),
        "forwardedProps": ANYTHING,
        "resume": Array(
            Shape(
                {"interruptId": STRING, "status": OneOf("resolved", "cancelled")},
                {"payload": ANYTHING, "metadata": MAPPING},
            )
        ),
    },
)

_INTERRUPT = Shape(
    {"id": STRING, "reason": STRING},
    {
        **_optional_strings("subagentRunId", "message", "toolCallId", "expiresAt"),
        "responseSchema": MAPPING,
        "metadata": MAPPING,
    },
)
_RUN_OUTCOME = Tagged(
    "type",
    {
        "success": Shape({}, {"pendingToolCallIds": _STRINGS}),
        "interrupt": Shape({"interrupts": Array(_INTERRUPT, smallest=1)}, {}),
        "cancelled": Shape({}, {}),
    },
    fatal=True,
)
_SUBAGENT_OUTCOME = Tagged("type", {"success": Shape({}, {}), "suspended": Shape({}, {"interruptIds": _STRINGS})})
_COUNTS = ("input", "output", "total", "reasoning", "cachedInput", "cacheWriteInput")
_USAGE = Array(Shape({}, {**_optional_strings("provider", "model"), **{f"{name}Tokens": _COUNT for name in _COUNTS}}))

_BASE: dict[str, Check] = {
    "timestamp": integer(-LARGEST_INTEGER),
    "rawEvent": ANYTHING,
    "metadata": MAPPING,
}


def _run_level(*required: str, **checks: Check) -> Shape:
    """An event of the run or of a subagent's life: its own fields, and no tag beside them."""
    return Shape(dict.fromkeys(required, STRING), {**_BASE, **checks})


def _event(*required: str, **checks: Check) -> Shape:
    """An event that may carry a subagent's tag; `checks` are its optional fields."""
    return _run_level(*required, subagentRunId=STRING, **checks)


def _carrying(content: dict[str, Check], *required: str, **checks: Check) -> Shape:
    """An event that may carry a tag, and must carry `content`."""
    event = _event(*required, **checks)
    return Shape({**event.required, **content}, event.optional)


_TEXT_ROLE = OneOf("developer", "system", "assistant", "user")

EVENTS: dict[str, Shape] = {
    "TEXT_MESSAGE_START": _event("messageId", role=_TEXT_ROLE, name=STRING),
    "TEXT_MESSAGE_CONTENT": _event("messageId", "delta"),
    "TEXT_MESSAGE_END": _event("messageId"),
    "TEXT_MESSAGE_CHUNK": _event(messageId=STRING, role=_TEXT_ROLE, delta=STRING, name=STRING),
    "TOOL_CALL_START": _event("toolCallId", "toolCallName", parentMessageId=STRING),
    "TOOL_CALL_ARGS": _event("toolCallId", "delta"),
    "TOOL_CALL_END": _event("toolCallId"),
    "TOOL_CALL_CHUNK": _event(toolCallId=STRING, toolCallName=STRING, parentMessageId=STRING, delta=STRING),
    "TOOL_CALL_RESULT": _carrying({"content": TextOr(_PARTS)}, "messageId", "toolCallId", role=OneOf("tool")),
    "STATE_SNAPSHOT": _carrying({"snapshot": ANYTHING}),
    "STATE_DELTA": _carrying({"delta": _PATCH}),
    "MESSAGES_SNAPSHOT": Shape({"messages": _MESSAGES}, _BASE),
    "ACTIVITY_SNAPSHOT": _carrying({"content": MAPPING}, "messageId", "activityType", replace=BOOLEAN),
    "ACTIVITY_DELTA": _carrying({"patch": _PATCH}, "messageId", "activityType"),
    "RAW": _carrying({"event": ANYTHING}, source=STRING),
    "CUSTOM": _carrying({"value": ANYTHING}, "name"),
    "RUN_STARTED": _run_level("threadId", "runId", protocolVersion=STRING, parentRunId=STRING, input=_INPUT),
    "RUN_FINISHED": _run_level("threadId", "runId", result=ANYTHING, outcome=_RUN_OUTCOME, usage=_USAGE),
    "RUN_ERROR": _run_level("message", code=STRING, usage=_USAGE),
    "STEP_STARTED": _event("stepName"),
    "STEP_FINISHED": _event("stepName"),
    "REASONING_START": _event("messageId"),
    "REASONING_MESSAGE_START": _carrying({"role": OneOf("reasoning")}, "messageId"),
    "REASONING_MESSAGE_CONTENT": _event("messageId", "delta"),
    "REASONING_MESSAGE_END": _event("messageId"),
    "REASONING_MESSAGE_CHUNK": _event(messageId=STRING, delta=STRING),
    "REASONING_END": _event("messageId"),
    "REASONING_ENCRYPTED_VALUE": _carrying({"subtype": OneOf("tool-call", "message")}, "entityId", "encryptedValue"),
    "SUBAGENT_STARTED": _run_level(
        "subagentRunId",
        "name",
        **_optional_strings("description", "parentSubagentRunId", "parentToolCallId", "parentMessageId"),
    ),
    "SUBAGENT_FINISHED": _run_level("subagentRunId", result=ANYTHING, outcome=_SUBAGENT_OUTCOME),
    "SUBAGENT_ERROR": _run_level("subagentRunId", "message", code=STRING),
}
"""The shape of each event type; `type` itself is settled before a shape is asked."""
