"""The way of an alert: a stream, the real collector, Prometheus, Alertmanager, a page, and its link into Phoenix.

One file, because one pipeline serves all of it: who is paged, where the page's link leads, and that every expression of
a rule or a board is answered with data.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.support import monitoring
from tests.support.browser import browser_page
from tests.support.command import Command
from tests.support.expressions import Asked, boards, metrics_in, of_boards, of_rules, panels
from tests.support.monitoring import Prometheus
from tests.support.pipeline import (
    BROKEN,
    CANCELLED,
    INTERRUPT,
    QUICKER,
    TOOL_ERROR,
    Pipeline,
    pipeline,
    play,
    replay,
    service,
)
from tests.support.stack import answering

pytestmark = pytest.mark.slow

PAGES = [
    ("AGUIRunFailed", "alone", "planner"),
    ("AGUISubagentFailed", "failing", "researcher"),
    ("AGUISubagentFailed", "recovering", "researcher"),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Everything between a service and the person who is paged."""
    with pipeline(tmp_path_factory.mktemp("pipeline")) as made:
        yield made


@pytest.fixture(scope="module")
def told(running: Pipeline) -> Pipeline:
    """The pipeline when five services have spoken, and all pages are over."""
    with service("quiet", running.collector) as handle:
        replay(handle, "single", "parallel", "approve_1", "approve_3_resume", "legacy_interrupt", "disconnect")
        play(handle, CANCELLED)
        play(handle, CANCELLED, until=2)
    with service("failing", running.collector) as handle:
        replay(handle, "error_tool")
    with service("recovering", running.collector) as handle:
        replay(handle, "error_model_recovered")
    with service("alone", running.collector) as handle:
        play(handle, BROKEN)
    monitoring.wait_for("the pages", lambda: _all_told(running, "firing"))
    monitoring.wait_for("their end", lambda: _all_told(running, "resolved"))
    return running


def _all_told(running: Pipeline, status: str) -> bool:
    return set(PAGES) <= set(_pages(running, status))


def _pages(running: Pipeline, status: str) -> list[tuple[str, str, str]]:
    """Alert, service and agent of the pages of these services."""
    labels = [alert["labels"] for alert in running.webhook.alerts("/page", status)]
    ours = {"quiet", *(page[1] for page in PAGES)}
    return sorted(
        (label["alertname"], label["service"], label["agent"]) for label in labels if label["service"] in ours
    )


def _annotations(running: Pipeline, name: str) -> dict[str, Any]:
    (found,) = (
        alert["annotations"]
        for alert in running.webhook.alerts("/page", "firing")
        if alert["labels"]["service"] == name
    )
    return dict(found)


def test_one_failure_is_one_page(told: Pipeline) -> None:
    """Each failure is told once and resolved once, naming who failed first; a run adds none to its subagent's.

    Nobody hears of runs that were suspended, cancelled, left, or cut off, and of siblings that were cut off.
    """
    assert PAGES == _pages(told, "firing")
    assert PAGES == _pages(told, "resolved")


def test_the_quiet_service_was_heard(told: Pipeline) -> None:
    """The service without a page had every ending that is no failure, and Prometheus saw them."""
    ended = told.prometheus.query(
        'sum by (agui_level, agui_outcome) (gen_ai_invoke_agent_duration_seconds_count{service_name="quiet"})'
    )
    outcomes = {(series["metric"]["agui_level"], series["metric"]["agui_outcome"]) for series in ended}
    assert {
        *(("run", outcome) for outcome in ("success", "interrupt", "unfinished", "cancelled", "disconnected")),
        *(("subagent", outcome) for outcome in ("success", "suspended", "cancelled", "aborted")),
    } == outcomes


