"""The middleware on a real server: bytes pass untouched, whatever their framing, and the tree is the recording's."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import brotli
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from agui_otel import TracingMiddleware
from tests.support import golden
from tests.support.recordings import SSE_NAMES, STREAMS
from tests.support.servers import SSE, ask, served, sse, streaming
from tests.support.sources import HALF, INPUT, WHOLE
from tests.support.watched import Watched, values

RECORDED = [name for name in SSE_NAMES if name != "disconnect"]
SMALL = ["approve_2_replay_no_resume", "hidden_nested"]
PROTO = "application/vnd.ag-ui.event+proto"

Split = Callable[[bytes], Sequence[bytes]]


def whole(data: bytes) -> Sequence[bytes]:
    """All at once."""
    return [data]


def bytewise(data: bytes) -> Sequence[bytes]:
    """One byte at a time."""
    return [data[at : at + 1] for at in range(len(data))]


def randomly(data: bytes) -> Sequence[bytes]:
    """In pieces of any size up to 500 bytes."""
    random, at, pieces = Random(len(data)), 0, []
    while at < len(data):
        size = random.randrange(1, 500)
        pieces.append(data[at : at + size])
        at += size
    return pieces


def application(endpoint: Any, watched: Watched, **options: Any) -> Starlette:
    """A Starlette application with one traced endpoint."""
    app = Starlette(routes=[Route("/agent", endpoint, methods=["GET", "POST"])])
    app.add_middleware(TracingMiddleware, **{**watched.keywords, "agent_name": "supervisor", **options})
    return app


@contextmanager
def serving(endpoint: Any, watched: Watched, **options: Any) -> Iterator[int]:
    """Serve a traced endpoint; the port."""
    with served(application(endpoint, watched, **options)) as port:
        yield port


def asked_for(name: str) -> bytes:
    """The request of a recording."""
    return (STREAMS / f"{name}.input.json").read_bytes()


def chain(name: str) -> list[str]:
    """A recording with the earlier runs of its thread before it."""
    earlier = next((runs[: runs.index(name)] for runs in golden.THREADS.values() if name in runs), ())
    return [*earlier, name]


def lineages(tree: str) -> list[str]:
    """Each line of the last tree in a text with the names above it: what does not depend on the order of siblings."""
    lines = tree.splitlines()
    lines = lines[max(index for index, line in enumerate(lines) if not line.startswith(" ")) :]
    above: list[str] = []
    found = []
    for line in lines:
        depth = (len(line) - len(line.lstrip())) // 2
        above[depth:] = [" ".join(line.split()[:2])]
        found.append(" / ".join([*above[:depth], line.strip()]))
    return sorted(found)


def tree_of(watched: Watched) -> list[str]:
    """The last run as its golden file shows it."""
    text = watched.captured.tree(attributes=golden.ATTRIBUTES, event_attributes=golden.EVENT_ATTRIBUTES)
    return lineages(text)


def expected_tree(name: str) -> list[str]:
    """What the golden file of a recording says."""
    return lineages((STREAMS / f"{name}.tree").read_text())


def replay(port: int, names: Iterable[str], bodies: dict[str, bytes]) -> None:
    """Ask for each recording, and check that every byte came."""
    for name in names:
        given = {**json.loads(asked_for(name)), "forwardedProps": {"recording": name}}
        assert bodies[name] == ask(port, given).body


def replaying(bodies: dict[str, bytes], split: Split, **options: Any) -> Any:
    """An endpoint that answers with the recording that the request names."""

    async def endpoint(request: Any) -> Any:
        name = (await request.json())["forwardedProps"]["recording"]
        return await streaming(split(bodies[name]), **options)(request)

    return endpoint


@pytest.mark.parametrize(
    ("name", "split"),
    [*((name, split) for name in RECORDED for split in (whole, randomly)), *((name, bytewise) for name in SMALL)],
)
def test_recordings_pass_and_become_their_trees(watched: Watched, name: str, split: Split) -> None:
    """Whatever way the bytes are split, they come out as they are, and the tree is that of the recording."""
    bodies = {run: (STREAMS / f"{run}.sse").read_bytes() for run in chain(name)}
    with serving(replaying(bodies, split), watched) as port:
        replay(port, chain(name), bodies)
    watched.check()
    assert expected_tree(name) == tree_of(watched)


@pytest.mark.parametrize("name", RECORDED)
def test_a_stream_cut_at_every_byte_is_read_alike(watched: Watched, name: str) -> None:
    """As above, straight through ASGI: a server would take minutes for so many chunks."""
    bodies = {run: (STREAMS / f"{run}.sse").read_bytes() for run in chain(name)}
    for run in chain(name):
        sent = call(application(streaming(bytewise(bodies[run])), watched), json.loads(asked_for(run)))
        assert bytewise(bodies[run]) == [message["body"] for message in sent[1:-1]]
    watched.check()
    assert expected_tree(name) == tree_of(watched)


def call(app: Any, body: Any, *, headers: Sequence[tuple[bytes, bytes]] = ()) -> list[dict[str, Any]]:
    """What an application sends to one request."""
    sent: list[dict[str, Any]] = []
    received = iter([{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}])

    async def receive() -> Any:
        message = next(received, None)
        if message is None:
            await asyncio.Event().wait()
        return message

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "POST",
        "scheme": "http", "path": "/agent", "raw_path": b"/agent", "query_string": b"", "root_path": "",
        "headers": [(b"content-type", b"application/json"), *headers],
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    return sent


def pinged(data: bytes) -> bytes:
    """With comments between events, as servers send them to keep a connection."""
    return b": ping\n\n" + data.replace(b"\n\n", b"\n\n: ping - 2026-01-01 00:00:00\n\n")


def carriage_returns(data: bytes) -> bytes:
    """With lines that end in CR LF."""
    return data.replace(b"\n", b"\r\n")


def bare_returns(data: bytes) -> bytes:
    """With lines that end in CR."""
    return data.replace(b"\n", b"\r")


def adorned(data: bytes) -> bytes:
    """With a byte order mark, and fields beside the data."""
    return b"\xef\xbb\xbfretry: 3000\n\n" + data.replace(b"data: ", b"id: 7\nevent: message\ndata: ")


def in_lines(data: bytes) -> bytes:
    """With each event's data on several lines, cut after commas."""
    return data.replace(b'","', b'",\ndata: "')


