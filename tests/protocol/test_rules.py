"""Trace model: violations. Each rule broken once in a stream that goes on; owners; what is accepted."""

from __future__ import annotations

from typing import Any

import pytest

from agui_otel.protocol.chunks import Expander, Refused
from agui_otel.protocol.rules import RULES, Judge

Event = dict[str, Any]


def event(name: str, /, **fields: Any) -> Event:
    """An event; `tag` spells subagentRunId and `id` the id field that the type has."""
    spelled = {"tag": "subagentRunId", "id": "toolCallId" if name.startswith("TOOL_CALL") else "messageId"}
    return {"type": name, **{spelled.get(key, key): value for key, value in fields.items()}}


def subagent(part: str, ident: str = "s", /, **fields: Any) -> Event:
    """A SUBAGENT_* event."""
    required = {"STARTED": {"name": "worker"}, "ERROR": {"message": "broken"}}.get(part, {})
    return event(f"SUBAGENT_{part}", subagentRunId=ident, **{**required, **fields})


def finished(**fields: Any) -> Event:
    """A RUN_FINISHED event."""
    return event("RUN_FINISHED", threadId="t", runId="r", **fields)


def started(*messages: Event) -> Event:
    """A RUN_STARTED event that echoes an input with `messages`."""
    echo = {"threadId": "t", "runId": "r", "messages": list(messages)}
    return event("RUN_STARTED", threadId="t", runId="r", input=echo)


START = event("RUN_STARTED", threadId="t", runId="r")
FAIL = event("RUN_ERROR", message="broken")
CUSTOM = event("CUSTOM", name="n", value=None)


def breaches(*events: Event) -> list[tuple[int, str]]:
    """Index and rule of every breach in a stream, judged to its end."""
    expander, judge, found = Expander(), Judge(), []
    for index, sent in enumerate(events):
        try:
            parts = expander.expand(sent)
        except Refused as refused:
            found.append((index, refused.rule))
            parts = refused.recovered
        found += [(index, breach.rule) for breach in map(judge.judge, parts) if breach is not None]
    return found


def message(role: str, ident: str = "m", /, **fields: Any) -> Event:
    """A message as snapshots hold it, as far as the rules read it."""
    return {"id": ident, "role": role, **fields}


def text(part: str, ident: str = "m", /, **fields: Any) -> Event:
    """A TEXT_MESSAGE_* event."""
    return event(f"TEXT_MESSAGE_{part}", id=ident, **fields)


def tool(part: str, ident: str = "c", /, **fields: Any) -> Event:
    """A TOOL_CALL_* event."""
    return event(f"TOOL_CALL_{part}", id=ident, **fields)


def thought(part: str, ident: str = "m", /, **fields: Any) -> Event:
    """A REASONING_MESSAGE_* event."""
    return event(f"REASONING_MESSAGE_{part}", id=ident, **fields)


def span(part: str, ident: str = "m", /, **fields: Any) -> Event:
    """A REASONING_START or REASONING_END event."""
    return event(f"REASONING_{part}", id=ident, **fields)


def step(part: str, name: str = "plan", /, **fields: Any) -> Event:
    """A STEP_* event."""
    return event(f"STEP_{part}", stepName=name, **fields)


def snapshot(*messages: Event) -> Event:
    """A MESSAGES_SNAPSHOT event."""
    return event("MESSAGES_SNAPSHOT", messages=list(messages))


INTERRUPTED = {"type": "interrupt", "interrupts": [{"id": "i", "reason": "r", "subagentRunId": None}]}

