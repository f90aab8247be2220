"""A process that traces and has no providers is told so, once, and how to change it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.doc_outputs import environment

RUNS = """
from agui_otel import trace_events

for _ in range(2):
    for _ in trace_events([{"type": "RUN_ERROR", "message": "away"}]):
        pass
"""
LINE = (
    "agui-otel: spans and metrics go nowhere, because this process has no OpenTelemetry provider yet; call "
    "agui_otel.setup() when it starts, or set OpenTelemetry up (AGUI_OTEL_DISABLED=true silences this line)\n"
)
TRACES = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider())
"""
METRICS = """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
metrics.set_meter_provider(MeterProvider())
"""


@pytest.mark.parametrize(
    ("before", "variables", "said"),
    [
        ("", {}, LINE),
        ("", {"AGUI_OTEL_DISABLED": "true"}, ""),
        ("", {"OTEL_SDK_DISABLED": "true"}, ""),
        (TRACES, {}, ""),
        (METRICS, {}, ""),
        ("import agui_otel; agui_otel.setup()", {}, ""),
    ],
    ids=["nobody", "disabled", "all disabled", "traces", "metrics only", "setup"],
)
def test_said_once(before: str, variables: dict[str, str], said: str) -> None:
    """One line at the first run, where nobody has set providers and nobody has switched tracing off."""
    ended = subprocess.run(
        [sys.executable, "-c", before + RUNS],
        cwd=Path(__file__).parents[2],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert said == ended.stderr


def test_not_where_providers_are_given() -> None:
    """A provider of the call's own is enough."""
    given = """
from opentelemetry.sdk.trace import TracerProvider
from agui_otel import trace_events

for _ in trace_events([{"type": "RUN_ERROR", "message": "away"}], tracer_provider=TracerProvider()):
    pass
"""
    command = [sys.executable, "-c", given]
    ended = subprocess.run(command, cwd=Path(__file__).parents[2], env=environment(), capture_output=True, check=True)
    assert b"" == ended.stderr
