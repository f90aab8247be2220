"""Trace model, state: one document a run, who wrote what, and who wrote over whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agui_otel.testing import capture
from tests.support.traced import Traced, trace
from tests.support.wire import (
    broke,
    custom,
    done,
    finished,
    given,
    patch,
    started,
    state,
    subagent,
    text,
    tool,
)

RUN = "invoke_agent supervisor"
SUB = "invoke_agent researcher"


def updates(traced: Traced) -> list[Any]:
    """The run's state events: which kind, seq, operations, paths, and the writer."""
    return [
        (name.rpartition(".")[2], a["agui.state.seq"], a["agui.state.op_count"], a["agui.state.paths"], writer(a))
        for name, a in traced.events(RUN, "agui.state.snapshot", "agui.state.delta")
    ]


def writer(attributes: dict[str, Any], prefix: str = "agui.") -> Any:
    """The producer's id and name."""
    return attributes.get(f"{prefix}subagent.run_id"), attributes.get(f"{prefix}subagent.name")


def overwrites(traced: Traced) -> list[Any]:
    """The run's overwrites: seq, path, who wrote, who wrote before."""
    return [
        (a["agui.state.seq"], a["agui.state.path"], writer(a), writer(a, "agui.state.previous."))
        for _, a in traced.events(RUN, "agui.state.overwrite")
    ]


def two(*events: Any) -> Traced:
    """A run with two subagents, a and b, at work at once."""
    return trace(started(), subagent("a", "ann"), subagent("b", "bob"), *events, done("a"), done("b"), finished())


def test_each_update_is_an_event_on_the_run() -> None:
    """With its number, its producer (absent: the run's own agent) and its paths; never a span, never on a subagent."""
    traced = trace(
        started(),
        state({"a": 1, "b": 2}),
        subagent(),
        patch(("replace", "/a", 2), ("add", "/c/-", 1), tag="sub"),
        state({"a": 2, "c": 3}, tag="sub"),
        patch(("add", "/c", [])),
        patch(("add", "/c/-", 1), ("test", "/c", [1]), ("move", "/d", "/a")),
        done(),
        finished(),
        given=given(state={"b": 1}),
    )
    assert [
        ("snapshot", 1, 0, ("/a", "/b"), (None, None)),
        ("delta", 2, 2, ("/a", "/c/-"), ("sub", "researcher")),
        ("snapshot", 3, 0, ("/a", "/c", "/b"), ("sub", "researcher")),
        ("delta", 4, 1, ("/c",), (None, None)),
        ("delta", 5, 3, ("/c/0", "/a", "/d"), (None, None)),
    ] == updates(traced)
    assert ["state_patch"] == traced.rules()
    assert {SUB, RUN} == {span.name for span in traced.spans}


def test_the_document_begins_as_the_inputs_state() -> None:
    """A snapshot that restates it writes nothing; the input may also be the one that RUN_STARTED echoes."""
    for known, echoed in ((given(state={"a": 1}), None), (None, given(state={"a": 1}))):
        traced = trace(started(input=echoed), state({"a": 1, "b": 2}), finished(), given=known)
        assert [("snapshot", 1, 0, ("/b",), (None, None))] == updates(traced)


def test_a_snapshot_replaces_the_document_whoever_sent_it() -> None:
    """The patch after it applies to it."""
    traced = two(state({"a": {}}), state({"b": {}}, tag="a"), patch(("add", "/b/c", 1), tag="b"))
    assert [("/a",), ("/b", "/a"), ("/b/c",)] == [paths for _, _, _, paths, _ in updates(traced)]
    assert [] == traced.rules()


def test_a_patch_that_cannot_be_applied_is_kept_and_noted() -> None:
    """As provenance: the paths that it would have written. The document stays."""
    traced = two(state({"a": 1}), patch(("replace", "/x/y", 1), tag="a"), patch(("replace", "/a", 2), tag="b"))
    assert [("/a",), ("/x/y",), ("/a",)] == [paths for _, _, _, paths, _ in updates(traced)]
    assert ["state_patch"] == traced.rules()


def test_a_writer_that_nobody_announced_is_an_id() -> None:
    """The tags of STATE_* open nothing."""
    traced = trace(started(), state({"a": 1}, tag="x"), finished())
    assert [("snapshot", 1, 0, ("/a",), ("x", None))] == updates(traced)
    assert [RUN] == [span.name for span in traced.spans]


