"""What hosts do: stop, collect, keep context variables, subclass, and return what does not want to be looked at."""

from __future__ import annotations

import asyncio
import decimal
import itertools
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any, ClassVar

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import get_tracer
from smolagents import LogLevel, MultiStepAgent, Tool, ToolCallingAgent

from agui_otel import trace_events
from agui_otel.smolagents import arun_agui, bridge, run_agui, tool_failed, trace_smolagents
from agui_otel.testing import Captured, capture
from agui_otel.tracing.boundary import Boundary
from tests.support.agent_trees import TASK, events_of, plainly, quiet, streamed
from tests.support.agents import Scripted, answer, code, coder, tool_caller
from tests.support.servers import eventually

HOST: ContextVar[str] = ContextVar("host", default="nothing")


def tool(work: Callable[[], Any], called: str = "work") -> Tool:
    """A tool that does `work`."""

    class Made(Tool):  # type: ignore[misc]
        name = called
        description = "Does its work."
        inputs: ClassVar[dict[str, Any]] = {}
        output_type = "any"

        def forward(self) -> Any:
            return work()

    return Made()


def raising(error: BaseException) -> Callable[[], Any]:
    """What raises `error`."""

    def work() -> Any:
        raise error

    return work


def result_of(events: list[dict[str, Any]], name: str = "work") -> str:
    """The result of the call of that tool."""
    (call,) = (one["toolCallId"] for one in events if one.get("toolCallName") == name)
    (text,) = (one["content"] for one in events if one["type"] == "TOOL_CALL_RESULT" and one["toolCallId"] == call)
    return str(text)


def subclass(kind: type[ToolCallingAgent], *replies: Any) -> Any:
    """An agent of a host's own class."""
    model = Scripted(*replies)
    return kind(tools=[], model=model, name="own", description="A host's.", verbosity_level=LogLevel.OFF)


@pytest.fixture
def in_production(monkeypatch: pytest.MonkeyPatch) -> None:
    """The boundary swallows."""
    monkeypatch.setattr(Boundary, "strict", False)


@pytest.fixture(autouse=True)
def nothing_stays_at_work() -> Iterator[None]:
    """After each test the bridge knows of no more agents at work than before."""
    before = set(bridge._running)
    yield
    eventually(lambda: bridge._running <= before)


@pytest.mark.parametrize("how", ["traced", "streamed"])
def test_a_collection_may_end_a_stream_anywhere(how: str) -> None:
    """At each line of the bridge a forgotten stream ends, of the very agent that is at work: nothing waits or fails."""
    agent = tool_caller("shared", *[answer("ok")] * 2)
    forgotten: list[Any] = []
    lines: set[int] = set()

    def at_each_line(frame: Any, _event: str, _arg: Any) -> Any:
        if frame.f_code.co_filename != bridge.__file__:
            return None
        if frame.f_lineno not in lines:
            lines.add(frame.f_lineno)
            forgotten.pop()
        return at_each_line

    def work() -> None:
        if how == "traced":
            sys.settrace(at_each_line)
            agent.run(TASK)
        else:
            events = run_agui(agent, TASK)
            next(events)
            sys.settrace(at_each_line)
            events.close()
        sys.settrace(None)

    with quiet(), trace_smolagents(tracer_provider=TracerProvider()):
        forgotten += [agent.run(TASK, stream=True) for _ in range(200)]
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        assert 200 - len(forgotten) == len(lines) > 0
        forgotten.clear()


