"""gateway/: two samplers behind the balancer, and three processes that take part in every trace."""

from __future__ import annotations

import multiprocessing
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest

from tests.support.collectors import BALANCER, SAMPLER, Collector, collector
from tests.support.load import send_parts
from tests.support.receivers import Received, http_receiver
from tests.support.servers import eventually

pytestmark = pytest.mark.slow

SERVICES = ("worker", "tools", "web")
"""In the order in which they are asked: the run's own process is the last to send."""
WHOLE, FAILING = 10, 3
"""Spans of a trace: three of each service, and the run; those of one service fail."""
RECEIVED = "otelcol_processor_tail_sampling_new_trace_id_received_total"


@dataclass
class Tier:
    """The running tier, and what was sent through it."""

    balancer: Collector
    samplers: list[Collector]
    sink: Received
    processes: ProcessPoolExecutor
    sent: Counter[str] = field(default_factory=Counter)
    """Spans that the balancer took, by service."""

    def send(self, count: int) -> list[bytes]:
        """Send failing traces (all of which are kept), from three processes at once; their ids."""
        traces = [secrets.token_bytes(16) for _ in range(count)]
        asked = [
            self.processes.submit(send_parts, self.balancer.endpoint, service, traces, service == "tools")
            for service in SERVICES
        ]
        taken = {service: len(answer.result()) for service, answer in zip(SERVICES, asked, strict=True)}
        assert WHOLE * count == sum(taken.values()), "the balancer refused something"
        self.sent.update(taken)
        return traces

    def arrived(self) -> dict[bytes, set[bytes]]:
        """The span ids that are behind the tier, by trace id."""
        found = defaultdict(set)
        for item in self.sink.spans():
            found[item.trace_id].add(item.span_id)
        return found

    def sizes(self, traces: Sequence[bytes]) -> Counter[int]:
        """How many of these traces have arrived with so many spans."""
        arrived = self.arrived()
        return Counter(len(arrived[trace]) for trace in traces)

    def is_whole(self, trace: bytes) -> bool:
        """Whether a trace has arrived with all its spans."""
        return self.are_whole([trace])

    def are_whole(self, traces: Sequence[bytes]) -> bool:
        """Whether all of these traces have arrived with all their spans."""
        return {WHOLE: len(traces)} == self.sizes(traces)


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tier]:
    """A balancer and two samplers that decide three seconds after the root."""
    directory = tmp_path_factory.mktemp("tier")
    with ExitStack() as stack:
        sink = stack.enter_context(http_receiver())
        samplers = [
            stack.enter_context(
                collector(
                    directory / f"sampler {number}",
                    SAMPLER,
                    PHOENIX_COLLECTOR_ENDPOINT=sink.url,
                    AGUI_SAMPLING_WAIT_AFTER_ROOT="3s",
                    AGUI_COLLECTOR_FLUSH_INTERVAL="500ms",
                )
            )
            for number in (1, 2)
        ]
        names = {"AGUI_SAMPLERS": "traces", "AGUI_SAMPLERS_MEASURED": "measured"}
        addresses = {
            variable: f"[{','.join(sampler.address(name) for sampler in samplers)}]" for variable, name in names.items()
        }
        balancer = stack.enter_context(collector(directory / "balancer", BALANCER, **addresses))
        processes = stack.enter_context(ProcessPoolExecutor(3, multiprocessing.get_context("spawn")))
        yield Tier(balancer, samplers, sink, processes)


def test_traces_of_three_processes_are_whole(tier: Tier) -> None:
    """Both samplers have their share of the traces, and each trace is whole behind one of them."""
    traces = tier.send(100)
    eventually(lambda: tier.are_whole(traces), 30)
    shares = [sampler.total(RECEIVED, "telemetry") for sampler in tier.samplers]
    assert 100 == sum(shares)
    assert min(shares) > 20


def test_a_service_is_measured_by_one_sampler(tier: Tier) -> None:
    """All spans are measured, and no two samplers count into one series."""
    tier.send(10)
    for service in SERVICES:
        sent = tier.sent[service]

        def counted(service: str = service) -> list[float]:
            return [sampler.total("agui_spans_calls_total", service_name=service) for sampler in tier.samplers]

        eventually(lambda counted=counted, sent=sent: sum(counted()) >= sent)  # type: ignore[misc]
        assert [0, sent] == sorted(counted())


def taken(sampler: Collector) -> int:
    """The spans that a sampler has been given by trace id."""
    return round(sampler.total("otelcol_receiver_accepted_spans_total", "telemetry", receiver="otlp/traces"))


def test_a_killed_sampler(tier: Tier) -> None:
    """The balancer goes on, and so does the other sampler. Of what the killed one held undecided, only the failing
    spans are left; what comes for it while it is down arrives when it is back."""
    killed, other = tier.samplers
    decided = tier.send(50)
    eventually(lambda: tier.are_whole(decided), 30)
    before = taken(killed) + taken(other), taken(other)
    undecided = tier.send(50)
    eventually(lambda: taken(killed) + taken(other) == before[0] + 50 * WHOLE, 30)
    others = (taken(other) - before[1]) // WHOLE
    killed.kill()
    after = tier.send(50)
    eventually(lambda: sum(tier.is_whole(trace) for trace in undecided) == others, 30)
    while_down = [trace for trace in after if tier.is_whole(trace)]
    killed.start()
    eventually(lambda: tier.are_whole(after), 60)
    assert 0 < len(while_down) < len(after)
    left = {WHOLE: others, FAILING: 50 - others}
    eventually(lambda: left == tier.sizes(undecided), 30)
