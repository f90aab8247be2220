"""What is read of an exchange, and when: deltas wait for each other, and nothing else waits for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.context import Context

from agui_otel.attach import exchange as module
from agui_otel.attach.exchange import MAX_WAITING, MAX_WAITING_BYTES, Exchange
from agui_otel.protocol.repeats import MAX_FORMS
from agui_otel.testing import capture
from agui_otel.tracing.memory import InProcessMemory
from agui_otel.tracing.observer import Observer
from tests.support.recordings import SSE_NAMES, STREAMS, events
from tests.support.servers import SSE, sse
from tests.support.sources import HALF, INPUT
from tests.support.watched import FULL

START = 1_767_225_600_000_000_000
DELTA = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hello"}
MS = 1_000_000
IDS = {"TEXT_MESSAGE_CONTENT": "messageId", "TOOL_CALL_ARGS": "toolCallId", "REASONING_MESSAGE_CONTENT": "messageId"}


def begun(given: Any = INPUT, media: str = SSE) -> tuple[Exchange, Any]:
    """An exchange whose response has begun, at a standing clock; and what it records."""
    captured = capture()
    how = Observer(
        FULL, captured.tracer_provider, captured.meter_provider, memory=InProcessMemory(), clock=lambda: START
    )
    made = Exchange(how, Context(), (), agent_name="supervisor")
    made.ask(json.dumps(given).encode())
    made.answer(200, [(b"content-type", media.encode())])
    return made, captured


def heard(exchange: Exchange, *sent: Any, at: int = START) -> None:
    """The exchange takes events, each in a part of its own, and reads them as it will."""
    for event in sent:
        passed(exchange, sse([event]), at)


def passed(exchange: Exchange, part: bytes, at: int) -> bool:
    """The exchange takes a part of the body, and reads it if it will; whether it did."""
    due = exchange.take(part, at)
    if due:
        exchange.listen()
    return due


def last(exchange: Exchange) -> int:
    """When the last event came that was read, in ms."""
    assert exchange.session is not None
    return (exchange.session._tracker.last_event_ns - START) // MS


def test_deltas_wait_for_each_other() -> None:
    """They are read when there are enough of them."""
    exchange, _ = begun()
    heard(exchange, *HALF[:-1])
    for number in range(1, MAX_WAITING + 1):
        heard(exchange, DELTA, at=START + number * MS)
        assert (MAX_WAITING if number == MAX_WAITING else 0) == last(exchange)
    exchange.end("exhausted")


def test_deltas_do_not_wait_long() -> None:
    """A new one is read with those that are much older."""
    exchange, _ = begun()
    heard(exchange, *HALF[:-1])
    heard(exchange, DELTA, at=START + 1 * MS)
    heard(exchange, DELTA, at=START + 3990 * MS)
    assert 0 == last(exchange)
    heard(exchange, DELTA, at=START + 4050 * MS)
    assert 4050 == last(exchange)
    exchange.end("exhausted")


@pytest.mark.parametrize(
    "event",
    [
        {"type": "TEXT_MESSAGE_END", "messageId": "m"},
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m2", "delta": "Hello"},
        {**DELTA, "delta": "x" * MAX_WAITING_BYTES},
        {"type": "CUSTOM", "name": "n", "value": {"type": "TEXT_MESSAGE_CONTENT"}},
    ],
)
def test_nothing_else_waits(event: Any) -> None:
    """What opens or ends something is read at once, and the deltas before it."""
    exchange, _ = begun()
    heard(exchange, *HALF, DELTA)
    heard(exchange, event, at=START + 7 * MS)
    assert 7 == last(exchange)
    exchange.end("exhausted")


@pytest.mark.parametrize("reason", ["exhausted", "disconnected", "cancelled", "error"])
def test_the_end_does_not_wait(reason: Any) -> None:
    """However it comes, what waits is read before it."""
    exchange, captured = begun()
    heard(exchange, *HALF, DELTA, DELTA)
    exchange.end(reason)
    (run,) = [span for span in captured.spans if span.name == "invoke_agent supervisor"]
    assert len(HALF) + 2 == run.attributes["agui.events.count"]


@pytest.mark.parametrize("name", SSE_NAMES)
def test_waiting_changes_no_trace(name: str) -> None:
    """Counts, texts and times are those of a stream that is read event by event, by the decoder."""
    random = Random(7)
    times = list(accumulate(random.randrange(100) * MS for _ in events(name)))
    asked = json.loads((STREAMS / f"{name}.input.json").read_text())
    parts = [sse([event]) for event in events(name)]
    waited, waiting = traced(parts, times, asked)
    assert (waited > 0) == any(event["type"] in IDS for event in events(name))
    assert plainly_traced(parts, times, asked) == waiting


def plainly_traced(parts: Sequence[bytes], times: Sequence[int], asked: Any = INPUT, media: str = SSE) -> str:
    """What is recorded where nothing waits, and what the decoder makes is what the session gets."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "MAX_WAITING", 0)
        patched.setattr(Exchange, "_read", lambda self, decoder, chunk, at: self._hear(decoder.feed(chunk), at))
        waited, plain = traced(parts, times, asked, media)
    assert 0 == waited
    return plain