BROKEN_ONCE: list[tuple[str, int, list[Event]]] = [
    ("first_event", 0, [CUSTOM, START, text("START"), text("END"), finished()]),
    ("first_event", 0, [text("CONTENT"), text("END"), CUSTOM, finished(), START, finished()]),
    ("run_active", 2, [START, text("START"), START, text("START"), text("END"), finished()]),
    ("after_run_finished", 2, [START, finished(), CUSTOM, step("STARTED"), step("FINISHED"), START, finished()]),
    ("after_run_finished", 2, [START, finished(), finished(), FAIL, START, finished()]),
    ("after_run_error", 2, [START, FAIL, FAIL, START, finished()]),
    ("after_run_error", 1, [FAIL, finished(), START, finished()]),
    ("unclosed_steps", 2, [START, step("STARTED"), finished(), START, finished()]),
    ("unclosed_messages", 2, [START, text("START"), finished(), START, text("START"), text("END"), finished()]),
    ("unclosed_reasoning_messages", 2, [START, thought("START"), finished()]),
    ("unclosed_reasoning", 2, [START, span("START"), finished()]),
    ("unclosed_tool_calls", 2, [START, tool("START"), finished()]),
    ("unclosed_subagents", 2, [START, subagent("STARTED"), finished()]),
    ("message_already_open", 2, [START, text("START"), text("START"), text("CONTENT"), text("END"), finished()]),
    ("message_not_open", 1, [START, text("CONTENT"), text("CONTENT"), text("END"), finished()]),
    ("message_not_open", 1, [START, text("END"), finished()]),
    ("message_not_open", 3, [START, text("START"), text("END"), text("CONTENT"), text("END"), finished()]),
    ("reasoning_message_already_open", 2, [START, thought("START"), thought("START"), thought("END"), finished()]),
    ("reasoning_message_not_open", 1, [START, thought("CONTENT"), thought("END"), finished()]),
    ("reasoning_message_not_open", 2, [START, span("START"), thought("END"), span("END"), finished()]),
    ("reasoning_already_open", 2, [START, span("START"), span("START"), span("END"), finished()]),
    ("reasoning_not_open", 1, [START, span("END"), finished()]),
    ("tool_call_already_open", 2, [START, tool("START"), tool("START"), tool("END"), finished()]),
    ("tool_call_not_open", 1, [START, tool("ARGS"), tool("ARGS"), tool("END"), finished()]),
    ("owner_mismatch", 2, [START, text("START"), text("CONTENT", tag="s"), text("END"), finished()]),
    ("owner_mismatch", 2, [START, text("START", tag="s"), text("END", tag="t"), finished()]),
    (
        "owner_mismatch",
        3,
        [START, text("START", tag="s"), text("END"), text("START", tag="t"), text("END"), finished()],
    ),
    ("owner_mismatch", 2, [START, tool("START", tag=""), tool("ARGS", tag="s"), tool("END"), finished()]),
    ("owner_mismatch", 2, [START, span("START", tag="s"), thought("START", tag="t"), thought("END"), span("END")]),
    ("owner_mismatch", 2, [START, event("ACTIVITY_SNAPSHOT", id="m"), event("ACTIVITY_DELTA", id="m", tag="s")]),
    (
        "owner_mismatch",
        3,
        [
            *(START, event("ACTIVITY_SNAPSHOT", id="m", tag="s")),
            event("ACTIVITY_SNAPSHOT", id="m", tag="t", replace=False),
            *(event("ACTIVITY_DELTA", id="m", tag="t"), event("ACTIVITY_DELTA", id="m", tag="s")),
        ],
    ),
    (
        "owner_mismatch",
        2,
        [
            START,
            thought("START", tag="s"),
            event("REASONING_ENCRYPTED_VALUE", entityId="m", subtype="message", tag="t"),
        ],
    ),
    (
        "owner_mismatch",
        3,
        [
            *(START, tool("START", "m", tag="s"), text("START", tag="t")),
            event("REASONING_ENCRYPTED_VALUE", entityId="m", subtype="tool-call", tag="t"),
            event("REASONING_ENCRYPTED_VALUE", entityId="m", subtype="message", tag="t"),
        ],
    ),
    (
        "owner_mismatch",
        2,
        [START, event("TOOL_CALL_RESULT", messageId="m", toolCallId="c", tag="s"), text("START", tag="t"), text("END")],
    ),
    ("owner_mismatch", 2, [START, snapshot(message("user", subagentRunId="s")), text("START", tag="t"), text("END")]),
    ("owner_mismatch", 1, [started(message("reasoning")), thought("START", tag="s"), thought("END"), finished()]),
    (
        "owner_mismatch",
        1,
        [
            started(message("assistant", toolCalls=[{"id": "c"}], subagentRunId="s")),
            tool("START", tag="t"),
            tool("END"),
        ],
    ),
    (
        "parent_message_mismatch",
        2,
        [START, text("START"), tool("START", parentMessageId="m", tag="s"), tool("END", tag="s"), text("END")],
    ),
    (
        "parent_message_mismatch",
        4,
        [
            *(START, text("START", tag="s"), tool("START", tag="t"), tool("END")),
            *(tool("START", parentMessageId="m"), tool("END", tag="t")),
        ],
    ),
    ("step_already_active", 2, [START, step("STARTED"), step("STARTED"), step("FINISHED"), finished()]),
    ("step_not_active", 1, [START, step("FINISHED"), finished()]),
    ("step_of_another", 2, [START, step("STARTED"), step("FINISHED", tag="s"), finished()]),
    ("step_of_another", 2, [START, step("STARTED", tag=""), step("FINISHED"), finished()]),
    ("subagent_already_active", 2, [START, subagent("STARTED"), subagent("STARTED"), subagent("FINISHED"), finished()]),
    (
        "subagent_restarted",
        3,
        [START, subagent("STARTED"), subagent("ERROR"), subagent("STARTED"), subagent("FINISHED"), finished()],
    ),
    ("subagent_not_active", 1, [START, subagent("FINISHED"), subagent("STARTED", "t", parentSubagentRunId="s")]),
    (
        "parent_subagent_unknown",
        1,
        [
            *(START, subagent("STARTED", parentSubagentRunId="p"), subagent("STARTED", "t", parentSubagentRunId="p")),
            *(subagent("FINISHED"), subagent("FINISHED", "t"), finished()),
        ],
    ),
    ("null_owner", 1, [START, text("START", tag=None), text("CONTENT"), text("END"), finished()]),
    ("null_owner", 1, [START, finished(subagentRunId=None)]),
    ("null_message_owner", 1, [START, snapshot(message("user", subagentRunId=None)), text("START"), text("END")]),
    ("null_message_owner", 0, [started(message("user", subagentRunId=None)), finished()]),
    ("null_interrupt_owner", 1, [START, finished(outcome=INTERRUPTED)]),
    ("null_subagent_field", 1, [START, subagent("STARTED", parentSubagentRunId=None), subagent("ERROR"), finished()]),
    ("null_subagent_field", 2, [START, subagent("STARTED"), subagent("FINISHED", outcome=None), finished()]),
    ("null_subagent_field", 2, [START, subagent("STARTED"), subagent("ERROR", code=None), finished()]),
    (
        "null_subagent_field",
        2,
        [START, subagent("STARTED"), subagent("FINISHED", outcome={"type": "success", "interruptIds": None})],
    ),
    ("subagent_outcome", 2, [START, subagent("STARTED"), subagent("ERROR", outcome="success"), finished()]),
    (
        "interrupt_id_type",
        2,
        [START, subagent("STARTED"), subagent("FINISHED", outcome={"type": "success", "interruptIds": [1]})],
    ),
    ("tool_calls_type", 1, [START, snapshot(message("user", toolCalls={})), text("START"), text("END")]),
    ("chunk_owner_mismatch", 2, [START, text("CHUNK", delta="a"), text("CHUNK", delta="b", tag="s"), finished()]),
    (
        "chunk_ambiguous",
        3,
        [
            START,
            text("CHUNK", tag="s"),
            text("CHUNK", "n", tag="t"),
            event("TEXT_MESSAGE_CHUNK", delta="x"),
            finished(),
        ],
    ),
    ("chunk_field_changed", 2, [START, text("CHUNK"), text("CHUNK", role="user", delta="x"), finished()]),
    ("chunk_without_id", 2, [START, tool("CHUNK", toolCallName="f"), event("TEXT_MESSAGE_CHUNK"), finished()]),
    (
        "chunk_without_name",
        1,
        [START, tool("CHUNK", delta="{"), tool("CHUNK", toolCallName="f", delta="}"), tool("CHUNK"), finished()],
    ),
]