class TestSum:
    """The producing subagent's span, while it is open, carries the sum."""

    def test_updates_and_distinct_paths(self) -> None:
        """The run's own agent has none: it has the events."""
        traced = trace(
            started(),
            subagent(),
            state({"a": 1, "b": 1}, tag="sub"),
            patch(("replace", "/a", 2), ("add", "/c", 2), tag="sub"),
            state({}),
            done(),
            patch(("add", "/late", 1), tag="sub"),
            finished(),
        )
        assert {"agui.state.updates": 2, "agui.state.paths": ("/a", "/b", "/c")} == traced.some(
            SUB, "agui.state.updates", "agui.state.paths", "agui.state.paths_omitted"
        )
        assert {} == traced.some(RUN, "agui.state.updates", "agui.state.paths")
        assert 4 == len(updates(traced))

    def test_beyond_the_limit_paths_are_counted(self) -> None:
        """Each once, however often it is written."""
        writes = [patch(*(("add", f"/p{n}", 1) for n in range(start, start + 3)), tag="sub") for start in (0, 2, 4, 4)]
        traced = trace(started(), subagent(), writes, done(), finished(), max_paths=4)
        assert {
            "agui.state.updates": 4,
            "agui.state.paths": ("/p0", "/p1", "/p2", "/p3"),
            "agui.state.paths_omitted": 3,
        } == traced.some(SUB, "agui.state.updates", "agui.state.paths", "agui.state.paths_omitted")


class TestOverwrite:
    """A write over what a different producer wrote last that is still active, neither an ancestor of the other."""

    @pytest.mark.parametrize(
        ("first", "second", "path"),
        [
            (("add", "/x", 1), ("replace", "/x", 2), "/x"),
            (("add", "/x", {"y": 1}), ("replace", "/x/y", 2), "/x/y"),
            (("add", "/x/y", 1), ("replace", "/x", 2), "/x"),
            (("add", "/x/y", 1), ("remove", "/x"), "/x"),
            (("add", "/l/-", 1), ("replace", "/l/1", 2), "/l/1"),
            (("add", "/x/y", 1), ("move", "/z", "/x"), "/x"),
            (("add", "/x/y", 1), ("copy", "/x", "/l"), "/x"),
        ],
    )
    def test_the_path_or_one_above_or_below_it(self, first: Any, second: Any, path: str) -> None:
        """`-` counts as the index it creates, `move` writes both its paths."""
        traced = two(state({"x": {}, "l": [0]}), patch(first, tag="a"), patch(second, tag="b"))
        assert [(3, path, ("b", "bob"), ("a", "ann"))] == overwrites(traced)

    @pytest.mark.parametrize(
        "events",
        [
            [patch(("add", "/x", 1), tag="a"), patch(("add", "/y", 1), tag="b")],
            [patch(("add", "/x", 1), tag="a"), patch(("test", "/x", 1), tag="b")],
            [patch(("add", "/x", 1), tag="a"), patch(("replace", "/x", 2), tag="a")],
            [patch(("add", "/x", 1), tag="a"), patch(("replace", "/x", 2))],
            [patch(("add", "/x", 1)), patch(("replace", "/x", 2), tag="a")],
            [patch(("add", "/x", 1), tag="nobody"), patch(("replace", "/x", 2), tag="a")],
        ],
        ids=["elsewhere", "test", "the same", "an ancestor", "a descendant", "not active"],
    )
    def test_nothing_else_is_one(self, events: Any) -> None:
        """Another path, a test, the same producer, an ancestor or descendant, one that is not active."""
        assert [] == overwrites(two(events))

    @pytest.mark.parametrize("end", [done("a"), broke("a")])
    def test_who_has_ended_loses_nothing(self, end: Any) -> None:
        """A result that is written over when its writer has ended was there to be read."""
        traced = trace(
            started(), subagent("a"), subagent("b"), patch(("add", "/x", 1), tag="a"), end,
            patch(("replace", "/x", 2), tag="b"), done("b"), finished(),
        )  # fmt: skip
        assert [] == overwrites(traced)

    def test_ancestors_are_found_through_tool_calls(self) -> None:
        """A subagent that is dispatched by a call of another stands below that; its sibling does not."""
        traced = trace(
            started(),
            subagent("a", "ann"),
            tool("c", "task", tag="a"),
            subagent("b", "bob", call="c"),
            subagent("d", "dan", call="c"),
            patch(("add", "/x", 1), tag="a"),
            patch(("replace", "/x", 2), tag="b"),
            patch(("replace", "/x", 3), tag="d"),
            *(done("d"), done("b"), done("a")),
            finished(),
        )
        assert [(3, "/x", ("d", "dan"), ("b", "bob"))] == overwrites(traced)

    def test_a_snapshot_overwrites_too(self) -> None:
        """Of each top-level key that it changes; whose each was is told."""
        traced = two(
            patch(("add", "/x", 1), ("add", "/same", 1), tag="a"),
            state({"x": 2, "same": 1, "new": 1}, tag="b"),
        )
        assert [(2, "/x", ("b", "bob"), ("a", "ann"))] == overwrites(traced)


