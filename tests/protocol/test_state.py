"""The state ledger: what an update wrote, whom it wrote over, and who last wrote each place."""

from __future__ import annotations

import copy
import tracemalloc
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agui_otel.protocol.patch import ABSENT, Change, PatchError, escape, json_equal, patch
from agui_otel.protocol.state import Blame, Overwrite, StateLedger, StateWrite
from tests.protocol.test_patch import Operation, nest, patches


class Agent:
    """A writer that only its identity tells from another: all are equal, and false."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Agent)

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return self.name


A, B, C = Agent("A"), Agent("B"), Agent("C")


def ledger(initial: Any = ABSENT, **options: Any) -> StateLedger:
    """A ledger for which every write over another's is an overwrite."""
    return StateLedger(initial, **{"conflicts": lambda _previous, _writer: True, **options})


def add(path: str, value: Any = 0) -> Operation:
    """An RFC 6902 operation that puts `value` at `path`."""
    return {"op": "add", "path": path, "value": value}


def remove(path: str) -> Operation:
    """An RFC 6902 operation that takes away what is at `path`."""
    return {"op": "remove", "path": path}


def move(source: str, path: str) -> Operation:
    """An RFC 6902 operation that moves what is at `source` to `path`."""
    return {"op": "move", "from": source, "path": path}


def clashes(write: StateWrite) -> list[tuple[str, str]]:
    """The overwrites of an update: path and name of the previous writer."""
    return [(overwrite.path, repr(overwrite.previous)) for overwrite in write.overwrites]


def writers(state: StateLedger) -> dict[str, str]:
    """The name of each place's last writer, by pointer."""
    return {blame.pointer: repr(blame.writer) for blame in state.blame()}


def test_an_update_tells_what_it_wrote() -> None:
    """Updates are numbered, and name their operations and paths."""
    state = ledger({"n": 0})
    assert StateWrite(1, 2, ["/n", "/m"], 0, []) == state.delta([add("/n", 1), add("/m", 2)], A, 10)
    assert StateWrite(2, 0, ["/k", "/m"], 0, []) == state.snapshot({"n": 1, "k": 3}, A, 20)
    assert StateWrite(3, 0, [], 0, []) == state.delta([], A, 30)
    assert {"n": 1, "k": 3} == state.document


@pytest.mark.parametrize(
    ("operations", "paths"),
    [
        ([add("/list/-"), add("/list/-")], ["/list/2", "/list/3"]),
        ([add("/list/0"), add("/list/0")], ["/list/0"]),
        ([{"op": "test", "path": "/n", "value": 0}], []),
        ([move("/n", "/m")], ["/n", "/m"]),
        ([move("/list/0", "/list/-")], ["/list/0", "/list/1"]),
        ([move("/n", "/n")], ["/n"]),
        ([{"op": "copy", "from": "/n", "path": "/m"}], ["/m"]),
        ([{"op": "replace", "path": "/n", "value": 0}], ["/n"]),
        ([add("/a~1b"), remove("/n"), add("/n"), add("/a~1b")], ["/a~1b", "/n"]),
        ([add("", [])], [""]),
    ],
)
def test_paths_of_a_delta(operations: list[Operation], paths: list[str]) -> None:
    """Paths are distinct, in order; `-` is the index it made, `test` writes nothing, a no-op is a write."""
    assert paths == ledger({"n": 0, "list": [1, 2]}).delta(operations, A, 1).paths


@pytest.mark.parametrize(
    ("before", "after", "paths"),
    [
        ({"a": 1, "b": 2, "c": 3}, {"d": 4, "c": 5, "a": 1}, ["/d", "/c", "/b"]),
        ({"a": {"x": [1, 1.0]}}, {"a": {"x": [1.0, 1]}}, []),
        ({"a": 1}, {"a": True}, ["/a"]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, ["/a"]),
        ({}, {"a/b": 1, "": None}, ["/a~1b", "/"]),
        (ABSENT, {"a": 1}, ["/a"]),
        ({"a": 1}, {}, ["/a"]),
        ({"a": 1}, None, [""]),
        ([1], {"a": 1}, [""]),
        ([1], [1], []),
        (None, None, []),
        (1, True, [""]),
    ],
)
def test_paths_of_a_snapshot(before: Any, after: Any, paths: list[str]) -> None:
    """A snapshot's paths are the top-level members it adds or changes, then those it removes; or the root."""
    state = ledger(before)
    assert paths == state.snapshot(after, A, 1).paths
    assert json_equal(after, state.document)


