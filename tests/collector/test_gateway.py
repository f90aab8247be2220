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
from tests.support.load import Sender, send_parts, span
from tests.support.receivers import Received, http_receiver
from tests.support.servers import eventually

pytestmark = pytest.mark.slow

SPANS = {"worker": 3, "tools": 3, "web": 4}
"""What each service adds to a trace: three subagents, of which those of `tools` fail; `web` has the run as well."""
SERVICES = tuple(SPANS)
WHOLE, FAILING = sum(SPANS.values()), SPANS["tools"]
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

    def send(self, traces: Sequence[bytes], services: Sequence[str] = SERVICES) -> None:
        """Send what these services, a process each, add to failing traces, all at once."""
        asked = {
            service: self.processes.submit(send_parts, self.balancer.endpoint, service, traces, service == "tools")
            for service in services
        }
        for service, answer in asked.items():
            taken = len(answer.result())
            assert SPANS[service] * len(traces) == taken, "the balancer refused something"
            self.sent[service] += taken

    def arrived(self) -> dict[bytes, set[bytes]]:
        """The span ids that are behind the tier, by trace id."""
        found = defaultdict(set)
        for item in self.sink.otlp_spans():
            found[item.trace_id].add(item.span_id)
        return found

    def sizes(self, traces: Sequence[bytes]) -> Counter[int]:
        """How many of these traces have arrived with so many spans."""
        arrived = self.arrived()
        return Counter(len(arrived[trace]) for trace in traces)

    def are_whole(self, traces: Sequence[bytes]) -> bool:
        """Whether all of these traces have arrived with all their spans."""
        return {WHOLE: len(traces)} == self.sizes(traces)


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tier]:
    """A balancer, and two samplers that wait six seconds after the root: longer than the balancer between two tries."""
    directory = tmp_path_factory.mktemp("tier")
    with ExitStack() as stack:
        sink = stack.enter_context(http_receiver())
        samplers = [
            stack.enter_context(
                collector(
                    directory / f"sampler {number}",
                    SAMPLER,
                    PHOENIX_COLLECTOR_ENDPOINT=sink.url,
                    AGUI_SAMPLING_WAIT_AFTER_ROOT="6s",
                    AGUI_SAMPLING_PERCENT="0",
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
    traces = ids(100)
    tier.send(traces)
    eventually(lambda: tier.are_whole(traces), 30)
    shares = [sampler.total(RECEIVED, "telemetry") for sampler in tier.samplers]
    assert 100 == sum(shares)
    assert min(shares) > 20


def test_a_service_is_measured_by_one_sampler(tier: Tier) -> None:
    """All spans are measured, and no two samplers count into one series."""
    tier.send(ids(10))
    for service in SERVICES:
        sent = tier.sent[service]

        def counted(service: str = service) -> list[float]:
            return [sampler.total("agui_spans_calls_total", service_name=service) for sampler in tier.samplers]

        eventually(lambda counted=counted, sent=sent: sum(counted()) >= sent)  # type: ignore[misc]
        assert [0, sent] == sorted(counted())


def test_the_balancer_redacts(tier: Tier) -> None:
    """No secret comes as far as a sampler: neither by trace id nor by service."""
    values = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "sk-CANARY0123456789abcdef",
        "pwd": "CANARY",
    }
    secret = span(None, values, name="invoke_agent sk-CANARY0123456789abcdef", failed=True)
    secret.status.message = 'refused {"password": "CANARY"}'
    sender = Sender(tier.balancer.endpoint, "secretive")
    assert sender.send([secret])
    sender.close()
    labels = {"service_name": "secretive", "gen_ai_agent_name": "****"}
    name = "agui_spans_calls_total"
    eventually(lambda: [0, 1] == sorted(one.total(name, "metrics", **labels) for one in tier.samplers))
    eventually(lambda: "invoke_agent ****" in tier.sink.span_names())
    looked = [
        str(tier.sink.traces),
        *(one.page() + one.log.read_text() for one in tier.samplers),
        tier.balancer.log.read_text(),
    ]
    assert [] == [text for text in looked if "CANARY" in text]


def ids(count: int) -> list[bytes]:
    """So many new trace ids."""
    return [secrets.token_bytes(16) for _ in range(count)]


def taken(sampler: Collector) -> int:
    """The spans that a sampler has been given by trace id."""
    return round(sampler.total("otelcol_receiver_accepted_spans_total", "telemetry", receiver="otlp/traces"))


def test_a_killed_sampler(tier: Tier) -> None:
    """The balancer goes on, and so does the other sampler. Of what the killed one held undecided, only the failing
    spans are left; what comes for it while it is down arrives when it is back."""
    killed, other = tier.samplers
    before = taken(killed), taken(other)
    undecided = ids(50)
    tier.send(undecided, ("worker", "tools"))
    eventually(lambda: taken(killed) + taken(other) == sum(before) + 50 * 6, 30)
    others = (taken(other) - before[1]) // 6
    killed.kill()
    after = ids(50)
    tier.send(undecided, ("web",))
    tier.send(after)
    eventually(lambda: tier.sizes(undecided)[WHOLE] == others, 30)
    eventually(lambda: tier.sizes(after)[WHOLE] > 0, 30)
    assert tier.sizes(after)[WHOLE] < 50
    killed.start()
    eventually(lambda: tier.are_whole(after), 60)
    eventually(lambda: tier.sizes(undecided) == {WHOLE: others, FAILING: 50 - others}, 30)
