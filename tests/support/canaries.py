"""Streams with a canary in every field, for tests that say what may leave.

A canary's first letter says what it is: `I` an input, `O` an output, `N` a name or an id, `X` what never leaves.
"""

from __future__ import annotations

import re
from typing import Any

from tests.support.wire import (
    answers,
    broke,
    done,
    event,
    failed,
    finished,
    given,
    interrupted,
    messages,
    patch,
    result,
    said,
    started,
    state,
    step,
    step_end,
    subagent,
    suspended,
    text,
    tool,
)

CANARY = re.compile(r"[INOX]-[a-z]+(?:-[a-z]+)*")
RAW = {"rawEvent": {"X-raw-event": "X-raw-event"}}

ASKED = given(
    "N-run",
    "N-thread",
    messages=[
        said("N-system", "system", "X-system"),
        said("N-user", "user", "I-question"),
        said("N-answer", "tool", "X-answer-before", toolCallId="N-frontend"),
    ],
    state={"N-known": "X-state-before"},
    tools=[{"name": "X-tool", "description": "X-tool"}],
    context=[{"description": "X-context", "value": "X-context"}],
    forwardedProps={"X-prop": "X-prop"},
    resume=answers("N-waits", payload={"approved": True, "X-payload": "X-payload"}),
)


def first_run() -> list[Any]:
    """A run that leaves something to answer: an interrupt, its subagent, and a frontend's call."""
    whole = {
        "id": "N-waits", "reason": "N-reason", "message": "O-interrupt", "metadata": {"X-interrupt": "X-interrupt"},
        "responseSchema": {"X-interrupt": "X-interrupt"}, "subagentRunId": "N-sub",
    }  # fmt: skip
    return [
        started("N-before", "N-thread"),
        tool("N-frontend", "N-frontend-tool", "I-frontend-arguments"),
        subagent("N-sub", "N-subagent", description="I-description-before"),
        suspended("N-sub", "N-waits"),
        interrupted(whole, run="N-before", thread="N-thread"),
    ]


def second_run() -> list[Any]:
    """A run with every kind of event, all of whose fields hold canaries."""
    opener, *rest = text("N-message", "O-text", name="X-message-name")
    failed_call = said("N-failed", "tool", "O-tool-error", toolCallId="N-failed-call", error="X-error-flag")
    return [
        started("N-run", "N-thread", parentRunId="N-parent-run", protocolVersion="N-version", input={"X-echo": 1})
        | RAW,
        step("N-step"),
        [opener | {"metadata": {"O-metadata-key": "O-metadata"}} | RAW, rest],
        event("TEXT_MESSAGE_CHUNK", messageId="N-chunk", delta="O-chunk", name="X-message-name"),
        event("REASONING_START", messageId="N-reasoning"),
        event("REASONING_MESSAGE_CHUNK", messageId="N-thought", delta="O-thought"),
        event("REASONING_END", messageId="N-reasoning"),
        event("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="N-message", encryptedValue="X-encrypted"),
        event("THINKING_TEXT_MESSAGE_CONTENT", delta="O-thinking"),
        tool("N-call", "N-tool", "I-arguments"),
        subagent("N-child", "N-child-name", call="N-call", message="N-message", description="I-description"),
        text("N-words", "O-words", tag="N-child"),
        broke("N-child", "O-subagent-error", "N-code"),
        tool("N-other-call", "N-tool", "I-more-arguments"),
        result("N-other-call", "O-result", message="X-result-message"),
        tool("N-failed-call", "N-tool"),
        messages(failed_call, said("N-x", content="X-snapshot")),
        subagent("N-sub", "N-subagent", description="I-description-again"),
        done("N-sub", result={"O-subagent-result-key": "O-subagent-result"}),
        state({"N-first": {"X-second": "X-state"}, "N-known": "X-state"}),
        patch(("add", "/N-first/O-path", "X-patch")),
        patch(("add", "/N-nowhere/O-path-of-a-failed-patch/O-deep", "X-patch")),
        event("ACTIVITY_SNAPSHOT", messageId="N-activity", activityType="N-activity-type", content={"X-act": "X-act"}),
        event("RAW", event={"X-raw": "X-raw"}, source="X-source"),
        event("CUSTOM", name="N-custom", value={"O-custom-key": "O-custom"}),
        event("CUSTOM", name="X-malformed-name"),
        {"type": "N-new-type", "X-field": "X-field"},
        event("TEXT_MESSAGE_CONTENT", messageId="N-id-in-a-remark", delta="O-opened"),
        step_end("N-step"),
        failed("O-error", code="N-run-code", usage=[{"provider": "N-provider", "model": "N-model", "inputTokens": 1}]),
    ]


def third_run() -> list[Any]:
    """A run that has a result only, and whose source raises afterwards."""
    return [started("N-last", "N-thread"), finished("N-last", "N-thread", result={"O-run-result-key": "O-run-result"})]
