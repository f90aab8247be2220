"""Wire facts: chunk shorthand. What chunks are written out as, lane by lane, and which are refused."""

from __future__ import annotations

from typing import Any

import pytest

from agui_otel.protocol.chunks import CHUNK_TYPES, Expander, Refused

Event = dict[str, Any]


def text(part: str, /, **fields: Any) -> Event:
    """A TEXT_MESSAGE_* event."""
    return {"type": f"TEXT_MESSAGE_{part}", **fields}


def tool(part: str, /, **fields: Any) -> Event:
    """A TOOL_CALL_* event."""
    return {"type": f"TOOL_CALL_{part}", **fields}


def thought(part: str, /, **fields: Any) -> Event:
    """A REASONING_MESSAGE_* event."""
    return {"type": f"REASONING_MESSAGE_{part}", **fields}


def expand(*events: Event) -> list[Event]:
    """All that a new expander makes of some events."""
    expander = Expander()
    return [part for event in events for part in expander.expand(event)]


def opened(ident: str = "m", **fields: Any) -> Event:
    """The START that a text chunk opens with."""
    return text("START", messageId=ident, role="assistant", **fields)


S = {"subagentRunId": "s"}
T = {"subagentRunId": "t"}
CUSTOM = {"type": "CUSTOM", "name": "n", "value": None}
RAW = {"type": "RAW", "event": None}