class TestStopped:
    """What is no Exception stops the agents: nothing of them has failed."""

    @pytest.mark.parametrize("form", [plainly, streamed])
    @pytest.mark.parametrize("manager", ["code", "calls"])
    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
    def test_in_a_managed_agent(self, error: type[BaseException], manager: str, form: Any) -> None:
        """It, and all above it, are cancelled, and nobody is to blame."""
        worker = tool_caller("worker", [("work", {})], answer("ok"), tools=[tool(raising(error("enough")))])
        agent = (
            coder("manager", code('worker("x")'), managed_agents=[worker])
            if manager == "code"
            else tool_caller("manager", [("worker", {"task": "x"})], managed_agents=[worker])
        )
        captured: Captured = capture()
        with pytest.raises(error) if form is plainly else nullcontext():
            form(agent, captured)
        agents = {
            span.name: (span.attributes or {})["agui.outcome"]
            for span in captured.spans
            if span.name.startswith("invoke_agent")
        }
        assert {"invoke_agent manager": "cancelled", "invoke_agent worker": "cancelled"} == agents
        assert {"UNSET"} == {span.status.status_code.name for span in captured.spans}
        assert [] == [span.name for span in captured.spans if "agui.cause" in (span.attributes or {})]

    def test_in_a_streamed_run(self) -> None:
        """A tool pulls another agent's steps, and is stopped there."""
        inner = tool_caller("inner", raising(KeyboardInterrupt()))
        agent = tool_caller("manager", [("work", {})], tools=[tool(lambda: list(inner.run(TASK, stream=True)))])
        (ended,) = (event for event in events_of(agent) if event["type"] == "SUBAGENT_ERROR")
        assert "cancelled" == ended["code"]

    @pytest.mark.parametrize("leave", ["closes", "is cancelled"])
    def test_nothing_waits_for_spans_that_will_not_come(self, leave: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """The consumer has left: spans of another instrumentation do not wait for parents."""
        monkeypatch.setattr(bridge, "PATIENCE", 3600.0)
        monkeypatch.setattr(bridge, "MOST_PATIENCE", 3600.0)
        began, go_on, ended = threading.Event(), threading.Event(), threading.Event()
        tracer = get_tracer("host", tracer_provider=TracerProvider())

        def work() -> None:
            began.set()
            assert go_on.wait(60)
            with tracer.start_as_current_span("host"):
                pass

        agent = coder("manager", code("work()\nwork()\nended()"), tools=[tool(work), tool(ended.set, "ended")])
        provider = TracerProvider()

        async def cancelled() -> None:
            async def pull() -> None:
                async for _ in trace_events(arun_agui(agent, TASK), tracer_provider=provider):
                    pass

            task = asyncio.create_task(pull())
            assert await asyncio.to_thread(began.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        with quiet():
            if leave == "closes":
                events = trace_events(run_agui(agent, TASK), tracer_provider=provider)
                next(events)
                assert began.wait(60)
                events.close()
            else:
                asyncio.run(cancelled())
            go_on.set()
            assert ended.wait(60)


class TestContextVariables:
    """Code runs in a thread of its own, with none of its caller's."""

    def agent(self) -> Any:
        """Its code says what it sees of the host."""
        seen = tool(lambda: f"{HOST.get()} {decimal.Decimal(1) / 3}")
        return coder("manager", code("final_answer(work())"), tools=[seen])

    def test_code_sees_what_it_sees_untraced(self) -> None:
        """The host's variables and its decimal context are not there, traced, streamed or not."""
        token = HOST.set("the host's")
        try:
            with decimal.localcontext() as precise:
                precise.prec = 3
                bare = self.agent().run(TASK)
                with trace_smolagents(tracer_provider=TracerProvider()):
                    traced = self.agent().run(TASK)
                events = events_of(self.agent())
        finally:
            HOST.reset(token)
        assert ("nothing 0.3333333333333333333333333333",) * 3 == (bare, traced, events[-1]["result"])


class TestSubclasses:
    """Agents of a host's own classes."""

    @pytest.mark.parametrize("of", [list, iter, lambda steps: itertools.chain(steps, [])])
    def test_steps_that_come_from_no_generator(self, of: Any) -> None:
        """`run(stream=True)` of one whose steps are any iterable gives the same steps; below others too."""

        class Own(ToolCallingAgent):  # type: ignore[misc]
            def _run_stream(self, *args: Any, **kwargs: Any) -> Any:
                return of(list(super()._run_stream(*args, **kwargs)))

        def kinds(steps: Any) -> list[str]:
            return [type(step).__name__ for step in steps]

        bare = kinds(subclass(Own, answer("ok")).run(TASK, stream=True))
        captured = capture()
        with trace_smolagents(tracer_provider=captured.tracer_provider):
            assert bare == kinds(subclass(Own, answer("ok")).run(TASK, stream=True))
        assert "invoke_agent own" in [span.name for span in captured.spans]
        inner = subclass(Own, answer("ok"))
        agent = tool_caller(
            "manager", [("work", {})], answer("ok"), tools=[tool(lambda: kinds(inner.run(TASK, stream=True)))]
        )
        assert str(bare) == result_of(events_of(agent))

    def test_one_that_runs_another_first(self) -> None:
        """Each has the task that it was given."""

        class Own(ToolCallingAgent):  # type: ignore[misc]
            def run(self, task: str, **keywords: Any) -> Any:
                tool_caller("planner", answer("a plan")).run("plan it")
                return super().run(task, **keywords)

        worker = subclass(Own, answer("ok"))
        agent = coder("manager", code('own("do it")'), code("final_answer(1)"), managed_agents=[worker])
        started = [event for event in events_of(agent) if event["type"] == "SUBAGENT_STARTED"]
        assert [("planner", "plan it"), ("own", "do it")] == [
            (one["name"], one["metadata"]["input"]) for one in started
        ]

    @pytest.mark.usefixtures("in_production")
    def test_one_whose_name_cannot_be_read(self) -> None:
        """The stream says what smolagents raises when it reads it too, and ends."""

        class Own(ToolCallingAgent):  # type: ignore[misc]
            readable = True

            @property
            def name(self) -> str:
                """Not for long."""
                if self.readable:
                    return "own"
                raise LookupError("name")

            @name.setter
            def name(self, _value: str) -> None: ...

        agent = subclass(Own, answer("ok"))
        agent.readable = False
        ended = events_of(agent)[-1]
        assert ("RUN_ERROR", "LookupError") == (ended["type"], ended["code"])

    def test_equal_and_unhashable_ones(self) -> None:
        """Conversations belong to agents, not to those that are equal to them."""

        class Own(ToolCallingAgent):  # type: ignore[misc]
            __hash__ = None  # type: ignore[assignment]

            def __eq__(self, other: object) -> bool:
                return isinstance(other, Own)

        first, second = (subclass(Own, answer("1"), answer("2")) for _ in range(2))
        captured = capture()
        with trace_smolagents(tracer_provider=captured.tracer_provider):
            for agent, reset in ((first, True), (second, False), (first, False)):
                agent.run(TASK, reset=reset)
        ids = [(span.attributes or {})["session.id"] for span in captured.spans if span.parent is None]
        assert (3, 2) == (len(ids), len(set(ids)))
        assert ids[0] == ids[2]

    @pytest.mark.usefixtures("in_production")
    def test_a_conversation_that_cannot_be_named(self) -> None:
        """A `thread_id` that raises: the run is traced, in a conversation of its own."""

        def refuse(_agent: MultiStepAgent) -> str:
            raise LookupError("no request")

        captured = capture()
        with trace_smolagents(thread_id=refuse, tracer_provider=captured.tracer_provider):
            assert "ok" == tool_caller("a", answer("ok")).run(TASK)
        (run,) = (span for span in captured.spans if span.parent is None)
        assert (run.attributes or {})["session.id"]


class Attributes(dict[str, Any]):
    """A dictionary whose items are attributes: one that is missing is a KeyError."""

    __getattr__ = dict.__getitem__


class Refusing:
    """An object whose attributes are none of anybody's business."""

    @property
    def shape(self) -> Any:
        """None."""
        raise ValueError("shape")

    def __getattr__(self, name: str) -> Any:
        raise ValueError(name)

    def __str__(self) -> str:
        return "refusing"


class Lazy:
    """Rows that are fetched when they are counted, printed or asked for anything."""

    def __init__(self) -> None:
        object.__setattr__(self, "fetched", [])

    def _fetch(self, *_: Any) -> Any:
        object.__getattribute__(self, "fetched").append("fetched")
        return ""

    __str__ = __repr__ = __getattr__ = _fetch

    def __len__(self) -> int:
        self._fetch()
        return 3


class TestValues:
    """What tools return and agents answer."""

    @pytest.mark.parametrize(
        ("make", "says"),
        [(lambda: Attributes(a=1), "{'a': 1}"), (Refusing, "Refusing"), (lambda: "", ""), (list, [])],
    )
    def test_any_answer_is_a_success(self, make: Any, says: Any) -> None:
        """The run has finished, whatever its answer does when it is looked at."""
        events = events_of(coder("manager", code("final_answer(work())"), tools=[tool(make)]))
        assert ("RUN_FINISHED", says) == (events[-1]["type"], events[-1]["result"])

    def test_an_empty_answer_is_no_message(self) -> None:
        """Nothing was said."""
        types = [event["type"] for event in events_of(tool_caller("manager", answer("")))]
        assert "RUN_FINISHED" == types[-1]
        assert "TEXT_MESSAGE_CONTENT" not in types

    def test_lazy_results_in_code_stay_lazy(self) -> None:
        """They are told by their type: neither printed nor counted, streamed or traced."""
        rows = Lazy()

        def agent() -> Any:
            return coder("manager", code("x = work()\ny = 1"), code("final_answer(1)"), tools=[tool(lambda: rows)])

        events = events_of(agent())
        plainly(agent())
        assert ([], "Lazy") == (object.__getattribute__(rows, "fetched"), result_of(events))

    @pytest.mark.parametrize(
        ("make", "says"),
        [
            (lambda: " text\n", "text"),
            (lambda: {"a": [1, None]}, '{"a": [1, null]}'),
            (lambda: True, "true"),
            (lambda: {1, 2}, "set 2"),
            (lambda: [Lazy()], '["Lazy"]'),
        ],
    )
    def test_results_in_code(self, make: Any, says: str) -> None:
        """Text as it is, JSON as JSON, all else by type and size."""
        agent = coder("manager", code("x = work()\ny = 1"), code("final_answer(1)"), tools=[tool(make)])
        assert says == result_of(events_of(agent))

    @pytest.mark.parametrize("name", [None, 5])
    def test_a_tools_name_that_is_no_string(self, name: Any) -> None:
        """Of a model that is wrong: the call is told, and fails as it does for smolagents."""
        events = events_of(tool_caller("manager", [(name, {})], answer("ok")))
        text = result_of(events, str(name))
        assert tool_failed("any", text)
        assert "RUN_FINISHED" == json.loads(json.dumps(events))[-1]["type"]
