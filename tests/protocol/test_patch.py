"""JSON Patch, copy-on-write: the RFC's rules, what is shared, and what no document may break."""

from __future__ import annotations

import copy
import time
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonpointer import JsonPointerException

from agui_otel.protocol.patch import (
    ABSENT,
    Change,
    PatchError,
    apply,
    escape,
    json_equal,
    parse_pointer,
    patch,
)

Operation = dict[str, Any]
DEPTH = 50_000
TOKENS = st.sampled_from(["a", "b", "", "~0", "~1", "0", "1", "2", "-"])
NAMES = st.sampled_from(["a", "b", "", "~", "/", "0"])
# Neither booleans, which the oracle takes for numbers, nor strings, into which it follows a path.
SCALARS = st.none() | st.integers(0, 2) | st.just(1.5)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def pointers(document: Any, at: str = "") -> list[str]:
    """The pointer of every place in `document`."""
    inner: list[tuple[str, Any]] = []
    if isinstance(document, dict):
        inner = [(escape(name), value) for name, value in document.items()]
    elif isinstance(document, list):
        inner = [(str(index), value) for index, value in enumerate(document)]
    return [at] + [found for token, value in inner for found in pointers(value, f"{at}/{token}")]


@st.composite
def patches(draw: st.DrawFn) -> tuple[Any, list[Operation]]:
    """A document, and operations on places that it has or nearly has."""
    document = draw(st.lists(VALUES, max_size=3) | st.dictionaries(NAMES, VALUES, max_size=3))
    existing = st.sampled_from(pointers(document))
    places = existing | st.builds(lambda place, token: f"{place}/{token}", existing, TOKENS)
    operation = st.one_of(
        st.fixed_dictionaries({"op": st.sampled_from(["add", "replace", "test"]), "path": places, "value": VALUES}),
        st.fixed_dictionaries({"op": st.just("remove"), "path": places}),
        st.fixed_dictionaries({"op": st.sampled_from(["move", "copy"]), "path": places, "from": places}),
    )
    return document, draw(st.lists(operation, max_size=4))


def outcome(document: Any, operations: Any) -> Any:
    """What `apply` makes of `document`, or ABSENT when it refuses."""
    try:
        return apply(document, operations)
    except PatchError:
        return ABSENT


def nest(depth: int, leaf: Any) -> Any:
    """`leaf` below `depth` objects, each the member ``k`` of the one above."""
    for _ in range(depth):
        leaf = {"k": leaf}
    return leaf


def removes_root(operation: Operation) -> bool:
    """Whether the operation takes the whole document away, which the oracle cannot do."""
    return {"remove": operation["path"], "move": operation.get("from")}.get(operation["op"]) == ""


@given(patches().filter(lambda drawn: not any(map(removes_root, drawn[1]))))
def test_agrees_with_jsonpatch(drawn: tuple[Any, list[Operation]]) -> None:
    """Another implementation of the RFC makes the same document, or refuses as well."""
    document, operations = drawn
    try:
        expected = jsonpatch.apply_patch(document, operations)
    except (jsonpatch.JsonPatchException, JsonPointerException, TypeError, KeyError):
        expected = ABSENT
    assert json_equal(expected, outcome(document, operations))


@given(patches())
def test_changes_neither_document_nor_operations(drawn: tuple[Any, list[Operation]]) -> None:
    """What was passed in is afterwards what it was before, whether the patch could be applied or not."""
    before = copy.deepcopy(drawn)
    outcome(*drawn)
    assert before == drawn


@given(patches(), patches())
def test_a_result_outlives_later_patches(
    first: tuple[Any, list[Operation]], second: tuple[Any, list[Operation]]
) -> None:
    """A document that came out of a patch is an input like any other: patching it changes nothing in it."""
    document = outcome(*first)
    before = copy.deepcopy(document)
    outcome(document, second[1])
    assert json_equal(before, document)


