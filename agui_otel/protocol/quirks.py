"""Deviations of named producers, each with its version and a recording that shows it.

A quirk is translated for the tracker only; the rules judge the stream as it was sent.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple


class Quirk(NamedTuple):
    """One deviation: who sends it, since or in which version, what it is, and how it is read."""

    producer: str
    version: str
    what: str
    read_as: str
    recording: str


QUIRKS: dict[str, Quirk] = {
    "legacy_interrupt": Quirk(
        "ag-ui-langgraph", "0.0.47 (its default)",
        "an interrupt is CUSTOM on_interrupt, then RUN_FINISHED without an outcome",
        "outcome interrupt; one interrupt per id that a suspended subagent lists, and per surplus CUSTOM event",
        "legacy_interrupt",
    ),
    "subagent_id": Quirk(
        "ag-ui canary builds", "before 1.0", "the tag is called subagentId", "subagentRunId, where that is absent",
        "tests/protocol/test_quirks.py",
    ),
    "thinking": Quirk(
        "ag-ui-protocol", "0.1", "THINKING_* events without ids", "REASONING_* events of one reasoning at a time",
        "tests/protocol/test_quirks.py",
    ),
    "cancelled_sibling": Quirk(
        "ag-ui-langgraph", "0.0.47",
        "a subagent cancelled by another's failure gets SUBAGENT_ERROR with the repr of a bare sentinel object",
        "outcome cancelled, no error; the message, which says nothing, is replaced",
        "error_tool",
    ),
    "root_suffix": Quirk(
        "ag-ui-langgraph", "0.0.47",
        "on resume an inner tool call is announced, untagged, as <id>::__root__",
        "a span of its own and a note: ids are never compared by likeness",
        "nested_approve_3_resume",
    ),
}  # fmt: skip

_SENTINEL = re.compile(r"<object object at 0x[0-9a-fA-F]+>")

LEGACY_INTERRUPT = "on_interrupt"
"""The name of the CUSTOM event by which ag-ui-langgraph announces an interrupt."""

CANCELLED_SIBLING = "cancelled because another subagent failed"
"""What stands for the message of a subagent that was cancelled so."""

_ROOT_SUFFIX = "::__root__"

_THINKING = {
    "THINKING_START": "REASONING_START",
    "THINKING_END": "REASONING_END",
    "THINKING_TEXT_MESSAGE_START": "REASONING_MESSAGE_START",
    "THINKING_TEXT_MESSAGE_CONTENT": "REASONING_MESSAGE_CONTENT",
    "THINKING_TEXT_MESSAGE_END": "REASONING_MESSAGE_END",
}


def is_cancelled_sibling(message: str) -> bool:
    """Whether a SUBAGENT_ERROR's message is only the repr of a bare sentinel object."""
    return _SENTINEL.fullmatch(message) is not None


def is_reannounced_at_root(tool_call_id: str | None) -> bool:
    """Whether a tool call is ag-ui-langgraph's second announcement of an inner call after a resume."""
    return tool_call_id is not None and tool_call_id.endswith(_ROOT_SUFFIX)


def translate(event: dict[str, Any]) -> dict[str, Any] | None:
    """`event` as the tracker is to read it, when a quirk says so; None where none does. `event` is not changed."""
    kind = event.get("type")
    if isinstance(kind, str) and kind in _THINKING:
        ident, delta = event.get("messageId"), event.get("delta")
        tag = event.get("subagentRunId", event.get("subagentId"))
        named = isinstance(tag, str)
        return {
            **event,
            "type": _THINKING[kind],
            "subagentRunId": tag if named else None,
            "messageId": ident if isinstance(ident, str) else f"thinking:{tag}" if named else "thinking",
            "delta": delta if isinstance(delta, str) else "",
        }
    tag = event.get("subagentId")
    if isinstance(tag, str) and "subagentRunId" not in event:
        return {**event, "subagentRunId": tag}
    return None
