"""The binary transport: frames however they are cut, and messages as the JSON transport would bring them."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor, json_format
from hypothesis import given
from hypothesis import strategies as st

import agui_otel
from agui_otel.protocol import agui_pb2
from agui_otel.protocol.events import Unreadable
from agui_otel.protocol.lines import CUT
from agui_otel.protocol.protobuf import ProtobufDecoder, begins_stream, decode
from tests.support import recordings

Payload = dict[str, Any] | Unreadable

SCHEMA = Path(agui_otel.__file__).parent / "protocol" / "agui.proto"
START = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
LATER = b"\x82\x02\x02\x0a\x00"
"""An envelope of field 32, which AG-UI 1.0 does not have."""


def message(arm: str, fields: Any, *, base: Any = None) -> bytes:
    """An envelope that carries one message, written as protobuf's own JSON."""
    inner = {"baseEvent": {"type": arm.upper(), **(base or {})}, **fields}
    envelope = agui_pb2.Event()  # type: ignore[attr-defined]
    return bytes(json_format.ParseDict({arm: inner}, envelope).SerializeToString())


def value(plain: Any) -> Any:
    """A JSON value as a Value, written as protobuf's own JSON."""
    match plain:
        case None:
            return {"nullValue": "NULL_VALUE"}
        case float():
            return {"numberValue": str(plain).replace("inf", "Infinity").replace("nan", "NaN")}
        case list():
            return {"listValue": packed(agui_pb2.ListValue(), {"values": [value(item) for item in plain]})}  # type: ignore[attr-defined]
        case dict():
            entries = [{"key": key, "value": value(item)} for key, item in plain.items()]
            return {"structValue": packed(agui_pb2.Struct(), {"fields": entries})}  # type: ignore[attr-defined]
    raise ValueError(plain)


def packed(empty: Any, fields: Any) -> str:
    """A message, written as protobuf's own JSON writes bytes."""
    return b64encode(json_format.ParseDict(fields, empty).SerializeToString()).decode()


def framed(*frames: bytes) -> bytes:
    """Frames behind their lengths."""
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


ONE = message("run_started", {"threadId": "t", "runId": "r"})


def decoded(*chunks: bytes, limit: int = 10_000_000) -> list[Payload]:
    """All payloads of a stream that comes in `chunks`."""
    decoder = ProtobufDecoder(max_event_bytes=limit)
    found = [payload for chunk in chunks for payload in decoder.feed(chunk)]
    return found + decoder.close()


def recorded(name: str) -> bytes:
    """A recording as the reference encoder writes it."""
    return (recordings.STREAMS / f"{name}.bin").read_bytes()


@pytest.mark.parametrize("name", recordings.NAMES)
def test_recording(name: str) -> None:
    """A recorded binary stream gives the events that stand in its JSON lines, whole and byte by byte."""
    data = recorded(name)
    assert recordings.events(name) == decoded(data)
    assert recordings.events(name) == decoded(*(data[at : at + 1] for at in range(len(data))))


@given(name=st.sampled_from(recordings.NAMES), positions=st.lists(st.integers(0, 10**9), max_size=40))
def test_recording_cut_anywhere(name: str, positions: list[int]) -> None:
    """Cut at any places, the events are the same."""
    assert recordings.events(name) == decoded(*recordings.cut(recorded(name), positions))


@pytest.mark.parametrize("cut_at", range(1, len(framed(ONE))))
def test_cut_in_mid_frame(cut_at: int) -> None:
    """A stream that ends within a frame, or within its length, ends in an Unreadable."""
    assert [START, Unreadable(CUT)] == decoded(framed(ONE) + framed(ONE)[:cut_at])


def test_frames_are_numbered() -> None:
    """Beside each payload stands the number of its frame; a frame that was passed over has one too."""
    decoder = ProtobufDecoder()
    decoder.feed(framed(ONE, LATER, ONE, b"\xff") + b"\0")
    assert [1, 3, 4] == decoder.lines
    decoder.close()
    assert [5] == decoder.lines


@given(
    sizes=st.lists(st.integers(0, 120), min_size=1, max_size=6),
    limit=st.integers(60, 100),
    positions=st.lists(st.integers(0, 10**6), max_size=30),
)
def test_limit_wherever_it_is_cut(sizes: list[int], limit: int, positions: list[int]) -> None:
    """A frame above the limit is exactly one Unreadable, at its place, however the stream is cut."""
    frames = [message("step_started", {"stepName": "x" * size}) for size in sizes]
    large = Unreadable(f"too large: more than {limit} bytes")
    expected = [
        large if len(frame) + 4 > limit else {"type": "STEP_STARTED", "stepName": "x" * size}
        for frame, size in zip(frames, sizes, strict=True)
    ]
    assert expected == decoded(*recordings.cut(framed(*frames), positions), limit=limit)