def test_a_snapshot_leaves_unchanged_members_to_their_writers() -> None:
    """Only what a snapshot changes is written by who sent it."""
    state = ledger({"start": 0})
    state.delta([add("/a", {}), add("/a/x", 1), add("/b", 2)], A, 1)
    assert [("/b", "A")] == clashes(state.snapshot({"start": 0, "a": {"x": 1}, "b": 3}, B, 2))
    assert {"/start": "None", "/a": "A", "/a/x": "A", "/b": "B"} == writers(state)


def test_a_snapshot_object_may_change_afterwards() -> None:
    """What the host does later to the object that it sent changes no member's presence and no marked place."""
    state, own = ledger({"a": {"list": [1]}}), {"a": {"list": [1]}, "b": 2}
    state.delta([add("/a/list/0", 0), remove("/a/list/1")], A, 1)
    own["a"] = {"list": [0]}
    state.snapshot(own, B, 2)
    own["a"]["list"].clear()  # type: ignore[index]
    del own["b"]
    assert {"a": {"list": [0]}, "b": 2} == state.document
    assert {"/a": "None", "/a/list/0": "A", "/b": "B"} == writers(state)


@pytest.mark.parametrize(
    ("operations", "problem", "paths"),
    [
        (
            [add("/n", 1), remove("/none"), add("/m/-")],
            "operation 1: there is no such value",
            ["/n", "/none", "/m/-"],
        ),
        ([move("/none", "/n")], "operation 0: there is no such value", ["/none", "/n"]),
        (
            [{"op": "test", "path": "/n", "value": 1}, add("/n", 1)],
            "operation 0: the test failed",
            ["/n"],
        ),
        (
            [{"op": "copy", "from": "/none", "path": "/m"}],
            "operation 0: there is no such value",
            ["/m"],
        ),
        ([3, add("/n")], "operation 0: the operation is not an object", ["/n"]),
        (
            [{"op": "put", "path": "/n"}, {"op": ["add"], "path": "/n"}],
            "operation 0: `op` is none of add, remove, replace, move, copy, test",
            [],
        ),
        ([add("n"), add("/~2")], "operation 0: a JSON Pointer is empty or starts with a slash", []),
        ([{"op": "remove", "path": 3}], "operation 0: `path` is not a string", []),
        ({"op": "add"}, "the operations are not a list", []),
        (None, "the operations are not a list", []),
    ],
)
def test_a_patch_that_cannot_be_applied(operations: Any, problem: str, paths: list[str]) -> None:
    """It is a problem with the paths it names; document and writers stay, the number goes on."""
    state = ledger({"n": 0})
    state.delta([add("/n", 0)], A, 1)
    document = state.document
    op_count = len(operations) if isinstance(operations, list) else 0
    assert StateWrite(2, op_count, paths, 0, [], problem) == state.delta(operations, B, 2)
    assert state.document is document
    assert {"/n": "A"} == writers(state)
    assert 3 == state.snapshot({}, A, 3).seq


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([add("/x")], [add("/x")], [("/x", "A")]),
        ([add("/x")], [add("/y")], []),
        ([add("/x")], [add("/xy")], []),
        ([add("/o", {})], [add("/o/k")], [("/o/k", "A")]),
        ([add("/o/k")], [add("/o", {})], [("/o", "A")]),
        ([add("/o/k")], [add("/o/j")], []),
        ([add("/o/k"), add("/o/j")], [remove("/o")], [("/o", "A")]),
        ([add("/o/k")], [move("/o", "/p")], [("/o", "A")]),
        ([add("/o/k")], [{"op": "copy", "from": "/o", "path": "/p"}], []),
        ([add("/o/k")], [{"op": "test", "path": "/o/k", "value": 0}], []),
        ([add("/o/k")], [move("/x", "/o/k")], [("/o/k", "A")]),
        ([add("/o/k")], [add("", {})], [("", "A")]),
        ([add("", {"o": {}})], [add("/o/k")], [("/o/k", "A")]),
        ([add("/x")], [add("/x"), add("/x")], [("/x", "A")]),
        ([remove("/x")], [add("/x")], [("/x", "A")]),
        ([remove("/x")], [add("/o/x")], []),
        ([remove("/o/k0")], [add("/o", {})], [("/o", "A")]),
        ([move("/x", "/o/x")], [add("/x")], [("/x", "A")]),
        ([add("/list/-")], [add("/list/-")], []),
        ([add("/list/-")], [add("/list/2")], []),
        ([add("/list/-")], [{"op": "replace", "path": "/list/2", "value": 1}], [("/list/2", "A")]),
        ([add("/list/2")], [add("/list/0"), remove("/list/3")], [("/list/3", "A")]),
        ([add("/list/2")], [remove("/list/0"), remove("/list/1")], [("/list/1", "A")]),
        ([add("/list/1/k")], [add("/list/0"), add("/list/1/k")], []),
        ([add("/list/1/k")], [add("/list/0"), add("/list/2/k")], [("/list/2/k", "A")]),
        ([add("/list", [])], [add("/list/-")], [("/list/0", "A")]),
        ([add("/list/0")], [remove("/list")], [("/list", "A")]),
    ],
)
def test_overwrites(first: list[Operation], second: list[Operation], expected: list[tuple[str, str]]) -> None:
    """A write meets the last writer of its place and those below; a new element meets the array's."""
    state = ledger({"x": 0, "o": {"k0": 0}, "list": [{}, {}]})
    assert [] == state.delta(first, A, 1).overwrites
    assert expected == clashes(state.delta(second, B, 2))


