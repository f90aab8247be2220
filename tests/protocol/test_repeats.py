"""What may be cut out of a delta without reading it."""

from __future__ import annotations

import json
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from agui_otel.protocol.deltas import Continued
from agui_otel.protocol.repeats import MAX_FORM_BYTES, Repeats, _is_text

ESCAPES = st.sampled_from(
    [
        rb"\\",
        rb"\"",
        rb"\n",
        rb"\u00e4",
        rb"\u0000",
        rb"\ud83d",
        rb"\uDE00",
        rb"\uD7ff",
        rb"\ue000",
        rb"\x",
        rb"\u12",
        b"\\",
    ]
)
BYTES = st.one_of(
    ESCAPES, st.text(max_size=3).map(lambda text: text.encode("utf-8", "surrogatepass")), st.binary(max_size=2)
)
PIECES = st.lists(BYTES, max_size=5).map(b"".join)


def value(text: bytes) -> str | None:
    """What JSON says a string of this text is, if it is one."""
    try:
        found = json.loads(b'"' + text + b'"')
    except ValueError:
        return None
    return found if isinstance(found, str) else None


@given(PIECES, PIECES)
def test_a_text_is_complete_in_itself(first: bytes, second: bytes) -> None:
    """Two of them are, one after the other, what both are."""
    if _is_text(first) and _is_text(second):
        told, more = value(first), value(second)
        assert told
        assert more
        assert told + more == value(first + second)


@given(PIECES)
def test_nothing_else_is_left_out(text: bytes) -> None:
    """What is no such text is none in JSON, is empty, or has to do with what stands beside it."""
    if not _is_text(text):
        told = value(text)
        assert not told or any("\ud800" <= char <= "\udfff" or ord(char) > 0xFFFF or char == "\x7f" for char in told)


def continuing(entity: int) -> Continued:
    """What stands for what a delta continues: who it is."""
    return cast(Continued, (None, entity, None, None))


def test_a_large_form_is_not_kept() -> None:
    """What deltas are recognised by is bounded: of those with an endless id each is read."""
    for size, known in ((MAX_FORM_BYTES // 2, True), (MAX_FORM_BYTES, False)):
        event = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m" * size, "delta": "Hello"}
        chunk = f"data: {json.dumps(event)}\n\n".encode()
        repeats = Repeats(1_000_000)
        repeats.learn(chunk, continuing(1))
        assert known is repeats.take(chunk, 0)


def test_what_continues_nothing_any_more() -> None:
    """A form that is known from before something else came is none until it is learnt again."""
    one, other = (
        f'data: {{"type":"TEXT_MESSAGE_CONTENT","messageId":"{ident}","delta":"Hello"}}\n\n'.encode() for ident in "ab"
    )
    repeats = Repeats(1_000_000)
    repeats.learn(one, continuing(1))
    repeats.learn(other, continuing(2))
    assert repeats.take(one, 0)
    list(repeats.tell())
    repeats.forget()
    repeats.learn(one, continuing(1))
    assert not repeats.take(other, 0)
    assert not repeats.take(one[:-1], 0)
    assert repeats.take(one, 0)