WRITTEN_OUT: dict[str, tuple[list[Event], list[Event]]] = {
    "a text chunk opens and says": (
        [text("CHUNK", messageId="m", delta="a", role="user", name="n")],
        [text("START", messageId="m", role="user", name="n"), text("CONTENT", messageId="m", delta="a")],
    ),
    "a tool chunk opens and says": (
        [tool("CHUNK", toolCallId="c", toolCallName="f", parentMessageId="m", delta="{}")],
        [
            tool("START", toolCallId="c", toolCallName="f", parentMessageId="m"),
            tool("ARGS", toolCallId="c", delta="{}"),
        ],
    ),
    "a reasoning chunk opens and says": (
        [thought("CHUNK", messageId="m", delta="a", **S)],
        [
            thought("START", messageId="m", role="reasoning", **S),
            thought("CONTENT", messageId="m", delta="a", **S),
        ],
    ),
    "a chunk without a delta only opens": ([text("CHUNK", messageId="m")], [opened()]),
    "a null delta is an empty one": (
        [text("CHUNK", messageId="m", delta=None)],
        [opened(), text("CONTENT", messageId="m", delta="")],
    ),
    "a continuation may leave out everything": (
        [text("CHUNK", messageId="m", delta="a"), text("CHUNK", delta="b")],
        [opened(), text("CONTENT", messageId="m", delta="a"), text("CONTENT", messageId="m", delta="b")],
    ),
    "a continuation may repeat its opener": (
        [
            tool("CHUNK", toolCallId="c", toolCallName="f", parentMessageId="m"),
            tool("CHUNK", toolCallId="c", toolCallName="f", parentMessageId="m", delta="x"),
        ],
        [
            tool("START", toolCallId="c", toolCallName="f", parentMessageId="m"),
            tool("ARGS", toolCallId="c", delta="x"),
        ],
    ),
    "a continuation that says nothing is nothing": (
        [text("CHUNK", messageId="m"), text("CHUNK", messageId="m", timestamp=1)],
        [opened()],
    ),
    "metadata alone is content": (
        [text("CHUNK", messageId="m", metadata={"k": 1}), text("CHUNK", metadata={"k": 2})],
        [opened(metadata={"k": 1}), text("CONTENT", messageId="m", metadata={"k": 2}, delta="")],
    ),
    "a provider's payload is content, and rides there": (
        [text("CHUNK", messageId="m", rawEvent={"p": 1})],
        [opened(), text("CONTENT", messageId="m", delta="", rawEvent={"p": 1})],
    ),
    "what the schema does not name rides along": (
        [text("CHUNK", messageId="m", subagentId="s"), text("CHUNK", subagentId="s")],
        [opened(subagentId="s"), text("CONTENT", subagentId="s", messageId="m", delta="")],
    ),
    "a timestamp rides along": (
        [text("CHUNK", messageId="m", timestamp=5, delta="a")],
        [opened(timestamp=5), text("CONTENT", messageId="m", timestamp=5, delta="a")],
    ),
    "a null tag reaches the judge": (
        [text("CHUNK", messageId="m"), text("CHUNK", subagentRunId=None)],
        [opened(), text("CONTENT", messageId="m", subagentRunId=None, delta="")],
    ),
    "a null id is an id": (
        [text("CHUNK", messageId=None, delta="a"), text("CHUNK", messageId="", delta="b")],
        [
            text("START", messageId=None, role="assistant"),
            text("CONTENT", messageId=None, delta="a"),
            text("END", messageId=None),
            opened(""),
            text("CONTENT", messageId="", delta="b"),
        ],
    ),
    "another id in a lane ends the first": (
        [text("CHUNK", messageId="m"), text("CHUNK", messageId="n")],
        [opened(), text("END", messageId="m"), opened("n")],
    ),
    "another kind in a lane ends the first": (
        [tool("CHUNK", toolCallId="m", toolCallName="f"), thought("CHUNK", messageId="m")],
        [
            tool("START", toolCallId="m", toolCallName="f"),
            tool("END", toolCallId="m"),
            thought("START", messageId="m", role="reasoning"),
        ],
    ),
    "lanes do not disturb each other": (
        [
            *(text("CHUNK", messageId="m", **S), text("CHUNK", messageId="n", **T)),
            *(text("CHUNK", delta="a", **S), text("CHUNK", delta="b", **T)),
        ],
        [
            *(opened(**S), opened("n", **T)),
            text("CONTENT", messageId="m", delta="a", **S),
            text("CONTENT", messageId="n", delta="b", **T),
        ],
    ),
    "an id finds its lane without a tag": (
        [text("CHUNK", messageId="m", **S), text("CHUNK", messageId="m", delta="a")],
        [opened(**S), text("CONTENT", messageId="m", delta="a", **S)],
    ),
    "without id and tag the run's own stream is meant": (
        [text("CHUNK", messageId="m", **S), text("CHUNK", messageId="n"), text("CHUNK", delta="a")],
        [opened(**S), opened("n"), text("CONTENT", messageId="n", delta="a")],
    ),
    "without id and tag the only stream of the kind is meant": (
        [text("CHUNK", messageId="m", **S), thought("CHUNK", messageId="n"), text("CHUNK", delta="a")],
        [
            *(opened(**S), thought("START", messageId="n", role="reasoning")),
            text("CONTENT", messageId="m", delta="a", **S),
        ],
    ),
    "an event closes its own lane": (
        [text("CHUNK", messageId="m", **S), CUSTOM, {**CUSTOM, **S}],
        [opened(**S), CUSTOM, text("END", messageId="m", **S), {**CUSTOM, **S}],
    ),
    "the run's events close every lane": (
        [text("CHUNK", messageId="m", **S), text("CHUNK", messageId="n"), {"type": "RUN_ERROR", "message": "m"}],
        [
            *(opened(**S), opened("n"), text("END", messageId="m", **S), text("END", messageId="n")),
            {"type": "RUN_ERROR", "message": "m"},
        ],
    ),
    "a subagent's end closes its lane": (
        [text("CHUNK", messageId="m", **S), text("CHUNK", messageId="n"), {"type": "SUBAGENT_FINISHED", **S}],
        [*(opened(**S), opened("n"), text("END", messageId="m", **S)), {"type": "SUBAGENT_FINISHED", **S}],
    ),
    "some events close nothing": (
        [text("CHUNK", messageId="m"), RAW, {"type": "FUTURE"}, {"type": "SUBAGENT_STARTED", **S}],
        [opened(), RAW, {"type": "FUTURE"}, {"type": "SUBAGENT_STARTED", **S}],
    ),
}


@pytest.mark.parametrize(("events", "expected"), WRITTEN_OUT.values(), ids=WRITTEN_OUT.keys())
def test_chunks_are_written_out(events: list[Event], expected: list[Event]) -> None:
    """Chunks become the events they stand for; everything else passes, after the ends it implies."""
    assert expected == expand(*events)


