"""Server-sent events: every way to cut and to spell a stream gives the same events."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_otel.protocol.events import Unreadable
from agui_otel.protocol.lines import CUT
from agui_otel.protocol.sse import SSEDecoder
from tests.support import recordings

Payload = dict[str, Any] | Unreadable

ONE = b'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\n\n'
EVENT = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}


def decode(*chunks: bytes, limit: int = 10_000_000) -> list[Payload]:
    """All payloads of a stream that comes in `chunks`."""
    decoder = SSEDecoder(max_event_bytes=limit)
    found = [payload for chunk in chunks for payload in decoder.feed(chunk)]
    return found + decoder.close()


def recorded(name: str) -> bytes:
    """The response bytes of a recording."""
    return (recordings.STREAMS / f"{name}.sse").read_bytes()


@pytest.mark.parametrize("name", recordings.SSE_NAMES)
def test_recording_whole(name: str) -> None:
    """A recorded response gives the events that stand in its JSON lines."""
    assert recordings.events(name) == decode(recorded(name))


@pytest.mark.parametrize("name", [name for name in recordings.SSE_NAMES if name != "raw_single"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_recording_byte_by_byte(name: str, end: bytes) -> None:
    """One byte at a time, with each of the three line ends, the events are the same."""
    data = recorded(name).replace(b"\n", end)
    assert recordings.events(name) == decode(*(data[at : at + 1] for at in range(len(data))))


@given(name=st.sampled_from(recordings.SSE_NAMES), positions=st.lists(st.integers(0, 10**9), max_size=40))
def test_recording_cut_anywhere(name: str, positions: list[int]) -> None:
    """Cut at any places, the events are the same."""
    assert recordings.events(name) == decode(*recordings.cut(recorded(name), positions))


@pytest.mark.parametrize(
    "stream",
    [
        ONE,
        b"\xef\xbb\xbf" + ONE,
        b": ping - 2026-01-01\n\n" + ONE + b": ping\n\n",
        b":\n" + ONE,
        b"event: RUN_STARTED\nid: 7\nretry: 3000\n" + ONE,
        b"id\nevent\n" + ONE,
        b"\n\n\n" + ONE + b"\n\n",
        ONE.replace(b"data: ", b"data:"),
        ONE.replace(b"data: ", b"data:  "),
        b'data: {"type":"RUN_STARTED",\ndata: "threadId":"t",\ndata:"runId":"r"}\n\n',
        b'data\ndata: {"type":"RUN_STARTED",\n: between\ndata: "threadId":"t","runId":"r"}\n\n',
        ONE + b"data:\n\n",
        ONE + b"data\n\n",
        ONE[:-1],
        ONE[:-2],
        ONE + b": a comment without an end",
        ONE + b"database: no field of ours\n\n",
    ],
)
@given(positions=st.lists(st.integers(0, 10**6), max_size=8))
def test_spellings(stream: bytes, positions: list[int]) -> None:
    """Comments, pings, other fields, several data lines, a byte order mark, a missing end: all the same."""
    assert [EVENT] == decode(*recordings.cut(stream, positions))


@pytest.mark.parametrize("cut_at", range(1, len(ONE) - 2))
def test_cut_in_mid_event(cut_at: int) -> None:
    """A stream that ends in the middle of an event ends in an Unreadable."""
    first, second = decode(ONE + ONE[:cut_at])
    assert EVENT == first
    assert isinstance(second, Unreadable)


def test_cut_before_the_colon() -> None:
    """What is cut inside a field's name is said to be cut."""
    assert [EVENT, Unreadable(CUT)] == decode(ONE + b"dat")


@pytest.mark.parametrize("data", [b"hello", b"[1]", b"null", b'{"type":', b'{"type":"\xff"}', b"[DONE]", b'{"a":NaN}'])
def test_unreadable_then_good(data: bytes) -> None:
    """An event that cannot be read is one Unreadable, and the next one is read."""
    first, second = decode(b"data: " + data + b"\n\n" + ONE)
    assert isinstance(first, Unreadable)
    assert EVENT == second


@given(
    sizes=st.lists(st.integers(0, 120), min_size=1, max_size=6),
    limit=st.integers(60, 100),
    positions=st.lists(st.integers(0, 10**6), max_size=30),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_limit_wherever_it_is_cut(sizes: list[int], limit: int, positions: list[int], end: bytes) -> None:
    """An event above the limit is exactly one Unreadable, at its place, however the stream is cut."""
    texts = [json.dumps({"type": "CUSTOM", "value": "x" * size}) for size in sizes]
    stream = b"".join(b": note" + end + b"data: " + text.encode() + end + end for text in texts)
    large = Unreadable(f"too large: more than {limit} bytes")
    expected = [large if len(text) > limit else json.loads(text) for text in texts]
    assert expected == decode(*recordings.cut(stream, positions), limit=limit)


def test_limit_of_several_data_lines() -> None:
    """The limit counts an event's data lines together, and reports it once."""
    large = b"".join(b"data: 1234567890\n" for _ in range(20)) + b"\n"
    assert [Unreadable("too large: more than 100 bytes"), EVENT] == decode(large + ONE, limit=100)


@pytest.mark.parametrize("prefix", [b"data: ", b": ", b"id: ", b"other: "])
def test_memory_is_bounded(prefix: bytes) -> None:
    """A line without an end is not collected, whatever it is."""
    decoder = SSEDecoder(max_event_bytes=10_000)
    tracemalloc.start()
    decoder.feed(prefix)
    for _ in range(2_000):
        decoder.feed(b"x" * 1_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000
    assert [EVENT] == decoder.feed(b"\n\n" + ONE)


def test_lines() -> None:
    """Beside each payload stands the line at which its event began."""
    decoder = SSEDecoder()
    decoder.feed(b": one\r\n\r")
    decoder.feed(b'\ndata: {"type":\n')
    assert [{"type": "X"}, {"type": "Y"}] == decoder.feed(b'data: "X"}\n\ndata: {"type":"Y"}\n\n')
    assert [3, 6] == decoder.lines


@given(chunks=st.lists(st.binary(max_size=60), max_size=10), limit=st.integers(1, 50))
def test_any_bytes(chunks: list[bytes], limit: int) -> None:
    """Whatever the bytes are, and however they are cut, nothing is raised and the payloads are the same."""
    assert decode(b"".join(chunks), limit=limit) == decode(*chunks, limit=limit)


@given(
    text=st.text(alphabet="data: {}\"'\r\n:e[]1,", max_size=80),
    positions=st.lists(st.integers(0, 100), max_size=8),
)
def test_almost_a_stream(text: str, positions: list[int]) -> None:
    """What almost is a stream reads the same however it is cut."""
    stream = text.encode()
    assert decode(stream, limit=20) == decode(*recordings.cut(stream, positions), limit=20)
