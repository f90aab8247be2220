"""The one door for captured strings: what is hidden, redacted, cleaned, cut, and never looked at."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_otel.tracing.content import SLACK, Content, clean, dump

Into = dict[str, Any]
Put = Callable[[Content, str, Into], object]
Dialect = Literal["both", "openinference", "gen_ai"]

INPUTS: dict[str, Put] = {
    "input": lambda content, text, into: content.input("agui.some", text, into),
    "input of JSON": lambda content, text, into: content.input("agui.some", {"a": [text]}, into),
    "agent_input": lambda content, text, into: content.agent_input(text, into),
    "tool_arguments": lambda content, text, into: content.tool_arguments(text, into),
    "description": lambda content, text, into: content.description(text, into),
}
OUTPUTS: dict[str, Put] = {
    "output": lambda content, text, into: content.output("agui.some", text, into),
    "output of JSON": lambda content, text, into: content.output("agui.some", {text: 1}, into),
    "agent_output": lambda content, text, into: content.agent_output(text, into),
    "agent_output of JSON": lambda content, text, into: content.agent_output([text], into),
    "message_output": lambda content, text, into: content.message_output(text, "assistant", into),
    "reasoning_output": lambda content, text, into: content.reasoning_output(text, into),
    "tool_result": lambda content, text, into: content.tool_result(text, into),
    "error_message": lambda content, text, into: into.update(status=content.error_message(text, into)),
    "state_path": lambda content, text, into: into.update(path=content.state_path(f"/first/{text}")),
}
DOORS = {**INPUTS, **OUTPUTS}

texts = st.text(max_size=40) | st.text(st.sampled_from("aé😀\ud800\udc00\0"), max_size=40)
dialects: st.SearchStrategy[Dialect] = st.sampled_from(("both", "openinference", "gen_ai"))


def everything(into: Into) -> str:
    """All that was put, as one string."""
    return json.dumps(into, ensure_ascii=False)


@pytest.mark.parametrize("door", DOORS)
@given(text=texts, dialect=dialects, max_value=st.integers(1, 60))
def test_without_capture_no_secret_gets_out(door: str, text: str, dialect: Dialect, max_value: int) -> None:
    """With capture off nothing of a value appears anywhere, whatever door it comes to."""
    content = Content(capture=False, dialect=dialect, max_value=max_value)
    into: Into = {}
    DOORS[door](content, f"{text}CANARY{text}", into)
    assert "CANARY" not in everything(into)
    assert content.text_limit == 0


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("hidden", ["inputs", "outputs"])
@given(text=texts, dialect=dialects)
def test_hiding_takes_away_one_side(door: str, hidden: str, text: str, dialect: Dialect) -> None:
    """A hidden side puts nothing of a value; the other one is untouched."""
    content = Content(capture=True, hide_inputs=hidden == "inputs", hide_outputs=hidden == "outputs", dialect=dialect)
    into: Into = {}
    DOORS[door](content, f"CANARY{text}", into)
    assert ("CANARY" in everything(into)) == (door not in (INPUTS if hidden == "inputs" else OUTPUTS))


@pytest.mark.parametrize("door", DOORS)
@given(text=texts, dialect=dialects)
def test_a_redactor_sees_each_captured_string_once(door: str, text: str, dialect: Dialect) -> None:
    """However many attributes a value fills, it is redacted once, and nothing else of it gets out."""
    calls: list[str] = []

    def redact(value: str) -> str:
        calls.append(value)
        return "[redacted]"

    into: Into = {}
    DOORS[door](Content(capture=True, redact=redact, dialect=dialect), f"CANARY{text}", into)
    assert len(calls) == 1
    assert "CANARY" in calls[0]
    assert "CANARY" not in everything(into)
    assert "[redacted]" in everything(into)


def test_a_redactor_is_not_asked_about_what_is_hidden() -> None:
    """Without capture the host's redactor costs nothing."""
    calls: list[str] = []

    def redact(text: str) -> str:
        calls.append(text)
        return text

    content = Content(capture=False, redact=redact)
    into: Into = {}
    for put in DOORS.values():
        put(content, "text", into)
    assert calls == []


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("fault", ["raises", "returns nothing"])
def test_a_redactor_that_fails_costs_the_value(door: str, fault: str) -> None:
    """The value is dropped, never exported unredacted, and the failure is counted."""
    failures: list[None] = []

    def redact(_: str) -> Any:
        if fault == "raises":
            raise ValueError("CANARY")

    content = Content(capture=True, redact=redact, on_error=lambda: failures.append(None))
    into: Into = {}
    DOORS[door](content, "CANARY", into)
    assert ("CANARY" in everything(into), len(failures)) == (False, 1)


def test_what_a_redactor_returns_is_cleaned() -> None:
    """Whatever it returns, an exporter can encode it."""
    into: Into = {}
    Content(capture=True, redact=lambda _: "a\0b\ud800").output("k", "text", into)
    assert into == {"k": "ab�"}