@pytest.mark.parametrize(("rule", "index", "events"), BROKEN_ONCE)
def test_one_defect_is_one_breach(rule: str, index: int, events: list[Event]) -> None:
    """A stream that breaks a rule once is reported there and nowhere after."""
    assert breaches(*events) == [(index, rule)]


def test_every_rule_of_sequences_is_broken_above() -> None:
    """The cases name each rule of the table but the one for what is no event."""
    assert {rule for rule, _, _ in BROKEN_ONCE} == set(RULES) - {"malformed_event"}


ACCEPTED: dict[str, list[Event]] = {
    "a run that fails at once": [FAIL, START, finished()],
    "a finished run that fails after all": [START, finished(), FAIL, START, finished()],
    "a failed run with everything open": [START, text("START"), step("STARTED"), subagent("STARTED"), FAIL, START],
    "one id for entities of all kinds": [
        *(START, text("START", "x"), tool("START", "x"), thought("START", "x"), span("START", "x")),
        *(text("END", "x"), tool("END", "x"), thought("END", "x"), span("END", "x"), finished()),
    ],
    "a message that is opened again": [START, text("START", tag="s"), text("END"), text("START"), text("END")],
    "an untagged reopening keeps the owner": [
        *(START, text("START", tag="s"), text("END"), text("START"), text("CONTENT", tag="s"), text("END")),
    ],
    "a call inherits its parent message's owner": [
        *(START, text("START", tag="s"), tool("START", parentMessageId="m"), tool("END", tag="s"), text("END")),
    ],
    "steps of one name under several owners": [
        *(START, step("STARTED"), step("STARTED", tag=""), step("STARTED", tag="s")),
        *(step("FINISHED", tag=""), step("FINISHED", tag="s"), step("FINISHED"), finished()),
    ],
    "a parent that has ended": [
        *(START, subagent("STARTED"), subagent("FINISHED"), subagent("STARTED", "t", parentSubagentRunId="s")),
        *(subagent("FINISHED", "t"), finished()),
    ],
    "events tagged with an ended or unknown subagent": [
        *(START, subagent("STARTED"), subagent("FINISHED"), text("START", tag="s"), text("END")),
        *(event("CUSTOM", tag="never started"), finished()),
    ],
    "a snapshot that restates an owner": [
        *(START, text("START", tag="s"), snapshot(message("user", subagentRunId="t")), text("END", tag="t")),
    ],
    "a history does not restate an owner": [
        started(message("user", subagentRunId="s"), message("user", subagentRunId="t")),
        *(text("START", tag="s"), text("END", tag="s"), finished()),
    ],
    "a replacing activity that changes hands": [
        *(START, event("ACTIVITY_SNAPSHOT", id="m", tag="s"), event("ACTIVITY_SNAPSHOT", id="m", tag="t")),
        event("ACTIVITY_DELTA", id="m", tag="t"),
    ],
    "a type that nobody knows, even first": [event("FUTURE"), START, event("FUTURE", tag=None), finished()],
    "nulls where the rules do not look": [START, text("START", role=None, name=None), text("END"), finished()],
    "a new run forgets the owners of the last": [
        *(START, text("START", tag="s"), text("END"), finished()),
        *(START, text("START", tag="t"), text("END"), finished()),
    ],
}


