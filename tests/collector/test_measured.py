"""collector.yaml: the metrics that are made of spans, and those that pass through."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.collectors import CONFIGURATIONS, Collector, Series, collector, wait_for
from tests.support.load import Sender, span
from tests.support.pipeline import replay, service
from tests.support.receivers import Received, http_receiver
from tests.support.servers import eventually

pytestmark = pytest.mark.slow

RECORDINGS = ("nested", "error_tool", "approve_1", "approve_3_resume", "error_model_recovered")
METRICS = ("calls_total", "duration_seconds_bucket", "duration_seconds_sum", "duration_seconds_count", "events_total")
AGENT = {"gen_ai.operation.name": "invoke_agent", "agui.run.id": "r"}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Collector, Received]]:
    """A collector through which recordings have gone, as runs of two processes of one service."""
    directory = tmp_path_factory.mktemp("measured")
    with (
        pytest.MonkeyPatch.context() as patch,
        http_receiver() as sink,
        collector(directory, PHOENIX_COLLECTOR_ENDPOINT=sink.url, AGUI_COLLECTOR_FLUSH_INTERVAL="1s") as running,
    ):
        for process in ("one", "two"):
            patch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"service.instance.id={process}")
            with service("planner", running) as handle:
                replay(handle, *RECORDINGS)
        wait_for(2 * len(RECORDINGS), running, "agui_spans_calls_total", agui_level="run")
        yield running, sink


def _series(running: Collector) -> Iterator[Series]:
    for name in METRICS:
        yield from running.series(f"agui_spans_{name}")


def test_labels_are_those_told(measured: tuple[Collector, Received]) -> None:
    """The README's table is what there is, and no label holds an id of the streams."""
    running, sink = measured
    page = (CONFIGURATIONS / "README.md").read_text()
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)
    told = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert told | {"job", "le"} == {label for item in _series(running) for label in item.labels}
    ids = {
        attribute.value.string_value
        for item in sink.otlp_spans()
        for attribute in item.attributes
        if attribute.key.endswith((".id", ".run_id", "tool.id")) and not attribute.key.startswith("graph.")
    }
    assert len(ids) > 20
    assert set() == ids & {value for item in _series(running) for value in item.labels.values()}


def test_counts_are_those_of_the_spans(measured: tuple[Collector, Received]) -> None:
    """Agents and tools, by name and outcome, over all processes of the service: as many as there are spans."""
    running, sink = measured
    spans = [
        {attribute.key: attribute.value.string_value for attribute in item.attributes}
        for item in sink.otlp_spans()
        if item.name.startswith(("invoke_agent", "execute_tool"))
    ]
    keys = ("gen_ai.operation.name", "gen_ai.agent.name", "gen_ai.tool.name", "graph.node.parent_id", "agui.outcome")
    expected = Counter(tuple(attributes.get(key, "") for key in keys) for attributes in spans)
    labels = [key.replace(".", "_") for key in keys]
    for metric in ("agui_spans_calls_total", "agui_spans_duration_seconds_count"):
        counted: Counter[tuple[str, ...]] = Counter()
        for item in running.series(metric):
            counted[tuple(item.labels.get(label, "") for label in labels)] += round(item.value)
        assert expected == counted


def test_events_are_counted(measured: tuple[Collector, Received]) -> None:
    """Interrupts, resumptions, violations and exceptions, as many as the spans have."""
    running, sink = measured
    kinds = {item.labels["event_name"] for item in running.series("agui_spans_events_total")}
    assert {"agui.interrupt", "agui.interrupt.resolved", "agui.subagent.suspended", "exception"} <= kinds
    events = Counter(event.name for item in sink.otlp_spans() for event in item.events)
    assert {kind: events[kind] for kind in kinds} == {
        kind: running.total("agui_spans_events_total", event_name=kind) for kind in kinds
    }


def test_what_passes_through_says_its_service(measured: tuple[Collector, Received]) -> None:
    """Each process's counters are there, each with `service_name`."""
    running, _ = measured
    passed = [item for item in running.series("agui_subagent_errors_total") if item.value > 0]
    assert {"planner"} == {item.labels["service_name"] for item in passed}
    assert {"one", "two"} == {item.labels["instance"] for item in passed}


def test_a_new_series_begins_with_zero(tmp_path: Path) -> None:
    """So that `increase()` sees the first error too; its exemplar is there from the beginning."""
    with (
        http_receiver() as sink,
        collector(tmp_path, PHOENIX_COLLECTOR_ENDPOINT=sink.url, AGUI_COLLECTOR_FLUSH_INTERVAL="2s") as running,
    ):
        sender, sent = Sender(running.endpoint), span(None, AGENT, failed=True)
        assert sender.send([sent])
        sender.close()
        seen: dict[float, Series] = {}

        def counted() -> bool:
            seen.update({item.value: item for item in running.series("agui_spans_calls_total")})
            return 1.0 in seen

        eventually(counted)
    assert [0.0, 1.0] == [*seen]
    assert {"trace_id": sent.trace_id.hex(), "span_id": sent.span_id.hex()} == seen[0.0].exemplar


def test_names_without_end(tmp_path: Path) -> None:
    """Above the limit new names are counted as one: nothing is left out of the sum, and the page stays small."""
    with (
        http_receiver() as sink,
        collector(
            tmp_path,
            PHOENIX_COLLECTOR_ENDPOINT=sink.url,
            AGUI_COLLECTOR_FLUSH_INTERVAL="500ms",
            AGUI_COLLECTOR_MAX_SERIES="10",
        ) as running,
    ):
        sender = Sender(running.endpoint)
        assert sender.send([span(None, {**AGENT, "gen_ai.agent.name": f"agent {number}"}) for number in range(100)])
        sender.close()
        wait_for(100, running, "agui_spans_calls_total")
        assert 100 == running.total("agui_spans_calls_total")
        assert 90 == running.total("agui_spans_calls_total", otel_metric_overflow="true")