@given(patches())
def test_a_patch_is_its_operations_one_by_one(drawn: tuple[Any, list[Operation]]) -> None:
    """One patch makes the document and reports the places that its operations do as patches of their own."""
    document, operations = drawn
    expected, changes = document, []
    try:
        for operation in operations:
            expected, written = patch(expected, [operation])
            changes.extend(written)
    except PatchError:
        assert ABSENT is outcome(document, operations)
        return
    result = patch(document, operations)
    assert json_equal(expected, result.document)
    assert [change[:3] for change in changes] == [change[:3] for change in result.changes]


@given(patches())
def test_changes_name_their_places(drawn: tuple[Any, list[Operation]]) -> None:
    """A change's pointer and its steps name the same place, and what was there before it is right."""
    document, operations = drawn
    for operation in operations:
        try:
            result, changes = patch(document, [operation])
        except PatchError:
            return
        for change in changes:
            assert "".join(f"/{escape(str(key))}" for key in change.keys) == change.pointer
        if len(changes) == 1 and changes[0].kind == "set" and changes[0].before is not ABSENT:
            test = {"op": "test", "path": changes[0].pointer, "value": changes[0].before}
            assert apply(document, [test]) is document
        document = result


def test_copies_the_path_only() -> None:
    """Containers on the way to a written place are new, everything beside them is the very same object."""
    document: dict[str, Any] = {"a": {"b": {"c": 1}, "beside": {"x": []}}, "list": [{"y": 1}]}
    value: dict[str, Any] = {"new": []}
    result = apply(document, [{"op": "replace", "path": "/a/b/c", "value": value}])
    assert result["a"]["b"]["c"] is value
    assert result["a"]["beside"] is document["a"]["beside"]
    assert result["list"] is document["list"]
    assert result["a"] is not document["a"]
    assert document == {"a": {"b": {"c": 1}, "beside": {"x": []}}, "list": [{"y": 1}]}


def test_a_long_patch_copies_once() -> None:
    """A thousand operations on one large array copy it once, not a thousand times."""
    document = {"list": [0] * 200_000}
    operations = [{"op": "add", "path": "/list/-", "value": 1}] * 1000

    def seconds(runs: list[list[Operation]]) -> float:
        start, result = time.process_time(), document
        for run in runs:
            result = apply(result, run)
        assert len(result["list"]) == 201_000
        return time.process_time() - start

    assert seconds([operations]) * 5 < seconds([[operation] for operation in operations])


def test_a_value_used_twice_stays_two_values() -> None:
    """Operations that write into an inserted or copied value leave the other uses of that value alone."""
    value: dict[str, Any] = {}
    operations = [
        {"op": "add", "path": "/x", "value": value},
        {"op": "add", "path": "/y", "value": value},
        {"op": "add", "path": "/x/k", "value": 1},
        {"op": "copy", "from": "/x", "path": "/z"},
        {"op": "add", "path": "/x/k2", "value": 2},
        {"op": "add", "path": "/z/k3", "value": 3},
    ]
    assert apply({}, operations) == {"x": {"k": 1, "k2": 2}, "y": {}, "z": {"k": 1, "k3": 3}}
    assert value == {}