def test_a_redactor_sees_through_characters_that_are_removed() -> None:
    """A NUL inside a secret does not hide it."""
    into: Into = {}
    content = Content(capture=True, redact=lambda text: text.replace("secret", "***"))
    content.output("k", "a sec\0ret", into)
    assert into == {"k": "a ***"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("a\0b\0", "ab"),
        ("é😀", "é😀"),
        ("\ud83d\ude00", "😀"),
        ("\ud800a\udc00", "�a�"),
        ("\udc00\ud800", "��"),
        ("\0\ud800", "�"),
    ],
)
def test_a_text_is_cleaned(text: str, expected: str) -> None:
    """NUL characters are removed, surrogate pairs joined, lone surrogates replaced."""
    assert expected == clean(text)


@given(texts)
def test_a_clean_text_can_be_encoded_and_stays_as_it_is(text: str) -> None:
    """Cleaning is done once: a second time changes nothing."""
    cleaned = clean(text)
    assert "\0" not in cleaned
    assert cleaned.encode().decode() == cleaned == clean(cleaned)


class Hostile:
    """An object that cannot be looked at."""

    def __repr__(self) -> str:
        raise RuntimeError

    def __str__(self) -> str:
        raise RuntimeError


def nested(depth: int) -> list[Any]:
    """A list in a list in a list …"""
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def circular() -> list[Any]:
    """A list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": 1, "b": [True, None, 1.5]}, '{"a":1,"b":[true,null,1.5]}'),
        ("é😀", '"é😀"'),
        (b"text", '"text"'),
        ({"a": b"\xff"}, '{"a":"bytes"}'),
        ([{1}], "[[1]]"),
        ({"a": Hostile()}, '{"a":"Hostile"}'),
        ({"a": Hostile}, '{"a":"type"}'),
        (float("nan"), '"NaN"'),
        (["\ud800"], '["\ud800"]'),
        ({1: 2}, '{"1":2}'),
        ({("a", "b"): b"\xff"}, "{}"),
        (nested(100_000), '"list"'),
        (circular(), '"list"'),
    ],
)
def test_any_value_becomes_compact_json(value: object, expected: str) -> None:
    """What JSON cannot say is the name of its type, and nothing is raised."""
    assert expected == dump(value)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | texts
    | st.binary(max_size=4)
    | st.builds(Hostile)
    | st.frozensets(st.integers(), max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(values)
def test_every_value_can_be_put(value: object) -> None:
    """Any value is exported as a string that can be encoded, and is JSON unless it was a string."""
    into: Into = {}
    Content(capture=True).output("k", value, into)
    into["k"].encode()
    if not isinstance(value, str):
        json.loads(into["k"])


def test_without_capture_a_value_is_not_even_looked_at() -> None:
    """Serialising costs time: none is spent on what is not exported."""

    class Watched(dict[str, Any]):
        def __iter__(self) -> Any:
            raise AssertionError

        def items(self) -> Any:
            raise AssertionError

    into: Into = {}
    content = Content(capture=False)
    content.output("k", Watched(a=1), into)
    content.tool_result(Watched(a=1), into)
    assert into == {}


def test_a_long_value_is_cut_and_its_real_length_noted() -> None:
    """The list names each attribute that was cut, with the length in characters."""
    into: Into = {}
    content = Content(capture=True, max_value=4)
    content.output("short", "äöü😀", into)
    content.output("long", "äöü😀x", into)
    content.input("json", {"a": 1}, into)
    assert into == {"short": "äöü😀", "long": "äöü😀", "json": '{"a"', "agui.truncated": ["long=5", "json=7"]}


def test_a_beginning_has_the_length_of_the_whole() -> None:
    """Where accumulation stopped at the cap, the counted length is recorded."""
    into: Into = {}
    content = Content(capture=True, max_value=4)
    content.message_output("text", "assistant", into, 4)
    assert "agui.truncated" not in into
    content.message_output("text", "assistant", into, 9000)
    assert (into["output.value"], into["agui.truncated"]) == ("text", ["output.value=9000"])


def test_a_cut_never_splits_a_surrogate_pair() -> None:
    """Half a character would only be a replacement character."""
    into: Into = {}
    Content(capture=True, max_value=2).output("k", "a\ud83d\ude00", into)
    assert into == {"k": "a", "agui.truncated": ["k=3"]}


def test_a_redactor_gets_more_than_is_exported() -> None:
    """What it looks for may lie across the cut: more is kept for it, and left out again of a beginning."""
    content = Content(capture=True, max_value=10, redact=lambda text: text.replace("4111-1111", "****"))
    assert content.text_limit == 10 + SLACK
    into: Into = {}
    content.output("whole", "12345674111-1111", into)
    beginning = "x" * 8 + "4111-1111" + "y" * (SLACK - 7)
    content.output("beginning", beginning, into, 9000)
    assert into == {
        "whole": "1234567****"[:10],
        "beginning": "xxxxx",
        "agui.truncated": ["whole=16", "beginning=9000"],
    }


def test_a_value_that_a_redactor_made_short_is_whole() -> None:
    """Only what was really cut off is noted."""
    into: Into = {}
    Content(capture=True, max_value=4, redact=lambda _: "***").output("k", "a" * 100, into)
    assert into == {"k": "***"}


GEN_AI_INPUT = '[{"role":"user","parts":[{"type":"text","content":"hi é"}]}]'
GEN_AI_OUTPUT = '[{"role":"assistant","parts":[{"type":"text","content":"hi é"}],"finish_reason":"stop"}]'
GEN_AI_REASONING = '[{"role":"assistant","parts":[{"type":"reasoning","content":"hi é"}],"finish_reason":"stop"}]'


@pytest.mark.parametrize(
    ("door", "openinference", "gen_ai"),
    [
        (
            "agent_input",
            {"input.value": "hi é", "input.mime_type": "text/plain"},
            {"gen_ai.input.messages": GEN_AI_INPUT},
        ),
        (
            "agent_output",
            {"output.value": "hi é", "output.mime_type": "text/plain"},
            {"gen_ai.output.messages": GEN_AI_OUTPUT},
        ),
        (
            "tool_arguments",
            {"input.value": "hi é", "input.mime_type": "text/plain", "tool.parameters": "hi é"},
            {"gen_ai.tool.call.arguments": "hi é"},
        ),
        (
            "tool_result",
            {"output.value": "hi é", "output.mime_type": "text/plain"},
            {"gen_ai.tool.call.result": "hi é"},
        ),
    ],
)
def test_content_is_written_in_the_vocabularies_of_the_dialect(door: str, openinference: Into, gen_ai: Into) -> None:
    """`both` is the union of the two."""
    found: dict[str, Into] = {"openinference": {}, "gen_ai": {}, "both": {}}
    DOORS[door](Content(capture=True, dialect="openinference"), "hi é", found["openinference"])
    DOORS[door](Content(capture=True, dialect="gen_ai"), "hi é", found["gen_ai"])
    DOORS[door](Content(capture=True, dialect="both"), "hi é", found["both"])
    assert found == {"openinference": openinference, "gen_ai": gen_ai, "both": {**openinference, **gen_ai}}


@pytest.mark.parametrize(
    ("door", "gen_ai"), [("message_output", GEN_AI_OUTPUT), ("reasoning_output", GEN_AI_REASONING)]
)
def test_a_message_is_written_once(door: str, gen_ai: str) -> None:
    """As the OpenInference value; as a GenAI message only where that is the only vocabulary."""
    found: dict[str, Into] = {"openinference": {}, "gen_ai": {}, "both": {}}
    DOORS[door](Content(capture=True, dialect="openinference"), "hi é", found["openinference"])
    DOORS[door](Content(capture=True, dialect="gen_ai"), "hi é", found["gen_ai"])
    DOORS[door](Content(capture=True, dialect="both"), "hi é", found["both"])
    plain = {"output.value": "hi é", "output.mime_type": "text/plain"}
    assert found == {"openinference": plain, "gen_ai": {"gen_ai.output.messages": gen_ai}, "both": plain}


@pytest.mark.parametrize(
    ("value", "mime_type"),
    [
        ('{"city":"Paris"}', "application/json"),
        ("[1,2]", "application/json"),
        ({"city": "Paris"}, "application/json"),
        ("{city}", "text/plain"),
        ('{"city":"Par', "text/plain"),
        ("[1] and [2]", "text/plain"),
        ("42", "text/plain"),
        ("", "text/plain"),
        ("[" + "1," * 20 + "1]", "text/plain"),
    ],
)
def test_json_objects_and_arrays_are_told_from_text(value: object, mime_type: str) -> None:
    """Arguments are JSON in most cases; what is no JSON, or was cut, is text."""
    into: Into = {}
    Content(capture=True, max_value=30).tool_arguments(value, into)
    assert mime_type == into["input.mime_type"]


def test_an_error_message_is_returned_for_the_status() -> None:
    """The attribute and the status description are the same string."""
    into: Into = {}
    assert Content(capture=True, max_value=3).error_message("boom\0", into) == "boo"
    assert into == {"exception.message": "boo", "agui.truncated": ["exception.message=5"]}
    assert Content(capture=False).error_message("boom", {}) is None


@pytest.mark.parametrize(
    ("path", "whole", "first"),
    [
        ("/a/b/c", "/a/b/c", "/a"),
        ("/a", "/a", "/a"),
        ("", "", ""),
        ("/", "/", "/"),
        ("//x", "//x", "/"),
        ("/a~1b/c", "/a~1b/c", "/a~1b"),
        ("/long-name/c", "/long-na…", "/long-na…"),
    ],
)
def test_a_state_path_is_whole_or_its_first_segment(path: str, whole: str, first: str) -> None:
    """Deeper segments may be content; the first one is a name."""
    assert whole == Content(capture=True, max_value=8).state_path(path)
    assert first == Content(capture=False, max_value=8).state_path(path)
    assert first == Content(capture=True, hide_outputs=True, max_value=8).state_path(path)
