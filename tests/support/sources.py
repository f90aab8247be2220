"""Sources of events for the ways in: short streams, and the ways in which a consumer reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

Event = dict[str, Any]

RUN: Event = {"type": "RUN_STARTED", "threadId": "thread", "runId": "run"}
DONE: Event = {"type": "RUN_FINISHED", "threadId": "thread", "runId": "run"}
FAILED: Event = {"type": "RUN_ERROR", "message": "broken", "code": "broke"}
INPUT: Event = {"threadId": "thread", "runId": "run", "messages": [], "tools": [], "context": [], "state": {}}

HALF: tuple[Event, ...] = (
    RUN,
    {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "scout"},
    {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "search", "subagentRunId": "s"},
    {"type": "TOOL_CALL_ARGS", "toolCallId": "c", "delta": "{}"},
    {"type": "TEXT_MESSAGE_START", "messageId": "m"},
    {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hello"},
)
"""A run with a subagent, its tool call and a message, all open."""

WHOLE: tuple[Event, ...] = (
    *HALF,
    {"type": "TEXT_MESSAGE_END", "messageId": "m"},
    {"type": "TOOL_CALL_END", "toolCallId": "c"},
    {"type": "TOOL_CALL_RESULT", "messageId": "r", "toolCallId": "c", "content": "42"},
    {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"},
    DONE,
)
"""The same run, finished."""


def custom(name: str) -> Event:
    """A CUSTOM event."""
    return {"type": "CUSTOM", "name": name, "value": None}


def tool_call(ident: str, name: str = "f", **fields: Any) -> list[Event]:
    """A call with empty arguments, without its result."""
    return [
        {"type": "TOOL_CALL_START", "toolCallId": ident, "toolCallName": name, **fields},
        {"type": "TOOL_CALL_END", "toolCallId": ident},
    ]


def result(ident: str, content: Any = "done", **fields: Any) -> Event:
    """The result of a call."""
    return {
        "type": "TOOL_CALL_RESULT",
        "messageId": f"{ident}-result",
        "toolCallId": ident,
        "content": content,
        **fields,
    }


def message(ident: str, text: str, **fields: Any) -> list[Event]:
    """A whole message of one delta."""
    return [
        {"type": "TEXT_MESSAGE_START", "messageId": ident, **fields},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": ident, "delta": text},
        {"type": "TEXT_MESSAGE_END", "messageId": ident},
    ]


def subagent(ident: str, name: str, **fields: Any) -> Event:
    """A subagent begins."""
    return {"type": "SUBAGENT_STARTED", "subagentRunId": ident, "name": name, **fields}


def finished(ident: str, **fields: Any) -> Event:
    """A subagent has finished."""
    return {"type": "SUBAGENT_FINISHED", "subagentRunId": ident, **fields}


async def produced(events: Iterable[Any]) -> AsyncIterator[Any]:
    """The events as an async generator."""
    for event in events:
        yield event


def produced_sync(events: Iterable[Any]) -> Iterator[Any]:
    """The events as a generator."""
    yield from events


async def read(stream: AsyncIterator[Any]) -> list[Any]:
    """All that comes out of a stream."""
    return [event async for event in stream]