def test_the_last_writer_counts() -> None:
    """Who was written over is met no more: neither by a second write there nor by another agent's."""
    state = ledger()
    state.delta([add("/o", {"k": 0})], A, 1)
    assert [("/o/k", "A")] == clashes(state.delta([add("/o/k", 1)], B, 2))
    assert [] == clashes(state.delta([add("/o/k", 2)], B, 3))
    assert [("/o/k", "B")] == clashes(state.delta([add("/o/k", 3)], C, 4))
    assert [("/o", "A"), ("/o", "C")] == clashes(state.delta([add("/o", {})], B, 5))


@pytest.mark.parametrize(
    ("first", "second", "third"),
    [
        ([remove("/o/k")], [add("/o", {})], [add("/o/k")]),
        ([add("/o/k")], [add("/o", {"k": 1})], [add("/o/k")]),
        ([add("/list/0")], [add("/list", [1])], [{"op": "replace", "path": "/list/0", "value": 2}]),
    ],
)
def test_a_write_forgets_what_was_inside(
    first: list[Operation], second: list[Operation], third: list[Operation]
) -> None:
    """Who wrote or removed something inside a place that was then written whole is met no more."""
    state = ledger({"o": {"k": 0}, "list": []})
    state.delta(first, A, 1)
    state.delta(second, B, 2)
    assert [(third[0]["path"], "B")] == clashes(state.delta(third, C, 3))


def test_conflicts_decides() -> None:
    """Only pairs of different writers are asked about, and only those it names are overwrites."""
    asked = []

    def conflicts(previous: Agent, writer: Agent) -> bool:
        asked.append((repr(previous), repr(writer)))
        return previous is A

    state = StateLedger(conflicts=conflicts)
    state.delta([add("/a"), add("/a")], A, 1)
    state.delta([add("/b")], B, 2)
    write = state.delta([add("/a"), add("/b"), add("/b")], C, 3)
    assert [Overwrite("/a", A)] == write.overwrites
    assert [("A", "C"), ("B", "C")] == asked


def test_many_marks_of_one_writer_are_one_question() -> None:
    """A write over a thousand places of one writer is one overwrite, asked about once."""
    asked = []

    def conflicts(previous: Agent, _writer: Agent) -> bool:
        asked.append(previous)
        return True

    state = ledger({"o": {}}, conflicts=conflicts)
    state.delta([add(f"/o/{number}") for number in range(1000)], A, 1)
    assert [("/o", "A")] == clashes(state.delta([remove("/o")], B, 2))
    assert 1 == len(asked)


def test_caps() -> None:
    """Paths and overwrites beyond the limit are counted."""
    state = ledger(max_paths=3)
    first = state.delta([add(f"/{number % 5}") for number in range(10)], A, 1)
    assert (["/0", "/1", "/2"], 2) == (first.paths, first.paths_omitted)
    second = state.snapshot({}, B, 2)
    assert [("/0", "A"), ("/1", "A"), ("/2", "A")] == clashes(second)
    assert (2, 2) == (second.overwrites_omitted, second.paths_omitted)
    failed = state.delta([add(f"/{number}/x") for number in range(5)], B, 3)
    assert (["/0/x", "/1/x", "/2/x"], 2) == (failed.paths, failed.paths_omitted)


