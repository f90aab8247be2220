"""What an `Author` may say: the few ids of all entities, how events are spelt, values for their fields."""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]

IDS = ("", "a", "b", "c", "d", "e")
SUBAGENTS = ("", "a", "s", "t")
STEPS = ("", "a", "plan")

SPELLING = {
    "message": ("TEXT_MESSAGE", "CONTENT", "messageId"),
    "tool": ("TOOL_CALL", "ARGS", "toolCallId"),
    "reasoning": ("REASONING_MESSAGE", "CONTENT", "messageId"),
    "span": ("REASONING", None, "messageId"),
}
CHUNKED = ("message", "tool", "reasoning")
_STREAMED = {
    f"{prefix}_{part}" for prefix, content, _ in SPELLING.values() for part in ("START", content or "START", "END")
}
CLOSES_OWN = _STREAMED | {
    *("TOOL_CALL_RESULT", "STATE_SNAPSHOT", "STATE_DELTA", "CUSTOM", "STEP_STARTED", "STEP_FINISHED")
}

RUN_LEVEL = ("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "MESSAGES_SNAPSHOT")

ORNAMENTS: tuple[Event, ...] = (
    {"timestamp": 1.0},
    {"timestamp": None},
    {"metadata": {"k": None}},
    {"metadata": None},
    {"rawEvent": {"p": 1}},
    {"rawEvent": None},
    {"unheardOf": [1]},
)
SUBSTANCE: tuple[Event, ...] = (
    {},
    {"delta": "x"},
    {"delta": "x"},
    {"delta": ""},
    {"delta": None},
    {"metadata": {"k": 1}},
    {"rawEvent": 1, "delta": "x"},
    {"unheardOf": 1},
)
MESSAGE_FIELDS: dict[str, Event] = {
    "developer": {"content": "t"},
    "system": {"content": "t", "name": None},
    "assistant": {},
    "user": {"content": [{"type": "text", "text": "t"}]},
    "tool": {"content": "t", "toolCallId": "a"},
    "activity": {"activityType": "t", "content": {}},
    "reasoning": {"content": "t"},
}
SUBAGENT_ENDS: tuple[tuple[str, Event], ...] = (
    ("SUBAGENT_FINISHED", {}),
    ("SUBAGENT_FINISHED", {"result": None, "outcome": {"type": "success"}}),
    ("SUBAGENT_FINISHED", {"outcome": {"type": "suspended", "interruptIds": ["i"]}}),
    ("SUBAGENT_ERROR", {"message": "broken", "code": "c"}),
)
RUN_OUTCOMES: tuple[Event, ...] = (
    {},
    {"outcome": None, "usage": [{"inputTokens": 1.0, "model": None}]},
    {"outcome": {"type": "success", "pendingToolCallIds": ["a"]}},
    {"outcome": {"type": "interrupt", "interrupts": [{"id": "i", "reason": "r", "message": None}]}},
    {"outcome": {"type": "cancelled"}, "result": [None]},
)
ASIDES: dict[str, Event] = {
    "STATE_SNAPSHOT": {"snapshot": None},
    "STATE_DELTA": {"delta": [{"op": "add", "path": "/a", "value": None}]},
    "CUSTOM": {"name": "n", "value": None},
    "RAW": {"event": None, "source": None},
    "FUTURE_EVENT": {"messageId": 1},
    "MESSAGES_SNAPSHOT": {},
    "TOOL_CALL_RESULT": {},
    "ACTIVITY_SNAPSHOT": {},
    "ACTIVITY_DELTA": {},
    "REASONING_ENCRYPTED_VALUE": {},
}

_ID: dict[str, Any] = {"messageId": IDS}
_CALL: dict[str, Any] = {"toolCallId": IDS}
_TEXT: dict[str, Any] = {"delta": ("", "x")}
_NAMES: dict[str, Any] = {"role": ("user", "assistant", None), "name": ("n", "m", None)}
_OUTCOMES: dict[str, Any] = {
    "outcome": ({"type": "success", "interruptIds": [1]}, {"type": "suspended", "interruptIds": None}, None)
}
_RUN: dict[str, Any] = {"threadId": ("thread",), "runId": IDS}

WELL_FORMED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "RUN_STARTED": (_RUN, {"parentRunId": ("p", None), "protocolVersion": ("1.0", None)}),
    "RUN_FINISHED": (_RUN, {"result": (1, None), "subagentRunId": (None,)}),
    "RUN_ERROR": ({"message": ("m",)}, {"code": ("c", None)}),
    "STEP_STARTED": ({"stepName": STEPS}, {}),
    "STEP_FINISHED": ({"stepName": STEPS}, {}),
    "TEXT_MESSAGE_START": (_ID, _NAMES),
    "TEXT_MESSAGE_CONTENT": ({**_ID, **_TEXT}, {}),
    "TEXT_MESSAGE_END": (_ID, {}),
    "TEXT_MESSAGE_CHUNK": ({}, {"messageId": (*IDS, None), "delta": ("x", None), **_NAMES}),
    "TOOL_CALL_START": ({**_CALL, "toolCallName": ("f",)}, {"parentMessageId": (*IDS, None)}),
    "TOOL_CALL_ARGS": ({**_CALL, **_TEXT}, {}),
    "TOOL_CALL_END": (_CALL, {}),
    "TOOL_CALL_CHUNK": (
        {},
        {
            "toolCallId": (*IDS, None),
            "toolCallName": ("f", "g", None),
            "parentMessageId": (*IDS, None),
            "delta": ("x", None),
        },
    ),
    "TOOL_CALL_RESULT": ({**_ID, **_CALL, "content": ("", [])}, {"role": ("tool", None)}),
    "REASONING_START": (_ID, {}),
    "REASONING_END": (_ID, {}),
    "REASONING_MESSAGE_START": ({**_ID, "role": ("reasoning",)}, {}),
    "REASONING_MESSAGE_CONTENT": ({**_ID, **_TEXT}, {}),
    "REASONING_MESSAGE_END": (_ID, {}),
    "REASONING_MESSAGE_CHUNK": ({}, {"messageId": (*IDS, None), "delta": ("x", None), "role": (1,)}),
    "REASONING_ENCRYPTED_VALUE": (
        {"entityId": IDS, "subtype": ("tool-call", "message"), "encryptedValue": ("x",)},
        {},
    ),
    "STATE_SNAPSHOT": ({"snapshot": (None, {}, 1)}, {}),
    "STATE_DELTA": ({"delta": ([], [{"op": "move", "from": "/~1", "path": ""}])}, {}),
    "MESSAGES_SNAPSHOT": ({}, {}),
    "ACTIVITY_SNAPSHOT": (
        {**_ID, "activityType": ("t",), "content": ({},)},
        {"replace": (True, False, None)},
    ),
    "ACTIVITY_DELTA": ({**_ID, "activityType": ("t",), "patch": ([],)}, {}),
    "RAW": ({"event": (None, 1)}, {"source": ("s", None)}),
    "CUSTOM": ({"name": ("n",), "value": (None, 1)}, {}),
    "SUBAGENT_STARTED": (
        {"subagentRunId": SUBAGENTS, "name": ("", "worker")},
        {
            "description": ("d", None),
            "parentSubagentRunId": (*SUBAGENTS, None),
            "parentToolCallId": (*IDS, None),
            "parentMessageId": (*IDS, None),
            **_OUTCOMES,
        },
    ),
    "SUBAGENT_FINISHED": ({"subagentRunId": SUBAGENTS}, {"result": (1, None), **_OUTCOMES}),
    "SUBAGENT_ERROR": ({"subagentRunId": SUBAGENTS, "message": ("m",)}, {"code": ("c", None), **_OUTCOMES}),
}
"""Each of the 31 types with values that its required and its optional fields may have."""