class TestCaps:
    """State updates over the cap are folded per producer; whatever is capped leaves a count."""

    def test_updates_are_folded(self) -> None:
        """Count, first and last seq, and distinct paths of each producer, at the run's end."""
        writes = [patch(("add", f"/p{n % 3}", n), tag="ab"[n % 2]) for n in range(10)]
        traced = trace(
            started(), subagent("a", "ann"), subagent("b", "bob"), writes, patch(("add", "/own", 1)),
            *(done("a"), done("b")), finished(), max_state_events=4, max_paths=2,
        )  # fmt: skip
        assert [1, 2, 3, 4] == [seq for _, seq, _, _, _ in updates(traced)]
        assert [
            ("a", 3, 5, 9, ("/p1", "/p0"), 1),
            ("b", 3, 6, 10, ("/p2", "/p1"), 1),
            (None, 1, 11, 11, ("/own",), None),
        ] == [
            (
                a.get("agui.subagent.run_id"),
                *(a[f"agui.state.{key}"] for key in ("count", "first_seq", "last_seq", "paths")),
                a.get("agui.state.paths_omitted"),
            )
            for _, a in traced.events(RUN, "agui.state.updates_folded")
        ]
        assert {} == traced.some(RUN, "agui.omitted.state", "agui.omitted.folded")

    def test_very_many_producers_are_counted(self) -> None:
        """16 are told apart; the updates of the others are a number."""
        names = [f"s{n}" for n in range(20)]
        traced = trace(
            started(), [subagent(name) for name in names], [patch(("add", "/x", 1), tag=name) for name in names * 2],
            [done(name) for name in names], finished(), max_state_events=0,
        )  # fmt: skip
        assert 16 == len(traced.events(RUN, "agui.state.updates_folded"))
        assert {"agui.omitted.state": 8} == traced.some(RUN, "agui.omitted.state")

    def test_overwrites_are_counted(self) -> None:
        """16 are told, with those that one update's own limit left out."""
        many = [("add", f"/p{n}", 1) for n in range(40)]
        traced = trace(
            started(), subagent("a"), subagent("b"), patch(*many, tag="a"), patch(*many, tag="b"), done("a"), done("b"),
            finished(), max_paths=20,
        )  # fmt: skip
        assert 16 == len(overwrites(traced))
        assert {"agui.omitted.overwrites": 24} == traced.some(RUN, "agui.omitted.overwrites")
        assert [20, 20] == [a["agui.state.paths_omitted"] for _, a in traced.events(RUN, "agui.state.delta")]

    def test_nothing_that_matters_is_evicted(self) -> None:
        """With every kind at its limit a span stays below what the SDK keeps, and the exception is there."""
        flood = [
            [patch(("add", f"/p{n}", 1)) for n in range(200)],
            [[custom(f"c{n}") for n in range(100)]],
            [{"type": "STEP_STARTED", "stepName": f"s{n}"} for n in range(100)],
            [
                {"type": "ACTIVITY_SNAPSHOT", "messageId": f"a{n}", "activityType": "x", "content": {}}
                for n in range(100)
            ],
            [{"type": "CUSTOM"} for _ in range(100)],
            [{"type": "NEW"} for _ in range(100)],
            [{"type": "MESSAGES_SNAPSHOT", "messages": []} for _ in range(100)],
            text("m", "x"),
        ]
        traced = trace(started(), flood, {"type": "RUN_ERROR", "message": "x"})
        (run,) = (span for span in traced.spans if span.name == RUN)
        names = [event.name for event in run.events]
        assert len(names) <= 128
        assert 0 == run.dropped_events
        assert ["agui.state.updates_folded", "exception"] == [
            n for n in names if n in ("agui.state.updates_folded", "exception")
        ]
        assert {
            "agui.omitted.custom": 84,
            "agui.omitted.notes": 84,
            "agui.omitted.unknown": 92,
            "agui.omitted.snapshots": 100,
            "agui.omitted.steps": 100,
            "agui.omitted.activities": 100,
        } == traced.some(
            RUN,
            *(f"agui.omitted.{kind}" for kind in ("custom", "notes", "unknown", "snapshots", "steps", "activities")),
        )


def test_a_host_may_go_on_with_its_own_state() -> None:
    """A host that sends its live document, and changes it afterwards, is told from one that sends the same again."""
    document: dict[str, Any] = {"plan": {"steps": []}}

    def live() -> Iterator[Any]:
        yield started()
        yield state(document)
        document["plan"]["steps"].append("a")
        yield state(document)
        yield state(document)
        document["plan"]["steps"].append("b")
        yield patch(("add", "/plan/steps/-", "b"))
        yield finished()

    captured = capture()
    list(captured.trace_events(live()))
    (run,) = captured.spans
    assert [("/plan",), ("/plan",), (), ("/plan/steps/1",)] == [
        (event.attributes or {})["agui.state.paths"] for event in run.events
    ]
