"""The binary transport, against AG-UI's own encoder and decoder."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agui_otel.protocol.events import EVENT_TYPES, Unreadable
from agui_otel.protocol.protobuf import ProtobufDecoder, decode
from agui_otel.protocol.shapes import EVENTS
from agui_otel.protocol.sse import SSEDecoder
from tests.support import recordings
from tests.support.oracle import Transport
from tests.support.specimens import SPECIMENS, spoil
from tests.support.streams import Author
from tests.support.vocabulary import Event

BATCH = 300
SEEDS = st.integers(min_value=0, max_value=2**64)


@pytest.fixture(scope="module")
def transport() -> Iterator[Transport]:
    """@ag-ui/encoder and @ag-ui/proto."""
    with Transport() as running:
        yield running


def theirs(transport: Transport, frames: list[bytes]) -> list[Any]:
    """What the reference decoder makes of frames: an event, None for one of a later AG-UI, or its complaint."""
    answers = transport.ask({"decode": [b64encode(frame).decode() for frame in frames]})
    return [answer.get("event") if "error" not in answer else Unreadable(answer["error"]) for answer in answers]


def encoded(transport: Transport, events: list[Event]) -> list[tuple[Event, str, bytes]]:
    """The events that the reference encoder takes, each as a server-sent event and as a frame behind its length."""
    answers = zip(events, transport.ask({"encode": events}), strict=True)
    return [(event, answer["text"], b64decode(answer["frame"])) for event, answer in answers if answer is not None]


def written(seed: int) -> list[Event]:
    """A random stream of well-formed events of the 31 types."""
    author = Author(Random(seed))
    while len(author.events) < BATCH:
        author.act() if author.chance(0.8) else author.wild()
    return [event for event in author.events if event["type"] in EVENT_TYPES]


def carried(event: Event) -> Event:
    """What the binary transport carries of an event in wire form: the fields that AG-UI's schema names."""
    shape = EVENTS[event["type"]]
    named = {"type", *shape.required, *shape.optional}
    kept = {
        name: value for name, value in event.items() if name in named and (value is not None or name in shape.required)
    }
    if event["type"] == "SUBAGENT_FINISHED" and "outcome" in kept and kept["outcome"]["type"] == "success":
        kept["outcome"] = {"type": "success"}
    if "messages" in kept:
        kept["messages"] = [assistants(message) for message in kept["messages"]]
    if "input" in kept:
        messages = [assistants(message) for message in kept["input"]["messages"]]
        kept["input"] = {"tools": [], "context": [], "resume": [], **kept["input"], "messages": messages}
    return kept


def assistants(message: Event) -> Event:
    """A message without the tool calls that only an assistant has."""
    if message["role"] == "assistant":
        return message
    return {name: value for name, value in message.items() if name != "toolCalls"}


def test_recordings_are_what_the_encoder_writes(transport: Transport) -> None:
    """The reference encoder makes the recorded bytes of the recorded events."""
    for name in recordings.NAMES:
        frames = b"".join(frame for _, _, frame in encoded(transport, recordings.events(name)))
        assert (recordings.STREAMS / f"{name}.bin").read_bytes() == frames


def test_every_specimen_survives(transport: Transport) -> None:
    """Of a full event of each type nothing is lost."""
    assert [(event, event) for event in SPECIMENS] == [
        (event, decode(frame[4:])) for event, _, frame in encoded(transport, SPECIMENS)
    ]


def test_both_transports_bring_the_same(transport: Transport) -> None:
    """A random well-formed stream is the same over both transports, but for what binary does not carry."""

    @settings(max_examples=15, deadline=None, database=None)
    @given(SEEDS)
    def compare(seed: int) -> None:
        sent = encoded(transport, written(seed))
        texts = SSEDecoder().feed("".join(text for _, text, _ in sent).encode())
        binary = ProtobufDecoder().feed(b"".join(frame for _, _, frame in sent))
        assert len(sent) == len(texts) == len(binary)
        for text, event in zip(texts, binary, strict=True):
            assert isinstance(text, dict)
            assert isinstance(event, dict)
            assert carried(text) == carried(event)
            assert set(event) <= {"type", *EVENTS[event["type"]].required, *EVENTS[event["type"]].optional}

    compare()


def test_what_is_decoded_is_what_the_reference_decodes(transport: Transport) -> None:
    """Well-formed and spoiled events come out as the reference decoder gives them, or are refused by both.

    Only whole numbers beyond JavaScript's are refused by the reference and read here.
    """

    @settings(max_examples=15, deadline=None, database=None)
    @given(SEEDS)
    def compare(seed: int) -> None:
        random = Random(seed)
        events = [spoil(random, random.choice(SPECIMENS)) for _ in range(BATCH)] + written(seed)
        frames = [frame[4:] for _, _, frame in encoded(transport, events)]
        for frame, expected in zip(frames, theirs(transport, frames), strict=True):
            if isinstance(expected, Unreadable):
                assert isinstance(decode(frame), Unreadable) or "SAFE_INTEGER" in expected.reason
            else:
                assert expected == decode(frame)

    compare()


def test_broken_frames(transport: Transport) -> None:
    """Where bytes were changed, lost and added, what both can still read is the same event."""
    left_out = ("rawEvent", "metadata")
    bare = [{name: value for name, value in event.items() if name not in left_out} for event in SPECIMENS]
    whole = [frame[4:] for _, _, frame in encoded(transport, bare)]

    @settings(max_examples=15, deadline=None, database=None)
    @given(SEEDS)
    def compare(seed: int) -> None:
        random = Random(seed)
        frames = [broken(random, random.choice(whole)) for _ in range(BATCH)]
        both = 0
        for frame, expected in zip(frames, theirs(transport, frames), strict=True):
            found = decode(frame)
            if isinstance(found, dict) and isinstance(expected, dict):
                both += 1
                assert expected == found
        assert both

    compare()


def broken(random: Random, frame: bytes) -> bytes:
    """`frame` with one to three changes."""
    data = bytearray(frame)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(len(data) + 1)
        match random.randrange(3):
            case 0:
                data[at : at + 1] = random.randbytes(1)
            case 1:
                del data[at : at + random.randrange(1, 5)]
            case _:
                data[at:at] = random.randbytes(random.randrange(1, 4))
    return bytes(data)