@pytest.mark.parametrize("events", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_what_is_accepted(events: list[Event]) -> None:
    """Streams that look odd and are legal have no breach."""
    assert breaches(*events) == []


def test_a_breach_at_the_end_lists_all_that_is_open() -> None:
    """RUN_FINISHED names every open thing, in a fixed order and at most eight of a kind."""
    judge = Judge()
    for sent in (START, step("STARTED", tag="s"), *(text("START", f"m{number}") for number in range(10))):
        assert judge.judge(sent) is None
    breach = judge.judge(finished())
    assert breach is not None
    assert breach.message == (
        "RUN_FINISHED while still open: steps 'plan' of subagent 's'; "
        "messages 'm0', 'm1', 'm2', 'm3', 'm4', 'm5', 'm6', 'm7' and 2 more"
    )


def test_what_is_open_is_public() -> None:
    """The open entities and their owners can be read, in containers that stay while runs come and go."""
    judge = Judge()
    messages, owners = judge.open_messages, judge.message_owners
    for sent in (START, text("START", tag="s"), tool("START", parentMessageId="m"), thought("START")):
        judge.judge(sent)
    assert messages == {"m"}
    assert owners == {"m": "s"}
    assert (judge.open_tool_calls, judge.tool_call_owners) == ({"c"}, {"c": "s"})
    assert (judge.open_reasoning, judge.reasoning_owners) == ({"m"}, {"m": None})
    judge.judge(FAIL)
    assert (messages, owners) == (set(), {})
    assert judge.open_messages is messages
    assert not judge.in_run