REFUSED: dict[str, tuple[list[Event], str, list[Event]]] = {
    "a tag that is not the stream's": (
        [text("CHUNK", messageId="m"), text("CHUNK", messageId="m", delta="a", **S)],
        "chunk_owner_mismatch",
        [text("CONTENT", messageId="m", delta="a")],
    ),
    "no id and no tag, and two that fit": (
        [text("CHUNK", messageId="m", **S), text("CHUNK", messageId="n", **T), text("CHUNK", delta="a")],
        "chunk_ambiguous",
        [],
    ),
    "another role": (
        [text("CHUNK", messageId="m"), text("CHUNK", role="user", delta="a")],
        "chunk_field_changed",
        [text("CONTENT", messageId="m", delta="a")],
    ),
    "a null where there was nothing": (
        [text("CHUNK", messageId="m"), text("CHUNK", name=None)],
        "chunk_field_changed",
        [],
    ),
    "another parent message": (
        [tool("CHUNK", toolCallId="c", toolCallName="f"), tool("CHUNK", parentMessageId="m", delta="a")],
        "chunk_field_changed",
        [tool("ARGS", toolCallId="c", delta="a")],
    ),
    "nothing open and no id": ([text("CHUNK", delta="a")], "chunk_without_id", []),
    "another kind open and no id": (
        [thought("CHUNK", messageId="m"), text("CHUNK", delta="a")],
        "chunk_without_id",
        [thought("END", messageId="m")],
    ),
    "a tag whose lane is empty, and no id": (
        [text("CHUNK", messageId="m"), text("CHUNK", delta="a", **S)],
        "chunk_without_id",
        [],
    ),
    "a call without a name": (
        [tool("CHUNK", toolCallId="c", delta="{")],
        "chunk_without_name",
        [tool("START", toolCallId="c", toolCallName=""), tool("ARGS", toolCallId="c", delta="{")],
    ),
}


@pytest.mark.parametrize(("events", "rule", "recovered"), REFUSED.values(), ids=REFUSED.keys())
def test_chunks_that_are_refused(events: list[Event], rule: str, recovered: list[Event]) -> None:
    """The last chunk is refused by its rule, with the events that tracing takes in its place."""
    expander = Expander()
    for event in events[:-1]:
        expander.expand(event)
    with pytest.raises(Refused) as refused:
        expander.expand(events[-1])
    assert rule == refused.value.rule
    assert recovered == list(refused.value.recovered)
    assert str(refused.value) == refused.value.message


def test_a_call_that_opened_without_a_name_may_learn_it() -> None:
    """One defect is one refusal: the name may follow, once, and is fixed from then on."""
    expander = Expander()
    with pytest.raises(Refused):
        expander.expand(tool("CHUNK", toolCallId="c"))
    expected = [tool("ARGS", toolCallId="c", delta="a")]
    assert expected == list(expander.expand(tool("CHUNK", toolCallName="f", delta="a")))
    with pytest.raises(Refused, match="toolCallName"):
        expander.expand(tool("CHUNK", toolCallName="g"))


def test_other_events_pass_as_they_are() -> None:
    """Without a pending stream an event is returned itself, and `pending` says whether there is one."""
    expander = Expander()
    (passed,) = expander.expand(CUSTOM)
    assert passed is CUSTOM
    assert not expander.pending
    expander.expand(text("CHUNK", messageId="m"))
    assert expander.pending
    expander.expand(CUSTOM)
    assert not expander.pending


def test_chunk_types() -> None:
    """Three types are shorthand."""
    assert {"TEXT_MESSAGE_CHUNK", "TOOL_CALL_CHUNK", "REASONING_MESSAGE_CHUNK"} == CHUNK_TYPES


@pytest.mark.parametrize("name", sorted(CHUNK_TYPES))
def test_a_chunk_is_not_changed(name: str) -> None:
    """What a host passes in stays as it was."""
    field = "toolCallId" if name == "TOOL_CALL_CHUNK" else "messageId"
    chunk = {"type": name, field: "x", "toolCallName": "f", "delta": "a", "metadata": {"k": 1}}
    before = dict(chunk)
    Expander().expand(chunk)
    assert before == chunk
