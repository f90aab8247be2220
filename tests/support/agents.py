"""smolagents hierarchies with scripted models, and a witness of what really ran.

Nothing here is a mock of smolagents: the agents, tools, executors and threads are its own, only the models are written
down beforehand.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

from smolagents import ChatMessage, CodeAgent, LogLevel, MessageRole, Model, MultiStepAgent, ToolCallingAgent
from smolagents.models import (
    ChatMessageStreamDelta,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    ChatMessageToolCallStreamDelta,
)
from smolagents.monitoring import TokenUsage

Reply = Any
"""What a scripted model answers: a text; calls as `[(name, arguments), ...]`, all with the same native id scheme; an
exception, which it raises; or a function without arguments that gives one of these."""

USED = TokenUsage(input_tokens=10, output_tokens=5)


def code(source: str, thought: str = "I write code.") -> str:
    """A CodeAgent's reply."""
    return f"{thought}\n<code>\n{source}\n</code>"


def answer(text: str) -> list[tuple[str, dict[str, str]]]:
    """A ToolCallingAgent's last reply."""
    return [("final_answer", {"answer": text})]


class Scripted(Model):  # type: ignore[misc]
    """A user's own model class: its replies are written down. `usage`: what each reports; None: nothing."""

    def __init__(self, *replies: Reply, model_id: str = "scripted", usage: TokenUsage | None = USED) -> None:
        super().__init__(model_id=model_id)
        self._replies = iter(replies)
        self._lock = threading.Lock()
        self._usage = usage
        self.witness: Witness | None = None

    def generate(self, _messages: Any, **_: Any) -> ChatMessage:
        """The next reply."""
        text, calls = self._next()
        return ChatMessage(
            role=MessageRole.ASSISTANT,
            content=text,
            tool_calls=[_call(number, *call) for number, call in enumerate(calls)] or None,
            token_usage=self._usage,
        )

    def _next(self) -> tuple[str | None, list[tuple[str, Any]]]:
        with self._lock:
            reply = next(self._replies)
        if callable(reply):
            reply = reply()
        if isinstance(reply, Exception):
            raise reply
        marker = self.witness.mark() if self.witness is not None else None
        if isinstance(reply, list):
            return marker, reply
        return (f"{marker} {reply}" if marker is not None else reply), []


class Streaming(Scripted):
    """A scripted model that streams: words of text, then calls, then what it used."""

    def generate_stream(self, _messages: Any, **_: Any) -> Generator[ChatMessageStreamDelta, None, None]:
        """The next reply, in pieces."""
        text, calls = self._next()
        for word in (text or "").splitlines(keepends=True):
            yield ChatMessageStreamDelta(content=word)
        deltas = []
        for index, (name, arguments) in enumerate(calls):
            call = _call(index, name, json.dumps(arguments))
            deltas.append(
                ChatMessageToolCallStreamDelta(index=index, id=call.id, type=call.type, function=call.function)
            )
        yield ChatMessageStreamDelta(content="", tool_calls=deltas or None, token_usage=self._usage)


def _call(number: int, name: str, arguments: Any) -> ChatMessageToolCall:
    function = ChatMessageToolCallFunction(name=name, arguments=arguments)
    return ChatMessageToolCall(id=f"call_{number}", type="function", function=function)


def tool_caller(name: str, *replies: Reply, model: Model | None = None, **keywords: Any) -> ToolCallingAgent:
    """A ToolCallingAgent of this name with these replies."""
    return _agent(ToolCallingAgent, name, model or Scripted(*replies), keywords)


def coder(name: str, *replies: Reply, model: Model | None = None, **keywords: Any) -> CodeAgent:
    """A CodeAgent of this name with these replies."""
    return _agent(CodeAgent, name, model or Scripted(*replies), keywords)


def _agent(kind: Any, name: str, model: Model, keywords: dict[str, Any]) -> Any:
    keywords.setdefault("tools", [])
    return kind(model=model, name=name, description=f"What {name} does.", verbosity_level=LogLevel.OFF, **keywords)


class Ran(NamedTuple):
    """An invocation that really ran: `path` are the numbers of the invocations that it ran in, itself last."""

    agent: str
    task: str
    path: tuple[int, ...]


class Witness:
    """Says which invocation each model call was made in, from threads alone: it knows no context variables.

    Each reply of a watched agent's model begins with a marker, so that a stream can be compared: `markers` says which
    invocation each of them came from. Threads inherit the invocation of whoever gave them work, while `watching`.
    """

    def __init__(self, agent: MultiStepAgent) -> None:
        self.ran: dict[int, Ran] = {}
        self.markers: dict[str, int] = {}
        self._local = threading.local()
        self._numbers = itertools.count(1)
        self._marks = itertools.count(1)
        self._seen: set[int] = set()
        self._watch(agent)

    def _watch(self, agent: Any) -> None:
        if id(agent) in self._seen:
            return
        self._seen.add(id(agent))
        agent.model.witness = self

        def watched(task: str, *args: Any, **kwargs: Any) -> Any:
            number, above = next(self._numbers), self._path()
            path = (*above, number)
            self.ran[number] = Ran(agent.name, task, path)
            with self._in(path):
                found = type(agent).run(agent, task, *args, **kwargs)  # whatever is hooked by then
            return self._each_in(path, found) if kwargs.get("stream") else found

        agent.run = watched
        for managed in agent.managed_agents.values():
            self._watch(managed)
        for held in agent.tools.values():
            if isinstance(getattr(held, "runs", None), MultiStepAgent):
                self._watch(held.runs)

    @contextmanager
    def _in(self, path: tuple[int, ...]) -> Iterator[None]:
        above, self._local.path = self._path(), path
        try:
            yield
        finally:
            self._local.path = above

    def _each_in(self, path: tuple[int, ...], steps: Iterator[Any]) -> Iterator[Any]:
        while True:
            with self._in(path):
                step = next(steps, None)
            if step is None:
                return
            yield step

    def _path(self) -> tuple[int, ...]:
        path: tuple[int, ...] = getattr(self._local, "path", ())
        return path

    def mark(self) -> str:
        """A marker for a model's reply in this thread."""
        marker = f"[{next(self._marks)}]"
        self.markers[marker] = self._path()[-1]
        return marker

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Hand the invocation on to the threads of pools."""
        submit = ThreadPoolExecutor.submit

        def handing_on(pool: Any, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            path = self._path()

            def in_thread(*args: Any, **kwargs: Any) -> Any:
                self._local.path = path
                return work(*args, **kwargs)

            return submit(pool, in_thread, *args, **kwargs)

        ThreadPoolExecutor.submit = handing_on  # type: ignore[method-assign]
        try:
            yield
        finally:
            ThreadPoolExecutor.submit = submit  # type: ignore[method-assign]