def test_memory_is_bounded() -> None:
    """A frame that claims 4 GB is an Unreadable at once, and nothing of it is kept."""
    decoder = ProtobufDecoder(max_event_bytes=100_000)
    tracemalloc.start()
    assert [Unreadable("too large: more than 100000 bytes")] == decoder.feed(b"\xff\xff\xff\xff")
    for _ in range(200):
        assert [] == decoder.feed(b"x" * 100_000)
    assert [] == decoder.close()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 300_000


def test_a_claim_is_not_believed() -> None:
    """A frame that claims less than the limit takes no memory before its bytes are there."""
    decoder = ProtobufDecoder()
    tracemalloc.start()
    assert [] == decoder.feed((10_000_000).to_bytes(4, "big") + b"x")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "not an event: nothing in the frame"),
        (b"\x0a\x00", "not an event: TEXT_MESSAGE_START without its base"),
        (b"\x08\x01", "not an event: nothing in the frame"),
        (b"\x82\x02\x02\x0a\xff", "not an event: nothing in the frame"),
        (b"hello", "not protobuf"),
        (b"\x0a\x05\x12\x03\xff\xff\xff", "not UTF-8"),
        (ONE + message("step_started", {"stepName": "s"}), "not an event: several in one frame"),
        (
            message("run_started", {}, base={"type": "RUN_ERROR"}),
            "not an event: a RUN_STARTED that declares another type",
        ),
        (
            message("text_message_start", {}, base={"type": 99}),
            "not an event: a TEXT_MESSAGE_START that declares another type",
        ),
        (
            message("tool_call_result", {"content": "t", "contentParts": [{"text": {"text": "t"}}]}),
            "not an event: text and parts in one content",
        ),
    ],
)
def test_broken_frames(frame: bytes, reason: str) -> None:
    """A broken frame says why, and the next one is read."""
    assert [START, Unreadable(reason), START] == decoded(framed(ONE, frame, ONE))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"role": "system", "contentParts": [{}]}, "a message of role system with another's content"),
        ({"role": "assistant", "activityContent": {}}, "a message of role assistant with another's content"),
        ({"role": "user", "activityContent": {}}, "a message of role user with another's content"),
        ({"role": "activity", "content": "t"}, "a message of role activity with another's content"),
        ({"role": "user", "content": "t", "contentParts": [{}]}, "a message with several contents"),
        ({"role": "new", "content": "t", "activityContent": {}}, "a message with several contents"),
    ],
)
def test_contradictions(fields: Any, reason: str) -> None:
    """A message that says two things is refused, as the reference client refuses it."""
    assert Unreadable(f"not an event: {reason}") == decode(message("messages_snapshot", {"messages": [fields]}))


def test_types_of_a_later_version_are_passed_over() -> None:
    """A frame whose type this build does not know is no event and no error; beside a known one it is ignored."""
    assert [START, START] == decoded(framed(ONE, LATER, ONE + LATER))
    assert [] == decoded(framed(LATER))


@pytest.mark.parametrize(
    ("arm", "fields", "expected"),
    [
        ("text_message_start", {"messageId": ""}, {"messageId": ""}),
        ("text_message_start", {"role": "", "name": ""}, {"messageId": "", "role": "", "name": ""}),
        ("text_message_chunk", {}, {}),
        ("text_message_chunk", {"delta": ""}, {"delta": ""}),
        ("custom", {}, {"name": ""}),
        ("custom", {"name": "n", "value": value(None)}, {"name": "n", "value": None}),
        ("state_delta", {}, {"delta": []}),
        ("activity_snapshot", {"content": {}, "replace": False}, {"content": {}, "replace": False}),
        ("messages_snapshot", {}, {"messages": []}),
        ("run_error", {"message": "m"}, {"message": "m"}),
        ("run_error", {"usage": [{"inputTokens": 0}]}, {"message": "", "usage": [{"inputTokens": 0}]}),
        ("run_finished", {"outcome": "success"}, {"outcome": {"type": "success"}}),
        ("run_finished", {"outcome": ""}, {}),
        ("run_finished", {"outcome": "interrupt"}, {"outcome": {"type": "interrupt", "interrupts": []}}),
        (
            "run_finished",
            {"outcome": "new", "pendingToolCallIds": ["c"]},
            {"outcome": {"type": "new", "pendingToolCallIds": ["c"]}},
        ),
        ("run_finished", {"pendingToolCallIds": ["c"]}, {"pendingToolCallIds": ["c"]}),
        ("subagent_finished", {"outcome": "suspended"}, {"outcome": {"type": "suspended"}}),
        (
            "subagent_finished",
            {"outcome": "suspended", "interruptIds": ["i"]},
            {"outcome": {"type": "suspended", "interruptIds": ["i"]}},
        ),
        ("tool_call_result", {}, {"content": []}),
        ("tool_call_result", {"content": ""}, {"content": ""}),
        ("tool_call_result", {"contentParts": [{"text": {}}, {}]}, {"content": [{"type": "text", "text": ""}]}),
    ],
)  # fmt: skip
def test_presence_outcomes_and_contents(arm: str, fields: Any, expected: Any) -> None:
    """What is empty, what is absent, and what stood in several fields is as JSON has it."""
    ids = dict.fromkeys(("threadId", "runId", "messageId", "toolCallId", "subagentRunId", "activityType"), "")
    event = decode(message(arm, fields))
    assert isinstance(event, dict)
    assert {"type": arm.upper(), **expected} == {
        name: value for name, value in event.items() if name in expected or ids.get(name) != value
    }


