"""Steps of an invocation as events: what the model says as it says it, the calls that it makes, what they use."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from smolagents.memory import ToolCall
from smolagents.models import ChatMessageStreamDelta

from agui_otel.smolagents.frames import Call, Frame, Within
from agui_otel.smolagents.guard import quietly
from agui_otel.smolagents.invocation import Invocation
from agui_otel.smolagents.usage import usage_entry
from agui_otel.smolagents.values import text_of

Source = Generator[Any, Any, Any]


def follow(
    source: Iterable[Any], around: Callable[[], AbstractContextManager[None]], seen: Callable[[Any], None]
) -> Source:
    """`source` itself: pulled, thrown into and closed inside `around()`; each item is `seen` before it is passed on.

    A subclass's may be any iterable.
    """
    steps = source if isinstance(source, Generator) else _generator(source)
    advance: Callable[[], Any] = partial(next, steps)
    while True:
        with around():
            try:
                item = advance()
            except StopIteration as stop:
                return stop.value
        seen(item)
        try:
            sent = yield item
        except GeneratorExit:
            with around():
                steps.close()
            raise
        except BaseException as error:  # noqa: BLE001 - what the consumer throws goes in
            advance = partial(steps.throw, error)
        else:
            advance = partial(steps.send, sent)


def _generator(items: Iterable[Any]) -> Source:
    return (yield from items)


class Step:
    """One step that is being watched. ``memory``: smolagents' record of it, by which its end is known."""

    def __init__(self, invocation: Invocation, name: str, memory: Any) -> None:
        self.memory = memory
        self._invocation = invocation
        self._streamed = False
        self._error: BaseException | None = None
        self._name = invocation.begin_step(name)
        invocation.steps.append(self)

    def watch(self, source: Source) -> Source:
        """The step's generator, watched."""
        try:
            return (yield from follow(source, lambda: Within(self.frame()), lambda item: quietly(self.see, item)))
        except GeneratorExit:
            raise
        except BaseException as error:
            self._error = error
            raise
        finally:
            quietly(self.settle)

    def frame(self) -> Frame:
        """What is current while the step's own code runs."""
        return Frame(self._invocation)

    def see(self, item: Any) -> None:
        """The step yields `item`."""
        if isinstance(item, ChatMessageStreamDelta) and item.content:
            self._streamed = True
            self._invocation.text(item.content)

    def tell(self, output: Any) -> None:
        """All that the model said, unless it was told while it came."""
        if not self._streamed:
            self._streamed = True
            self._invocation.text(text_of(output))
        self._invocation.end_text()

    def settle(self) -> None:
        """The step's own code has ended; what it used and how it failed is known when smolagents finalizes it."""
        self._invocation.end_text()
        self._invocation.answer_rest()

    def end(self) -> None:
        """smolagents finalizes the step."""
        error = getattr(self.memory, "error", None)
        usage = usage_entry(self._invocation.agent.model, getattr(self.memory, "token_usage", None))
        self._invocation.end_step(self._name, usage, error if error is not None else self._error)


class PlanningStep(Step):
    """A step that makes or renews the plan; smolagents' record of it is what it yields last."""

    def __init__(self, invocation: Invocation) -> None:
        super().__init__(invocation, "planning", None)

    def see(self, item: Any) -> None:
        """A delta, or the record."""
        super().see(item)
        if not isinstance(item, ChatMessageStreamDelta):
            self.memory = item
            self.tell(item.model_output_message.content)


class ActionStep(Step):
    """A step that calls tools."""

    def __init__(self, invocation: Invocation, memory: Any) -> None:
        super().__init__(invocation, f"step {memory.step_number}", memory)

    def see(self, item: Any) -> None:
        """A delta, a call, or something that its call tells itself."""
        super().see(item)
        if isinstance(item, ToolCall):
            self.tell(self.memory.model_output)
            self.call(item)

    def call(self, made: ToolCall) -> Call:
        """The model calls a tool."""
        return self._invocation.open_call(made.name, made.arguments, native=made.id)

    def settle(self) -> None:
        """Also where the step failed before it came to a call, the model's words are told."""
        self.tell(self.memory.model_output)
        super().settle()


class CodeStep(ActionStep):
    """A step whose one call is code: what the code calls is called in that call."""

    _code: Call | None = None

    def frame(self) -> Frame:
        """The code is the call at work, once it is known."""
        return Frame(self._invocation, self._code, self._invocation.message_id)

    def call(self, made: ToolCall) -> Call:
        """The model wrote code."""
        self._code = self._invocation.open_call(made.name, {"code": made.arguments}, native=made.id)
        return self._code

    def settle(self) -> None:
        """The code's result: what the agent observes, and how it failed."""
        if self._code is not None:
            observed = text_of(self.memory.observations)
            if self._error is None:
                self._invocation.answer(self._code, observed)
            else:
                self._invocation.answer_failure(self._code, self._error, observed)
        super().settle()


class FinalStep(Step):
    """The answer that is asked for when all steps are used up. Its name says so in the trace."""

    def __init__(self, invocation: Invocation) -> None:
        super().__init__(invocation, "max_steps", None)
        invocation.max_steps = True

    def answered(self, message: Any) -> None:
        """The model's answer, whose usage stands nowhere else."""
        self.memory = message
        self.tell(message.content)
        self.end()


def end_step(invocation: Invocation, memory: Any) -> None:
    """smolagents finalizes the step whose record this is."""
    for step in [step for step in invocation.steps if step.memory is memory]:
        step.end()
        invocation.steps.remove(step)
