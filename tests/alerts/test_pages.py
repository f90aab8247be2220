"""Who is paged, through the real collector, Prometheus and Alertmanager, and where the page's link leads."""

from __future__ import annotations

from typing import Any
from urllib.request import ProxyHandler, build_opener

import pytest

from tests.support import monitoring
from tests.support.browser import browser_page
from tests.support.expressions import boards, panels
from tests.support.pipeline import Pipeline, play, replay, service

pytestmark = pytest.mark.slow

STARTED = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
SUBAGENT = {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "clerk"}
CANCELLED: list[dict[str, Any]] = [
    STARTED,
    SUBAGENT,
    {"type": "SUBAGENT_ERROR", "subagentRunId": "s", "message": "stopped", "code": "cancelled"},
    {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": {"type": "cancelled"}},
]
BROKEN: list[dict[str, Any]] = [STARTED, {"type": "RUN_ERROR", "message": "the model is gone", "code": "no_model"}]

PAGES = [
    ("AGUIRunFailed", "alone", "planner"),
    ("AGUISubagentFailed", "failing", "researcher"),
    ("AGUISubagentFailed", "recovering", "researcher"),
]


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


def test_the_page_says_what_to_read(told: Pipeline) -> None:
    """Its runbook is served by Prometheus itself."""
    annotations = _annotations(told, "failing")
    assert "Subagent researcher of failing failed" == annotations["summary"]
    with build_opener(ProxyHandler({})).open(annotations["runbook_url"], timeout=10) as answer:
        assert "# AGUISubagentFailed" == answer.read().decode().splitlines()[0]


def _trace_id(running: Pipeline, name: str) -> str:
    """The trace of a service's failure, as Phoenix's own API tells it."""
    ids = {
        span["context"]["trace_id"]
        for span in running.phoenix.spans("default")
        if span["attributes"].get("service.name") == name
    }
    (found,) = ids
    assert isinstance(found, str)
    return found


def test_its_link_opens_the_failing_trace(told: Pipeline) -> None:
    """In a browser: the list has the failing span alone, and leads to its trace; so does the link of a board."""
    expected = _trace_id(told, "failing")
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
