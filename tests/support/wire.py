"""AG-UI events as dicts in wire form, in few words: what the tests of tracing feed.

An event's tag is `tag`; None is no tag. Other keywords are fields of the event by their wire names. `run` and `thread`
are the ids of the run that streams speak of unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Event = dict[str, Any]
Part = Any
"""An event, or a list of parts: streams are written as nested lists."""


def flat(parts: Iterable[Part]) -> Iterator[Event]:
    """The events of nested lists, in order."""
    for part in parts:
        if isinstance(part, list | tuple):
            yield from flat(part)
        else:
            yield part


def event(kind: str, tag: str | None = None, **fields: Any) -> Event:
    """An event of type `kind`; fields that are None are left out."""
    return {
        "type": kind,
        **({} if tag is None else {"subagentRunId": tag}),
        **{name: value for name, value in fields.items() if value is not None},
    }


def started(run: str = "run", thread: str = "thread", **fields: Any) -> Event:
    """RUN_STARTED."""
    return event("RUN_STARTED", threadId=thread, runId=run, **fields)


def finished(run: str = "run", thread: str = "thread", **fields: Any) -> Event:
    """RUN_FINISHED."""
    return event("RUN_FINISHED", threadId=thread, runId=run, **fields)


def interrupted(*interrupts: str | Event, run: str = "run", thread: str = "thread") -> Event:
    """RUN_FINISHED with interrupts: ids, or whole interrupts."""
    listed = [{"id": item, "reason": "approval"} if isinstance(item, str) else item for item in interrupts]
    return finished(run, thread, outcome={"type": "interrupt", "interrupts": listed})


def failed(message: str = "the run broke", **fields: Any) -> Event:
    """RUN_ERROR."""
    return event("RUN_ERROR", message=message, **fields)


def text(ident: str = "m", *deltas: str, tag: str | None = None, **fields: Any) -> list[Event]:
    """A whole text message; `fields` are its opener's."""
    return [
        event("TEXT_MESSAGE_START", tag, messageId=ident, **fields),
        *(event("TEXT_MESSAGE_CONTENT", tag, messageId=ident, delta=delta) for delta in deltas),
        event("TEXT_MESSAGE_END", tag, messageId=ident),
    ]


def tool(
    ident: str = "call",
    name: str = "search",
    *args: str,
    tag: str | None = None,
    parent: str | None = None,
) -> list[Event]:
    """A tool call with its arguments, but no result; `parent` is its parent message."""
    return [
        event("TOOL_CALL_START", tag, toolCallId=ident, toolCallName=name, parentMessageId=parent),
        *(event("TOOL_CALL_ARGS", tag, toolCallId=ident, delta=delta) for delta in args),
        event("TOOL_CALL_END", tag, toolCallId=ident),
    ]


def result(ident: str = "call", content: Any = "found", tag: str | None = None, message: str | None = None) -> Event:
    """TOOL_CALL_RESULT; its message id is made from the call's unless it is given."""
    return event("TOOL_CALL_RESULT", tag, toolCallId=ident, content=content, messageId=message or f"result of {ident}")


def subagent(
    ident: str = "sub",
    name: str = "researcher",
    *,
    call: str | None = None,
    above: str | None = None,
    message: str | None = None,
    **fields: Any,
) -> Event:
    """SUBAGENT_STARTED, with the tool call, subagent and message that it names as parents."""
    parents = {"parentToolCallId": call, "parentSubagentRunId": above, "parentMessageId": message}
    return event("SUBAGENT_STARTED", ident, name=name, **parents, **fields)


def done(ident: str = "sub", **fields: Any) -> Event:
    """SUBAGENT_FINISHED."""
    return event("SUBAGENT_FINISHED", ident, **fields)


def suspended(ident: str = "sub", *interrupts: str) -> Event:
    """SUBAGENT_FINISHED of one that waits; without ids, because of a descendant."""
    return done(ident, outcome={"type": "suspended", "interruptIds": list(interrupts) or None})


def broke(ident: str = "sub", message: str = "it broke", code: str | None = None) -> Event:
    """SUBAGENT_ERROR."""
    return event("SUBAGENT_ERROR", ident, message=message, code=code)


def step(name: str = "plan", tag: str | None = None) -> Event:
    """STEP_STARTED."""
    return event("STEP_STARTED", tag, stepName=name)


def step_end(name: str = "plan", tag: str | None = None) -> Event:
    """STEP_FINISHED."""
    return event("STEP_FINISHED", tag, stepName=name)


def custom(name: str = "note", value: Any = 1, tag: str | None = None) -> Event:
    """CUSTOM."""
    return {**event("CUSTOM", tag, name=name), "value": value}


def state(document: Any, tag: str | None = None) -> Event:
    """STATE_SNAPSHOT."""
    return {**event("STATE_SNAPSHOT", tag), "snapshot": document}


def patch(*operations: tuple[Any, ...], tag: str | None = None) -> Event:
    """STATE_DELTA of operations (op, path) or (op, path, value); of move and copy the third is `from`."""
    written = []
    for operation in operations:
        name, path, *rest = operation
        third = {"from" if name in ("move", "copy") else "value": rest[0]} if rest else {}
        written.append({"op": name, "path": path, **third})
    return event("STATE_DELTA", tag, delta=written)


def messages(*stated: Event) -> Event:
    """MESSAGES_SNAPSHOT."""
    return event("MESSAGES_SNAPSHOT", messages=list(stated))


def said(ident: str, role: str = "assistant", content: Any = "…", **fields: Any) -> Event:
    """A message in a snapshot or an input."""
    return {"id": ident, "role": role, "content": content, **fields}


def given(run: str = "run", thread: str = "thread", **fields: Any) -> Event:
    """A RunAgentInput."""
    return {"threadId": thread, "runId": run, "messages": [], "state": None, **fields}


def answers(*interrupts: str, status: str = "resolved", payload: Any = None) -> list[Event]:
    """Resume entries for these interrupts."""
    return [{"interruptId": ident, "status": status, "payload": payload} for ident in interrupts]
