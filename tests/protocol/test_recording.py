"""Recordings: told by their content, read to their last good event, and laid on a time line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agui_otel.errors import InputError
from agui_otel.protocol.events import Unreadable
from agui_otel.protocol.jsonlines import JSONArrayDecoder, JSONLinesDecoder
from agui_otel.protocol.protobuf import ProtobufDecoder
from agui_otel.protocol.recording import (
    Payload,
    lay_out,
    read,
    read_run_input,
    read_times,
    recognise,
)
from agui_otel.protocol.sse import SSEDecoder
from tests.support import recordings

START = b'{"type":"RUN_STARTED","threadId":"t","runId":"r"}\n'
STARTED = json.loads(START)
BINARY = b"\x00\x00\x00\x0c\x62\x0a\x0a\x02\x08\x0b\x12\x01t\x1a\x01r"
"""The same as a frame."""


def attempt(*chunks: bytes, limit: int = 10_000) -> tuple[list[Payload], str | None]:
    """What is delivered of a recording called `f`, and the error that follows it."""
    delivered: list[Payload] = []
    try:
        for payload in read(chunks, path="f", max_event_bytes=limit):
            delivered.append(payload)  # noqa: PERF402  (what came before the error counts)
    except InputError as error:
        return delivered, str(error)
    return delivered, None


@pytest.mark.parametrize(
    ("head", "decoder"),
    [
        (b"{", JSONLinesDecoder),
        (b'\xef\xbb\xbf\n  {"a"', JSONLinesDecoder),
        (b"\n[", JSONArrayDecoder),
        (b"data: x", SSEDecoder),
        (b"\r\n\r\nevent:x", SSEDecoder),
        (b"id\n", SSEDecoder),
        (b": ping", SSEDecoder),
        (b"retry: 1", SSEDecoder),
        (b"dat", None),
        (b"", None),
        (b"  \n", None),
        (b"hello", None),
        (b"\x00\x00\x00\x05", None),
        (b"\x00\x00\x00\x05\x62", ProtobufDecoder),
        (b"\x00\x00\x00\x05\x63", None),
        (b"database: x", None),
    ],
)
def test_recognised_by_content(head: bytes, decoder: type | None) -> None:
    """The first bytes say what it is."""
    assert decoder is recognise(head)


@pytest.mark.parametrize("name", recordings.SSE_NAMES)
def test_all_forms_of_a_recording(name: str) -> None:
    """JSON lines, server-sent events, an array and frames of one run give the same events, also byte by byte."""
    expected = recordings.events(name)
    for data in (
        (recordings.STREAMS / f"{name}.jsonl").read_bytes(),
        (recordings.STREAMS / f"{name}.sse").read_bytes(),
        (recordings.STREAMS / f"{name}.bin").read_bytes(),
        json.dumps(expected, indent=2).encode(),
    ):
        assert (expected, None) == attempt(data, limit=10_000_000)
        if len(data) < 20_000:
            pieces = (data[at : at + 1] for at in range(len(data)))
            assert (expected, None) == attempt(*pieces, limit=10_000_000)


@pytest.mark.parametrize(
    ("data", "delivered", "message"),
    [
        (b"", [], "f: empty"),
        (b"\xef\xbb\xbf \r\n\n", [], "f: empty"),
        (b": ping\n\n: ping\n\n", [], "f: no event in it"),
        (b"[]", [], "f: no event in it"),
        (
            b"hello\n",
            [],
            "f:1: not AG-UI: neither JSON lines, nor server-sent events, nor a JSON array of events",
        ),
        (
            b"\n\nhello\n",
            [],
            "f:3: not AG-UI: neither JSON lines, nor server-sent events, nor a JSON array of events",
        ),
        (
            b"dat",
            [],
            "f:1: not AG-UI: neither JSON lines, nor server-sent events, nor a JSON array of events",
        ),
        ('{"a":1}\n'.encode("utf-16"), [], "f:1: not UTF-8 text"),
        (b"\x00\x00\x00\x12\x62\x10", [], "f:1: cut off in the middle of an event"),
        (b"\x00\x00\x00\x12", [], "f:1: not UTF-8 text"),
        (b"\x00\x00\x00\x12\x61", [], "f:1: not UTF-8 text"),
        (b"\x00\x00\x00\x02\x62\x00", [], "f:1: not AG-UI: no event: not an event: RUN_STARTED without its base"),
        (BINARY + BINARY[:9], [STARTED], "f:2: cut off in the middle of an event"),
        (BINARY + b"\x00", [STARTED], "f:2: cut off in the middle of an event"),
        (b'{"name":"x"}\n', [], "f:1: not AG-UI: no event of a known type"),
        (b'\n{"type":"span"}\n{"type":"log"}', [], "f:2: not AG-UI: no event of a known type"),
        (b'{\n "type": "RUN_STARTED"\n}\n', [], "f:1: not AG-UI: no event: not JSON (at character 1)"),
        (b"data: hello\n\ndata: you\n\n", [], "f:1: not AG-UI: no event: not JSON (at character 0)"),
        (START + b'{"type":"STEP_ST', [STARTED], "f:2: cut off in the middle of an event"),
        (b'{"type":"RUN_ST', [], "f:1: cut off in the middle of an event"),
        (b"data: " + START + b"\ndata: {", [STARTED], "f:3: cut off in the middle of an event"),
        (b"data: " + START + b"\nevent", [STARTED], "f:3: cut off in the middle of an event"),
        (b"[" + START + b",{", [STARTED], "f:2: cut off in the middle of an event"),
        (b"[" + START + b"] x", [STARTED], "f:2: text after the end of the array"),
        (b"[" + START, [], "f:1: cut off in the middle of an event"),
        (
            START + b'{"type":"STEP_STARTED","stepName":"\xc3',
            [STARTED],
            "f:2: cut off in the middle of an event",
        ),
    ],
)
def test_wrong_files(data: bytes, delivered: list[dict[str, Any]], message: str) -> None:
    """Each kind of wrong file has its sentence and line, after its good part; however it is cut."""
    assert (delivered, message) == attempt(data)
    assert (delivered, message) == attempt(*(data[at : at + 1] for at in range(len(data))))


def test_not_utf8() -> None:
    """A line that is not UTF-8 stands as unreadable at its place; after the rest it is an error."""
    bad = b'{"type":"STEP_STARTED","stepName":"\xff"}\n'
    data = START + b"\n" + bad + START
    for chunks in ([data], [data[at : at + 1] for at in range(len(data))]):
        (first, second, third), message = attempt(*chunks)
        assert STARTED == first == third
        assert isinstance(second, Unreadable)
        assert "f:3: not UTF-8" == message


def test_unreadable_lines_are_no_error() -> None:
    """A line in the middle that cannot be read is the stream's defect, not the file's."""
    delivered, message = attempt(b"nonsense\n".join([START, START]), b"nonsense\n")
    assert [STARTED, Unreadable("not JSON (at character 0)"), STARTED] == delivered[:3]
    assert message is None


def test_first_line_unreadable() -> None:
    """A recording whose first line is bad is a recording all the same."""
    delivered, message = attempt(b'{"type":\n' + START)
    assert isinstance(delivered[0], Unreadable)
    assert [STARTED] == delivered[1:]
    assert message is None


def test_older_events() -> None:
    """A recording from before 1.0 is one, also where it has nothing but THINKING_* events."""
    assert ([{"type": "THINKING_START"}], None) == attempt(b'{"type":"THINKING_START"}')


def test_too_large() -> None:
    """A line above the limit is unreadable, and no error of the file."""
    large = b'{"type":"CUSTOM","name":"x","value":"' + b"x" * 100 + b'"}\n'
    assert ([STARTED, Unreadable("too large: more than 80 bytes"), STARTED], None) == attempt(
        START + large + START, limit=80
    )


def test_streamed() -> None:
    """Events come while the file is still being read."""
    pulled = []

    def chunks() -> Iterator[bytes]:
        for number in range(3):
            pulled.append(number)
            yield START

    events = read(chunks(), path="f")
    assert STARTED == next(events)
    assert [0] == pulled


def test_gives_up_early() -> None:
    """A long file without any AG-UI event is not read to its end."""
    pulled = []

    def chunks() -> Iterator[bytes]:
        for number in range(1_000):
            pulled.append(number)
            yield b'{"level":"info"}\n' * 100

    with pytest.raises(InputError, match="f:1: not AG-UI: no event of a known type"):
        list(read(chunks(), path="f"))
    assert len(pulled) < 20


def test_times() -> None:
    """Receive times are milliseconds, one a line."""
    assert [0.0, 59.6, 1e3] == read_times(b"0\n59.6\r\n1e3\n\n", path="f.times")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1\nx\n", "f:2: not a time in milliseconds"),
        (b"1\n\n-2\n", "f:3: not a time in milliseconds"),
        (b"nan", "f:1: not a time in milliseconds"),
        (b"\xff", "f:1: not a time in milliseconds"),
        (b"\n", "f: no times in it"),
    ],
)
def test_wrong_times(data: bytes, message: str) -> None:
    """A file of times that has something else in it is an error with its line."""
    with pytest.raises(InputError) as caught:
        read_times(data, path="f")
    assert message == str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{\n"threadId": ', "f:2: not JSON: Expecting value"),
        (b"\xff\xfe", "f: not UTF-8"),
        (b"[" * 100_000, "f: nested too deeply"),
        (
            b'{"threadId":"t","runId":"r"}',
            "f: not a RunAgentInput: an object with threadId, runId and messages",
        ),
        (b"[]", "f: not a RunAgentInput: an object with threadId, runId and messages"),
    ],
)
def test_wrong_input(data: bytes, message: str) -> None:
    """A file that is no RunAgentInput is an error that says why."""
    with pytest.raises(InputError) as caught:
        read_run_input(data, path="f")
    assert message == str(caught.value)


def test_input() -> None:
    """A recorded RunAgentInput is read as it stands."""
    given = {"threadId": "t", "runId": "r", "messages": []}
    assert given == read_run_input(json.dumps(given).encode(), path="f")


def test_laid_end_to_end() -> None:
    """Recordings follow each other a second apart and the last ends now; one without times has no line."""
    first, none, last = lay_out([[10.0, 500.5], None, [0.0, 250.0, 200.0]], now=10_000_000_000)
    assert none is None
    assert first is not None
    assert last is not None
    assert 9_750_000_000 == last.begin
    assert [9_750_000_000, 10_000_000_000, 9_950_000_000, 9_950_000_000] == [last.at(index) for index in range(4)]
    assert 8_249_500_000 == first.begin
    assert [8_259_500_000, 8_750_000_000] == [first.at(0), first.at(1)]


def begins(*recordings: tuple[list[float] | None, float | None], now: int) -> list[int | None]:
    """When the requests of recordings (times, and when their request was made in ms) are laid, in ms."""
    timelines = lay_out([times for times, _ in recordings], now=now * 10**6, began=[began for _, began in recordings])
    return [None if line is None else line.begin // 10**6 for line in timelines]


def test_laid_as_they_were() -> None:
    """Where it is known when requests were made, they are as far apart as they were."""
    assert [5_000, 9_700] == begins(([100.0], 50.0), ([300.0], 4_750.0), now=10_000)
    assert [4_000, 5_500, None, 9_700] == begins(
        ([500.0], None), ([100.0], 50.0), (None, 70.0), ([300.0], 4_250.0), now=10_000
    )
    assert [8_600, 9_700] == begins(([100.0], 50.0), ([300.0], 49.0), now=10_000)


def test_a_longer_one_before_the_last_ends_now() -> None:
    """Where requests overlap, the one that ends last ends now."""
    assert [9_000, 9_100] == begins(([1_000.0], 0.0), ([300.0], 100.0), now=10_000)
