"""The boards are what the generator makes, and what Grafana reads; `tests/alerts` asks their expressions."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import services
from tests.support.expressions import BOARDS, boards, panels
from tests.support.monitoring import ROOT

NAMES = ["glance", "humans", "protocol", "subagents"]
PROVISIONING = ROOT / "dashboards" / "provisioning"


def test_they_are_current() -> None:
    """The committed JSON is what the generator writes."""
    services.require(sys.version_info >= (3, 11), "Python 3.11, which Grafana's SDK needs")
    command = [sys.executable, "-m", "dashboards.generate", "--check"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (0, "") == (ran.returncode, ran.stderr)
    assert NAMES == sorted(boards())


def test_grafana_reads_them(strict: Callable[..., list[str]]) -> None:
    """The SDK's strict decoding finds nothing unknown, of the wrong type, or missing."""
    assert [] == strict(*sorted(BOARDS.glob("*.json")))


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ('"schemaVersion": ', '"schemaVersion": "x", "y": ', "schemaVersion"),
        ('"expr": ', '"exprr": ', "unexpected field 'exprr'"),
        ('"colorMode": "value"', '"colorMode": 5', "options.colorMode"),
        ('"fillOpacity"', '"fillOpaque"', "unexpected field 'fillOpaque'"),
        ('"unit": ', '"unitt": ', "unexpected field 'unitt'"),
    ],
)
def test_the_strict_reader_finds_faults(
    strict: Callable[..., list[str]], tmp_path: Path, old: str, new: str, found: str
) -> None:
    """A fault planted in a board, a query, a panel's options, its lines or its fields is found."""
    text = (BOARDS / "glance.json").read_text()
    assert old in text
    (tmp_path / "board.json").write_text(text.replace(old, new))
    assert any(found in line for line in strict(tmp_path / "board.json"))


@pytest.mark.parametrize("name", NAMES)
def test_every_panel_explains_itself(name: str) -> None:
    """A title, a description, the chosen data source; ids of their own, and nothing beside the grid."""
    board = boards()[name]
    shown = panels(board)
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    for panel in shown:
        assert panel["title"]
        assert panel["description"]
        assert "${datasource}" == panel["datasource"]["uid"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    assert ["datasource", "service", "phoenix"] == [one["name"] for one in board["templating"]["list"]]


def test_durations_have_exemplars() -> None:
    """Every quantile shows the traces behind it."""
    quantiles = [
        target
        for board in boards().values()
        for panel in panels(board)
        for target in panel["targets"]
        if "histogram_quantile" in target["expr"]
    ]
    assert len(quantiles) >= 7
    assert [] == [target["expr"] for target in quantiles if not target["exemplar"]]


def test_links_lead_to_phoenix() -> None:
    """On each board at least one panel opens the spans behind it, in the project and the time that the board shows."""
    for name, board in boards().items():
        links = [link["url"] for panel in panels(board) for link in panel["fieldConfig"]["defaults"].get("links", ())]
        assert links, name
        for url in links:
            assert url.startswith("${phoenix}/spans?timeRangeKey=custom&timeRangeStart=${__from:date:iso}&"), url


def test_they_are_provisioned() -> None:
    """The data source names the label that exemplars have, and the boards are looked for where compose mounts them."""
    source: dict[str, Any] = yaml.safe_load((PROVISIONING / "datasources" / "agui-otel.yaml").read_text())
    (destination,) = source["datasources"][0]["jsonData"]["exemplarTraceIdDestinations"]
    assert "trace_id" == destination["name"]
    assert destination["url"].endswith("/redirects/traces/$${__value.raw}")
    provider: dict[str, Any] = yaml.safe_load((PROVISIONING / "dashboards" / "agui-otel.yaml").read_text())
    folder = provider["providers"][0]["options"]["path"]
    compose = json.dumps(yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]["grafana"]["volumes"])
    assert f"./dashboards/json:{folder}:ro" in compose
