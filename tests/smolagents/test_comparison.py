"""The comparison on docs/smolagents.md is what is measured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agui_otel.phoenix import EmbeddedPhoenix, PhoenixClient
from scripts.compare_smolagents import BESIDE, COLUMNS, MARKS, OURS, PAGE, ROWS, THEIRS, TOGETHER, measure, table

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PhoenixClient]:
    """A Phoenix of its own."""
    with EmbeddedPhoenix(tmp_path_factory.mktemp("phoenix")) as server:
        yield PhoenixClient(server.url)


def written() -> str:
    """What the page says was measured."""
    return Path(PAGE).read_text(encoding="utf-8").split(MARKS[0])[1].split(MARKS[1])[0]


@pytest.mark.parametrize("case", ["caught_in_code", "interrupted"])
def test_each_alone(case: str, phoenix: PhoenixClient) -> None:
    """A row of the first table, measured anew."""
    number = next(number for number, row in enumerate(ROWS) if row.case == case)
    results = {(number, way): measure(phoenix, number, way) for way in (OURS, THEIRS)}
    assert table(results, (OURS, THEIRS), COLUMNS).splitlines()[-1] in written()


def test_both_at_once(phoenix: PhoenixClient) -> None:
    """A row of the second table, measured anew: in both orders each has its agents, in one trace."""
    results = {(0, way): measure(phoenix, 0, way) for way in BESIDE}
    assert table(results, BESIDE, TOGETHER).splitlines()[-1] in written()


def test_every_case_is_there() -> None:
    """Each row of the script is a row of the page, and of ours nothing is missing in any."""
    for row in ROWS:
        found = re.search(rf"^\| {re.escape(row.title)} \|(.*)$", written(), re.M)
        assert found is not None, row.title
        ours = [cell.split(" · ")[0].strip() for cell in found[1].strip("|").split("|")]
        shown = dict(zip(COLUMNS, ours, strict=True))
        assert ("0", "1", "-", "yes") == tuple(
            shown[name] for name in ("orphans", "traces", "left behind", "result as ever")
        )
        for name in ("agents", "calls with id", "tokens", "with session"):
            part, whole = shown[name].split("/")
            assert part == whole, (row.title, name)
