"""JSON lines and JSON arrays: the same events, whole and in pieces."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_otel.protocol.events import Unreadable
from agui_otel.protocol.jsonlines import JSONArrayDecoder, JSONLinesDecoder
from agui_otel.protocol.lines import CUT
from tests.support import recordings

Payload = dict[str, Any] | Unreadable
Decoder = JSONLinesDecoder | JSONArrayDecoder

EVENTS = st.lists(
    st.dictionaries(
        st.text(max_size=4),
        st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8), st.lists),
    ),
    max_size=6,
)


def decode(decoder: Decoder, *chunks: bytes) -> list[Payload]:
    """All payloads of a stream that comes in `chunks`."""
    found = [payload for chunk in chunks for payload in decoder.feed(chunk)]
    return found + decoder.close()


@pytest.mark.parametrize("name", recordings.NAMES)
def test_recordings(name: str) -> None:
    """A recording's lines, and the array of its events, give its events."""
    data = (recordings.STREAMS / f"{name}.jsonl").read_bytes()
    expected = recordings.events(name)
    assert expected == decode(JSONLinesDecoder(), data)
    assert expected == decode(JSONArrayDecoder(), json.dumps(expected, indent=1).encode())


@given(
    events=EVENTS,
    positions=st.lists(st.integers(0, 10**6), max_size=20),
    end=st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_lines_cut_anywhere(events: list[dict[str, Any]], positions: list[int], end: str) -> None:
    """Lines read the same however they are cut, whatever their ends."""
    text = "".join(json.dumps(event, ensure_ascii=False) + end for event in events)
    assert events == decode(JSONLinesDecoder(), *recordings.cut(text.encode(), positions))


@given(events=EVENTS, positions=st.lists(st.integers(0, 10**6), max_size=20), indent=st.sampled_from([None, 1]))
def test_array_cut_anywhere(events: list[dict[str, Any]], positions: list[int], indent: int | None) -> None:
    """An array reads the same however it is cut and laid out."""
    text = json.dumps(events, ensure_ascii=False, indent=indent)
    assert events == decode(JSONArrayDecoder(), *recordings.cut(text.encode(), positions))


def test_last_line_without_end() -> None:
    """The last line may lack its end; a line that was cut is Unreadable."""
    first, second = decode(JSONLinesDecoder(), b'{"a":1}\n{"b":')
    assert {"a": 1} == first
    assert isinstance(second, Unreadable)
    assert [{"a": 1}] == decode(JSONLinesDecoder(), b'\xef\xbb\xbf{"a":1}')


def test_array_without_end() -> None:
    """An array that does not end is said to be cut, after its complete elements."""
    assert [{"a": 1}, Unreadable(CUT)] == decode(JSONArrayDecoder(), b'[{"a":1}, {"b":')
    assert [{"a": 1}, Unreadable(CUT)] == decode(JSONArrayDecoder(), b'[{"a":1}, ')


def test_text_after_an_array() -> None:
    """What follows an array is Unreadable."""
    assert [{"a": 1}, Unreadable("text after the end of the array")] == decode(JSONArrayDecoder(), b'[{"a":1}] x')


def test_unreadable_in_the_middle() -> None:
    """What is no object is Unreadable, and reading goes on."""
    for decoder, data in (
        (JSONLinesDecoder(), b'{"a":1}\nnonsense\n7\n{"b":2}\n'),
        (JSONArrayDecoder(), b'[{"a":1}, nonsense, 7, {"b":2}]'),
    ):
        first, second, third, fourth = decode(decoder, data)
        assert ({"a": 1}, {"b": 2}) == (first, fourth)
        assert isinstance(second, Unreadable)
        assert isinstance(third, Unreadable)


@pytest.mark.parametrize("kind", [JSONLinesDecoder, JSONArrayDecoder])
@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=6),
    limit=st.integers(20, 60),
    positions=st.lists(st.integers(0, 10**6), max_size=30),
)
def test_limit_wherever_it_is_cut(kind: type[Decoder], sizes: list[int], limit: int, positions: list[int]) -> None:
    """An event above the limit is exactly one Unreadable, at its place, however the bytes are cut."""
    texts = [json.dumps({"value": '\\"' * size}) for size in sizes]
    data = "\n".join(texts) if kind is JSONLinesDecoder else f"[{', '.join(texts)}]"
    large = Unreadable(f"too large: more than {limit} bytes")
    expected = [large if len(text) > limit else json.loads(text) for text in texts]
    assert expected == decode(kind(max_event_bytes=limit), *recordings.cut(data.encode(), positions))


@pytest.mark.parametrize(
    ("decoder", "begin", "end"),
    [
        (JSONLinesDecoder(max_event_bytes=10_000), b'{"value":"', b'\n{"a":1}\n'),
        (JSONArrayDecoder(max_event_bytes=10_000), b'[{"value":"', b'"}, {"a":1}, '),
        (JSONArrayDecoder(max_event_bytes=10_000), b"[]", b'[{"a":1}, '),
    ],
)
def test_memory_is_bounded(decoder: Decoder, begin: bytes, end: bytes) -> None:
    """What has no end is not collected."""
    tracemalloc.start()
    decoder.feed(begin)
    for _ in range(2_000):
        decoder.feed(b"x" * 1_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000
    assert [{"a": 1}] == decoder.feed(end)


def test_lines() -> None:
    """Beside each payload stands the line at which it began."""
    lines = JSONLinesDecoder()
    lines.feed(b'\n{"a":1}\n\n')
    assert [2] == lines.lines
    lines.feed(b'{"b":\t2}\n')
    assert [4] == lines.lines
    array = JSONArrayDecoder()
    array.feed(b'\n[\n {"a":\n1},\n{"b":2}\n]')
    assert [3, 5] == array.lines


@pytest.mark.parametrize("kind", [JSONLinesDecoder, JSONArrayDecoder])
@given(
    text=st.text(alphabet='[]{}",:\\1a \n\r', max_size=60),
    positions=st.lists(st.integers(0, 100), max_size=8),
    limit=st.integers(1, 20),
)
def test_almost_json(kind: type[Decoder], text: str, positions: list[int], limit: int) -> None:
    """What almost is JSON raises nothing, and JSON lines read the same however they are cut."""
    whole = decode(kind(max_event_bytes=limit), text.encode())
    pieces = decode(kind(max_event_bytes=limit), *recordings.cut(text.encode(), positions))
    if kind is JSONLinesDecoder:
        assert whole == pieces
