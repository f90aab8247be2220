"""One invocation of an agent: what it has open, and the events that say so.

Every method may be called from any thread of the invocation; once it has ended, all of them say nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from agui_otel.smolagents.frames import Call, Frame
from agui_otel.smolagents.values import answer_of, arguments_text, clean, failure_text, shown

if TYPE_CHECKING:
    from agui_otel.smolagents.bridge import Bridge
    from agui_otel.smolagents.steps import Step

INTERRUPTED = "Agent interrupted."
"""smolagents' own words for it."""


class Invocation:
    """One run of `agent`. ``id`` is its subagentRunId; None: the run's own agent. ``caller``: where it was called."""

    def __init__(self, bridge: Bridge, agent: Any, ident: str | None, caller: Frame | None) -> None:
        self.bridge = bridge
        self.agent = agent
        self.id = ident
        self.caller = caller
        self.is_open = True
        self.max_steps = False
        self.awaited = ident is None
        self._tag: dict[str, Any] = {} if ident is None else {"subagentRunId": ident}
        self._message: str | None = None
        self._said: str | None = None
        self._last: list[str] = []
        self._calls: dict[str, Call] = {}
        self._steps: set[str] = set()
        self.steps: list[Step] = []

    @property
    def message_id(self) -> str | None:
        """The message of the current step, open or not; None where the model said nothing."""
        return self._said

    @property
    def reached(self) -> dict[str, Any]:
        """What the end of the invocation says beside its result."""
        return {"metadata": {"smolagents": {"state": "max_steps_error"}}} if self.max_steps else {}

    def emit(self, kind: str, **fields: Any) -> None:
        """Say an event of this invocation. Absent fields are None."""
        if self.is_open:
            given = {key: value for key, value in fields.items() if value is not None}
            self.bridge.emit({"type": kind, **given, **self._tag})

    def begin_step(self, name: str) -> str:
        """Begin a step; returns its key. A name that is open gets a number."""
        with self.bridge.lock:
            told, number = name, 2
            while told in self._steps:
                told, number = f"{name} ({number})", number + 1
            self._steps.add(told)
            self._said = None
            self.emit("STEP_STARTED", stepName=told)
            return told

    def end_step(self, name: str, usage: dict[str, Any] | None, error: BaseException | None) -> None:
        """End a step, with what it used and how it failed. A second time is nothing."""
        with self.bridge.lock:
            if name not in self._steps:
                return
            self._steps.remove(name)
            metadata: dict[str, Any] = {}
            if usage is not None:
                metadata["usage"] = [usage]
                self.bridge.add_usage(usage)
            if error is not None:
                metadata["smolagents"] = {"error": {"type": type(error).__name__, "message": shown(error)}}
            self.emit("STEP_FINISHED", stepName=name, metadata=metadata or None)

    def say(self, text: str) -> None:
        """A whole message, unless the last one said just that."""
        with self.bridge.lock:
            if text.strip() != "".join(self._last).strip():
                self.text(text)
                self.end_text()

    def text(self, delta: str) -> None:
        """The agent says something more."""
        if not delta:
            return
        with self.bridge.lock:
            if self._message is None:
                self._message = self._said = str(uuid4())
                self._last = []
                self.emit("TEXT_MESSAGE_START", messageId=self._message, role="assistant")
            self._last.append(delta)
            self.emit("TEXT_MESSAGE_CONTENT", messageId=self._message, delta=clean(delta))

    def end_text(self) -> None:
        """What the agent was saying is said."""
        with self.bridge.lock:
            if self._message is not None:
                self.emit("TEXT_MESSAGE_END", messageId=self._message)
                self._message = None

    def open_call(self, name: str, arguments: Any, *, native: Any = None, under: Call | None = None) -> Call:
        """Announce a tool call. smolagents' id of it, which others may have too, stands in metadata.

        `under`: the call in whose code this one was made.
        """
        call = Call(f"call_{uuid4()}", name, arguments, self._said if under is None else None)
        metadata: dict[str, Any] = {}
        if native is not None:
            metadata["smolagents"] = {"toolCallId": shown(native)}
        if under is not None:
            metadata["parentToolCallId"] = under.id
        text = arguments_text(arguments)
        with self.bridge.lock:
            self._calls[call.id] = call
            self.emit(
                "TOOL_CALL_START",
                toolCallId=call.id,
                toolCallName=shown(name),
                parentMessageId=call.message_id,
                metadata=metadata or None,
            )
            self.emit("TOOL_CALL_ARGS", toolCallId=call.id, delta=text)
            self.emit("TOOL_CALL_END", toolCallId=call.id)
        return call

    def claim(self, name: str, arguments: Any) -> Call | None:
        """The announced call that begins now: smolagents passes on its name and its arguments, no id."""
        with self.bridge.lock:
            waiting = [call for call in self._calls.values() if not call.claimed and call.name == name]
            same = [call for call in waiting if call.arguments is arguments]
            call = next(iter(same or waiting), None)
            if call is not None:
                call.claimed = True
            return call

    def answer(self, call: Call, content: str) -> None:
        """The call's result. Each call gets one."""
        with self.bridge.lock:
            if self._calls.pop(call.id, None) is not None:
                self.emit(
                    "TOOL_CALL_RESULT", messageId=str(uuid4()), toolCallId=call.id, content=clean(content), role="tool"
                )

    def answer_failure(self, call: Call, error: BaseException, observed: str = "") -> None:
        """The call failed: by itself, or because a subagent below it did. `observed`: what it showed before."""
        said = shown(error)
        below = any(message and message in said for message in call.failures)
        text = said if below else failure_text(error)
        self.answer(call, f"{text}\n{observed}" if observed else text)

    def answer_rest(self) -> None:
        """A step is over: calls that it never came to are answered too."""
        with self.bridge.lock:
            for call in list(self._calls.values()):
                self.answer(call, "This call was not executed.")

    def finish(self, result: Any) -> None:
        """The invocation returned `result`: a subagent's end."""
        self._end("SUBAGENT_FINISHED", result=answer_of(result), **self.reached)

    def fail(self, error: BaseException, *, interrupted: bool) -> None:
        """The invocation ended with `error`."""
        message = shown(error)
        if self.caller is not None and self.caller.call is not None:
            self.caller.call.failures.append(message)
        self._end("SUBAGENT_ERROR", message=message, code="cancelled" if interrupted else type(error).__name__)

    def _end(self, kind: str, **fields: Any) -> None:
        with self.bridge.lock:
            if self.is_open:
                self.close_rest()
                self.emit(kind, **fields)
                self.is_open = False
                self.bridge.left(self)

    def close_rest(self) -> None:
        """End all that is open here: what is below, what is being said, calls, steps."""
        with self.bridge.lock:
            for below in self.bridge.below(self):
                below.fail(RuntimeError("its caller ended before it"), interrupted=True)
            self.end_text()
            self.answer_rest()
            for step in self.steps:
                step.end()
            self.steps.clear()