@pytest.mark.parametrize(
    ("document", "operation", "expected"),
    [
        ({"a": [1]}, {"op": "add", "path": "/a/-", "value": 2}, {"a": [1, 2]}),
        ({"a": [1]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2]}),
        ({"a": [1]}, {"op": "add", "path": "/a/0", "value": 2}, {"a": [2, 1]}),
        ({"a": (1, 2)}, {"op": "replace", "path": "/a/1", "value": 3}, {"a": [1, 3]}),
        ({"-": 1}, {"op": "replace", "path": "/-", "value": 2}, {"-": 2}),
        ({"01": 1}, {"op": "replace", "path": "/01", "value": 2}, {"01": 2}),
        ({"": 1}, {"op": "replace", "path": "/", "value": 2}, {"": 2}),
        ({"~1": 1, "a/b": 1}, {"op": "remove", "path": "/~01"}, {"a/b": 1}),
        ({"~1": 1, "a/b": 1}, {"op": "remove", "path": "/a~1b"}, {"~1": 1}),
        ({"x": None}, {"op": "replace", "path": "/x", "value": 1}, {"x": 1}),
        ({"x": None}, {"op": "move", "from": "/x", "path": "/y"}, {"y": None}),
        ({"x": 1}, {"op": "add", "path": "", "value": [2]}, [2]),
        (None, {"op": "replace", "path": "", "value": {}}, {}),
        ({"x": 1}, {"op": "remove", "path": ""}, None),
        ({"x": {"y": 1}}, {"op": "move", "from": "/x", "path": ""}, {"y": 1}),
        ({"x": {"y": 1}}, {"op": "move", "from": "/x/y", "path": "/x"}, {"x": 1}),
        ({"x": {"y": 1}}, {"op": "move", "from": "/x", "path": "/x"}, {"x": {"y": 1}}),
        ({"x": 1}, {"op": "move", "from": "", "path": ""}, {"x": 1}),
        ({"x": 1, "xy": 2}, {"op": "move", "from": "/x", "path": "/xy"}, {"xy": 1}),
        ([1, 2, 3], {"op": "move", "from": "/0", "path": "/2"}, [2, 3, 1]),
        ([1, {}, {}], {"op": "move", "from": "/0", "path": "/1/x"}, [{}, {"x": 1}]),
        ({"x": {"y": 1}}, {"op": "copy", "from": "", "path": "/x/z"}, {"x": {"y": 1, "z": {"x": {"y": 1}}}}),
        ({"x": 1.0}, {"op": "test", "path": "/x", "value": 1}, {"x": 1.0}),
        ({"x": 1, "y": 2}, {"op": "test", "path": "", "value": {"y": 2, "x": 1}}, {"x": 1, "y": 2}),
        ({}, {"op": "add", "path": "/x", "value": None, "note": "ignored"}, {"x": None}),
    ],
)
def test_applies(document: Any, operation: Operation, expected: Any) -> None:
    """The corners of the RFC, and of the reference client where it is silent."""
    assert json_equal(expected, apply(document, [operation]))


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        ({"op": "replace", "path": "/none", "value": 1}, "there is no such value"),
        ({"op": "remove", "path": "/none"}, "there is no such value"),
        ({"op": "add", "path": "/none/x", "value": 1}, "there is no such value"),
        ({"op": "test", "path": "/none", "value": None}, "there is no such value"),
        ({"op": "copy", "from": "/none", "path": "/x"}, "there is no such value"),
        ({"op": "replace", "path": "/with/slash", "value": 1}, "there is no such value"),
        (
            {"op": "add", "path": "/null/x", "value": 1},
            "the path leads into a value that is no object and no array",
        ),
        (
            {"op": "add", "path": "/text/0", "value": 1},
            "the path leads into a value that is no object and no array",
        ),
        (
            {"op": "test", "path": "/text/0", "value": 1},
            "the path leads into a value that is no object and no array",
        ),
        ({"op": "add", "path": "/list/3", "value": 1}, "the index is out of bounds"),
        ({"op": "copy", "from": "/text", "path": "/list/3"}, "the index is out of bounds"),
        ({"op": "move", "from": "/list/0", "path": "/list/2"}, "the index is out of bounds"),
        ({"op": "replace", "path": "/list/2", "value": 1}, "the index is out of bounds"),
        ({"op": "remove", "path": "/list/" + "9" * 5000}, "the index is out of bounds"),
        ({"op": "remove", "path": "/list/-"}, "`-` names the element after the last, which is not there"),
        (
            {"op": "add", "path": "/list/-/x", "value": 1},
            "`-` names the element after the last, which is not there",
        ),
        ({"op": "add", "path": "/list/01", "value": 1}, "an array's index is digits, without leading zeros"),
        ({"op": "add", "path": "/list/-1", "value": 1}, "an array's index is digits, without leading zeros"),
        ({"op": "add", "path": "/list/", "value": 1}, "an array's index is digits, without leading zeros"),
        ({"op": "add", "path": "/list/1e0", "value": 1}, "an array's index is digits, without leading zeros"),
        (
            {"op": "add", "path": "/list/\N{ARABIC-INDIC DIGIT ONE}", "value": 1},
            "an array's index is digits, without leading zeros",
        ),
        ({"op": "test", "path": "/one", "value": True}, "the test failed"),
        ({"op": "test", "path": "/list", "value": {}}, "the test failed"),
        ({"op": "move", "from": "/list", "path": "/list/0"}, "a value cannot be moved into itself"),
        ({"op": "move", "from": "", "path": "/x"}, "a value cannot be moved into itself"),
        ({"op": "add", "path": "x", "value": 1}, "a JSON Pointer is empty or starts with a slash"),
        ({"op": "copy", "from": "one", "path": "/x"}, "a JSON Pointer is empty or starts with a slash"),
        ({"op": "add", "path": "/~2", "value": 1}, "in a JSON Pointer a tilde is followed by 0 or 1"),
        ({"op": "add", "path": "/x~", "value": 1}, "in a JSON Pointer a tilde is followed by 0 or 1"),
        ({"op": "add", "path": 3, "value": 1}, "`path` is not a string"),
        ({"op": "add", "value": 1}, "`path` is not a string"),
        ({"op": "move", "from": 3, "path": "/x"}, "`from` is not a string"),
        ({"op": "copy", "path": "/x"}, "`from` is missing"),
        ({"op": "add", "path": "/x"}, "`value` is missing"),
        ({"op": "replace", "path": "/one"}, "`value` is missing"),
        ({"op": "test", "path": "/one"}, "`value` is missing"),
        ({"op": "put", "path": "/x"}, "`op` is none of add, remove, replace, move, copy, test"),
        ({"op": ["add"], "path": "/x"}, "`op` is none of add, remove, replace, move, copy, test"),
        ("add", "the operation is not an object"),
        ([], "the operation is not an object"),
        (None, "the operation is not an object"),
    ],
)
def test_refuses(operation: object, reason: str) -> None:
    """What cannot be applied is an error that says why, and never quotes the document."""
    document: Any = {"null": None, "text": "text", "one": 1, "list": [{}, {}], "with/slash": 1}
    with pytest.raises(PatchError) as caught:
        apply(document, [{"op": "test", "path": "", "value": document}, operation])
    assert (1, reason) == (caught.value.index, caught.value.reason)


