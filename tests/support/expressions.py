"""The expressions of rules and boards, as a Prometheus that runs can be asked them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from tests.support.monitoring import ALERTS, ROOT, quicker

BOARDS = ROOT / "dashboards" / "json"

_THRESHOLD = re.compile(r" (?:==|>=|<=|>|<) [0-9.]+$", re.MULTILINE)
_THRESHOLD_INSIDE = re.compile(r" (?:==|>=|<=|>|<) [0-9.]+(?=[ \n])")
_ABSENCE = re.compile(r"\s+unless .*", re.DOTALL)
_LABELS = re.compile(r"\{[^}]*\}|\b(?:by|on|ignoring) \([^)]*\)")
_METRIC = re.compile(r"\b(?:agui|gen_ai|otelcol)[a-zA-Z0-9_:]*|\bALERTS\b|\bup\b")


class Asked(NamedTuple):
    """An expression, where it stands, and the labels that its place expects in the result."""

    place: str
    expression: str
    labels: frozenset[str] = frozenset()


def rules() -> list[dict[str, Any]]:
    """The rules of collector/alerts/rules.yaml, in order."""
    groups = yaml.safe_load((ALERTS / "rules.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def of_rules(factor: int) -> list[Asked]:
    """The expression of each rule without its threshold, with durations divided as the running rules' are."""
    found = []
    for rule in rules():
        bare = _ABSENCE.sub("", rule["expr"].strip())
        bare = _THRESHOLD_INSIDE.sub("", _THRESHOLD.sub("", bare))
        found.append(Asked(rule.get("alert") or rule["record"], quicker(bare, factor)))
    return found


def boards() -> dict[str, dict[str, Any]]:
    """The committed boards by the name of their file."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(BOARDS.glob("*.json"))}


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels of a board that show something."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def of_boards(range_: str, rate_interval: str) -> Iterator[Asked]:
    """Each query of each panel, with Grafana's variables replaced, and the labels that legends and columns name."""
    values = {"$__range": range_, "$__rate_interval": rate_interval, "$service": ".*"}
    for name, board in boards().items():
        for panel in panels(board):
            columns = {
                column
                for step in panel.get("transformations", ())
                for column in step["options"]["renameByName"]
                if column != "Value"
            }
            for target in panel["targets"]:
                expression = target["expr"]
                for variable, value in values.items():
                    expression = expression.replace(variable, value)
                legend = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
                yield Asked(f"{name}: {panel['title']}", expression, frozenset(columns | legend))


def metrics_in(expression: str) -> set[str]:
    """The names of the metrics in an expression."""
    return set(_METRIC.findall(_LABELS.sub("", expression)))