@pytest.mark.parametrize("framing", [pinged, carriage_returns, bare_returns, adorned, in_lines])
@pytest.mark.parametrize("split", [whole, randomly])
def test_framings_seen_in_the_wild_are_read_alike(
    watched: Watched, framing: Callable[[bytes], bytes], split: Split
) -> None:
    """Comments, line ends, other fields and multi-line data change no byte and nothing in the tree."""
    bodies = {"nested": framing((STREAMS / "nested.sse").read_bytes())}
    with serving(replaying(bodies, split), watched) as port:
        replay(port, ["nested"], bodies)
    assert expected_tree("nested") == tree_of(watched)


def gzipped(data: bytes) -> bytes:
    """One gzip member for each half."""
    return gzip.compress(data[:5000]) + gzip.compress(data[5000:])


def raw_deflate(data: bytes) -> bytes:
    """Deflate without its header, as some servers send it."""
    made = zlib.compressobj(wbits=-15)
    return made.compress(data) + made.flush()


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [("gzip", gzipped), ("deflate", zlib.compress), ("deflate", raw_deflate), ("br", brotli.compress)],
)
@pytest.mark.parametrize("split", [whole, bytewise, randomly])
def test_compressed_bodies_are_read_and_passed_as_they_are(
    watched: Watched, encoding: str, compress: Callable[[bytes], bytes], split: Split
) -> None:
    """They are decompressed for reading only."""
    bodies = {"nested": compress((STREAMS / "nested.sse").read_bytes())}
    with serving(replaying(bodies, split, headers={"content-encoding": encoding}), watched) as port:
        replay(port, ["nested"], bodies)
    assert expected_tree("nested") == tree_of(watched)


@pytest.mark.parametrize("media", ["application/x-ndjson", "application/jsonl; charset=utf-8"])
def test_json_lines_are_read(watched: Watched, media: str) -> None:
    """One event a line."""
    bodies = {"nested": (STREAMS / "nested.jsonl").read_bytes()}
    with serving(replaying(bodies, randomly, media=media), watched) as port:
        replay(port, ["nested"], bodies)
    assert expected_tree("nested") == tree_of(watched)


PATHS = re.compile(r"agui.state.paths=(\[.*?\])")


def unordered(tree: list[str]) -> list[str]:
    """A tree whose state paths are sorted: protobuf's objects have no order."""
    return [PATHS.sub(lambda found: str(sorted(json.loads(found[1]))), line) for line in tree]


def test_the_binary_transport_is_read(watched: Watched) -> None:
    """Protobuf frames, cut anywhere."""
    bodies = {"nested": (STREAMS / "nested.bin").read_bytes()}
    with serving(replaying(bodies, randomly, media=PROTO), watched) as port:
        replay(port, ["nested"], bodies)
    assert unordered(expected_tree("nested")) == unordered(tree_of(watched))


def test_a_stream_that_no_input_announced_is_recognised(watched: Watched) -> None:
    """By its content type and its first event; its run starts with RUN_STARTED."""
    with serving(streaming([sse(WHOLE)]), watched) as port:
        assert sse(WHOLE) == ask(port, None, method="GET", headers={}).body
        assert sse(WHOLE) == ask(port, b"no JSON").body
    watched.check()
    assert ["success", "success"] == [values(run)["agui.outcome"] for run in watched.runs]
    assert "thread" == values(watched.runs[0])["session.id"]