def traced(parts: Sequence[bytes], times: Sequence[int], asked: Any = INPUT, media: str = SSE) -> tuple[int, str]:
    """How many parts of a body waited, and all that is recorded of them."""
    exchange, captured = begun(asked, media)
    waited = sum(not passed(exchange, part, START + at) for part, at in zip(parts, times, strict=True))
    exchange.end("exhausted", at_ns=START + times[-1])
    metrics = {name: points for name, points in captured.metrics().items() if not name.endswith("age")}  # it goes on
    return waited, "\n".join([*(span.to_json() for span in captured.spans), str(metrics)])


OPENED: list[Any] = [
    *HALF[:1],
    {"type": "TEXT_MESSAGE_START", "messageId": "a", "role": "assistant"},
    {"type": "TEXT_MESSAGE_START", "messageId": "delta", "role": "assistant", "subagentRunId": "s"},
    {"type": "TOOL_CALL_START", "toolCallId": "a", "toolCallName": "search"},
    {"type": "REASONING_MESSAGE_START", "messageId": "a", "role": "reasoning"},
]
TEXTS = st.one_of(
    st.sampled_from(
        ["Hello", " ", "\n\n", '{"delta":"x"}', "\\", '"', "\\u00e4", "\U0001f600", "\ud83d", "\ude00", "é", "\x00"]
    ),
    st.text(max_size=5),
)


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """A piece of a body as it may come: mostly a delta, written in one of the ways that are seen."""
    kind = draw(st.sampled_from(sorted(IDS)))
    event: dict[str, Any] = {"type": kind, IDS[kind]: draw(st.sampled_from(["a", "delta", "z"])), "delta": draw(TEXTS)}
    if draw(st.integers(0, 4)) == 0:
        event |= draw(st.sampled_from([{"subagentRunId": "s"}, {"subagentRunId": None}, {"timestamp": 5}, {"x": "y"}]))
    if draw(st.integers(0, 4)) == 0:
        event = {key: event[key] for key in draw(st.permutations(list(event)))}
    compact = draw(st.integers(0, 3)) > 0
    ascii_only = draw(st.booleans()) or not _encodable(event)
    text = json.dumps(event, ensure_ascii=ascii_only, separators=(",", ":") if compact else None)
    begin, end = draw(st.sampled_from([("data: ", "\n\n")] * 4 + [("data:", "\r\n\r\n"), ("", "\n"), ("data: ", "\n")]))
    return (begin + text + end).encode()


def _encodable(event: dict[str, Any]) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in event["delta"])


