"""One run of a hierarchy: its invocations, the order of its events, what it used, and whether it is to stop."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from ag_ui.core import PROTOCOL_VERSION
from opentelemetry.context import Context, get_current
from opentelemetry.trace import set_span_in_context
from smolagents.agents import AgentError, AgentGenerationError

from agui_otel.smolagents.frames import Call, Frame
from agui_otel.smolagents.guard import quietly
from agui_otel.smolagents.invocation import INTERRUPTED, Invocation
from agui_otel.smolagents.late import LateSpan
from agui_otel.smolagents.values import answer_of, clean, described_each, shown, text_of
from agui_otel.tracing.forking import renewed
from agui_otel.tracing.session import Session

Event = dict[str, Any]

_running: dict[int, list[Bridge]] = {}
"""Which bridges run an agent object: interrupting it would stop all of them."""
_running_lock = renewed(sys.modules[__name__], "_running_lock", threading.Lock)


class Interrupted(AgentGenerationError):  # type: ignore[misc]  # noqa: N818 (nothing is wrong)
    """Raised where a run that is to stop would begin a step: of its class because that is never retried."""


class Bridge:
    """One run. `sink` gets its events, in wire form, one at a time, from whatever thread they happen in.

    `session`: the tracing session that follows the run's events, where there is one.
    """

    def __init__(
        self,
        sink: Callable[[Event], None],
        agent: Any,
        *,
        thread_id: str,
        run_id: str,
        session: Session | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.thread_id = thread_id
        self.run_id = run_id
        self.session = session
        self.pulled = False
        """Whether the consumer of a stream is waiting for the next event."""
        self.root = Invocation(self, agent, None, None)
        self._sink = sink
        self._open: list[Invocation] = []
        self._usage: dict[tuple[Any, Any], Event] = {}
        self._stopping = False

    def emit(self, event: Event) -> None:
        """Pass an event on, with its time in milliseconds. The lock keeps the order of what several threads say."""
        with self.lock:
            self._sink({**event, "timestamp": time.time_ns() // 1_000_000})

    def begin(self, task: Any, additional_args: Any) -> None:
        """The run starts."""
        self._enter(self.root)
        extra = described_each(additional_args)
        self.root.emit(
            "RUN_STARTED",
            threadId=self.thread_id,
            runId=self.run_id,
            protocolVersion=PROTOCOL_VERSION,
            input=asking(task, self.thread_id, self.run_id),
            metadata={"smolagents": {"additionalArgs": extra}} if extra is not None else None,
        )

    def finish(self, result: Any) -> None:
        """The run's own agent returned `result`, which it also says, for those who read messages."""
        answer = answer_of(result)
        with self.lock:
            self.root.close_rest()
            if answer is not None:
                self.root.say(text_of(answer) or json.dumps(answer, ensure_ascii=False))
            self._end("RUN_FINISHED", threadId=self.thread_id, runId=self.run_id, result=answer)

    def fail(self, error: BaseException) -> None:
        """The run's own agent raised `error`."""
        if is_interruption(error, self.root.agent):
            cancelled = {"type": "cancelled"}
            self._end("RUN_FINISHED", threadId=self.thread_id, runId=self.run_id, outcome=cancelled)
        else:
            self._end("RUN_ERROR", message=shown(error), code=type(error).__name__)

    def _end(self, kind: str, **fields: Any) -> None:
        with self.lock:
            if self.root.is_open:
                self.root.close_rest()
                usage = list(self._usage.values())
                self.root.emit(kind, **fields, **self.root.reached, usage=usage or None)
                self.root.is_open = False
                self.left(self.root)

    def begin_subagent(self, agent: Any, caller: Frame, task: Any, additional_args: Any) -> Invocation | None:
        """An agent is run by another one, or by a tool; None where its caller has ended meanwhile."""
        above, call = caller.invocation, caller.call
        subagent = Invocation(self, agent, str(uuid4()), caller)
        extra = described_each(additional_args)
        metadata: Event = {"input": shown(task)}
        if extra is not None:
            metadata["smolagents"] = {"additionalArgs": extra}
        with self.lock:
            if not above.is_open:
                return None
            self._enter(subagent)
            subagent.emit(
                "SUBAGENT_STARTED",
                name=name_of(agent),
                description=_description(agent),
                parentSubagentRunId=above.id,
                parentToolCallId=call.id if call is not None else None,
                parentMessageId=caller.message_id,
                metadata=metadata,
            )
        return subagent

    def _enter(self, invocation: Invocation) -> None:
        with self.lock:
            self._open.append(invocation)
        with _running_lock:
            _running.setdefault(id(invocation.agent), []).append(self)

    def left(self, invocation: Invocation) -> None:
        """An invocation has ended."""
        self._open.remove(invocation)
        with _running_lock:
            bridges = _running[id(invocation.agent)]
            bridges.remove(self)
            if not bridges:
                del _running[id(invocation.agent)]

    def below(self, invocation: Invocation) -> list[Invocation]:
        """The open invocations that `invocation` called, the latest first."""
        called = (one for one in self._open if one.caller is not None and one.caller.invocation is invocation)
        return list(called)[::-1]

    def add_usage(self, entry: Event) -> None:
        """Count what one model call used."""
        key = entry.get("provider"), entry.get("model")
        total = self._usage.setdefault(key, {**entry, "inputTokens": 0, "outputTokens": 0, "totalTokens": 0})
        for name in ("inputTokens", "outputTokens", "totalTokens"):
            total[name] += entry[name]

    def abandon(self) -> None:
        """The run is over, and nobody listens any more."""
        with self.lock:
            for invocation in list(self._open):
                invocation.is_open = False
                self.left(invocation)

    def stop(self) -> None:
        """Ask all agents at work to stop, which they do where they would begin a step. Never waits."""
        with self.lock:
            self._stopping = True
            agents = [invocation.agent for invocation in self._open]
        for agent in agents:
            with _running_lock:
                ours_alone = all(bridge is self for bridge in _running.get(id(agent), ()))
            if ours_alone:
                quietly(agent.interrupt)

    def check(self, agent: Any) -> None:
        """Raises where a run that is to stop would go on."""
        if self._stopping:
            raise Interrupted(INTERRUPTED, agent.logger)

    def context_of(self, invocation: Invocation, call: Call | None = None) -> Context | None:
        """The current OpenTelemetry context with that call's span, or the invocation's; None where nobody traces."""
        if self.session is None:
            return None
        here = get_current()
        ident = call.id if call is not None else None
        return set_span_in_context(LateSpan(self.session, here, invocation.id, ident, lambda: self.pulled), here)


def asking(task: Any, thread_id: str, run_id: str) -> Event:
    """The RunAgentInput that asks for `task`."""
    message = {"id": str(uuid4()), "role": "user", "content": shown(task)}
    parts: Event = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return {"threadId": thread_id, "runId": run_id, "messages": [message], **parts}


def is_interruption(error: BaseException, agent: Any) -> bool:
    """Whether a run ended with `error` because it was asked to."""
    if isinstance(error, Interrupted):
        return True
    return type(error) is AgentError and str(error) == INTERRUPTED and bool(getattr(agent, "interrupt_switch", False))


def name_of(agent: Any) -> str:
    """The agent's name; an agent without one has its class's."""
    name = getattr(agent, "name", None)
    return clean(name) if isinstance(name, str) and name else type(agent).__name__


def _description(agent: Any) -> str | None:
    found = getattr(agent, "description", None)
    return clean(found) if isinstance(found, str) and found else None
