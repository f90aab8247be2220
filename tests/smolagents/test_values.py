"""What agents pass to each other, as text and JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL.Image import Image
from PIL.Image import new as new_image
from smolagents import AgentImage, AgentText

from agui_otel.smolagents import tool_failed
from agui_otel.smolagents.values import (
    MAX_ITEMS,
    answer_of,
    arguments_text,
    clean,
    described,
    described_each,
    failure_text,
    plain,
    result_text,
    text_of,
)
from tests.support.agent_trees import events_of
from tests.support.agents import answer, code, coder, tool_caller

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NUMBERS = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=20,
)


@dataclass
class Frame:
    """Something like a dataframe, that must not be printed."""

    shape: tuple[int, ...] = (1000, 3)

    def __repr__(self) -> str:
        raise AssertionError("it was printed")


class Odd:
    """An object that does not want to be asked."""

    @property
    def shape(self) -> Any:
        """Nothing."""
        raise RuntimeError("not now")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Frame(), "Frame 1000 x 3"),
        (Frame(()), "Frame"),
        (new_image("RGB", (640, 480)), "Image 640 x 480"),
        ("twelve chars", "str 12"),
        (b"123", "bytes 3"),
        ([1, 2], "list 2"),
        (3.5, "float"),
        (Odd(), "Odd"),
    ],
)
def test_described(value: Any, says: str) -> None:
    """By type and size."""
    assert says == described(value)


@given(JSON)
def test_plain_json_stays_as_it_is(value: Any) -> None:
    """What is JSON, and small, is passed on whole."""
    assert value == plain(value)


@given(st.text())
def test_any_text_can_be_sent(text: str) -> None:
    """Halves of surrogate pairs are replaced, nothing else is."""
    assert clean(text) == clean(text).encode().decode()
    if not any("\ud800" <= letter <= "\udfff" for letter in text):
        assert text == clean(text)


@pytest.mark.parametrize(
    ("value", "becomes"),
    [
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (2**60, str(2**60)),
        ((1, 2), [1, 2]),
        ({1: {2}}, {"1": "set 1"}),
        ([Frame()], ["Frame 1000 x 3"]),
        (list(range(MAX_ITEMS + 1)), f"list {MAX_ITEMS + 1}"),
        (AgentText("text"), "text"),
    ],
)
def test_what_is_not_plain(value: Any, becomes: Any) -> None:
    """It is written so that JSON can hold it."""
    assert becomes == plain(value)
    json.dumps(plain(value), allow_nan=False)


def test_depth_has_an_end() -> None:
    """Also a list that contains itself."""
    endless: list[Any] = []
    endless.append(endless)
    assert "list 1" in json.dumps(plain(endless))


def test_additional_arguments_are_never_printed_nor_copied() -> None:
    """By name, type and size: in a call's arguments, and where an agent starts."""
    assert {"frame": "Frame 1000 x 3", "note": "str 5"} == described_each({"frame": Frame(), "note": "hello"})
    assert None is described_each({})
    assert '{"task": "x", "additional_args": {"frame": "Frame 1000 x 3"}}' == arguments_text(
        {"task": "x", "additional_args": {"frame": Frame()}}
    )
    assert '{"frame": "Frame 1000 x 3"}' == arguments_text({"frame": Frame()})


def test_additional_arguments_from_code() -> None:
    """A code manager hands an image on: its events say what it was."""
    worker = tool_caller("web", answer("seen"))
    source = 'print(web(task="look", additional_args={"image": image}))'
    agent = coder("manager", code(source), code('final_answer("ok")'), managed_agents=[worker])
    events = events_of(agent, additional_args={"image": new_image("RGB", (64, 48))})
    (started,) = (event for event in events if event["type"] == "SUBAGENT_STARTED")
    assert {"input": "look", "smolagents": {"additionalArgs": {"image": "Image 64 x 48"}}} == started["metadata"]
    assert {"smolagents": {"additionalArgs": {"image": "Image 64 x 48"}}} == events[0]["metadata"]
    assert "<PIL" not in json.dumps(events)


def test_answers() -> None:
    """JSON as it is, images by size, other objects as smolagents prints them."""
    assert {"a": [1]} == answer_of({"a": [1]})
    assert "text" == answer_of(AgentText("text"))
    assert "1/2" == answer_of(__import__("fractions").Fraction(1, 2))
    assert "Image 2 x 3" == answer_of(new_image("RGB", (2, 3)))
    assert isinstance(new_image("RGB", (2, 3)), Image)


def test_results() -> None:
    """As the calling agent reads them."""
    assert "a report" == result_text("  a report\n")
    assert "Stored 'image.png' in memory." == result_text(AgentImage(new_image("RGB", (2, 3))))


def test_text_of_messages() -> None:
    """A string, or the text parts of a list."""
    assert ["a", "b\nc", "", ""] == [
        text_of("a"),
        text_of([{"type": "text", "text": "b"}, {"type": "image"}, {"type": "text", "text": "c"}]),
        text_of(None),
        text_of(3),
    ]


def test_failures_are_told_apart_from_results() -> None:
    """By the class of the error that smolagents raised."""
    assert "AgentToolExecutionError" == tool_failed("any", failure_text(ConnectionError("gone")))
    assert "AgentToolExecutionError: ConnectionError: gone" == failure_text(ConnectionError("gone"))
    assert [False, False, False] == [tool_failed("any", said) for said in ("found it", "no AgentError: here", 3)]