ODD = st.sampled_from(
    [
        sse([{"type": "TEXT_MESSAGE_END", "messageId": "a"}]),
        sse([{"type": "TEXT_MESSAGE_START", "messageId": "a", "role": "assistant"}]),
        sse([{"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/a", "value": 1}]}]),
        b": ping\n\n", b"\n", b"data: ", b"data: [\n", b"data", b"\r", b"event: x\n", b"", b"{", b'{"delta":"',
        b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"\xc3"}\n\n',
        b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"\xa4"}\n\n',
        b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"\\"}\n\n',
        b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"a\nb"}\n\n',
        b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"x","delta":"y"}\n\n',
        b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"x"}\n\ndata: ',
        b'data: {"type":"TEXT_MESSAGE_CONTENT","delta":"x"}\n\n',
        b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":["a"],"delta":"x"}\n\n',
        b'data: {"type":"TEXT_MESSAGE_CONTENT","type":["a"],"messageId":"a","delta":"x"}\n\n',
        b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"x","messageId":"delta"}\n\n',
    ]
)  # fmt: skip


BEGIN = b'data: {"type":"TEXT_MESSAGE_CONTENT","messageId":"a","delta":"'
A = BEGIN + b'Hello"}\n\n'
B = A.replace(b'"a"', b'"b"')
PING = b": ping\n\n"
"""What waits is read when this comes: what comes after it waits on its own."""

ONE = BEGIN + b'1"}\n\n'
SPACED = b'data: {"type": "TEXT_MESSAGE_CONTENT", "messageId": "a", "delta": "2"}\n\n'
TAGGED = b'data: {"type":"TEXT_MESSAGE_CONTENT","subagentRunId":"s","messageId":"a","delta":"3"}\n\n'
END = b'data: {"type":"TEXT_MESSAGE_END","messageId":"a"}\n\n'
"""One message, written in several ways."""

ODD_TEXTS = st.sampled_from(
    [
        b"",
        b'"',
        b"\\",
        b"a\nb",
        b"a\r\nb",
        b"\xc3",
        b"\xa4",
        b"\\ud83d",
        b"\\ude00",
        b'x","delta":"y',
        b'x","y":"z',
        b"\x00",
    ]
)
"""What cannot stand in a string, or not by itself, or ends it."""


@st.composite
def alike(draw: st.DrawFn) -> list[bytes]:
    """Pieces of one form, nearly: some hold what is no text, two events, or a part of one."""
    begin, end = BEGIN, b'"}\n\n'
    plain = TEXTS.map(lambda text: json.dumps(text)[1:-1].encode())
    texts = st.one_of(plain, plain, plain, plain, ODD_TEXTS, st.tuples(plain, plain).map((end + begin).join))
    pieces = [begin + draw(plain) + end, PING] + [begin + draw(texts) + end for _ in range(draw(st.integers(3, 9)))]
    if draw(st.booleans()):
        at = draw(st.integers(2, len(pieces) - 1))
        cut = draw(st.integers(1, len(pieces[at]) - 1))
        pieces[at : at + 1] = [pieces[at][:cut], pieces[at][cut:]]
    if draw(st.booleans()):
        at = draw(st.integers(3, len(pieces) - 1))
        pieces[at - 1 : at + 1] = [pieces[at - 1] + pieces[at]]
    return pieces


@st.composite
def various(draw: st.DrawFn) -> list[bytes]:
    """Pieces of all forms. Some come again and again, as what they begin with does in a stream."""
    few = draw(st.lists(st.one_of(written(), written(), written(), ODD), min_size=1, max_size=6))
    pieces = draw(st.lists(st.one_of(st.sampled_from(few), written()), min_size=1, max_size=30))
    return [piece for piece in pieces for _ in range(draw(st.integers(1, 3)))]


@st.composite
def bodies(draw: st.DrawFn) -> list[bytes]:
    """The pieces of a body."""
    return [piece for part in draw(st.lists(st.one_of(alike(), various()), min_size=1, max_size=3)) for piece in part]


