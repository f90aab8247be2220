"""Trace model, decision: what a human decided, read from a resume entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from agui_otel.tracing.decisions import DECISIONS, read_decision
from tests.support.traced import trace
from tests.support.wire import answers, finished, given, started


@pytest.mark.parametrize(
    ("payload", "decision"),
    [
        (True, "approved"),
        (False, "denied"),
        ({"approved": True}, "approved"),
        ({"approved": False}, "denied"),
        ({"accepted": True}, "approved"),
        ({"approved": True, "editedArgs": {"to": "x"}}, "edited"),
        ({"approved": True, "editedArgs": None}, "approved"),
        ({"approved": False, "editedArgs": {"to": "x"}}, "denied"),
        ({"accepted": False, "type": "approve"}, "denied"),
        ({"approved": "yes"}, "unknown"),
        ({"type": "approve"}, "approved"),
        ({"type": "accept"}, "approved"),
        ({"type": "reject"}, "denied"),
        ({"type": "deny"}, "denied"),
        ({"type": "edit", "args": {}}, "edited"),
        ({"type": "respond"}, "unknown"),
        ({"type": 1}, "unknown"),
        ({"decisions": [{"type": "approve"}]}, "approved"),
        ({"decisions": [{"type": "approve"}, {"type": "edit"}]}, "edited"),
        ({"decisions": [{"type": "edit"}, {"type": "reject"}]}, "denied"),
        ({"decisions": ["approve", None, 1]}, "unknown"),
        ({"decisions": "approve"}, "unknown"),
        ("approve", "approved"),
        (" Deny ", "denied"),
        ("please do", "unknown"),
        (None, "unknown"),
        (1, "unknown"),
        ([], "unknown"),
        ({}, "unknown"),
    ],
)
def test_common_payloads(payload: Any, decision: str) -> None:
    """A boolean; `approved`, `accepted`; a `type` or `decisions[].type`. A denial is a resolved entry."""
    assert decision == read_decision({"interruptId": "i", "status": "resolved", "payload": payload})


@pytest.mark.parametrize("payload", [True, False, None])
def test_a_cancelled_entry_is_no_decision(payload: Any) -> None:
    """Whatever it carries: a denial is resolved, this was given up."""
    assert "unknown" == read_decision({"interruptId": "i", "status": "cancelled", "payload": payload})


@pytest.mark.parametrize(
    ("said", "decision"),
    [("approved", "approved"), ("denied", "denied"), ("edited", "edited"), ("perhaps", "unknown"), (None, "unknown")],
)
def test_a_host_may_read_it(said: str | None, decision: str) -> None:
    """A callable replaces the reading; what is no decision is unknown."""
    seen: list[Mapping[str, Any]] = []

    def decide(entry: Mapping[str, Any]) -> str | None:
        seen.append(entry)
        return said

    entries = answers("i", payload=False)
    traced = trace(started(), finished(), given=given(resume=entries), observer={"decision": decide})
    assert entries == seen
    assert [decision] == [
        a["agui.interrupt.decision"] for _, a in traced.events("invoke_agent supervisor", "agui.interrupt.resolved")
    ]
    assert decision in DECISIONS
