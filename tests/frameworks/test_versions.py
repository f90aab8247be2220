"""The page names the versions that the tests run."""

from __future__ import annotations

import re

from tests.support.frameworks import REQUIREMENTS, ROOT

NAMED = re.compile(r"`([\w-]+)` (\d[\w.]*)")


def test_the_page_names_the_versions_that_are_run() -> None:
    """Each package and version in the table of frameworks is pinned for one of them, and each of these is named."""
    page = (ROOT / "docs" / "ways-in.md").read_text()
    rows = [line for line in page.partition("## Frameworks")[2].splitlines() if line.startswith("| ")][1:]
    pinned = {path.stem: path.read_text().splitlines() for path in REQUIREMENTS.glob("*.txt")}
    found = []
    for row in rows:
        named = [f"{package}=={version}" for package, version in NAMED.findall(row.split("|")[1])]
        found += [name for name, lines in pinned.items() if named and set(named) <= set(lines)]
    assert sorted(pinned) == sorted(found)
