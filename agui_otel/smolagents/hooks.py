"""The hooks in smolagents' classes. Outside a bridged run each of them is one look at a context variable.

They are written against smolagents 1.26, whose own methods say who calls whom: a managed agent's ``__call__`` calls its
``run``, which pulls ``_step_stream``, which yields calls before it executes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial, wraps
from typing import Any

from opentelemetry.context import get_current
from smolagents import CodeAgent, MultiStepAgent, Tool, ToolCallingAgent, local_python_executor
from smolagents.memory import FinalAnswerStep

from agui_otel.smolagents.bridge import is_interruption
from agui_otel.smolagents.frames import Asked, Frame, Within, current
from agui_otel.smolagents.guard import quietly
from agui_otel.smolagents.invocation import Invocation
from agui_otel.smolagents.patching import Hook, Hooks
from agui_otel.smolagents.steps import ActionStep, CodeStep, FinalStep, PlanningStep, Source, end_step, follow
from agui_otel.smolagents.values import result_text, value_text

Method = Callable[..., Any]

Outermost = Callable[[Method, Any, tuple[Any, ...], Mapping[str, Any]], Any]
outermost: list[Outermost] = []
"""What runs an agent that nobody else runs: `trace_smolagents` puts itself here."""

_RUN = ("task", "stream", "reset", "images", "additional_args", "max_steps", "return_full_result")


def argument(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], default: Any = None) -> Any:
    """An argument of `MultiStepAgent.run`, given by position or by name."""
    if name in kwargs:
        return kwargs[name]
    position = _RUN.index(name)
    return args[position] if position < len(args) else default


def _run(original: Method) -> Method:
    @wraps(original)
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        frame = current()
        if frame is None:
            return outermost[-1](original, self, args, kwargs) if outermost else original(self, *args, **kwargs)
        root = frame.invocation.bridge.root
        if root.agent is self and root.awaited:
            root.awaited = False
            return original(self, *args, **kwargs)
        frame.invocation.bridge.check(self)

        def begin() -> Invocation | None:
            return quietly(_begin, frame, self, args, kwargs)

        if argument("stream", args, kwargs):
            return _streamed(begin, original(self, *args, **kwargs))
        subagent = begin()
        if subagent is None:
            return original(self, *args, **kwargs)
        with Within(Frame(subagent), quietly(subagent.bridge.context_of, subagent)):
            try:
                result = original(self, *args, **kwargs)
            except BaseException as error:
                quietly(_fail, subagent, error)
                raise
        quietly(subagent.finish, result)
        return result

    return run


def _begin(frame: Frame, agent: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Invocation | None:
    asked = frame.asked
    if asked is None or asked.agent is not agent:
        asked = Asked(agent, argument("task", args, kwargs), argument("additional_args", args, kwargs))
    return frame.invocation.bridge.begin_subagent(agent, frame, asked.task, asked.additional_args)


def _fail(subagent: Invocation, error: BaseException) -> None:
    subagent.fail(error, interrupted=is_interruption(error, subagent.agent))


def _streamed(begin: Callable[[], Invocation | None], source: Source) -> Source:
    """The steps of an agent that a tool runs: it begins when its first step is asked for."""
    subagent = begin()
    if subagent is None:
        return (yield from source)
    last: list[Any] = [None]

    def see(item: Any) -> None:
        if isinstance(item, FinalAnswerStep):
            last[0] = item.output

    try:
        returned = yield from follow(source, lambda: Within(Frame(subagent)), see)
    except BaseException as error:
        quietly(_fail, subagent, error)
        raise
    quietly(subagent.finish, last[0])
    return returned


def _call(original: Method) -> Method:
    @wraps(original)
    def __call__(self: Any, task: Any, **kwargs: Any) -> Any:  # noqa: N807
        frame = current()
        if frame is None:
            return original(self, task, **kwargs)
        with Within(replace(frame, asked=Asked(self, task, kwargs.get("additional_args")))):
            return original(self, task, **kwargs)

    return __call__


def _step_stream(kind: type[ActionStep], original: Method) -> Method:
    @wraps(original)
    def step_stream(self: Any, memory_step: Any, *args: Any, **kwargs: Any) -> Any:
        frame = current()
        source = original(self, memory_step, *args, **kwargs)
        if frame is None or frame.invocation.agent is not self:
            return source
        frame.invocation.bridge.check(self)
        step = quietly(kind, frame.invocation, memory_step)
        return step.watch(source) if step is not None else source

    return step_stream


def _generate_planning_step(original: Method) -> Method:
    @wraps(original)
    def generate_planning_step(self: Any, *args: Any, **kwargs: Any) -> Any:
        frame = current()
        source = original(self, *args, **kwargs)
        if frame is None or frame.invocation.agent is not self:
            return source
        frame.invocation.bridge.check(self)
        step = quietly(PlanningStep, frame.invocation)
        return step.watch(source) if step is not None else source

    return generate_planning_step


def _provide_final_answer(original: Method) -> Method:
    @wraps(original)
    def provide_final_answer(self: Any, *args: Any, **kwargs: Any) -> Any:
        frame = current()
        if frame is None or frame.invocation.agent is not self:
            return original(self, *args, **kwargs)
        frame.invocation.bridge.check(self)
        step = quietly(FinalStep, frame.invocation)
        message = original(self, *args, **kwargs)
        if step is not None:
            quietly(step.answered, message)
        return message

    return provide_final_answer


def _finalize_step(original: Method) -> Method:
    @wraps(original)
    def finalize_step(self: Any, memory_step: Any, *args: Any, **kwargs: Any) -> Any:
        frame = current()
        if frame is not None and frame.invocation.agent is self:
            quietly(end_step, frame.invocation, memory_step)
        return original(self, memory_step, *args, **kwargs)

    return finalize_step


def _execute_tool_call(original: Method) -> Method:
    @wraps(original)
    def execute_tool_call(self: Any, tool_name: Any, arguments: Any, *args: Any, **kwargs: Any) -> Any:
        frame = current()
        call = quietly(frame.invocation.claim, tool_name, arguments) if frame is not None else None
        if frame is None or call is None:
            return original(self, tool_name, arguments, *args, **kwargs)
        entered = Frame(frame.invocation, call, call.message_id, fresh=True)
        return _answered(entered, partial(original, self, tool_name, arguments, *args, **kwargs), result_text)

    return execute_tool_call


def _answered(entered: Frame, work: Callable[[], Any], text: Callable[[Any], str]) -> Any:
    """What `work`, which is the frame's call, returns; its return, as `text`, or exception is the call's result."""
    invocation, call = entered.invocation, entered.call
    assert call is not None
    with Within(entered, quietly(invocation.bridge.context_of, invocation, call)):
        try:
            result = work()
        except BaseException as error:
            quietly(invocation.answer_failure, call, error)
            raise
    quietly(lambda: invocation.answer(call, text(result)))
    return result


def _tool_call(original: Method) -> Method:
    @wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N807
        frame = current()
        if frame is None:
            return original(self, *args, **kwargs)
        if quietly(_is_announced, frame, self):
            with Within(replace(frame, fresh=False)):
                return original(self, *args, **kwargs)
        call = quietly(_called_inside, frame, self, args, kwargs)
        if call is None:
            return original(self, *args, **kwargs)
        entered = Frame(frame.invocation, call, frame.message_id)
        return _answered(entered, partial(original, self, *args, **kwargs), value_text)

    return __call__


def _is_announced(frame: Frame, tool: Any) -> bool:
    """Whether this is the tool of the frame's call, which has been told."""
    return frame.fresh and frame.call is not None and bool(frame.call.name == tool.name)


