"""docs/configuration.md is generated from the settings, and complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agui_otel.config import ENVIRONMENT, Settings
from scripts import generate_docs

ROOT = Path(__file__).parent.parent
VARIABLE = re.compile(r'"((?:AGUI_OTEL|OTEL|OPENINFERENCE|PHOENIX)_[A-Z_]*[A-Z])"')


def test_the_page_is_current() -> None:
    """What is in the repository is what the settings say now."""
    assert generate_docs.document() == generate_docs.TARGET.read_text(encoding="utf-8")
    assert generate_docs.main(["--check"]) == 0


def test_a_page_that_is_not_current_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check fails on another text and says what to run; writing makes it current."""
    monkeypatch.setattr(generate_docs, "TARGET", tmp_path / "configuration.md")
    assert generate_docs.main(["--check"]) == 1
    assert "run python scripts/generate_docs.py" in capsys.readouterr().err
    generate_docs.main([])
    assert generate_docs.main(["--check"]) == 0


def test_every_option_has_a_sentence() -> None:
    """Each option says what it does, in one paragraph that ends."""
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert field.description.endswith((".", "`memory://`.")), name


def test_every_variable_that_is_read_is_on_the_page() -> None:
    """Whatever variable the package names in its code, a person finds it on the page."""
    page = generate_docs.TARGET.read_text(encoding="utf-8")
    named = {name for names in ENVIRONMENT.values() for name in names}
    for source in (ROOT / "agui_otel").rglob("*.py"):
        named.update(VARIABLE.findall(source.read_text(encoding="utf-8")))
    assert named - set(re.findall(r"`([A-Z_]+)`", page)) == set()
