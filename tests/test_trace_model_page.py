"""docs/trace-model.md says what the code does: every rule, attribute, event, outcome and metric, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.metrics import NoOpMeter
from opentelemetry.sdk.trace import ReadableSpan

from agui_otel import Settings, trace_events
from agui_otel.protocol.entities import Outcome
from agui_otel.protocol.quirks import QUIRKS
from agui_otel.protocol.rules import RULES
from agui_otel.testing import Captured, capture
from agui_otel.tracing.boundary import Boundary
from agui_otel.tracing.memory import open_memory
from agui_otel.tracing.metrics import Instruments
from tests.support import golden
from tests.support.defects import write

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "trace-model.md").read_text(encoding="utf-8")
PACKAGE = sorted((ROOT / "agui_otel").rglob("*.py"))
SOURCES = [*PACKAGE, *(path for path in (ROOT / "tests").rglob("*.py") if "node_modules" not in path.parts)]

NAME = re.compile(r"`(agui\.[a-z_.]+(?:\{kind\})?)`")
OWN_NAME = re.compile(r"\"(agui\.[a-z_.]+)\"")
SECTION = re.compile(r"[Tt]race model(?:: |, section |, )([a-z' ,0-9]+)")
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "seconds": (float, int),
    "milliseconds": (float, int),
    "strings": (tuple, list),
    "integers": (tuple, list),
}


def table(section: str, index: int = 0) -> list[list[str]]:
    """The rows of a section's table, each a list of cells; `index` counts the tables of the section."""
    text = re.split(rf"^#+ {re.escape(section)}$", PAGE, maxsplit=1, flags=re.MULTILINE)[1]
    text = re.split(r"^#+ ", text, maxsplit=1, flags=re.MULTILINE)[0]
    found = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)[index]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in found.splitlines()[2:]]


