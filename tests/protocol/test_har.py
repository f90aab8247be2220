"""HAR files: which of their entries are AG-UI responses, and what is known of them."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_otel.errors import InputError
from agui_otel.protocol.har import Exchange, is_har, read_har
from tests.support import recordings

INPUT = {"threadId": "t", "runId": "r", "messages": []}
SSE = 'data: {"type":"RUN_STARTED","threadId":"t","runId":"r"}\n\n' * 3


def entry(text: Any = SSE, *, mime: str = "text/event-stream; charset=utf-8", post: Any = None, **fields: Any) -> Any:
    """An entry as Chromium writes one, with this response body and, as JSON, this request body."""
    content = {"size": 1, "mimeType": mime, **({} if text is None else {"text": text}), **fields.pop("content", {})}
    request: dict[str, Any] = {"method": "POST", "url": "https://agent.example/run"}
    if post is not None:
        request["postData"] = {"mimeType": "application/json", "text": json.dumps(post)}
    return {
        "startedDateTime": "2026-01-01T00:00:01.500Z",
        "time": 500.0,
        "timings": {"send": 0, "wait": 99, "receive": 400.0},
        "request": request,
        "response": {"status": 200, "content": content},
        **fields,
    }


def archive(*entries: Any) -> bytes:
    """A HAR file."""
    return json.dumps({"log": {"version": "1.2", "entries": list(entries)}}, indent=2).encode()


def exchanges(*entries: Any) -> list[Exchange]:
    """What is found in a HAR file."""
    return read_har(archive(*entries), path="f")


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (b'{"log":', True),
        (b'\xef\xbb\xbf\r\n{\n  "log" : {', True),
        (b"", None),
        (b"\xef\xbb\xbf  ", None),
        (b'{ "lo', None),
        (b'{"log"', None),
        (b'{"logs":', False),
        (b'{"type":"RUN_STARTED"}', False),
        (b"data: {", False),
        (b"\0\0\0\x05\x62", False),
    ],
)
def test_recognised(head: bytes, expected: bool | None) -> None:
    """An object whose first key is `log` is a HAR file."""
    assert expected is is_har(head)


def test_a_response() -> None:
    """The events, the RunAgentInput, and when: from when the response began until it ended, evenly."""
    (found,) = exchanges(entry(post=INPUT))
    assert (
        Exchange("https://agent.example/run", INPUT, SSE.encode(), [100.0, 300.0, 500.0], 1767225601500.0, None)
        == found
    )


def test_binary_and_cut_responses() -> None:
    """A body in base64 is decoded; one that is cut has times for what is whole."""
    binary = (recordings.STREAMS / "single.bin").read_bytes()
    kind: Any = {"mime": "application/vnd.ag-ui.event+proto", "content": {"encoding": "base64"}}
    whole, cut = exchanges(*(entry(b64encode(data).decode(), **kind) for data in (binary, binary[:-1])))
    assert binary == whole.body
    assert binary[:-1] == cut.body
    count = len(recordings.events("single"))
    assert (count, count - 1) == (len(whole.times or ()), len(cut.times or ()))


def test_other_entries_are_passed_over() -> None:
    """Pages, other streams and other posts are none; the order stays."""
    found = exchanges(
        entry("<html>", mime="text/html"),
        entry("data: hello\n\n"),
        entry(post={"threadId": "t"}, mime="application/json", text="{}"),
        entry(post=INPUT, time=1),
        {},
        None,
        entry(mime="application/x-ndjson", text='{"type":"RUN_ERROR","message":"m"}'),
    )
    assert [SSE.encode(), b'{"type":"RUN_ERROR","message":"m"}'] == [each.body for each in found]


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (entry(post=INPUT, response={"status": 500, "content": {"text": "oops"}}), "the server answered 500"),
        (entry(None, post=INPUT), "the file has no body of this response"),
        (entry(post=INPUT, response={"status": 0}), "the request failed"),
        (entry(post=INPUT, text="!", content={"encoding": "base64"}), "the file has no body of this response"),
        (entry("<html>", mime="text/html", post=INPUT), None),
    ],
)
def test_runs_without_events(response: Any, problem: str | None) -> None:
    """A RunAgentInput without events in the answer is a recording that says why, or whose body will."""
    (found,) = exchanges(response)
    assert (problem, None, INPUT) == (found.problem, found.times, found.given)


@pytest.mark.parametrize(
    ("fields", "times", "began"),
    [
        ({"time": 50.0, "timings": {"receive": 80.0}}, [0.0, 25.0, 50.0], 1767225601500.0),
        ({"time": 50.0, "timings": {"receive": -1}}, [50.0, 50.0, 50.0], 1767225601500.0),
        ({"time": -1}, [0.0, 0.0, 0.0], 1767225601500.0),
        ({"timings": {}}, None, 1767225601500.0),
        ({"time": "x"}, None, 1767225601500.0),
        ({"time": 10**400}, None, 1767225601500.0),
        ({"time": float("nan")}, None, 1767225601500.0),
        ({"startedDateTime": "0001-01-01T00:00:00+23:00"}, [100.0, 300.0, 500.0], None),
        ({"startedDateTime": "2026-01-01T01:00:01.500+01:00"}, [100.0, 300.0, 500.0], 1767225601500.0),
        ({"startedDateTime": "yesterday"}, [100.0, 300.0, 500.0], None),
    ],
)
def test_odd_times(fields: Any, times: list[float] | None, began: float | None) -> None:
    """Times that contradict each other are bounded, those that are none are left out."""
    (found,) = exchanges(entry(**fields))
    assert (times, began) == (found.times, found.began)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"log": {\n', "f:2: not a HAR file: not JSON: Expecting property name enclosed in double quotes"),
        (b'{"log": "\xff"}', "f: not a HAR file: not UTF-8"),
        (b'{"log": ' + b"[" * 100_000, "f: not a HAR file: nested too deeply"),
        (b'{"log": {"entries": {}}}', "f: not a HAR file: no log.entries"),
        (b'{"log": 1}', "f: not a HAR file: no log.entries"),
        (archive(), "f: no AG-UI response in it (0 entries)"),
        (archive(entry("<html>", mime="text/html")), "f: no AG-UI response in it (1 entries)"),
    ],
)
def test_wrong_files(data: bytes, message: str) -> None:
    """Each kind of wrong file has its sentence."""
    with pytest.raises(InputError) as caught:
        read_har(data, path="f")
    assert message == str(caught.value)


_KEYS = ("request", "response", "content", "text", "encoding", "mimeType", "postData", "status", "time", "timings")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from((SSE, "base64")),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(_KEYS), inner),
        max_leaves=20,
    )
)
def test_any_entry(odd: Any) -> None:
    """Whatever stands in an entry, the others are read."""
    assert 1 <= len(exchanges(odd, entry(), {**entry(), "response": odd}))
