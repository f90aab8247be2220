"""What a run of smolagents agents costs more when it is bridged or traced, against bare smolagents.

    python -m benchmarks.smolagents

A tool-calling manager with two managed agents in sequence, six model calls and six tool calls, all scripted and
instant: no real run is that quick, so what is added is at its most visible. The instrumentor's spans are made with the
same kind of provider. Nothing is exported.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from opentelemetry.sdk.trace import TracerProvider

from agui_otel import Settings, trace_events
from agui_otel.smolagents import run_agui, trace_smolagents
from benchmarks.timing import report
from tests.support.agent_cases import ask, web
from tests.support.agents import answer, tool_caller

ROUNDS = 60
TASK = "the task"

Side = tuple[Callable[[], AbstractContextManager[Any]], Callable[[Any], object]]
"""What is installed while a side runs, and what it does with new agents."""


def team() -> Any:
    """New agents: their models' scripts are used up by one run."""
    return tool_caller("manager", ask("a"), ask("b"), answer("ok"), managed_agents=[web(name="a"), web(name="b")])


@contextlib.contextmanager
def instrumented() -> Any:
    """Their instrumentor, while entered."""
    instrumentor = SmolagentsInstrumentor()
    instrumentor.instrument(tracer_provider=TracerProvider(), skip_dep_check=True)
    try:
        yield
    finally:
        instrumentor.uninstrument()


def main() -> None:
    """Time them all in turn. What installs hooks does so outside of the time."""
    provider, settings = TracerProvider(), Settings(capture="full")
    sides: dict[str, Side] = {
        "bare smolagents": (contextlib.nullcontext, lambda agent: agent.run(TASK)),
        "run_agui": (contextlib.nullcontext, lambda agent: list(run_agui(agent, TASK))),
        "trace_events(run_agui(...))": (
            contextlib.nullcontext,
            lambda agent: list(trace_events(run_agui(agent, TASK), config=settings, tracer_provider=provider)),
        ),
        "trace_smolagents": (
            lambda: trace_smolagents(config=settings, tracer_provider=provider),
            lambda agent: agent.run(TASK),
        ),
        "the OpenInference instrumentor": (instrumented, lambda agent: agent.run(TASK)),
    }
    bare, *others = spent = best_within(sides)
    for name, seconds in zip(list(sides)[1:], others, strict=True):
        report(f"{name} / bare smolagents", seconds / bare, "no aim", f"{seconds * 1e3:.1f} ms, bare {bare * 1e3:.1f}")
    added, theirs = spent[3] - bare, spent[4] - bare
    detail = f"{added * 1e3:.1f} ms, theirs {theirs * 1e3:.1f}"
    report("added by trace_smolagents / added by OpenInference", added / theirs, "no aim", detail)


def best_within(sides: dict[str, Side]) -> list[float]:
    """The shortest time of each side's run, in seconds, over interleaved rounds after two to warm up."""
    shortest = [float("inf")] * len(sides)
    for number in range(ROUNDS + 2):
        for index, (around, run) in enumerate(sides.values()):
            agent = team()
            with around():
                gc.collect()
                started = time.perf_counter()
                run(agent)
                elapsed = time.perf_counter() - started
            if number >= 2:
                shortest[index] = min(shortest[index], elapsed)
    return shortest


if __name__ == "__main__":
    main()