def test_media_of_unknown_sources_are_left_out() -> None:
    """A part whose source this build does not know goes, one without a source stays to be judged."""
    parts = [{"image": {"source": {}}}, {"image": {}}, {"image": {"source": {"url": {"value": "u"}}}}]
    event = decode(message("tool_call_result", {"contentParts": parts}))
    assert isinstance(event, dict)
    assert [{"type": "image"}, {"type": "image", "source": {"type": "url", "value": "u"}}] == event["content"]


def test_patch_operations() -> None:
    """An operation has its name in small letters; one that this build does not know keeps its number."""
    delta = [{"op": "MOVE", "path": "/a", "from": ""}, {"op": 17, "path": "/b"}]
    event = decode(message("state_delta", {"delta": delta}))
    assert isinstance(event, dict)
    assert [{"op": "move", "path": "/a", "from": ""}, {"op": "17", "path": "/b"}] == event["delta"]


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1.0, 1),
        (-0.0, 0),
        (1.5, 1.5),
        (2.0**53 - 1, 2**53 - 1),
        (2.0**60, 1152921504606847000),
        (1e20, 10**20),
        (1e21, 1e21),
        (1e300, 1e300),
    ],
)
def test_numbers(number: float, expected: float) -> None:
    """A whole number is an integer where JavaScript writes it as one."""
    event = decode(message("custom", {"value": value([number])}))
    assert isinstance(event, dict)
    assert (expected, type(expected)) == (event["value"][0], type(event["value"][0]))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_has_not(number: float) -> None:
    """What is no number in JSON is null, as JavaScript writes it."""
    items = packed(agui_pb2.ListValue(), {"values": [value(number), {}]})  # type: ignore[attr-defined]
    event = decode(message("custom", {"value": {"listValue": items}}))
    assert isinstance(event, dict)
    assert [None, None] == event["value"]


@pytest.mark.parametrize("at", [-5, 0, 1, 2**60])
@pytest.mark.parametrize("arm", ["text_message_start", "text_message_end"])
def test_base(arm: str, at: int) -> None:
    """What every event may have is the event's own, down to a timestamp of one byte."""
    event = decode(message(arm, {"messageId": "m"}, base={"timestamp": at, "metadata": {}, "rawEvent": value(None)}))
    assert {"type": arm.upper(), "messageId": "m", "timestamp": at, "metadata": {}, "rawEvent": None} == event
    assert {"type": arm.upper(), "messageId": "m", "timestamp": at} == decode(
        message(arm, {"messageId": "m"}, base={"timestamp": at})
    )


def test_nesting() -> None:
    """JSON nested far beyond protobuf's own limit is read; what is nested out of all reason is unreadable."""

    def nested(depth: int) -> Any:
        plain: Any = None
        for level in range(depth):
            plain = {"k": plain} if level % 2 else [plain]
        return plain

    event = decode(message("state_snapshot", {"snapshot": value(nested(200))}))
    assert isinstance(event, dict)
    assert nested(200) == event["snapshot"]
    struct = b""
    for _ in range(3_000):
        struct = agui_pb2.Struct.Entry(key="k", value={"struct_value": struct}).SerializeToString()  # type: ignore[attr-defined]
        struct = b"\x0a" + varint(len(struct)) + struct
    frame = agui_pb2.Event(state_snapshot={"base_event": {"type": 6}, "snapshot": {"struct_value": struct}})  # type: ignore[attr-defined]
    assert Unreadable("nested too deeply") == decode(frame.SerializeToString())


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    low, high = number & 0x7F, number >> 7
    return bytes([low | 0x80]) + varint(high) if high else bytes([low])


