"""A full specimen of each of the 31 event types, and ways to spoil one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

from tests.support.vocabulary import Event

_BASE: Event = {"timestamp": 1700000000000, "rawEvent": {"provider": [1]}, "metadata": {"key": None}}
_TAGGED: Event = {**_BASE, "subagentRunId": "s"}
_PARTS: list[Any] = [
    {"type": "text", "text": "t", "id": "p", "metadata": 1},
    {"type": "image", "source": {"type": "data", "value": "AA==", "mimeType": "image/png"}, "metadata": {}},
    {"type": "audio", "source": {"type": "url", "value": "https://example.org", "mimeType": "audio/wav"}},
    {"type": "video", "source": {"type": "url", "value": "https://example.org"}},
    {"type": "document", "source": {"type": "file", "value": "f", "provider": "p", "mimeType": "text/plain"}},
]
_PATCH: list[Any] = [
    {"op": "add", "path": "", "value": None},
    {"op": "replace", "path": "/a~1b", "value": 1},
    {"op": "test", "path": "/", "value": []},
    {"op": "remove", "path": "/a/0", "value": "left over"},
    {"op": "move", "path": "/a", "from": "/b~0"},
    {"op": "copy", "path": "/-", "from": ""},
]
_CALL: Event = {
    "id": "c",
    "type": "function",
    "function": {"name": "f", "arguments": "{}"},
    "encryptedValue": "e",
    "metadata": {},
}
_SPEAKER: Event = {"name": "n", "encryptedValue": "e", "metadata": {}, "subagentRunId": "s"}
_MESSAGES: list[Any] = [
    {"id": "1", "role": "developer", "content": "t", **_SPEAKER},
    {"id": "2", "role": "system", "content": "t", **_SPEAKER},
    {"id": "3", "role": "assistant", "content": "t", "toolCalls": [_CALL], **_SPEAKER},
    {"id": "4", "role": "user", "content": _PARTS, **_SPEAKER},
    {"id": "5", "role": "tool", "content": _PARTS[:1], "toolCallId": "c", "error": "e", "metadata": {}},
    {"id": "6", "role": "activity", "activityType": "t", "content": {"k": 1}, "metadata": {}},
    {"id": "7", "role": "reasoning", "content": "t", "encryptedValue": "e", "metadata": {}},
]
_USAGE: list[Any] = [
    {
        "provider": "p",
        "model": "m",
        "inputTokens": 1,
        "outputTokens": 2,
        "totalTokens": 3,
        "reasoningTokens": 1,
        "cachedInputTokens": 0,
        "cacheWriteInputTokens": 0,
    }
]
_INPUT: Event = {
    "threadId": "t",
    "runId": "r",
    "protocolVersion": "1.0",
    "parentRunId": "p",
    "state": {"k": 1},
    "messages": _MESSAGES,
    "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}, "metadata": {}}],
    "context": [{"description": "d", "value": "v"}],
    "forwardedProps": {"k": 1},
    "resume": [{"interruptId": "i", "status": "resolved", "payload": 1, "metadata": {}}],
}
_INTERRUPT: Event = {
    "id": "i",
    "reason": "r",
    "message": "m",
    "toolCallId": "c",
    "responseSchema": {},
    "expiresAt": "e",
    "metadata": {},
    "subagentRunId": "s",
}
_INTERRUPTED: Event = {"type": "interrupt", "interrupts": [_INTERRUPT]}

SPECIMENS: list[Event] = [
    {"type": "RUN_STARTED", **_BASE, "threadId": "t", "runId": "r", "parentRunId": "p", "input": _INPUT},
    {"type": "RUN_STARTED", **_BASE, "threadId": "t", "runId": "r", "protocolVersion": "1.0"},
    {
        "type": "RUN_FINISHED",
        **_BASE,
        "threadId": "t",
        "runId": "r",
        "outcome": _INTERRUPTED,
        "usage": _USAGE,
    },
    {
        "type": "RUN_FINISHED",
        "threadId": "t",
        "runId": "r",
        "result": {"k": 1},
        "outcome": {"type": "success", "pendingToolCallIds": ["c"]},
    },
    {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": {"type": "cancelled"}},
    {"type": "RUN_ERROR", **_BASE, "message": "m", "code": "c", "usage": _USAGE},
    {"type": "STEP_STARTED", **_TAGGED, "stepName": "n"},
    {"type": "STEP_FINISHED", **_TAGGED, "stepName": "n"},
    {"type": "TEXT_MESSAGE_START", **_TAGGED, "messageId": "m", "role": "user", "name": "n"},
    {"type": "TEXT_MESSAGE_CONTENT", **_TAGGED, "messageId": "m", "delta": "d"},
    {"type": "TEXT_MESSAGE_END", **_TAGGED, "messageId": "m"},
    {"type": "TEXT_MESSAGE_CHUNK", **_TAGGED, "messageId": "m", "role": "user", "delta": "d", "name": "n"},
    {"type": "TOOL_CALL_START", **_TAGGED, "toolCallId": "c", "toolCallName": "f", "parentMessageId": "m"},
    {"type": "TOOL_CALL_ARGS", **_TAGGED, "toolCallId": "c", "delta": "d"},
    {"type": "TOOL_CALL_END", **_TAGGED, "toolCallId": "c"},
    {
        "type": "TOOL_CALL_CHUNK",
        **_TAGGED,
        "toolCallId": "c",
        "toolCallName": "f",
        "parentMessageId": "m",
        "delta": "d",
    },
    {
        "type": "TOOL_CALL_RESULT",
        **_TAGGED,
        "messageId": "m",
        "toolCallId": "c",
        "content": _PARTS,
        "role": "tool",
    },
    {"type": "TOOL_CALL_RESULT", "messageId": "m", "toolCallId": "c", "content": "text"},
    {"type": "REASONING_START", **_TAGGED, "messageId": "m"},
    {"type": "REASONING_END", **_TAGGED, "messageId": "m"},
    {"type": "REASONING_MESSAGE_START", **_TAGGED, "messageId": "m", "role": "reasoning"},
    {"type": "REASONING_MESSAGE_CONTENT", **_TAGGED, "messageId": "m", "delta": "d"},
    {"type": "REASONING_MESSAGE_END", **_TAGGED, "messageId": "m"},
    {"type": "REASONING_MESSAGE_CHUNK", **_TAGGED, "messageId": "m", "delta": "d"},
    {
        "type": "REASONING_ENCRYPTED_VALUE",
        **_TAGGED,
        "entityId": "m",
        "subtype": "tool-call",
        "encryptedValue": "e",
    },
    {"type": "STATE_SNAPSHOT", **_TAGGED, "snapshot": {"k": [None]}},
    {"type": "STATE_DELTA", **_TAGGED, "delta": _PATCH},
    {"type": "MESSAGES_SNAPSHOT", **_BASE, "messages": _MESSAGES},
    {
        "type": "ACTIVITY_SNAPSHOT",
        **_TAGGED,
        "messageId": "m",
        "activityType": "t",
        "content": {"k": None},
        "replace": False,
    },
    {"type": "ACTIVITY_DELTA", **_TAGGED, "messageId": "m", "activityType": "t", "patch": _PATCH},
    {"type": "RAW", **_TAGGED, "event": None, "source": "s"},
    {"type": "CUSTOM", **_TAGGED, "name": "n", "value": None},
    {
        "type": "SUBAGENT_STARTED",
        **_TAGGED,
        "name": "n",
        "description": "d",
        "parentSubagentRunId": "p",
        "parentToolCallId": "c",
        "parentMessageId": "m",
    },
    {
        "type": "SUBAGENT_FINISHED",
        **_TAGGED,
        "result": 1,
        "outcome": {"type": "suspended", "interruptIds": ["i"]},
    },
    {"type": "SUBAGENT_FINISHED", "subagentRunId": "s", "outcome": {"type": "success"}},
    {"type": "SUBAGENT_ERROR", **_TAGGED, "message": "m", "code": "c"},
]
"""Well-formed events, at least one a type, that together use every field of the event schema."""

_ODD: tuple[Any, ...] = (
    *(None, None, True, False, 0, -1, 1.0, -0.0, 1.5, 2**53 - 1, 2**53, 2.0**53, -(2**53), 10**400),
    *("", "x", "/a", "/~2", "/a\n", "tool", "user", "success", "reasoning", "add", "\ud800"),
    *(
        [],
        [None],
        ["x"],
        [{}],
        {},
        {"type": "text"},
        {"type": "success"},
        {"type": "interrupt", "interrupts": []},
    ),
    *({"type": "interrupt", "interrupts": [{"reason": "r"}]}, {"type": "suspended"}, {"type": ["text"]}),
)


def spoil(random: Random, event: Event) -> Event:
    """A copy of `event` in which up to three values of any depth are odd, missing or new; its type stays."""
    spoiled = copy.deepcopy(event)
    for _ in range(random.randrange(1, 4)):
        places = [place for place in _places(spoiled) if place[0] is not spoiled or place[1] != "type"]
        holder, key = random.choice([*places, (spoiled, "extra")])
        act, odd = random.random(), copy.deepcopy(random.choice(_ODD))
        if act < 0.3 and key != "extra":
            del holder[key]
        elif act < 0.4 and isinstance(holder, dict):
            holder[random.choice(("extra", "toolCalls", "outcome", "name"))] = copy.deepcopy(random.choice(_ODD))
        else:
            holder[key] = odd
    return spoiled


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value, as what holds it and the key or index in there."""
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])
