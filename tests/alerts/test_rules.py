"""The rules, their tests and the routes, judged by Prometheus' and Alertmanager's own tools; and a runbook for each."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from tests.support import monitoring
from tests.support.expressions import rules
from tests.support.monitoring import ALERTS, AMTOOL, PROMTOOL, ROOT

RUNBOOKS = ROOT / "docs" / "runbooks"
SECTIONS = ["What it means", "What to look at", "How to silence it"]
ALERTING = [rule for rule in rules() if "alert" in rule]


def told(*command: object) -> str:
    """What a tool prints, which has to be content."""
    monitoring.require(str(command[0]))
    ran = subprocess.run([str(part) for part in command], cwd=ALERTS, capture_output=True, text=True, check=False)
    assert 0 == ran.returncode, ran.stdout + ran.stderr
    return ran.stdout


def test_prometheus_takes_the_rules() -> None:
    """The rules and the configuration are valid."""
    assert f"{len(rules())} rules found" in told(PROMTOOL, "check", "rules", "rules.yaml")
    told(PROMTOOL, "check", "config", "prometheus.yml")


def test_the_rules_behave() -> None:
    """Each alert fires when it should, with its texts and links, and only then."""
    told(PROMTOOL, "test", "rules", "rules_test.yaml")


def test_every_alert_is_tested() -> None:
    """Of each alert there is a case in which it fires."""
    cases = [
        case
        for group in yaml.safe_load((ALERTS / "rules_test.yaml").read_text())["tests"]
        for case in group["alert_rule_test"]
    ]
    fired = {case["alertname"] for case in cases if case.get("exp_alerts")}
    assert {rule["alert"] for rule in ALERTING} == fired


@pytest.mark.parametrize("rule", ALERTING, ids=lambda rule: str(rule["alert"]))
def test_every_alert_has_its_runbook(rule: dict[str, Any]) -> None:
    """A page named by the alert's link says what it means, what to look at, and how to silence it."""
    name = rule["annotations"]["runbook_url"].rpartition("/")[2]
    lines = (RUNBOOKS / name).read_text().splitlines()
    assert f"# {rule['alert']}" == lines[0]
    assert SECTIONS == [line.removeprefix("## ") for line in lines if line.startswith("## ")]
    assert rule["labels"]["severity"] in lines[2]


def test_every_runbook_has_its_alert() -> None:
    """No page is left over."""
    named = {rule["annotations"]["runbook_url"].rpartition("/")[2] for rule in ALERTING}
    assert named == {path.name for path in RUNBOOKS.glob("*.md")} - {"README.md"}


def test_only_what_failed_by_itself_pages() -> None:
    """Critical are the first failures, and what blinds the alerts themselves; of agents only with `own` as cause."""
    critical = {rule["alert"]: rule["expr"] for rule in ALERTING if rule["labels"]["severity"] == "critical"}
    assert {"AGUISubagentFailed", "AGUIRunFailed", "AGUICollectorLosesSpans", "AGUICollectorDown"} == set(critical)
    assert all('agui_cause="own"' in critical[name] for name in ("AGUISubagentFailed", "AGUIRunFailed"))


def test_alertmanager_takes_the_routes() -> None:
    """The example is valid: critical pages, the rest waits, each service and agent by itself."""
    assert "SUCCESS" in told(AMTOOL, "check-config", "alertmanager.yaml")
    for severity, receiver in (("critical", "page"), ("warning", "hours"), ("other", "hours")):
        test = ("config", "routes", "test", "--config.file=alertmanager.yaml", f"--verify.receivers={receiver}")
        told(AMTOOL, *test, f"severity={severity}", "service=travel", "agent=scout")
    assert ["service", "agent"] == yaml.safe_load((ALERTS / "alertmanager.yaml").read_text())["route"]["group_by"]