def _called_inside(frame: Frame, tool: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Announce the call of a tool by code or by another tool."""
    given = {name: value for name, value in kwargs.items() if name != "sanitize_inputs_outputs"}
    named = dict(zip(tool.inputs, args, strict=False))
    return frame.invocation.open_call(tool.name, {**named, **given}, under=frame.call)


def _thread_pool(original: Any) -> Any:
    """The pool in which code runs, for its time limit. It has no context variables of its caller's: it gets ours, and
    OpenTelemetry's, and no others of the host's, which it would not see without us either.
    """

    @wraps(original, updated=())
    def pool(*args: Any, **kwargs: Any) -> Any:
        made: ThreadPoolExecutor = original(*args, **kwargs)
        frame, context = current(), get_current()
        if frame is not None:
            submit = made.submit

            def submit_within(work: Callable[..., Any], /, *rest: Any, **named: Any) -> Future[Any]:
                def within() -> Any:
                    with Within(frame, context):
                        return work(*rest, **named)

                return submit(within)

            made.submit = submit_within  # type: ignore[method-assign]
        return made

    return pool


hooks = Hooks(
    [
        Hook(MultiStepAgent, "run", _run),
        Hook(MultiStepAgent, "__call__", _call),
        Hook(MultiStepAgent, "_generate_planning_step", _generate_planning_step),
        Hook(MultiStepAgent, "provide_final_answer", _provide_final_answer),
        Hook(MultiStepAgent, "_finalize_step", _finalize_step),
        Hook(CodeAgent, "_step_stream", partial(_step_stream, CodeStep)),
        Hook(ToolCallingAgent, "_step_stream", partial(_step_stream, ActionStep)),
        Hook(ToolCallingAgent, "execute_tool_call", _execute_tool_call),
        Hook(Tool, "__call__", _tool_call),
        Hook(local_python_executor, "ThreadPoolExecutor", _thread_pool),
    ]
)
"""All of them, put and taken together."""
