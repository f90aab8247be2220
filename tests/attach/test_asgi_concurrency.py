"""Many streams at once on one server: every tree is whole, and none has a span of another's."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from typing import Any

from starlette.responses import StreamingResponse

from tests.attach.test_asgi import application
from tests.support.servers import SSE, served, sse
from tests.support.sources import HALF, INPUT, WHOLE
from tests.support.watched import Watched, trace_id, values

STREAMS = 500


def renamed(events: Any, number: int) -> list[Any]:
    """The events in the thread and the run of this number."""
    ids = {"threadId": f"thread-{number}", "runId": f"run-{number}"}
    return [{**event, **ids} if "runId" in event else event for event in events]


async def ask_all(port: int) -> list[bytes]:
    """Ask for every stream at once; the bodies, as they were sent, chunked."""

    async def ask(number: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        (given,) = renamed([INPUT], number)
        body = json.dumps(given).encode()
        head = f"POST /agent HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        writer.write(head.encode() + b"connection: close\r\n\r\n" + body)
        answer = await reader.read()
        writer.close()
        return answer

    return list(await asyncio.gather(*map(ask, range(STREAMS))))


def test_streams_at_once_are_trees_apart(watched: Watched) -> None:
    """All are open at the same time before any of them goes on."""
    number_open = 0
    all_open: asyncio.Event | None = None

    async def endpoint(request: Any) -> Any:
        number = int((await request.json())["runId"].removeprefix("run-"))

        async def body() -> Any:
            nonlocal number_open, all_open
            all_open = all_open or asyncio.Event()
            yield sse(renamed(HALF, number))
            number_open += 1
            if number_open == STREAMS:
                all_open.set()
            await all_open.wait()
            yield sse(renamed(WHOLE[len(HALF) :], number))

        return StreamingResponse(body(), media_type=SSE)

    with served(application(endpoint, watched), backlog=STREAMS) as port:
        answers = asyncio.run(ask_all(port))
    watched.check()
    for number, answer in enumerate(answers):
        assert b"".join(sse([event]) for event in renamed(HALF, number)) in answer
    trees: dict[int, list[Any]] = defaultdict(list)
    for span in watched.spans:
        trees[trace_id(span)].append(span)
    assert STREAMS == len(trees)
    names = Counter(["invoke_agent supervisor", "invoke_agent scout", "execute_tool search", "message assistant"])
    for spans in trees.values():
        assert names == Counter(span.name for span in spans)
        assert 1 == len({values(span)["session.id"] for span in spans})
    assert STREAMS == len({values(run)["agui.run.id"] for run in watched.runs})
    assert {"success"} == {values(run)["agui.outcome"] for run in watched.runs}