def test_lost_spans_are_told(told: Pipeline) -> None:
    """Of the collector in trouble: what it lost pages; what it refused, and what so was lost at the source, is told."""
    for path, name, about in (
        ("/page", "AGUICollectorLosesSpans", "collector"),
        ("/hours", "AGUICollectorRefuses", "collector"),
        ("/hours", "AGUISpansNotExported", "troubled"),
    ):
        labels = [alert["labels"] for alert in told.webhook.alerts(path, "firing")]
        assert about in {label["service"] for label in labels if label["alertname"] == name}, name


def test_the_page_says_what_to_read(told: Pipeline) -> None:
    """Its runbook is served by Prometheus itself."""
    annotations = _annotations(told, "failing")
    assert "Subagent researcher of failing failed" == annotations["summary"]
    with build_opener(ProxyHandler({})).open(annotations["runbook_url"], timeout=10) as answer:
        assert "# AGUISubagentFailed" == answer.read().decode().splitlines()[0]


def _trace_ids(running: Pipeline, name: str) -> set[str]:
    """The traces of a service, as Phoenix's own API tells them."""
    return {
        span["context"]["trace_id"]
        for span in running.phoenix.spans("default")
        if span["attributes"].get("service.name") == name
    }


def test_its_link_opens_the_failing_trace(told: Pipeline) -> None:
    """In a browser: the list has the failing span alone, and leads to its trace; so does the link of a board."""
    (expected,) = _trace_ids(told, "failing")
    with browser_page() as page:
        page.goto(_annotations(told, "failing")["phoenix_url"])
        page.locator("table a").first.wait_for()
        rows = page.locator("table a").evaluate_all("links => links.map(link => link.href)")
        assert [expected] == [row.partition("/spans/")[2].partition("?")[0] for row in rows]
        page.locator("table a").first.click()
        page.get_by_text("search backend exploded").first.wait_for()
        page.goto(_of_a_board(told.project))
        page.locator("table a").first.wait_for()
        rows = page.locator("table a").evaluate_all("links => links.map(link => link.href)")
        assert expected in {row.partition("/spans/")[2].partition("?")[0] for row in rows}


def _of_a_board(project: str) -> str:
    """A panel's link as Grafana would fill it for the subagent `researcher`."""
    (panel,) = (panel for panel in panels(boards()["subagents"]) if panel["title"] == "Failures by place")
    url = str(panel["fieldConfig"]["defaults"]["links"][0]["url"])
    for variable, value in {
        "${phoenix}": project,
        "${__from:date:iso}": "2020-01-01T00:00:00.000Z",
        "${__to:date:iso}": "2100-01-01T00:00:00.000Z",
        "${__data.fields.Subagent:percentencode}": "researcher",
    }.items():
        assert variable in url
        url = url.replace(variable, value)
    return url


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
    seen = {exemplar["labels"]["trace_id"] for exemplar in found}
    monitoring.wait_for("their traces", lambda: seen <= _trace_ids(busy, "busy"))


def test_doctor_finds_each_service(
    running: Pipeline, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way of an alert, service by service; the test span is found in Phoenix. Only Grafana is not real."""
    with answering({"/api/health": {"database": "ok"}}) as grafana:
        for name, url in {
            "OTLP_HTTP_PORT": running.collector.endpoint,
            "COLLECTOR_HEALTH_PORT": running.collector.address("health"),
            "PHOENIX_PORT": running.phoenix.url,
            "PROMETHEUS_PORT": running.prometheus.url,
            "ALERTMANAGER_PORT": running.alertmanager,
            "GRAFANA_PORT": grafana,
        }.items():
            monkeypatch.setenv(name, url.rpartition(":")[2])
        ran = Command(capsys, monkeypatch)("doctor", "--compose")
    assert (0, "") == (ran.status, ran.err)
    found = [line.removeprefix("ok     ") for line in ran.out.splitlines()]
    assert [
        "the collector is ready",
        "the test span went through the collector to Phoenix",
        "Prometheus reads 4 targets",
        "it evaluates 16 alerts, and tells 1 Alertmanager",
        "Alertmanager is ready",
        "Grafana is ready",
    ] == [line.partition(":")[0] for line in found[4:10]]
