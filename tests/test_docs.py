"""What the pages show runs and prints what they say, and what they lead to is there."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from agui_otel.cli.main import make_parser
from scripts import generate_docs
from scripts.doc_outputs import PAGES, ROOT, Example, examples

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
VARIABLE = re.compile(r"\b(?:AGUI_OTEL|OPENINFERENCE|OTEL|PHOENIX)_[A-Z_]*[A-Z]\b")
OURS = {"TESTS_ORACLE_STREAMS", "TESTS_REQUIRE_SERVICES"}
"""Variables of this project's tests."""


def text_of(page: Path) -> str:
    """A page's text."""
    return page.read_text(encoding="utf-8")


def blocks(page: Path, *languages: str) -> Iterator[str]:
    """The code blocks of a page in these languages."""
    for language, code in FENCE.findall(text_of(page)):
        if language in languages:
            yield code


def anchors(page: Path) -> set[str]:
    """What a link into a page may name: its headings, as they are rendered."""
    bare = FENCE.sub("", text_of(page))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(bare)}


RUN = [pytest.param(example, id=f"{page.stem}-{example.line}") for page in PAGES for example in examples(text_of(page))]


@pytest.mark.parametrize("example", RUN)
def test_what_a_page_runs_prints_what_it_shows(example: Example) -> None:
    """Blocks that are marked to run do, and their output is the page's."""
    assert example.shown == example.run()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    """Each relative link names a file of the repository and, where it says so, a heading in it."""
    broken = []
    for link in LINK.findall(FENCE.sub("", text_of(page))):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert [] == broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_that_are_named_are_there(page: Path) -> None:
    """A file that a page names is in the repository, or in the package."""
    modules = {path.name for path in (ROOT / "agui_otel").rglob("*.py")}
    for name in re.findall(r"`([\w/.]+\.(?:py|mjs))`", text_of(page)):
        assert (ROOT / name).is_file() or (ROOT / "agui_otel" / name).is_file() or name in modules, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_is_python(page: Path) -> None:
    """Each Python block can be compiled, and what it imports of this package is there."""
    for code in blocks(page, "python"):
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        within = f"async def block():\n{textwrap.indent(code, '    ')}" if re.search(r"^ *yield ", code, re.M) else code
        compile(within, str(page), "exec", flags)
        for node in ast.walk(ast.parse(within)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agui_otel"):
                module = importlib.import_module(node.module or "")
                assert [] == [name.name for name in node.names if not hasattr(module, name.name)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_are_commands(page: Path) -> None:
    """Each call of `agui-otel` that a page shows has arguments that the command line takes."""
    for code in blocks(page, "sh", "console"):
        for call in re.findall(r"\bagui-otel ([^|\n]+)", code):
            arguments = shlex.split(call, comments=True)
            assert callable(make_parser().parse_args(arguments).run)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_variables_are_on_the_configuration_page(page: Path) -> None:
    """Whatever variable a page names, the configuration page explains it."""
    explained = set(VARIABLE.findall(text_of(generate_docs.TARGET)))
    assert set() == set(VARIABLE.findall(text_of(page))) - explained - OURS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_lines_are_no_longer_than_code(page: Path) -> None:
    """Prose is wrapped; tables, links and what commands print are as long as they are."""
    bare = re.sub(r"^(```|<!--).*?^(```|.*-->)$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    assert [] == [line for line in bare.splitlines() if len(line) > 120 and not line.startswith("|")]
