"""How each rule can be broken: a table of acts that an `Author` performs inside a legal stream."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tests.support.streams import Author
from tests.support.vocabulary import IDS, SUBSTANCE, Event

_KINDS = ("message", "tool", "reasoning", "span")
_PREFIX = {
    "message": "TEXT_MESSAGE",
    "tool": "TOOL_CALL",
    "reasoning": "REASONING_MESSAGE",
    "span": "REASONING",
}
_FIELD = {"message": "messageId", "tool": "toolCallId", "reasoning": "messageId", "span": "messageId"}


def write(seed: int | str, rule: str | None) -> list[Event]:
    """A stream of up to some sixty events in which `rule` is broken first, all but certainly; None: any."""
    author = Author(Random(seed))
    if rule == "first_event":
        author.aside() if author.chance(0.5) else author.say("RUN_FINISHED", threadId="t", runId="r")
    length = author.random.randrange(40)
    wildness = author.pick((0, 0.02, 0.1, 0.3, 0.6)) if rule is None else 0
    if wildness > 0.02:
        author.narrow()
    while len(author.events) < length:
        author.wild() if author.chance(wildness) else author.act()
    if rule in DEFECTS:
        while not author.in_run:
            author.start_run()
        DEFECTS[rule](author)
    for _ in range(author.random.randrange(6)):
        author.act()
    if author.in_run and author.chance(0.5):
        author.finish_run()
    return author.events


def _already_open(kind: str) -> Callable[[Author], None]:
    def act(author: Author) -> None:
        ident = author.open_one(kind) or author.pick(author.open[kind])
        author.open_one(kind, ident, None)

    return act


def _not_open(kind: str) -> Callable[[Author], None]:
    def act(author: Author) -> None:
        if kind != "span" and author.chance(0.3):
            _behind_the_lane(author, kind)
            return
        ident = author.fresh(kind)
        part = author.pick(("END",) if kind == "span" else ("END", "ARGS" if kind == "tool" else "CONTENT"))
        fields: Event = {} if part == "END" else {"delta": "x"}
        author.say(f"{_PREFIX[kind]}_{part}", **{_FIELD[kind]: "z" if ident is None else ident}, **fields)

    return act


def _behind_the_lane(author: Author, kind: str) -> None:
    """End a chunked stream by its id alone; the next chunk continues what is closed, if it says anything."""
    author.say("MESSAGES_SNAPSHOT", messages=[])
    author.chunk_open(kind, "cut", "s")
    author.undercut()
    for _ in range(2):
        author.say(f"{_PREFIX[kind]}_CHUNK", **{_FIELD[kind]: "cut"}, **author.pick(SUBSTANCE))
    author.say(f"{_PREFIX[kind]}_CHUNK", **{_FIELD[kind]: "cut"}, delta="x")


def _null_owner(author: Author) -> None:
    where = author.pick(("aside", "snapshot", "chunk", "delta"))
    kind = author.pick(("message", "tool", "reasoning"))
    if where == "aside":
        author.say("CUSTOM", name="n", value=1, subagentRunId=None)
    elif where == "snapshot":
        author.say("MESSAGES_SNAPSHOT", messages=[], subagentRunId=None)
    elif where == "chunk":
        author.chunk_open(kind, "owned", author.pick((None, "s")))
        author.say(f"{_PREFIX[kind]}_CHUNK", **{_FIELD[kind]: "owned"}, subagentRunId=None)
    else:
        author.open_one(kind, "owned", author.pick((None, "s")))
        part = "ARGS" if kind == "tool" else "CONTENT"
        author.say(f"{_PREFIX[kind]}_{part}", **{_FIELD[kind]: "owned"}, delta="x", subagentRunId=None)


def _unclosed(kind: str) -> Callable[[Author], None]:
    order = ("step", "message", "reasoning", "span", "tool", "subagent")

    def act(author: Author) -> None:
        author.close(*order[: order.index(kind)])
        if kind == "step":
            author.say("STEP_STARTED", stepName="left open", tag=author.pick((None, "s", "")))
        elif kind == "subagent":
            author.say("SUBAGENT_STARTED", subagentRunId="left open", name="worker")
        else:
            author.open_one(kind)
        author.say("RUN_FINISHED", threadId="t", runId="r")

    return act


def _after(ending: Callable[[Author], None]) -> Callable[[Author], None]:
    def act(author: Author) -> None:
        ending(author)
        author.aside() if author.chance(0.5) else author.say("RUN_FINISHED", threadId="t", runId="r")
        author.say("CUSTOM", name="late", value=1)

    return act


def _owner_mismatch(author: Author) -> None:
    kind = author.pick((*_KINDS, "activity", "encrypted", "reopened"))
    if kind == "activity":
        author.say("ACTIVITY_SNAPSHOT", messageId="act", activityType="t", content={}, tag="s")
        author.say("ACTIVITY_SNAPSHOT", messageId="act", activityType="t", content={}, tag="t", replace=False)
        author.say("ACTIVITY_DELTA", messageId="act", activityType="t", patch=[], tag="t")
    elif kind == "encrypted":
        author.open_one("reasoning", "enc", author.pick((None, "s")))
        author.say("REASONING_ENCRYPTED_VALUE", entityId="enc", subtype="message", encryptedValue="x", tag="t")
    elif kind == "reopened":
        author.say("TOOL_CALL_RESULT", messageId="res", toolCallId="a", content="", tag=author.pick((None, "s")))
        author.open_one("message", "res", "t")
    else:
        author.open_one(kind, "own", author.pick((None, "s", "")))
        author.say(f"{_PREFIX[kind]}_END", **{_FIELD[kind]: "own"}, tag="t")


def _parent_message_mismatch(author: Author) -> None:
    author.open_one("message", "par", author.pick((None, "s")))
    if author.chance(0.5):
        author.say("TOOL_CALL_START", toolCallId="kid", toolCallName="f", parentMessageId="par", tag="t")
        return
    author.say("TOOL_CALL_START", toolCallId="kid", toolCallName="f", tag="t")
    author.say("TOOL_CALL_END", toolCallId="kid")
    author.say("TOOL_CALL_START", toolCallId="kid", toolCallName="f", parentMessageId="par")


def _step_of_another(author: Author) -> None:
    first, second = author.pick(((None, "s"), ("s", None), ("", None), (None, "")))
    author.say("STEP_STARTED", stepName="shared", tag=first)
    author.say("STEP_FINISHED", stepName="shared", tag=second)


def _step_twice(author: Author) -> None:
    owner = author.pick((None, "s", ""))
    author.say("STEP_STARTED", stepName="twice", tag=owner)
    author.say("STEP_STARTED", stepName="twice", tag=owner)


def _subagent_twice(author: Author) -> None:
    author.say("SUBAGENT_STARTED", subagentRunId="twice", name="worker")
    author.say("SUBAGENT_STARTED", subagentRunId="twice", name="worker")


def _subagent_restarted(author: Author) -> None:
    author.say("SUBAGENT_STARTED", subagentRunId="again", name="worker")
    author.say("SUBAGENT_ERROR", subagentRunId="again", message="m")
    author.say("SUBAGENT_STARTED", subagentRunId="again", name="worker")


def _subagent_not_active(author: Author) -> None:
    author.say("SUBAGENT_FINISHED", subagentRunId="unheard of")


def _null_message_owner(author: Author) -> None:
    messages = [*author.messages(), {**author.message(), "subagentRunId": None}]
    if author.chance(0.5):
        author.say("MESSAGES_SNAPSHOT", messages=messages)
        return
    author.fail_run()
    author.say("RUN_STARTED", threadId="t", runId="r", input={"threadId": "t", "runId": "r", "messages": messages})


def _null_interrupt_owner(author: Author) -> None:
    author.close("step", *_KINDS, "subagent")
    interrupts = [{"id": "i", "reason": "r"}, {"id": "j", "reason": "r", "subagentRunId": None}]
    outcome = {"type": "interrupt", "interrupts": interrupts}
    author.say("RUN_FINISHED", threadId="t", runId="r", outcome=outcome)


def _subagent_value(*choices: tuple[str, Event]) -> Callable[[Author], None]:
    def act(author: Author) -> None:
        name, fields = author.pick(choices)
        ident = "valued"
        if name != "SUBAGENT_STARTED":
            author.say("SUBAGENT_STARTED", subagentRunId=ident, name="worker")
        required = {"SUBAGENT_STARTED": {"name": "worker"}, "SUBAGENT_ERROR": {"message": "m"}}.get(name, {})
        author.say(name, subagentRunId=ident, **required, **fields)

    return act


def _tool_calls_type(author: Author) -> None:
    odd: Any = author.pick((0, 1.5, True, False, {}, {"length": 1}))
    message = {"id": author.pick(IDS), "role": "user", "content": "t", "toolCalls": odd}
    author.say("MESSAGES_SNAPSHOT", messages=[message])


def _chunk_owner_mismatch(author: Author) -> None:
    kind = author.pick(("message", "tool", "reasoning"))
    author.chunk_open(kind, "lane", author.pick((None, "s", "")))
    author.say(f"{_PREFIX[kind]}_CHUNK", **{_FIELD[kind]: "lane"}, tag="t")


def _chunk_ambiguous(author: Author) -> None:
    kind = author.pick(("message", "tool", "reasoning"))
    author.say("MESSAGES_SNAPSHOT", messages=[])
    author.chunk_open(kind, "one", "s")
    author.chunk_open(kind, "two", "")
    author.say(f"{_PREFIX[kind]}_CHUNK", delta="x")


def _chunk_field_changed(author: Author) -> None:
    opener: Event
    kind, opener, change = author.pick(
        (
            ("message", {}, {"role": "user"}),
            ("message", {}, {"role": None}),
            ("message", {"name": "n"}, {"name": "m"}),
            ("message", {}, {"name": None}),
            ("message", {"role": None}, {"role": "assistant"}),
            ("tool", {"toolCallName": "f"}, {"toolCallName": "g"}),
            ("tool", {"toolCallName": "f"}, {"parentMessageId": None}),
        )
    )
    author.say(f"{_PREFIX[kind]}_CHUNK", **{_FIELD[kind]: "same"}, **opener)
    author.say(f"{_PREFIX[kind]}_CHUNK", delta="x", **change)


def _chunk_without_id(author: Author) -> None:
    kind = author.pick(("message", "tool", "reasoning"))
    if author.chance(0.5):
        author.say("CUSTOM", name="closes the lane", value=1, tag="s")
        author.say(f"{_PREFIX[kind]}_CHUNK", delta="x", tag="s")
    else:
        author.say("MESSAGES_SNAPSHOT", messages=[])
        author.say(f"{_PREFIX[kind]}_CHUNK", delta="x")


def _chunk_without_name(author: Author) -> None:
    author.say("TOOL_CALL_CHUNK", toolCallId="nameless", tag=author.pick((None, "s")), delta="{}")


DEFECTS: dict[str, Callable[[Author], None]] = {
    "run_active": Author.start_run,
    "after_run_finished": _after(Author.finish_run),
    "after_run_error": _after(Author.fail_run),
    "unclosed_steps": _unclosed("step"),
    "unclosed_messages": _unclosed("message"),
    "unclosed_reasoning_messages": _unclosed("reasoning"),
    "unclosed_reasoning": _unclosed("span"),
    "unclosed_tool_calls": _unclosed("tool"),
    "unclosed_subagents": _unclosed("subagent"),
    "message_already_open": _already_open("message"),
    "message_not_open": _not_open("message"),
    "reasoning_message_already_open": _already_open("reasoning"),
    "reasoning_message_not_open": _not_open("reasoning"),
    "reasoning_already_open": _already_open("span"),
    "reasoning_not_open": _not_open("span"),
    "tool_call_already_open": _already_open("tool"),
    "tool_call_not_open": _not_open("tool"),
    "owner_mismatch": _owner_mismatch,
    "parent_message_mismatch": _parent_message_mismatch,
    "step_already_active": _step_twice,
    "step_not_active": lambda author: author.say("STEP_FINISHED", stepName="unheard of"),
    "step_of_another": _step_of_another,
    "subagent_already_active": _subagent_twice,
    "subagent_restarted": _subagent_restarted,
    "subagent_not_active": _subagent_not_active,
    "parent_subagent_unknown": _subagent_value(("SUBAGENT_STARTED", {"parentSubagentRunId": "unheard of"})),
    "null_owner": _null_owner,
    "null_message_owner": _null_message_owner,
    "null_interrupt_owner": _null_interrupt_owner,
    "null_subagent_field": _subagent_value(
        *(
            ("SUBAGENT_STARTED", {field: None})
            for field in ("description", "parentSubagentRunId", "parentToolCallId", "parentMessageId")
        ),
        ("SUBAGENT_FINISHED", {"outcome": None}),
        ("SUBAGENT_FINISHED", {"outcome": {"type": "suspended", "interruptIds": None}}),
        ("SUBAGENT_FINISHED", {"outcome": {"type": "success", "interruptIds": None}}),
        ("SUBAGENT_ERROR", {"code": None}),
    ),
    "subagent_outcome": _subagent_value(
        ("SUBAGENT_STARTED", {"outcome": "success"}),
        ("SUBAGENT_STARTED", {"outcome": {"type": ["success"]}}),
        ("SUBAGENT_ERROR", {"outcome": ""}),
        ("SUBAGENT_ERROR", {"outcome": {"type": "cancelled"}}),
    ),
    "interrupt_id_type": _subagent_value(
        ("SUBAGENT_FINISHED", {"outcome": {"type": "success", "interruptIds": ["i", 1]}}),
        ("SUBAGENT_ERROR", {"outcome": {"type": "suspended", "interruptIds": [None]}}),
    ),
    "tool_calls_type": _tool_calls_type,
    "chunk_owner_mismatch": _chunk_owner_mismatch,
    "chunk_ambiguous": _chunk_ambiguous,
    "chunk_field_changed": _chunk_field_changed,
    "chunk_without_id": _chunk_without_id,
    "chunk_without_name": _chunk_without_name,
}
"""How to break each rule of a run that is going on."""