@pytest.mark.parametrize("operations", [None, {}, "[]", 3, {"op": "add", "path": "/x", "value": 1}])
def test_refuses_what_is_no_list(operations: object) -> None:
    """Operations that are no list are an error of the patch, not of one operation."""
    with pytest.raises(PatchError, match="patch: the operations are not a list") as caught:
        apply({}, operations)
    assert (caught.value.index, caught.value.path) == (None, None)


def test_an_error_names_the_pointer() -> None:
    """An error names the operation and the pointer that could not be followed: of a copy, the source."""
    with pytest.raises(PatchError, match=r"operation 0: there is no such value \(at '/b'\)") as caught:
        apply({"a": 1}, [{"op": "copy", "from": "/b", "path": "/a"}])
    assert caught.value.path == "/b"


def test_all_or_nothing() -> None:
    """When a later operation fails, the document is as it was before the first."""
    document = {"x": [1]}
    operations = [{"op": "add", "path": "/x/-", "value": 2}, {"op": "remove", "path": "/none"}]
    assert ABSENT is outcome(document, operations)
    assert document == {"x": [1]}


def test_changes() -> None:
    """Each written place is reported with its real index, its steps and what was there."""
    operations = [
        {"op": "add", "path": "/a~1b/-", "value": 3},
        {"op": "test", "path": "/a~1b/1", "value": 3},
        {"op": "replace", "path": "/a~1b/0", "value": 4},
        {"op": "move", "from": "/a~1b/1", "path": "/c"},
        {"op": "copy", "from": "/c", "path": "/d"},
        {"op": "move", "from": "/d", "path": "/d"},
        {"op": "remove", "path": ""},
    ]
    document = {"a/b": [1], "c": 2}
    _, changes = patch(document, operations)
    assert changes == [
        Change("insert", "/a~1b/1", ("a/b", 1), ABSENT),
        Change("set", "/a~1b/0", ("a/b", 0), 1),
        Change("remove", "/a~1b/1", ("a/b", 1), ABSENT),
        Change("set", "/c", ("c",), 2),
        Change("set", "/d", ("d",), ABSENT),
        Change("set", "/d", ("d",), 3),
        Change("set", "", (), {"a/b": [4], "c": 3, "d": 3}),
    ]