def test_blame() -> None:
    """Each written place that is still there, with its last write, in document order; the initial ones, too."""
    state = ledger({"start": 1, "o": {"k": 0, "j": 0}, "list": [1]})
    state.delta([add("/o/k", 1)], A, 10)
    state.delta([add("/o/k", 2), add("/list/0", "first"), add("/gone", 0)], B, 20)
    state.delta([remove("/gone"), add("/new", None)], A, 30)
    document = {"start": 1, "o": {"k": 2, "j": 0}, "list": ["first", 1], "new": None}
    assert [
        Blame("/start", None, 0, None, 1, ABSENT),
        Blame("/o", None, 0, None, document["o"], ABSENT),
        Blame("/o/k", B, 2, 20, 2, 1),
        Blame("/list", None, 0, None, document["list"], ABSENT),
        Blame("/list/0", B, 2, 20, "first", ABSENT),
        Blame("/new", A, 3, 30, None, ABSENT),
    ] == list(state.blame())


def test_blame_of_the_root() -> None:
    """A root that was written whole is blamed as ``""``, and what is in it is nobody else's."""
    state = ledger([1])
    assert [Blame("", None, 0, None, [1], ABSENT)] == list(state.blame())
    state.snapshot({"a": 1}, A, 5)
    state.delta([add("/b", 2)], B, 6)
    assert [
        Blame("", A, 1, 5, {"a": 1, "b": 2}, [1]),
        Blame("/b", B, 2, 6, 2, ABSENT),
    ] == list(state.blame())


def test_blame_without_before() -> None:
    """A ledger that does not keep replaced values blames all the same."""
    state = ledger({"a": 1}, keep_before=False)
    state.delta([add("/a", 2)], A, 5)
    assert [Blame("/a", A, 1, 5, 2, ABSENT)] == list(state.blame())


def test_before_is_as_it_was() -> None:
    """The value that a write replaced does not change with the document."""
    state = ledger({"a": {"k": [1]}, "b": 0})
    state.delta([{"op": "copy", "from": "/a", "path": "/c"}, add("/a", 5), add("/c/k/-", 2)], A, 1)
    before = {blame.pointer: blame.before for blame in state.blame()}
    assert {"k": [1]} == before["/a"]
    assert {"a": 5, "b": 0, "c": {"k": [1, 2]}} == state.document


def test_names_that_are_no_strings() -> None:
    """Members that JSON cannot have are kept and written by nobody."""
    state = ledger({1: 0})
    assert ["/a"] == state.snapshot({2: 0, "a": 1}, A, 1).paths
    assert {2: 0, "a": 1} == state.document
    assert {"/a": "A"} == writers(state)


def test_deep_state() -> None:
    """State deeper than the interpreter's stack is written, met, blamed and freed."""
    path = "/k" * 50_000
    state = ledger(nest(50_000, 0))
    assert [path] == state.delta([add(path, 1)], A, 1).paths
    assert [] == state.snapshot(nest(50_000, 1), B, 2).paths
    assert [("/k", "None"), (path, "A")] == [(blame.pointer, repr(blame.writer)) for blame in state.blame()]
    assert [("/k", "A")] == clashes(state.delta([remove("/k")], B, 3))


@pytest.mark.parametrize(
    ("operations", "updates"),
    [
        pytest.param(lambda number: [add("/n", {"value": [number] * 10})], 100_000, id="the same member"),
        pytest.param(lambda number: [add(f"/{number}"), remove(f"/{number}")], 10_000, id="many that come and go"),
        pytest.param(lambda number: [add("/list/-", number), remove("/list/0")], 10_000, id="a queue"),
        pytest.param(lambda number: [add("/n", {}), add("/n/x", number), remove("/n")], 10_000, id="subtrees"),
        pytest.param(lambda number: [add(f"/{number}/x")], 10_000, id="patches that fail"),
    ],
)
def test_memory_stays_flat(operations: Any, updates: int) -> None:
    """However long a run goes on, the ledger holds on to no more than the document needs."""
    state = ledger({"n": 0, "list": [0]})

    def run(first: int, last: int) -> None:
        for number in range(first, last):
            state.delta(operations(number), A if number % 2 else B, number)

    run(0, 1000)
    tracemalloc.start()
    try:
        run(1000, 2000)
        before, _ = tracemalloc.get_traced_memory()
        run(2000, updates)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000