@given(bodies(), st.sampled_from([SSE, "application/x-ndjson"]))
def test_whatever_comes_waiting_changes_no_trace(pieces: list[bytes], media: str) -> None:
    """Neither by what is written otherwise, nor by what is no event, or ends what was streamed."""
    start = [sse([event]) if media == SSE else (json.dumps(event) + "\n").encode() for event in OPENED]
    parts = [*start, *pieces]
    times = [7 * MS * number for number in range(len(parts))]
    _, waiting = traced(parts, times, media=media)
    assert plainly_traced(parts, times, media=media) == waiting


@pytest.mark.parametrize(
    "pieces",
    [
        [A, B, A, A],
        [A, B, B, A],
        [A.replace(b'"messageId":"a",', b""), A, A],
        [A.replace(b'"a"', b"[1]"), A, A],
        [PING, A + b"data: ", A, A],
        [SPACED, PING, ONE, SPACED, ONE, SPACED, END],
        [TAGGED, PING, ONE, TAGGED, ONE, ONE, TAGGED, END],
        [
            A.replace(b'"messageId":"a"', b'"messageId":{"delta":"x"},"messageId":"a"').replace(
                b'"delta":"H', b'"delta": "H'
            )
        ]
        * 4,
        [B, A, A, A],
        [A, A, A, BEGIN + b'Hello"} \n', b"\n", A],
        [A, A, A + A, A],
        [A, A, BEGIN + b'Hel\nlo"}\n\n', A],
        [A, A, A[:-1], A[-1:], A],
        [b"data", A[4:], A[4:], A],
        [A + b"data: ", A + b"data: ", A],
        [A, B, sse([{"type": "TEXT_MESSAGE_END", "messageId": "b"}]), A, B],
        [A.replace(b",", b",\rdata: "), A.replace(b",", b",\rdata: "), BEGIN.replace(b",", b",\rdata: ") + b'x"}\n', A],
    ],
)
def test_what_is_nearly_a_repetition(pieces: list[bytes]) -> None:
    """Where a piece is cut otherwise, or ends otherwise, or is of another message, it is what the decoder says."""
    start = [HALF[0], *({"type": "TEXT_MESSAGE_START", "messageId": ident, "role": "assistant"} for ident in "ab")]
    parts = [*(sse([event]) for event in start), A, PING, *pieces]
    times = [7 * MS * number for number in range(len(parts))]
    assert plainly_traced(parts, times) == traced(parts, times)[1]


def test_texts_of_one_subagent() -> None:
    """It was heard last when the last of them was: where it never ended, it ends then."""
    start = [
        HALF[0],
        {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "subagentName": "writer"},
        *(
            {"type": "TEXT_MESSAGE_START", "messageId": ident, "role": "assistant", "subagentRunId": "s"}
            for ident in "ab"
        ),
    ]
    end = [{"type": "RUN_FINISHED", "threadId": HALF[0]["threadId"], "runId": HALF[0]["runId"]}]
    tagged = [piece.replace(b'"messageId"', b'"subagentRunId":"s","messageId"') for piece in (A, B)]
    for order in ((0, 1, 0, 1, 1, 0), (1, 0, 1, 0, 0, 1)):
        pieces = [tagged[0], tagged[1], PING, *(tagged[which] for which in order)]
        parts = [*(sse([event]) for event in start), *pieces, *(sse([event]) for event in end)]
        times = [7 * MS * number for number in range(len(parts))]
        assert plainly_traced(parts, times) == traced(parts, times)[1]


def test_many_streams_at_once() -> None:
    """More texts at once than forms are kept: each delta is counted, whether it waited or not."""
    exchange, captured = begun()
    heard(exchange, HALF[0])
    idents = [f"m{number}" for number in range(MAX_FORMS + 10)]
    heard(exchange, *({"type": "TEXT_MESSAGE_START", "messageId": ident, "role": "assistant"} for ident in idents))
    for _ in range(3):
        heard(exchange, *({**DELTA, "messageId": ident} for ident in idents))
    exchange.end("exhausted")
    (run,) = [span for span in captured.spans if span.name == "invoke_agent supervisor"]
    assert 1 + 4 * len(idents) == run.attributes["agui.events.count"]
