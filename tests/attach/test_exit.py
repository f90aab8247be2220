"""What is open when the interpreter exits is cancelled, and exported (trace model: outcomes)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import asyncio, sys, threading
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
from agui_otel import TracingSubscriber, trace_events
from tests.support.sources import HALF, produced

def provider():
    made = TracerProvider()
    made.add_span_processor(
        BatchSpanProcessor(ConsoleSpanExporter(formatter=lambda span: span.to_json(indent=None) + "\\n"))
    )
    return made

trace.set_tracer_provider(provider())
"""

OPEN = {
    "a generator": "kept = trace_events(iter(HALF))\nfor _ in HALF: next(kept)",
    "a subscriber": "kept = TracingSubscriber()\nfor event in HALF: kept.on_event(event)",
    "an async generator": """
kept = trace_events(produced(HALF))
async def main():
    for _ in HALF: await anext(kept)
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
""",
    "a thread": """
def work():
    kept = trace_events(iter(HALF))
    for _ in HALF: next(kept)
    ready.set()
    threading.Event().wait()
ready = threading.Event()
threading.Thread(target=work, daemon=True).start()
ready.wait()
""",
    "two providers": """
first = trace_events(iter(HALF))
for _ in HALF: next(first)
kept = trace_events(iter(HALF), tracer_provider=provider())
for _ in HALF: next(kept)
""",
}


def exit_of(program: str) -> list[dict[str, Any]]:
    """The spans that a program has exported when it is over."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "" == done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", OPEN)
@pytest.mark.parametrize("end", ["", "sys.exit(3)"], ids=["runs out", "exits"])
def test_what_is_open_at_the_exit_is_cancelled(kind: str, end: str) -> None:
    """And exported before the provider is shut down, whoever keeps it open."""
    spans = exit_of(f"{PROGRAM}\n{OPEN[kind]}\n{end}")
    runs = [span["attributes"]["agui.outcome"] for span in spans if span["parent_id"] is None]
    streams = 2 if kind == "two providers" else 1
    assert (["cancelled"] * streams, 4 * streams) == (runs, len(spans))


FORK = """
import gc, os
stream = trace_events(produced_sync(WHOLE))
next(stream)
child = os.fork()
if child == 0:
    if sys.argv[1] == "exit":
        sys.exit(0)
    del stream
    gc.collect()
    trace.get_tracer_provider().shutdown()
    os._exit(0)
os.waitpid(child, 0)
list(stream)
"""


@pytest.mark.parametrize("how", ["exit", "collected"])
def test_a_forked_child_leaves_its_parents_spans_alone(how: str) -> None:
    """The stream is the parent's: its spans end there, once, however the child ends."""
    program = PROGRAM.replace("import HALF, produced", "import WHOLE, produced_sync") + FORK
    done = subprocess.run([sys.executable, "-c", program, how], capture_output=True, text=True, check=True)
    spans = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(spans) == len({span["context"]["span_id"] for span in spans})
    assert {"success"} == {span["attributes"].get("agui.outcome", "success") for span in spans}
