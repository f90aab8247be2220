"""Every thing that can happen in a hierarchy, on real smolagents with scripted models.

A flattened stream is valid and wrong, so validity is not enough: a witness that knows only threads says which
invocation each model call was made in (tests/support/agents.py), and the stream has to say the same.
"""

from __future__ import annotations

import contextlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_cases import CASES
from tests.support.agent_trees import TASK, events_of, plainly, streamed, tree
from tests.support.agents import Witness
from tests.support.oracle import Oracle

GOLDEN = Path(__file__).parents[1] / "fixtures" / "smolagents"

told = lru_cache(lambda name: events_of(CASES[name]()))
"""The events of a case."""

every_case = pytest.mark.parametrize("name", CASES)


@every_case
def test_the_reference_client_accepts_it(name: str, oracle: Oracle) -> None:
    """The stream is well-formed and breaks no rule."""
    events = told(name)
    (verdict,) = oracle.judge([events])
    assert (None, None) == (verdict.refused, verdict.message)
    assert [] == [event for event, fine in zip(events, verdict.well_formed, strict=True) if not fine]


@every_case
def test_the_stream_says_what_the_threads_did(name: str) -> None:
    """What each model said has the owner that it had, at the place in the hierarchy where that ran."""
    agent = CASES[name]()
    witness = Witness(agent)
    with witness.watching():
        events = events_of(agent)
    paths = _paths(events)
    owners = {
        marker: paths[event.get("subagentRunId")]
        for event in events
        if event["type"] == "TEXT_MESSAGE_CONTENT"
        for marker in witness.markers
        if event["delta"].startswith(marker)
    }
    ids: dict[Any, int] = {}
    for marker, path in owners.items():
        ran = witness.ran[witness.markers[marker]].path
        assert len(ran) == len(path), marker
        for ident, number in zip(path, ran, strict=True):
            assert number == ids.setdefault(ident, number), marker
    assert len(set(ids.values())) == len(ids)
    assert witness.markers.keys() - owners.keys() == set()
    names = {event["subagentRunId"]: event["name"] for event in events if event["type"] == "SUBAGENT_STARTED"}
    assert {ident: witness.ran[number].agent for ident, number in ids.items() if ident is not None} == {
        ident: name for ident, name in names.items() if ident in ids
    }


@every_case
def test_every_invocation_is_told_once(name: str) -> None:
    """As many subagents as there were runs below the first one, each with what it was asked."""
    agent = CASES[name]()
    witness = Witness(agent)
    with witness.watching():
        events = events_of(agent)
    started = [event for event in events if event["type"] == "SUBAGENT_STARTED"]
    ended = [event["subagentRunId"] for event in events if event["type"] in ("SUBAGENT_FINISHED", "SUBAGENT_ERROR")]
    assert sorted(event["subagentRunId"] for event in started) == sorted(ended)
    below = [ran for ran in witness.ran.values() if len(ran.path) > 1]
    assert sorted(ran.agent for ran in below) == sorted(event["name"] for event in started)
    assert TASK == events[0]["input"]["messages"][0]["content"]
    for event in started:
        asked = event["metadata"]["input"]
        assert any(asked in ran.task for ran in below if ran.agent == event["name"])


@every_case
def test_every_call_is_answered_once(name: str) -> None:
    """Also those that failed, and those whose output smolagents drops."""
    events = told(name)
    started = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START"]
    answered = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_RESULT"]
    assert sorted(started) == sorted(answered)
    assert len(set(started)) == len(started)


@every_case
def test_a_called_agent_names_its_call(name: str) -> None:
    """The parent call is its parent's, and open."""
    calls: dict[str, Any] = {}
    for event in told(name):
        if event["type"] == "TOOL_CALL_START":
            calls[event["toolCallId"]] = event.get("subagentRunId")
        elif event["type"] == "TOOL_CALL_RESULT":
            del calls[event["toolCallId"]]
        elif event["type"] == "SUBAGENT_STARTED":
            assert event.get("parentSubagentRunId") == calls[event["parentToolCallId"]]


@every_case
def test_tokens_add_up(name: str) -> None:
    """What the run reports is what its steps report."""
    events = told(name)
    steps = [entry for event in events for entry in event.get("metadata", {}).get("usage", ())]
    total = events[-1].get("usage", [])
    assert sum(entry["totalTokens"] for entry in steps) == sum(entry["totalTokens"] for entry in total)


@every_case
def test_its_tree(name: str) -> None:
    """The golden tree, which was read against the case; the same for a stream and for a plain run."""
    golden = (GOLDEN / f"{name}.tree").read_text(encoding="utf-8")
    assert golden == tree(streamed(CASES[name]()))
    assert golden == tree(plainly(CASES[name]()))


@every_case
def test_its_tree_when_its_steps_are_streamed(name: str) -> None:
    """`agent.run(stream=True)` has the same tree."""
    golden = (GOLDEN / f"{name}.tree").read_text(encoding="utf-8")
    assert golden == tree(plainly(CASES[name](), stream=True))


def _paths(events: list[dict[str, Any]]) -> dict[Any, tuple[Any, ...]]:
    """The invocations that each invocation ran in, itself last; None is the run's own agent."""
    paths: dict[Any, tuple[Any, ...]] = {None: (None,)}
    for event in events:
        if event["type"] == "SUBAGENT_STARTED":
            ident = event["subagentRunId"]
            paths[ident] = (*paths[event.get("parentSubagentRunId")], ident)
    return paths


def test_without_context_in_code_threads_the_stream_is_valid_and_wrong(oracle: Oracle) -> None:
    """What the witness is for: the stream of a bridge that loses its context is accepted, and tells lies."""
    from concurrent.futures import ThreadPoolExecutor

    from smolagents import local_python_executor

    from agui_otel.smolagents import hooks

    agent = CASES["three_levels"]()
    pool = next(hook for hook in hooks.hooks._hooks if hook._owner is local_python_executor)
    put = pool.put
    with contextlib.ExitStack() as undo:
        pool.put = lambda: None  # type: ignore[method-assign]
        undo.callback(setattr, pool, "put", put)
        events = events_of(agent)
    assert local_python_executor.ThreadPoolExecutor is ThreadPoolExecutor
    assert None is next(oracle.judge([events])).refused
    assert [] == [event for event in events if event["type"] == "SUBAGENT_STARTED"]
