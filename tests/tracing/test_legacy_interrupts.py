"""Trace model, legacy interrupts: CUSTOM `on_interrupt`, no outcome (quirk legacy_interrupt)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.traced import Thread, Traced, trace
from tests.support.wire import custom, done, event, finished, given, interrupted, started, subagent, suspended, text

RUN = "invoke_agent supervisor"


def ask(tag: str | None = None) -> Any:
    """CUSTOM on_interrupt, whose value is a JSON string without an id."""
    return custom("on_interrupt", '{"action_requests": []}', tag)


def raised(traced: Traced) -> list[Any]:
    """The run's interrupts: id, reason and owner."""
    return [
        (a["agui.interrupt.id"], a["agui.interrupt.reason"], a.get("agui.subagent.run_id"))
        for _, a in traced.events(RUN, "agui.interrupt")
    ]


def kept(thread: Thread) -> list[str]:
    """The ids of the interrupts that thread memory has."""
    record = thread.memory.read("thread")
    return [] if record is None else list(record.interrupts)


def command(payload: Any, **fields: Any) -> Any:
    """The input that answers in the way before 1.0."""
    return given("two", forwardedProps={"command": {"resume": payload}}, **fields)


def test_one_for_each_id_that_suspended_subagents_list() -> None:
    """The CUSTOM events of those owners are the same interrupts."""
    traced = trace(
        started(),
        *(subagent("a", "ann"), subagent("b", "bob")),
        *(suspended("a", "x", "y"), suspended("b", "z")),
        *(ask("a"), ask("a"), ask("b")),
        finished(),
    )
    assert [("x", "on_interrupt", "a"), ("y", "on_interrupt", "a"), ("z", "on_interrupt", "b")] == raised(traced)
    assert "interrupt" == traced.attributes(RUN)["agui.outcome"]


def test_one_for_each_surplus_custom_event() -> None:
    """Beyond those of the owners that listed ids, numbered in the run."""
    traced = trace(started(), subagent("a", "ann"), suspended("a", "x"), ask("a"), ask("a"), ask(), ask(), finished())
    assert [
        ("x", "on_interrupt", "a"),
        ("legacy:run:1", "on_interrupt", "a"),
        ("legacy:run:2", "on_interrupt", None),
        ("legacy:run:3", "on_interrupt", None),
    ] == raised(traced)


def test_ids_are_listed_without_a_custom_event() -> None:
    """A suspended subagent alone is no interrupt: the event is what makes one."""
    traced = trace(started(), subagent("a"), suspended("a", "x"), finished())
    assert [] == raised(traced)
    assert "success" == traced.attributes(RUN)["agui.outcome"]


def test_with_an_outcome_it_is_a_custom_event_like_any() -> None:
    """The interrupts are the outcome's."""
    traced = trace(started(), ask(), interrupted("i"))
    assert [("i", "approval", None)] == raised(traced)