def test_order() -> None:
    """An object's entries keep their order; of two with one key the last counts, and one without a value does not."""
    names = [f"{number}" for number in range(50, 0, -1)]
    event = decode(message("custom", {"value": value(dict.fromkeys(names))}))
    assert isinstance(event, dict)
    assert names == list(event["value"])
    entries = [{"key": "a", "value": value(1.0)}, {"key": "b"}, {"key": "a", "value": value(2.0)}]
    struct = packed(agui_pb2.Struct(), {"fields": entries})  # type: ignore[attr-defined]
    event = decode(message("custom", {"value": {"structValue": struct}}))
    assert isinstance(event, dict)
    assert {"a": 2} == event["value"]


@given(st.binary(max_size=200))
def test_anything(data: bytes) -> None:
    """Whatever bytes come, nothing is raised, and whatever way they are cut they mean the same."""
    whole = decoded(data, limit=1_000)
    assert whole == decoded(*(data[at : at + 1] for at in range(len(data))), limit=1_000)
    assert isinstance(decode(data), dict | Unreadable | None)


@given(st.data())
def test_recording_with_a_changed_byte(data: st.DataObject) -> None:
    """A recorded stream in which bytes are changed raises nothing."""
    stream = bytearray(recorded("approve_1"))
    for _ in range(3):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    assert all(isinstance(payload, dict | Unreadable) for payload in decoded(bytes(stream)))


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (framed(ONE), True),
        (framed(message("reasoning_encrypted_value", {})), True),
        (framed(message("step_finished", {}))[:6], True),
        (framed(message("step_finished", {}))[:5], None),
        (b"\0\0\0\x12", None),
        (b"", None),
        (b"\0\0\0\x12\x62", True),
        (b"\0\0\0\x12\x60", False),
        (b"\0\0\0\x12\x02", False),
        (framed(LATER), False),
        (b"\0\0\0\0\x62", False),
        (b"\xff\xff\xff\xff\x62", False),
        ('{"a":1}'.encode("utf-16-be"), False),
        ("data: {}".encode("utf-16-be"), False),
        (b"data: {}", False),
        (b"{", False),
    ],
)
def test_recognised(head: bytes, expected: bool | None) -> None:
    """A length below 16 MiB and one of the 31 events behind it begin a binary stream."""
    assert expected is begins_stream(head)


def test_protobuf_is_imported_when_needed() -> None:
    """Neither the package nor the decoder's module brings in protobuf."""
    code = "import sys, agui_otel, agui_otel.protocol.protobuf; sys.exit('google.protobuf' in sys.modules)"
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode


def test_the_module_is_made_of_the_schema() -> None:
    """The generated module has the messages, fields, numbers and types that stand in agui.proto."""
    declared = set()
    scopes: list[str] = []
    for line in SCHEMA.read_text(encoding="utf-8").splitlines():
        if opened := re.match(r"\s*(message|enum|oneof) (\w+) \{", line):
            scopes.append("" if opened[1] == "oneof" else opened[2])
        elif field := re.match(r"\s*(?:(optional|repeated) )?(?:([\w.]+) )?(\w+) = (\d+);", line):
            scope = ".".join(filter(None, scopes))
            declared.add((scope, field[3], int(field[4]), (field[2] or "").rpartition(".")[2], field[1]))
        elif line.strip() == "}":
            scopes.pop()
    assert declared == set(described())


def described() -> list[tuple[str, str, int, str, str | None]]:
    """What the generated module has: scope, name, number, type and label."""
    file = agui_pb2.DESCRIPTOR
    messages = [*file.message_types_by_name.values()]
    messages += [nested for outer in messages for nested in outer.nested_types]
    values = [(enum.name, value) for enum in file.enum_types_by_name.values() for value in enum.values]
    fields = [(each.full_name.removeprefix("agui_otel.wire."), field) for each in messages for field in each.fields]
    return [
        *((scope, value.name, value.number, "", None) for scope, value in values),
        *((scope, field.name, field.number, type_of(field), label_of(field)) for scope, field in fields),
    ]


def type_of(field: descriptor.FieldDescriptor) -> str:
    """The name of a field's type in the schema."""
    other = field.message_type or field.enum_type
    if other is not None:
        return str(other.name)
    names = {
        field.TYPE_STRING: "string",
        field.TYPE_INT64: "int64",
        field.TYPE_BOOL: "bool",
        field.TYPE_DOUBLE: "double",
        field.TYPE_BYTES: "bytes",
    }
    return names[field.type]


def label_of(field: descriptor.FieldDescriptor) -> str | None:
    """What stands before a field's type in the schema."""
    if field.is_repeated:
        return "repeated"
    oneof = field.containing_oneof  # a field that is declared optional is alone in one
    return "optional" if oneof is not None and len(oneof.fields) == 1 else None
