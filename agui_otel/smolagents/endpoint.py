"""A hierarchy of agents as an AG-UI server: an endpoint for Starlette, FastAPI, or any other ASGI framework."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ag_ui.core import RunAgentInput
from ag_ui.encoder import EventEncoder
from pydantic import ValidationError
from smolagents import MultiStepAgent

from agui_otel.smolagents.streaming import arun_agui
from agui_otel.smolagents.values import text_of

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
MakeAgent = Callable[[RunAgentInput], MultiStepAgent]


def agui_endpoint(make_agent: MakeAgent, *, max_body: int = 10 * 1024 * 1024, **run_kwargs: Any) -> Endpoint:
    """An endpoint that answers a POSTed RunAgentInput with the events of a run, as server-sent events.

    `app.add_route("/agent", agui_endpoint(make_agent), methods=["POST"])`. The task is the last user message. When the
    client leaves, the agents are asked to stop (see `run_agui`).

    Args:
        make_agent: makes the agent of one request from its RunAgentInput, in a thread. An agent keeps its memory in
            itself, so two requests should not share one.
        max_body: bytes of a request; a longer one is refused (413).
        run_kwargs: further arguments of `agent.run`.

    Raises:
        TypeError: `make_agent` is an agent.
    """
    if isinstance(make_agent, MultiStepAgent):
        raise TypeError("agui_endpoint needs a function that makes an agent: requests cannot share one agent's memory")
    return Endpoint(make_agent, max_body, run_kwargs)


class Refused(Exception):  # noqa: N818 (it is an answer)
    """The request is answered with an HTTP status instead of a stream."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Endpoint:
    """What `agui_endpoint` returns: an ASGI application."""

    def __init__(self, make_agent: MakeAgent, max_body: int, run_kwargs: dict[str, Any]) -> None:
        self._make_agent = make_agent
        self._max_body = max_body
        self._run_kwargs = run_kwargs

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"an AG-UI endpoint speaks HTTP, not {scope['type']}")
        try:
            given = _read(await self._body(receive))
            task = _task(given)
        except Refused as refused:
            await _answer(send, refused)
            return
        agent = await asyncio.to_thread(self._make_agent, given)
        events = arun_agui(agent, task, thread_id=given.thread_id, run_id=given.run_id, **self._run_kwargs)
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await _stream(events, gone, send)
        except OSError:  # the server says so when the client has left
            return
        finally:
            gone.cancel()
            await events.aclose()

    async def _body(self, receive: Receive) -> bytes:
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Refused(400, "the client left before it had sent its request")
            body += message.get("body", b"")
            if len(body) > self._max_body:
                raise Refused(413, f"the request has more than {self._max_body} bytes")
            if not message.get("more_body"):
                return bytes(body)


def _read(body: bytes) -> RunAgentInput:
    try:
        return RunAgentInput.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        raise Refused(422, f"not a RunAgentInput: at {where}: {first['msg']}") from None


def _task(given: RunAgentInput) -> str:
    asked = [message for message in given.messages if message.role == "user"]
    content: Any = asked[-1].content if asked else None
    task = text_of([part.model_dump() for part in content] if isinstance(content, list) else content)
    if not task:
        raise Refused(422, "the input has no user message with text: there is nothing to do")
    return task


async def _answer(send: Send, refused: Refused) -> None:
    body = json.dumps({"error": str(refused)}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _gone(receive: Receive) -> None:
    """Returns when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _stream(events: Any, gone: asyncio.Future[None], send: Send) -> None:
    encoder = EventEncoder()
    headers = [(b"content-type", encoder.get_content_type().encode()), (b"cache-control", b"no-cache")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    while True:
        pull = asyncio.ensure_future(anext(events))
        try:
            await asyncio.wait({pull, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not pull.done():
                pull.cancel()
                await asyncio.gather(pull, return_exceptions=True)
        if pull.cancelled():
            return
        try:
            event = pull.result()
        except StopAsyncIteration:
            await send({"type": "http.response.body", "body": b""})
            return
        await send({"type": "http.response.body", "body": encoder.encode(event).encode(), "more_body": True})