@dataclass
class PlainLedger:
    """The same rules without a tree: one flat table of writers by steps, searched whole at every write."""

    written: dict[tuple[Any, ...], Agent] = field(default_factory=dict)
    removed: dict[tuple[Any, ...], Agent] = field(default_factory=dict)

    def write(self, change: Change, writer: Agent) -> set[tuple[str, str]]:
        """Record a change; the previous writers it meets that are others, with the path."""
        keys, kind = change.keys, change.kind
        above = [keys[:length] for length in range(len(keys) + (kind != "insert"))]
        met = [self.written[place] for place in above if place in self.written][-1:]
        if kind == "insert":
            self.shift(keys, 1)
        else:
            if keys in self.removed:
                met = [self.removed[keys]]
            for table in (self.written, self.removed):
                met += [table[place] for place in table if place[: len(keys)] == keys and place != keys]
                for place in [place for place in table if place[: len(keys)] == keys]:
                    del table[place]
        if kind != "remove":
            self.written[keys] = writer
        elif isinstance(keys[-1], int):
            self.shift(keys, -1)
        else:
            self.removed[keys] = writer
        return {(change.pointer, previous.name) for previous in met if previous is not writer}

    def shift(self, keys: tuple[Any, ...], by: int) -> None:
        """Move what is known of an array's elements, from the one at `keys` on."""
        end = len(keys) - 1
        for table in (self.written, self.removed):
            moved = {
                (*place[:end], place[end] + by, *place[end + 1 :])
                if place[:end] == keys[:-1] and len(place) > end and place[end] >= keys[-1]
                else place: agent
                for place, agent in table.items()
            }
            table.clear()
            table.update(moved)


PLACES = st.sampled_from(
    [
        "",
        "/o",
        "/o/k",
        "/o/k/x",
        "/o/j",
        *(f"/l{rest}" for rest in ("", "/0", "/1", "/2", "/-", "/0/k", "/1/k", "/1/0", "/1/1", "/1/-")),
    ]
)
VALUES = st.sampled_from([0, {}, [], {"k": {"x": 0}, "j": 0}, [{"k": 0}, [0, 0]], {"o": {"k": {}}, "l": [0]}])
WRITES = st.one_of(
    st.fixed_dictionaries({"op": st.sampled_from(["add", "replace"]), "path": PLACES.filter(bool), "value": VALUES}),
    st.fixed_dictionaries({"op": st.just("remove"), "path": PLACES.filter(bool)}),
    st.fixed_dictionaries({"op": st.sampled_from(["move", "copy"]), "path": PLACES.filter(bool), "from": PLACES}),
    st.fixed_dictionaries({"op": st.just("add"), "path": st.just(""), "value": VALUES}),
)
AGENTS = st.sampled_from([A, B, C])


@settings(max_examples=300)
@given(st.lists(st.tuples(st.lists(WRITES, min_size=1, max_size=2), AGENTS), max_size=25))
def test_agrees_with_a_plain_ledger(turns: list[tuple[list[Operation], Agent]]) -> None:
    """Overwrites and last writers are those of an implementation that looks at everything every time."""
    document: Any = {"o": {"k": {"x": 0}, "j": 0}, "l": [{"k": 0}, [0, 0], 0]}
    state, plain = ledger(document), PlainLedger()
    for turn, (operations, writer) in enumerate(turns):
        expected: set[tuple[str, str]] = set()
        try:
            document, changes = patch(document, operations)
        except PatchError:
            changes = []
        for change in changes:
            expected |= plain.write(change, writer)
        assert expected == set(clashes(state.delta(operations, writer, turn)))
    assert json_equal(document, state.document)
    pointers = {"".join(f"/{escape(str(key))}" for key in keys): keys for keys in plain.written}
    expected_writers = {pointer: plain.written[keys].name for pointer, keys in pointers.items()}
    assert expected_writers == {pointer: name for pointer, name in writers(state).items() if name != "None"}


@given(patches(), st.lists(st.sampled_from([A, B]), min_size=4, max_size=4))
def test_blame_names_places_of_the_document(drawn: tuple[Any, list[Operation]], turns: list[Agent]) -> None:
    """Every blamed pointer is in the document, with the value that blame says; no input is ever changed."""
    document, operations = drawn
    before = copy.deepcopy(drawn)
    state = ledger(document)
    for turn, (operation, writer) in enumerate(zip(operations, turns, strict=False)):
        state.delta([operation], writer, turn)
    for blame in state.blame():
        test = {"op": "test", "path": blame.pointer, "value": blame.value}
        assert patch(state.document, [test]).document is state.document
    assert before == drawn