def codes(cell: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", cell)


@lru_cache(maxsize=1)
def attributes() -> Mapping[str, tuple[str, str]]:
    """Each `agui.*` attribute with its type, and where it stands."""
    return {name: (kind, on) for cell, kind, on, _ in table("Attributes", 1) for name in codes(cell)}


@lru_cache(maxsize=1)
def events() -> Mapping[str, set[str]]:
    """Each span event with the attributes that it may have."""
    who = {"agui.subagent.run_id", "agui.subagent.name", "agui.truncated"}
    return {name: {*codes(row[3]), *who} for row in table("Other span events") for name in codes(row[0])}


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This package's own errors are raised, and no thread is remembered for other tests."""
    monkeypatch.setattr(Boundary, "strict", True)
    yield
    open_memory("memory://").close()


@lru_cache(maxsize=1)
def traced() -> list[Captured]:
    """Much of what there can be: every recording, each rule broken, limits reached."""
    found = [golden.spans(name, steps) for name in golden.names() for steps in ("events", "spans")]
    streams = [write(f"{rule}/{seed}", rule) for rule in RULES for seed in range(3)]
    for settings in (Settings(capture="full", steps="spans"), Settings(max_value=1, max_note_events=1)):
        captured = capture()
        for number, stream in enumerate(streams):
            given = {"threadId": f"thread-{number}", "runId": "other", "messages": [], "state": {"a": 1}}
            for _ in trace_events(
                stream,
                input=given if number % 2 else None,
                config=settings,
                tracer_provider=captured.tracer_provider,
                meter_provider=captured.meter_provider,
            ):
                pass
        found.append(captured)
    return found


def kind_of(span: ReadableSpan) -> str:
    """What a span stands for, in the words of the page."""
    known: Mapping[str, Any] = span.attributes or {}
    if known["openinference.span.kind"] == "AGENT":
        return "subagent" if "agui.subagent.announced" in known else "run"
    first = span.name.split()[0]
    return "tool call" if first == "execute_tool" else first


def documented(name: str) -> tuple[str, str]:
    """The type of an attribute, and where it stands."""
    return attributes()["agui.omitted.{kind}" if name.startswith("agui.omitted.") else name]


def ours(found: Any) -> Iterator[tuple[str, Any]]:
    """Those of a span's or an event's attributes that are this package's own."""
    return ((key, value) for key, value in (found or {}).items() if key.startswith("agui."))


def test_every_rule_is_explained() -> None:
    """The table of rules is that of the code, in its order."""
    assert [[f"`{rule}`", entry.says, entry.recovery] for rule, entry in RULES.items()] == table("Violations")


def test_every_note_is_explained() -> None:
    """The table of notes has those that the code makes."""
    said = {"ill_typed_field", "clock_backwards"}
    for path in PACKAGE:
        said.update(re.findall(r"scope\.note\(\s*\"(\w+)\"", path.read_text(encoding="utf-8")))
    assert said == {codes(note)[0] for note, _ in table("Notes")}


def test_every_quirk_is_explained() -> None:
    """The table of quirks is that of the code."""
    assert [list(quirk) for quirk in QUIRKS.values()] == [
        [cell.replace("`", "") for cell in row] for row in table("Quirks")
    ]


@pytest.mark.parametrize("quirk", QUIRKS.values(), ids=QUIRKS)
def test_every_quirk_is_shown_by_something(quirk: Any) -> None:
    """What shows a quirk is a recording, or a test that is there."""
    assert (ROOT / quirk.recording).is_file() or quirk.recording in golden.names()


def test_every_outcome_is_explained() -> None:
    """The table of outcomes has all of them."""
    assert {outcome.value for outcome in Outcome} == {codes(row[0])[0] for row in table("Outcomes")}


def test_every_name_is_explained() -> None:
    """Whatever name of ours stands in the code, the page has it, and no name that is not in the code."""
    used = {
        name if name != "agui.omitted." else "agui.omitted.{kind}"
        for path in PACKAGE
        for name in OWN_NAME.findall(path.read_text(encoding="utf-8"))
    }
    assert used == set(NAME.findall(PAGE))


def test_attributes_stand_where_the_page_says() -> None:
    """In all that was traced an attribute is on a span that the page names, with the type that it names."""
    for span in (span for captured in traced() for span in captured.spans):
        for name, value in ours(span.attributes):
            kind, on = documented(name)
            assert "every span" in on or "any" in on or kind_of(span) in re.split(r"[,;] ", on), (name, span.name)
            assert isinstance(value, TYPES[kind]), (name, value)
            assert kind == "boolean" or not isinstance(value, bool), (name, value)


def test_events_have_what_the_page_says() -> None:
    """In all that was traced a span event is in its table, with the attributes that its row names."""
    for event in (event for captured in traced() for span in captured.spans for event in span.events):
        assert set() == set(event.attributes or {}) - events()[event.name], event.name
        for name, value in ours(event.attributes):
            kind, on = documented(name)
            assert "events" in on, name
            assert isinstance(value, TYPES[kind]), (name, value)


class _Meter(NoOpMeter):
    """Remembers what is made: name, kind and unit."""

    def __init__(self) -> None:
        super().__init__("test")
        self.made: dict[str, tuple[str, str]] = {}

    def create_counter(self, name: str, unit: str = "", description: str = "") -> Any:
        self.made[name] = ("counter", unit)
        return super().create_counter(name, unit, description)

    def create_histogram(self, name: str, unit: str = "", description: str = "", **more: Any) -> Any:
        self.made[name] = ("histogram", unit)
        return super().create_histogram(name, unit, description, **more)

    def create_observable_gauge(self, name: str, callbacks: Any = None, unit: str = "", description: str = "") -> Any:
        self.made[name] = ("observable gauge", unit)
        return super().create_observable_gauge(name, callbacks, unit, description)

    def create_observable_up_down_counter(
        self, name: str, callbacks: Any = None, unit: str = "", description: str = ""
    ) -> Any:
        self.made[name] = ("observable up-down counter", unit)
        return super().create_observable_up_down_counter(name, callbacks, unit, description)


def test_every_metric_is_explained() -> None:
    """The table of metrics has each instrument that is made, with its kind and its unit."""
    meter = _Meter()
    Instruments(meter, 1)
    assert meter.made == {codes(row[0])[0]: (row[1], row[2]) for row in table("Metrics")}


def test_metrics_have_the_labels_that_the_page_says() -> None:
    """In all that was recorded a label is in its instrument's row."""
    labels = {codes(row[0])[0]: set(codes(row[3])) for row in table("Metrics")}
    for name, points in (item for captured in traced() for item in captured.metrics().items()):
        for found, _ in points:
            assert set() == set(found) - labels[name], name


def test_sections_that_are_named_are_there() -> None:
    """Where the code or a test names a section of the page, it has one that begins so."""
    headings = [title.lower() for title in re.findall(r"^#+ (.+)$", PAGE, flags=re.MULTILINE)]
    for path in SOURCES:
        text = re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
        for named in SECTION.findall(text):
            for part in filter(None, (part.strip() for part in named.split(","))):
                known = any(title.startswith(part) for title in headings)
                assert known or part[0].isdigit(), f"{path}: {part}"