@given(st.lists(st.text(alphabet="ab~/01-")))
def test_pointers_survive_escaping(tokens: list[str]) -> None:
    """The pointer made of escaped tokens has those tokens."""
    assert tokens == parse_pointer("".join(f"/{escape(token)}" for token in tokens))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, 1.0, True),
        (0, -0.0, True),
        (1, True, False),
        (0, False, False),
        ([1], [True], False),
        ({"a": 0}, {"a": False}, False),
        (None, False, False),
        ("1", 1, False),
        ([], {}, False),
        ([], None, False),
        ({}, None, False),
        (None, {}, False),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ((1, [2]), [1, (2,)], True),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        ({"a": 1}, {"b": 1}, False),
        ({"a": None}, {"b": None}, False),
        (float("nan"), float("nan"), True),
        ([float("nan")], [float("nan")], True),
        (10**400, 10**400 + 1, False),
        (10**400, 1e300, False),
        ({1}, {1}, True),
    ],
)
def test_json_equal(left: Any, right: Any, expected: bool) -> None:
    """Equality is JSON's, in both directions."""
    assert (expected, expected) == (json_equal(left, right), json_equal(right, left))


@given(VALUES | st.booleans(), VALUES | st.booleans())
def test_json_equal_is_what_python_finds_equal(left: Any, right: Any) -> None:
    """Where no boolean stands beside a number, the equality is Python's."""
    confusing = isinstance(left, bool) or isinstance(right, bool)
    assert (left is right if confusing else left == right) == json_equal(left, right)


def test_foreign_objects_are_values() -> None:
    """An object that cannot be compared or hashed can be put, moved and tested for, without a crash."""

    class Hostile:
        __hash__ = None  # type: ignore[assignment]

        def __eq__(self, other: object) -> bool:
            raise RuntimeError

    first, second = Hostile(), Hostile()
    result = apply({}, [{"op": "add", "path": "/x", "value": first}, {"op": "move", "from": "/x", "path": "/y"}])
    assert result["y"] is first
    assert apply(result, [{"op": "test", "path": "/y", "value": first}]) is result
    assert ABSENT is outcome(result, [{"op": "test", "path": "/y", "value": second}])
    assert ABSENT is outcome(result, [{"op": "add", "path": "/y/z", "value": 1}])


def test_cyclic_values_compare() -> None:
    """Python values that contain themselves come to an end, too."""

    def cycle(leaf: int) -> list[Any]:
        inner: list[Any] = [leaf]
        inner.append({"again": inner})
        return inner

    assert json_equal(cycle(1), cycle(1))
    assert not json_equal(cycle(1), cycle(2))


def test_deep_documents() -> None:
    """A document deeper than the interpreter's stack is patched, tested, compared and freed."""
    path = "/k" * DEPTH
    document = nest(DEPTH, 1)
    result = apply(document, [{"op": "replace", "path": path, "value": 2}])
    assert json_equal(result, nest(DEPTH, 2))
    assert not json_equal(result, document)
    assert apply(result, [{"op": "test", "path": "", "value": nest(DEPTH, 2)}]) is result
    assert ABSENT is outcome(result, [{"op": "add", "path": f"{path}/x", "value": 1}])


def test_documents_of_shared_parts() -> None:
    """A document copied into itself again and again is of endless size on paper, and still compares."""

    def doubled(leaf: int) -> Any:
        operations = [{"op": "copy", "from": "", "path": "/a"}, {"op": "copy", "from": "/a", "path": "/b"}]
        return apply({"leaf": leaf}, operations * 100)

    assert json_equal(doubled(1), doubled(1))
    assert not json_equal(doubled(1), doubled(2))
