"""sampling.yaml: every trace that failed, was interrupted or is slow, whole; and the stated share of the rest."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from agui_otel import trace_events
from agui_otel.exporting import Handle
from tests.support.collectors import DECIDED, SAMPLING, Collector, collector, delivered, wait_for
from tests.support.load import Sender, agent_trace, span
from tests.support.pipeline import service
from tests.support.receivers import Received, http_receiver
from tests.support.servers import eventually
from tests.support.wire import broke, done, finished, interrupted, started, subagent

pytestmark = pytest.mark.slow

RUNS, FAILING, LATE, INTERRUPTED, PERCENT = 1000, 50, 10, 20, 10
AFTER_ROOT, LATE_BY = 1, 3
"""Seconds. What fails after a minute, where 10 s after the root are configured, is late by three waits here too."""


def events(random: Random, run: str, *, fails: bool = False, interrupts: bool = False) -> list[Any]:
    """A run with a chain of subagents of random depth, of which one may fail; those above it recover."""
    names = [f"s{level}" for level in range(random.randint(1, 6))]
    failing = random.choice(names) if fails else None
    return [
        started(run, run),
        *(subagent(name, f"agent {name}", above=above) for name, above in zip(names, [None, *names], strict=False)),
        *(broke(name, "it failed") if name == failing else done(name) for name in reversed(names)),
        interrupted(f"i {run}", run=run, thread=run) if interrupts else finished(run, run),
    ]


def trace_all(handle: Handle) -> None:
    """Trace the thousand runs; the late ones fail while others go on."""
    random = Random(20)
    tracers, meters = handle.tracer_provider, handle.meter_provider

    def quick() -> None:
        for number in range(RUNS - LATE):
            kind = {"fails": number < FAILING - LATE, "interrupts": FAILING <= number < FAILING + INTERRUPTED}
            run = events(random, f"run {number}", **kind)
            list(trace_events(run, tracer_provider=tracers, meter_provider=meters))

    async def late(number: int) -> None:
        of = events(Random(number), f"late run {number}", fails=True)

        async def source() -> AsyncIterator[Any]:
            for event in of:
                if event["type"] == "SUBAGENT_ERROR":
                    await asyncio.sleep(LATE_BY)
                yield event

        async for _ in trace_events(source(), tracer_provider=tracers, meter_provider=meters):
            pass

    async def both() -> None:
        await asyncio.gather(asyncio.to_thread(quick), *map(late, range(LATE)))

    asyncio.run(both())


@dataclass(frozen=True)
class Sampled:
    """What was made and what came out: span ids by trace id."""

    running: Collector
    sink: Received
    made: dict[int, set[int]]
    failing: set[int]
    interrupted: set[int]

    @property
    def kept(self) -> dict[int, set[int]]:
        """What is behind the collector by now."""
        found = defaultdict(set)
        for item in self.sink.otlp_spans():
            found[int.from_bytes(item.trace_id, "big")].add(int.from_bytes(item.span_id, "big"))
        return found


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sampled]:
    """A thousand runs, their spans as they were made, and what came out behind the collector."""
    exporter = InMemorySpanExporter()
    with (
        pytest.MonkeyPatch.context() as patch,
        http_receiver() as sink,
        collector(
            tmp_path_factory.mktemp("sampling"),
            SAMPLING,
            PHOENIX_COLLECTOR_ENDPOINT=sink.url,
            AGUI_SAMPLING_WAIT_AFTER_ROOT=f"{AFTER_ROOT}s",
            AGUI_SAMPLING_WAIT="10s",
            AGUI_SAMPLING_PERCENT=str(PERCENT),
            AGUI_COLLECTOR_FLUSH_INTERVAL="500ms",
        ) as running,
    ):
        patch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20000")
        with service("sampled", running) as handle:
            assert isinstance(handle.tracer_provider, TracerProvider)
            handle.tracer_provider.add_span_processor(SimpleSpanProcessor(exporter))
            trace_all(handle)
        wait_for(RUNS, running, DECIDED, "telemetry")
        delivered(running)
        spans = exporter.get_finished_spans()
        made = defaultdict(set)
        for item in spans:
            made[item.context.trace_id].add(item.context.span_id)
        failing = {item.context.trace_id for item in spans if item.status.status_code is StatusCode.ERROR}
        waiting = {item.context.trace_id for item in spans if (item.attributes or {})["agui.outcome"] == "interrupt"}
        yield Sampled(running, sink, made, failing, waiting)


def test_failing_traces_are_whole(sampled: Sampled) -> None:
    """Every run in which something failed, at whatever depth and however late, arrives with all its spans."""
    assert (RUNS, FAILING) == (len(sampled.made), len(sampled.failing))
    kept = sampled.kept
    assert {trace: sampled.made[trace] for trace in sampled.failing} == {
        trace: kept.get(trace, set()) for trace in sampled.failing
    }


def test_interrupted_traces_are_whole(sampled: Sampled) -> None:
    """Every run that waits for a person arrives with all its spans."""
    kept = sampled.kept
    assert INTERRUPTED == len(sampled.interrupted)
    assert [] == [trace for trace in sampled.interrupted if sampled.made[trace] != kept.get(trace)]


def test_the_share_of_the_rest(sampled: Sampled) -> None:
    """Of the others the configured share arrives (within five standard deviations), each of them whole."""
    rest = sampled.made.keys() - sampled.failing - sampled.interrupted
    kept = sampled.kept
    there = [trace for trace in rest if trace in kept]
    assert [] == [trace for trace in there if sampled.made[trace] != kept[trace]]
    share = PERCENT / 100
    deviation = math.sqrt(len(rest) * share * (1 - share))
    assert abs(len(there) - len(rest) * share) < 5 * deviation


def test_measured_before_sampling(sampled: Sampled) -> None:
    """The metrics count every run and every failure, whatever was dropped."""
    labels = {"agui_level": "run", "service_name": "sampled"}
    wait_for(RUNS, sampled.running, "agui_spans_calls_total", **labels)
    assert RUNS == sampled.running.total("agui_spans_calls_total", **labels)
    assert FAILING == sampled.running.total("agui_spans_calls_total", agui_level="subagent", agui_outcome="error")


def test_what_comes_after_the_decision(sampled: Sampled) -> None:
    """A failing span of a dropped trace is kept all the same; others share the decision of their trace."""
    kept = sampled.kept
    dropped = next(trace for trace in sampled.made if trace not in kept).to_bytes(16, "big")
    known = next(iter(sampled.failing)).to_bytes(16, "big")
    late = {"failing": span(dropped, failed=True), "dropped": span(dropped), "of a kept one": span(known)}
    sender = Sender(sampled.running.endpoint)
    assert sender.send([*late.values()])
    sender.close()
    time.sleep(AFTER_ROOT)
    delivered(sampled.running)
    arrived = {item.span_id for item in sampled.sink.otlp_spans()}
    assert ["failing", "of a kept one"] == [name for name, item in late.items() if item.span_id in arrived]


def test_slow_and_resumed_traces(sampled: Sampled) -> None:
    """A trace that took a minute is kept, and one that answers an interrupt; the same ones quick and plain are not."""
    sent = {
        "slow": [span(seconds=61) for _ in range(50)],
        "resumed": [span(None, {"agui.resumes.run_id": ["r"]}) for _ in range(50)],
        "plain": [span() for _ in range(50)],
    }
    sender = Sender(sampled.running.endpoint)
    before = sampled.running.total(DECIDED, "telemetry")
    for spans in sent.values():
        assert sender.send(spans)
    sender.close()
    wait_for(before + 150, sampled.running, DECIDED, "telemetry")
    delivered(sampled.running)
    arrived = {item.span_id for item in sampled.sink.otlp_spans()}
    there = {name: sum(item.span_id in arrived for item in spans) for name, spans in sent.items()}
    assert (50, 50) == (there["slow"], there["resumed"])
    assert there["plain"] < 25


def test_an_orderly_stop(tmp_path: Path) -> None:
    """Told to end, it decides on what waits, and what it keeps is on disk: nothing is lost but what was not sampled."""
    traces = [agent_trace(5) for _ in range(20)]
    for trace in traces[:10]:
        trace[0].status.CopyFrom(Status(code=Status.STATUS_CODE_ERROR, message="failed"))
    wanted = {item.span_id for trace in traces[:10] for item in trace}
    with http_receiver() as sink:
        never = {"AGUI_SAMPLING_WAIT": "600s", "AGUI_SAMPLING_WAIT_AFTER_ROOT": "600s", "AGUI_SAMPLING_PERCENT": "0"}
        with collector(tmp_path, SAMPLING, PHOENIX_COLLECTOR_ENDPOINT=sink.url, **never) as running:
            sender = Sender(running.endpoint)
            for trace in traces:
                assert sender.send(trace)
            sender.close()
            running.stop()
            running.start()
            eventually(lambda: {item.span_id for item in sink.otlp_spans()} == wanted)
