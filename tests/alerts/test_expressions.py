"""Every expression of a rule or a board is asked of the pipeline that runs, and is answered with data."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support import monitoring
from tests.support.expressions import Asked, metrics_in, of_boards, of_rules
from tests.support.monitoring import Prometheus
from tests.support.pipeline import QUICKER, Pipeline, play, replay, service

pytestmark = pytest.mark.slow

TOOL_ERROR: list[dict[str, Any]] = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": "assistant", "delta": "I ask."},
    {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "clerk"},
    {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "file", "subagentRunId": "s"},
    {"type": "TOOL_CALL_END", "toolCallId": "c", "subagentRunId": "s"},
    {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"},
    {
        "type": "MESSAGES_SNAPSHOT",
        "messages": [{"id": "m", "role": "tool", "toolCallId": "c", "content": "no disk", "error": "no disk"}],
    },
    {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
]

INTERRUPT: list[dict[str, Any]] = [
    {"type": "RUN_STARTED", "threadId": "waits", "runId": "r"},
    {
        "type": "RUN_FINISHED",
        "threadId": "waits",
        "runId": "r",
        "outcome": {"type": "interrupt", "interrupts": [{"id": "i", "reason": "approval"}]},
    },
]


def _raises(_: object) -> dict[str, str]:
    raise ValueError("planted")


@pytest.fixture(scope="module")
def busy(running: Pipeline) -> Pipeline:
    """The pipeline when all that can be measured has been, by a service that goes on reporting for a while."""
    with service("busy", running.collector) as handle:
        for _ in range(2):
            replay(handle, "error_tool", "error_model_recovered", "nested", "approve_1", "approve_3_resume")
            play(handle, TOOL_ERROR)
        play(handle, INTERRUPT)
        play(handle, TOOL_ERROR, attributes=_raises)
        monitoring.wait_for(
            "an alert that fires", lambda: running.prometheus.query('ALERTS{alertstate="firing",service="busy"}')
        )
    return running


def _silent(prometheus: Prometheus, asked: list[Asked]) -> list[Asked]:
    """Those that give nothing, or nothing with the labels that they are shown by."""
    found = []
    for one in asked:
        result = prometheus.query(one.expression)
        if not result or not one.labels <= {label for series in result for label in series["metric"]}:
            found.append(one)
    return found


def test_every_expression_gives_data(busy: Pipeline) -> None:
    """Those of rules without their threshold, those of boards with their variables."""
    silent: list[Asked] = [*of_rules(QUICKER), *of_boards("1m", "10s")]
    assert len(silent) > 60
    until = time.monotonic() + 30
    while silent and time.monotonic() < until:
        silent = _silent(busy.prometheus, silent)
    assert [] == silent


def test_every_metric_is_emitted(busy: Pipeline) -> None:
    """The names in rules and boards are exactly those that arrive."""
    asked = (*of_rules(QUICKER), *of_boards("1m", "10s"))
    named = {name for one in asked for name in metrics_in(one.expression)}
    assert len(named) > 25
    emitted = monitoring.get(f"{busy.prometheus.url}/api/v1/label/__name__/values")["data"]
    assert set() == named - set(emitted)


def test_exemplars_lead_to_traces(busy: Pipeline) -> None:
    """What Prometheus keeps beside the figures are traces that Phoenix has."""
    found = monitoring.wait_for(
        "exemplars",
        lambda: busy.prometheus.exemplars('gen_ai_invoke_agent_duration_seconds_bucket{service_name="busy"}'),
    )
    known = {span["context"]["trace_id"] for span in busy.phoenix.spans("default")}
    assert {exemplar["labels"]["trace_id"] for exemplar in found} <= known
