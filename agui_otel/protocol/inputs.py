"""What the tracer reads of a RunAgentInput, from JSON or from the object of any ag-ui-protocol version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agui_otel.protocol.events import Unreadable, parse

_SNAKE = {
    "threadId": "thread_id",
    "runId": "run_id",
    "parentRunId": "parent_run_id",
    "protocolVersion": "protocol_version",
    "state": "state",
    "messages": "messages",
    "resume": "resume",
    "forwardedProps": "forwarded_props",
}


@dataclass(slots=True)
class RunInput:
    """A RunAgentInput, read tolerantly: what is missing or of the wrong type is absent here."""

    thread_id: str | None = None
    run_id: str | None = None
    parent_run_id: str | None = None
    protocol_version: str | None = None
    state: Any = None
    messages: list[dict[str, Any]] = field(default_factory=list)
    resume: list[dict[str, Any]] = field(default_factory=list)
    legacy_resume: Any = None
    """``forwardedProps.command.resume``: how interrupts were answered before 1.0."""

    @property
    def answers(self) -> bool:
        """Whether it answers an interrupt."""
        return bool(self.resume) or self.legacy_resume is not None

    def last_user_message(self) -> Any:
        """The content (a string or parts) of the last message whose role is user; None where there is none."""
        for message in reversed(self.messages):
            if message.get("role") == "user":
                return message.get("content")
        return None


def plain(value: Any) -> Any:
    """JSON-like data of `value`: pydantic models, also inside containers, become objects with wire (camelCase) keys."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", by_alias=True, exclude_none=True)
    return value


def _objects(value: Any) -> list[dict[str, Any]]:
    found = plain(value) if value is not None else None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def read_input(given: Any) -> RunInput | None:
    """`given` as a RunInput; None where it is None. Never raises on what an input holds."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        raw = {key: given.get(key) for key in _SNAKE}
    else:
        raw = {key: getattr(given, name, None) for key, name in _SNAKE.items()}

    def text(key: str) -> str | None:
        value = raw[key]
        return value if isinstance(value, str) else None

    props = plain(raw["forwardedProps"])
    command = props.get("command") if isinstance(props, dict) else None
    return RunInput(
        thread_id=text("threadId"),
        run_id=text("runId"),
        parent_run_id=text("parentRunId"),
        protocol_version=text("protocolVersion"),
        state=plain(raw["state"]),
        messages=_objects(raw["messages"]),
        resume=_objects(raw["resume"]),
        legacy_resume=command.get("resume") if isinstance(command, dict) else None,
    )


def input_in(body: bytes) -> dict[str, Any] | None:
    """The RunAgentInput that a request's body is: a JSON object with strings `threadId` and `runId` and an array
    `messages`; None where it is none. Other bodies are not even parsed. Never raises.
    """
    if not (b'"threadId"' in body and b'"runId"' in body and b'"messages"' in body):
        return None
    value = parse(body)
    if isinstance(value, Unreadable):
        return None
    ids = isinstance(value.get("threadId"), str) and isinstance(value.get("runId"), str)
    return value if ids and isinstance(value.get("messages"), list) else None