class TestAskedAgain:
    """In a run without a resume and without SUBAGENT_STARTED, the n-th such event restates the n-th remembered one."""

    def test_all_are_restated(self) -> None:
        """The first owner, run and time stay, and no subagent is opened."""
        thread = Thread()
        thread.run(started("one"), subagent("a"), suspended("a", "x"), ask("a"), ask(), finished("one"))
        record = thread.memory.read("thread")
        again = thread.run(started("two"), ask("a"), ask(), finished("two"), given=given("two"))
        assert [("x", "on_interrupt", "a"), ("legacy:one:1", "on_interrupt", None)] == raised(again)
        assert [RUN] == [span.name for span in again.spans]
        after = thread.memory.read("thread")
        assert record is not None
        assert after is not None
        assert record.interrupts == after.interrupts

    def test_only_surplus_ones_are_new(self) -> None:
        """More than are remembered."""
        thread = Thread()
        thread.run(started("one"), ask(), finished("one"))
        again = thread.run(started("two"), ask(), ask(), finished("two"), given=given("two"))
        assert [("legacy:one:1", "on_interrupt", None), ("legacy:two:1", "on_interrupt", None)] == raised(again)
        assert ["legacy:one:1", "legacy:two:1"] == kept(thread)

    @pytest.mark.parametrize(
        ("events", "known"),
        [
            ([subagent("b"), done("b")], given("two")),
            ([], given("two", resume=[{"interruptId": "?", "status": "resolved"}])),
            ([], command({"approved": True})),
        ],
        ids=["a subagent started", "a resume entry", "the legacy command"],
    )
    def test_else_they_are_new(self, events: Any, known: Any) -> None:
        """A run that goes on asks something new."""
        thread = Thread()
        thread.run(started("one"), ask(), finished("one"))
        again = thread.run(started("two"), events, ask(), finished("two"), given=known)
        assert [("legacy:two:1", "on_interrupt", None)] == raised(again)

    def test_an_unannounced_tag_is_no_start(self) -> None:
        """SUBAGENT_STARTED is what shows that something goes on."""
        thread = Thread()
        thread.run(started("one"), ask(), finished("one"))
        again = thread.run(started("two"), text("m", tag="s"), ask(), finished("two"), given=given("two"))
        assert [("legacy:one:1", "on_interrupt", None)] == raised(again)


class TestAnswer:
    """`forwardedProps.command.resume` answers all legacy interrupts of the thread."""

    def test_without_resume_entries(self) -> None:
        """The payload is each one's; other interrupts of the thread wait on."""
        thread = Thread()
        thread.run(started("one"), subagent("a"), suspended("a", "x"), ask("a"), ask(), finished("one"))
        thread.run(started("other"), interrupted("i", run="other"))
        second = thread.run(
            started("two"),
            subagent("a"),
            done("a"),
            finished("two"),
            given=command({"decisions": [{"type": "reject"}]}),
        )
        assert [("x", "denied"), ("legacy:one:1", "denied")] == [
            (a["agui.interrupt.id"], a["agui.interrupt.decision"])
            for _, a in second.events(RUN, "agui.interrupt.resolved")
        ]
        assert {"agui.resumes.run_id": ("one",)} == second.some(RUN, "agui.resumes.run_id")
        assert {"agui.continued": True} == second.some("invoke_agent researcher", "agui.continued")
        assert ["i"] == kept(thread)

    @pytest.mark.parametrize("payload", [False, "", {}, [], 0])
    def test_whatever_is_sent_is_an_answer(self, payload: Any) -> None:
        """Only null is none."""
        thread = Thread()
        thread.run(started("one"), ask(), finished("one"))
        thread.run(started("two"), finished("two"), given=command(payload))
        assert [] == kept(thread)

    @pytest.mark.parametrize(
        "known",
        [
            command(None),
            given("two", forwardedProps={"command": "x"}),
            given("two", forwardedProps=1),
            command(True, resume=[{"interruptId": "?", "status": "resolved"}]),
        ],
    )
    def test_else_they_wait_on(self, known: Any) -> None:
        """Nothing is sent that way, or resume entries say what is answered."""
        thread = Thread()
        thread.run(started("one"), ask(), finished("one"))
        thread.run(started("two"), finished("two"), given=known)
        assert ["legacy:one:1"] == kept(thread)

    def test_an_entry_may_name_one(self) -> None:
        """By the id that was made for it."""
        thread = Thread()
        thread.run(started("one"), ask(), finished("one"))
        entry = {"interruptId": "legacy:one:1", "status": "resolved", "payload": "approve"}
        second = thread.run(started("two"), finished("two"), given=given("two", resume=[entry]))
        assert ["approved"] == [a["agui.interrupt.decision"] for _, a in second.events(RUN)]
        assert [] == kept(thread)


def test_the_event_itself_is_recorded_too() -> None:
    """It stays a CUSTOM event on its owner, or above where that has ended."""
    traced = trace(started(), subagent("a"), suspended("a", "x"), ask("a"), event("RUN_ERROR", message="x"))
    assert ["a"] == [a["agui.subagent.run_id"] for _, a in traced.events(RUN, "agui.custom")]
    assert [] == raised(traced)
