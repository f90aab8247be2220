"""collector/*.yaml: what the real collector says of them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.collectors import (
    BALANCER,
    CONFIGURATIONS,
    DEFAULT,
    SAMPLER,
    SAMPLING,
    arguments,
    binary,
    collector,
)
from tests.support.processes import listening

pytestmark = pytest.mark.slow

COMBINATIONS = (DEFAULT, SAMPLING, BALANCER, SAMPLER)
LISTENS = {
    DEFAULT: ("grpc", "http", "metrics"),
    SAMPLING: ("grpc", "http", "metrics"),
    BALANCER: ("grpc", "http"),
    SAMPLER: ("traces", "measured", "metrics"),
}
NO_SAMPLER = "connection refused"
"""What the balancer alone says of each of its samplers."""


def _loaded(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((CONFIGURATIONS / name).read_text())
    return loaded


@pytest.mark.parametrize("configurations", COMBINATIONS, ids=" ".join)
def test_validates(configurations: tuple[str, ...]) -> None:
    """Each combination is valid, without a variable set, and without a word of deprecation."""
    validated = subprocess.run(
        [binary(), "validate", *arguments(configurations)], capture_output=True, text=True, check=False
    )
    assert (0, "", "") == (validated.returncode, validated.stdout, validated.stderr)


@pytest.mark.parametrize("configurations", COMBINATIONS, ids=" ".join)
def test_runs(configurations: tuple[str, ...], tmp_path: Path) -> None:
    """Each combination comes up, without a warning, and listens where it was told to, and nowhere else."""
    with collector(tmp_path, configurations) as running:
        addresses = listening(running.process)
        log = running.log.read_text()
        told = {running.address(name) for name in (*LISTENS[configurations], "health", "telemetry")}
    assert told == addresses
    assert [] == [line for line in log.splitlines() if re.search("\t(warn|error)\t", line) and NO_SAMPLER not in line]


def test_wrong_values_are_refused() -> None:
    """The check above can fail: a key that no component knows is refused."""
    refused = subprocess.run(
        [binary(), "validate", *arguments(DEFAULT), "--config", "yaml:processors::memory_limiter::limit_mb: 1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert 1 == refused.returncode
    assert "limit_mb" in refused.stderr + refused.stdout


def test_components_are_those_used() -> None:
    """The manifest has what the configurations use, and nothing else, all of one release."""
    used = {
        (section, name.partition("/")[0])
        for file in {name for combination in COMBINATIONS for name in combination}
        for section in ("extensions", "receivers", "processors", "connectors", "exporters")
        for name in _loaded(file).get(section, {})
    }
    built = yaml.safe_load(subprocess.run([binary(), "components"], capture_output=True, text=True, check=True).stdout)
    shipped = {
        (section, component["name"])
        for section in ("extensions", "receivers", "processors", "connectors", "exporters")
        for component in built[section]
    }
    # The load-balancing exporter is given OTLP over gRPC by its own module.
    assert used == shipped
    versions = {
        component["gomod"].split()[1]
        for section in ("extensions", "receivers", "processors", "connectors", "exporters")
        for component in _loaded("manifest.yaml")[section]
    }
    assert {"v" + _loaded("manifest.yaml")["dist"]["version"]} == versions


def test_every_address_and_size_is_a_variable() -> None:
    """What a person changes is a variable with a default, and the page lists all of them with theirs."""
    text = "".join((CONFIGURATIONS / name).read_text() for name in {name for those in COMBINATIONS for name in those})
    variables = dict(re.findall(r"\$\{env:(\w+):-([^}]*)\}", text))
    assert text.count("${env:") == len(re.findall(r"\$\{env:\w+:-[^}]*\}", text))
    page = (CONFIGURATIONS.parent / "docs/collector.md").read_text()
    told = re.findall(r"^\| `(\w+)` \| (?:`([^`]*)`|none) \|", page, re.MULTILINE)
    assert {name: "" if value in ("a^", "none") else value for name, value in variables.items()} == dict(told)
    assert [] == re.findall(r"^\s+(?:endpoint|host|port|directory): (?!\$\{env:).*$", text, re.MULTILINE)