@pytest.mark.parametrize(
    ("media", "body"),
    [
        (SSE, b'data: {"id": "chatcmpl", "choices": []}\n\ndata: [DONE]\n\n'),
        (SSE, b'data: {"type": "response.created"}\n\n'),
        (SSE, b"data: hello\n\n" * 100),
        (SSE, b""),
        ("application/x-ndjson", b'{"level": "info"}\n'),
        ("application/json", json.dumps(WHOLE).encode()),
        ("text/html", sse(WHOLE)),
    ],
)
def test_other_streams_are_none_of_ours(watched: Watched, media: str, body: bytes) -> None:
    """Without a RunAgentInput they leave no span and no metric."""
    with serving(streaming(randomly(body), media=media), watched) as port:
        assert body == ask(port, {"threadId": "t"}).body
    assert ((), {}) == (watched.captured.spans, watched.captured.metrics())


def test_an_answer_that_is_no_stream_ends_the_run_in_silence(watched: Watched) -> None:
    """A success at the response's start, with agui.stream=none; no metric counts it, and no memory knows it."""

    async def accepted(_: Any) -> Any:
        return JSONResponse({"job": 7}, 202)

    with serving(accepted, watched) as port:
        assert 202 == ask(port).status
    watched.check()
    run = values(watched.run)
    assert ("success", "none", "thread") == (run["agui.outcome"], run["agui.stream"], run["session.id"])
    metrics = watched.captured.metrics()
    assert [] == metrics.get("gen_ai.invoke_agent.duration", [])
    assert {0} == {value for _, value in [*metrics["agui.run.errors"], *metrics["agui.active"]]}


def test_other_events_after_an_input_are_no_stream_of_ours(watched: Watched) -> None:
    """The content type fits, the first event does not: the run ended where the response started."""
    with serving(streaming([b'data: {"jsonrpc": "2.0"}\n\n', sse(WHOLE)]), watched) as port:
        ask(port)
    watched.check()
    assert "none" == values(watched.run)["agui.stream"]
    assert 0 == values(watched.run)["agui.events.count"]


def test_only_chosen_paths_are_observed(watched: Watched) -> None:
    """Exact, or by what they begin with."""
    for paths, count in (["/other"], 0), (["/other", "/agent"], 1), (["/ag*"], 2), ("/agent", 3), ([], 3):
        with serving(streaming([sse(WHOLE)]), watched, paths=paths) as port:
            ask(port)
        assert count == len(watched.runs)


def test_attributes_are_asked_with_the_input(watched: Watched) -> None:
    """They are on every span of the run."""
    with serving(streaming([sse(WHOLE)]), watched, attributes=lambda given: {"tenant": given["runId"]}) as port:
        ask(port)
    assert {"run"} == {values(span)["tenant"] for span in watched.spans}


def test_the_response_may_name_its_trace(watched: Watched) -> None:
    """A `traceresponse` header, exposed to browsers beside what is exposed already; only where it was asked for."""
    exposing = streaming([sse(WHOLE)], headers={"access-control-expose-headers": "x-mine"})
    with serving(exposing, watched) as port:
        assert (None, "x-mine") == (
            (plain := ask(port)).header("traceresponse"),
            plain.header("access-control-expose-headers"),
        )
    with serving(exposing, watched, response_header=True) as port:
        answer = ask(port)
        other = ask(port, None, method="GET", headers={})
    context = watched.runs[1].context
    assert context is not None
    assert f"00-{context.trace_id:032x}-{context.span_id:016x}-01" == answer.header("traceresponse")
    assert "x-mine, traceresponse" == answer.header("access-control-expose-headers")
    assert (None, "x-mine") == (other.header("traceresponse"), other.header("access-control-expose-headers"))


def test_the_headers_are_the_ambient_context(watched: Watched) -> None:
    """A traceparent that came with the request is linked to: nobody knows who exports it."""
    headers = {"content-type": "application/json", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    with serving(streaming([sse(WHOLE)]), watched) as port:
        ask(port, headers=headers)
        ask(port, None, method="GET", headers=headers)
    assert ["a" * 32] * 2 == [f"{run.links[0].context.trace_id:032x}" for run in watched.runs]
    assert [None, None] == [run.parent for run in watched.runs]


def test_half_a_stream_is_unfinished(watched: Watched) -> None:
    """The response ended, the run did not say how."""
    with serving(streaming([sse(HALF)]), watched) as port:
        ask(port)
    watched.check()
    assert "unfinished" == values(watched.run)["agui.outcome"]


def test_the_application_gets_its_body(watched: Watched) -> None:
    """As it was sent, in as many messages, whatever was read ahead."""
    seen: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        del scope
        while not seen or seen[-1].get("more_body"):
            seen.append(await receive())
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    body = [{"type": "http.request", "body": part, "more_body": part != b"}"} for part in (b"", b' {"a":', b"1", b"}")]
    messages = list(body)

    async def receive() -> Any:
        return messages.pop(0)

    async def send(_: Any) -> None:
        return

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"Content-Type", b"application/json")]}
    asyncio.run(TracingMiddleware(app, **watched.keywords)(dict(scope), receive, send))
    assert body == seen


def test_the_input_is_handed_on(watched: Watched) -> None:
    """The endpoint reads the very JSON that was posted."""

    async def echo(request: Any) -> Any:
        return JSONResponse(await request.json())

    with serving(echo, watched) as port:
        assert INPUT == json.loads(ask(port).body)
