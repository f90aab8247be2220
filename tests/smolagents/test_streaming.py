"""`run_agui` and `arun_agui`: events as they happen, how they end, and many at once."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from ag_ui.core import Event
from smolagents import MultiStepAgent

from agui_otel.smolagents import arun_agui, run_agui
from agui_otel.smolagents.frames import FRAME
from tests.support.agent_cases import CASES, Make, ask, search, web
from tests.support.agent_trees import TASK, events_of, wire
from tests.support.agents import Reply, answer, code, coder, tool_caller
from tests.support.oracle import Oracle


def types(events: list[dict[str, Any]]) -> list[str]:
    """The types of events."""
    return [event["type"] for event in events]


def until(condition: Callable[[], bool], patience: float = 20.0) -> bool:
    """Whether `condition` comes true."""
    end = time.monotonic() + patience
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def workers() -> list[str]:
    """The threads of bridged runs that are at work."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("agui ")]


def shape(events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Events without what differs between two runs: ids are numbered in the order they come."""
    numbers: dict[Any, int] = {}

    def number(value: Any) -> Any:
        return numbers.setdefault(value, len(numbers)) if value is not None else None

    keys = ("subagentRunId", "toolCallId", "messageId", "parentToolCallId", "parentMessageId", "parentSubagentRunId")
    plain = ("name", "delta", "toolCallName", "content", "stepName", "message", "code")
    return [
        (event["type"], *(number(event.get(key)) for key in keys), *(event.get(key) for key in plain))
        for event in events
    ]


class Gate:
    """A model call that is stopped until it is let go on."""

    def __init__(self, then: Reply) -> None:
        self.reached = threading.Event()
        self.go = threading.Event()
        self._then = then

    def __call__(self) -> Reply:
        """The reply, when it is time."""
        self.reached.set()
        assert self.go.wait(20)
        return self._then


class TestAsTheyHappen:
    """An event is there before what comes after it has happened."""

    def test_a_subagents_start_before_its_model_answers(self) -> None:
        """While the managed agent's model thinks, its manager's words and its own start have been told."""
        gate = Gate(answer("sunny"))
        agent = coder(
            "manager",
            code('print(web(task="x"))'),
            code('final_answer("ok")'),
            managed_agents=[tool_caller("web", gate)],
        )
        seen = []
        for event in run_agui(agent, TASK):
            seen.append(str(event.type.value))
            if seen[-2:] == ["SUBAGENT_STARTED", "STEP_STARTED"]:
                assert gate.reached.wait(20)
                assert not gate.go.is_set()
                gate.go.set()
        assert "RUN_FINISHED" == seen[-1]

    def test_nothing_runs_before_the_first_pull(self) -> None:
        """A generator that nobody pulls has done nothing."""
        agent = tool_caller("manager", answer("ok"))
        events = run_agui(agent, TASK)
        assert agent.task is None
        events.close()
        assert agent.task is None


class TestEnds:
    """How a stream ends."""

    def test_with_the_answer(self) -> None:
        """As result, and as the run's last message, for those who read messages."""
        events = events_of(tool_caller("manager", answer("sunny")), thread_id="t", run_id="r")
        assert {"threadId": "t", "runId": "r", "result": "sunny"} == {
            key: events[-1][key] for key in ("threadId", "runId", "result")
        }
        assert ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "RUN_FINISHED"] == types(events)[-4:]
        assert "sunny" == events[-3]["delta"]

    def test_with_an_error_that_is_not_raised(self) -> None:
        """RUN_ERROR names the exception's class."""
        events = events_of(CASES["top_fails"]())
        assert ("RUN_ERROR", "AgentGenerationError", 45) == (
            events[-1]["type"],
            events[-1]["code"],
            events[-1]["usage"][0]["totalTokens"],
        )

    def test_with_an_exit(self) -> None:
        """What is no Exception stops the run, as a plain one's trace says too; the step says what it was."""

        def leave() -> Reply:
            raise SystemExit(3)

        *_, step, last = events_of(tool_caller("manager", leave))
        assert ("RUN_FINISHED", {"type": "cancelled"}) == (last["type"], last["outcome"])
        assert {"type": "SystemExit", "message": "3"} == step["metadata"]["smolagents"]["error"]

    def test_cancelled_where_it_was_interrupted(self) -> None:
        """A subagent's interruption is an error with the code `cancelled`: the protocol has no other word for it."""
        events = events_of(CASES["interrupted"]())
        (subagent,) = (event for event in events if event["type"] == "SUBAGENT_ERROR")
        assert ("cancelled", "Agent interrupted.") == (subagent["code"], subagent["message"])
        assert {"type": "cancelled"} == events[-1]["outcome"]

    def test_at_max_steps(self) -> None:
        """The end says so, for subagents and for the run."""
        for name, kind in (("managed_max_steps", "SUBAGENT_FINISHED"), ("top_max_steps", "RUN_FINISHED")):
            (end,) = (event for event in events_of(CASES[name]()) if event["type"] == kind)
            assert {"smolagents": {"state": "max_steps_error"}} == end["metadata"]
            assert "I could not finish." == end["result"]

    def test_what_is_below_ends_first(self, oracle: Oracle) -> None:
        """An agent that works on in a thread of a tool's own is ended with the run, and is not heard any more."""
        gate = Gate(answer("late"))
        helper = tool_caller("helper", gate)

        class StartsThread(type(search)):  # type: ignore[misc]
            name = "start"

            def forward(self, query: str) -> str:
                from contextvars import copy_context

                threading.Thread(target=copy_context().run, args=(helper.run, query), daemon=True).start()
                assert gate.reached.wait(20)
                return "started"

        agent = tool_caller("manager", [("start", {"query": "x"})], answer("done"), tools=[StartsThread()])
        events = events_of(agent)
        gate.go.set()
        assert ("cancelled", "RUN_FINISHED") == (
            next(event["code"] for event in events if event["type"] == "SUBAGENT_ERROR"),
            events[-1]["type"],
        )
        assert None is next(oracle.judge([events])).refused

    def test_what_begins_after_the_end_is_not_told(self) -> None:
        """A thread that a tool left behind runs an agent when the run is over, and one that was about to."""
        over, done = threading.Event(), threading.Event()
        helper = tool_caller("helper", answer("late"))

        class LeavesThread(type(search)):  # type: ignore[misc]
            name = "leave"

            def forward(self, query: str) -> str:
                from contextvars import copy_context

                def later() -> None:
                    frame = FRAME.get()
                    assert over.wait(20)
                    assert frame is not None
                    assert None is frame.invocation.bridge.begin_subagent(helper, frame, query, None)
                    assert "late" == helper.run(query)
                    done.set()

                threading.Thread(target=copy_context().run, args=(later,), daemon=True).start()
                return "left"

        agent = tool_caller("manager", [("leave", {"query": "x"})], answer("done"), tools=[LeavesThread()])
        events = events_of(agent)
        over.set()
        assert done.wait(20)
        assert ([], "RUN_FINISHED") == (
            [event for event in events if event["type"] == "SUBAGENT_STARTED"],
            events[-1]["type"],
        )

    def test_without_an_answer(self) -> None:
        """None is no message."""
        events = events_of(coder("manager", code("final_answer(None)")))
        assert ("STEP_FINISHED", None) == (events[-2]["type"], events[-1].get("result"))


class TestStops:
    """Closing asks all agents to stop, at their next step."""

    def hierarchy(self, calls: list[str]) -> tuple[MultiStepAgent, Gate]:
        """A manager and a managed agent that waits in its first step; what their models are asked is noted."""
        gate = Gate([("search", {"query": "x"})])

        def note(name: str, reply: Reply) -> Reply:
            def noted() -> Reply:
                calls.append(name)
                return reply() if callable(reply) else reply

            return noted

        worker = web(note("web 1", gate), note("web 2", answer("no")), name="web")
        first, second = note("manager 1", ask("web")), note("manager 2", answer("no"))
        return tool_caller("manager", first, second, managed_agents=[worker]), gate

    def test_closing_a_generator(self) -> None:
        """It returns at once; the model call that runs is the last one."""
        calls: list[str] = []
        agent, gate = self.hierarchy(calls)
        events = run_agui(agent, TASK)
        for event in events:
            if event.type.value == "SUBAGENT_STARTED":
                break
        assert gate.reached.wait(20)
        events.close()
        gate.go.set()
        assert until(lambda: not workers())
        assert ["manager 1", "web 1"] == calls

    def test_dropping_a_generator(self) -> None:
        """A consumer that breaks and forgets it has closed it."""
        calls: list[str] = []
        agent, gate = self.hierarchy(calls)
        for event in run_agui(agent, TASK):
            if event.type.value == "SUBAGENT_STARTED":
                assert gate.reached.wait(20)
                break
        del event
        gc.collect()
        gate.go.set()
        assert until(lambda: not workers())
        assert ["manager 1", "web 1"] == calls

    @pytest.mark.parametrize("how", ["cancel", "aclose"])
    def test_an_async_consumer_leaves(self, how: str) -> None:
        """A cancelled task, and one that closes."""
        calls: list[str] = []
        agent, gate = self.hierarchy(calls)

        async def consume() -> None:
            events = arun_agui(agent, TASK)
            async for event in events:
                if event.type.value == "SUBAGENT_STARTED":
                    await asyncio.to_thread(gate.reached.wait, 20)
                    if how == "aclose":
                        await events.aclose()
                        return
                    asyncio.current_task().cancel()  # type: ignore[union-attr]

        async def main() -> None:
            task = asyncio.create_task(consume())
            await asyncio.wait([task])
            assert (how == "cancel") is task.cancelled()
            gate.go.set()
            assert await asyncio.to_thread(until, lambda: not workers())

        asyncio.run(main())
        assert ["manager 1", "web 1"] == calls

    def test_an_agent_that_begins_after_that(self) -> None:
        """smolagents forgets an interruption when an agent starts: code that goes on to call another one gets none."""
        gate = Gate(answer("first"))
        asked: list[str] = []

        def second() -> Reply:
            asked.append("second")
            return answer("second")

        source = 'print(web(task="x"))\ntry:\n    print(other(task="y"))\nexcept Exception:\n    pass'
        managed = [tool_caller("web", gate), tool_caller("other", second)]
        agent = coder("manager", code(source), managed_agents=managed)
        events = run_agui(agent, TASK)
        for event in events:
            if event.type.value == "SUBAGENT_STARTED":
                break
        assert gate.reached.wait(20)
        events.close()
        gate.go.set()
        assert until(lambda: not workers())
        assert [] == asked

    def test_another_run_of_the_same_agent_goes_on(self) -> None:
        """Two runs of one agent object: closing one does not interrupt the other."""
        first, second = Gate([("search", {"query": "x"})]), Gate([("search", {"query": "x"})])
        agent = tool_caller("shared", first, second, answer("done"), tools=[search])
        closed, kept = run_agui(agent, TASK), run_agui(agent, TASK)
        next(closed)
        assert first.reached.wait(20)
        next(kept)
        assert second.reached.wait(20)
        closed.close()
        first.go.set()
        assert until(lambda: 1 == len(workers()))
        second.go.set()
        assert "RUN_FINISHED" == types(wire(kept))[-1]


class TestWrongCalls:
    """What is wrong with the call itself is raised at once, by name."""

    @pytest.mark.parametrize(
        ("args", "keywords", "says"),
        [
            (("no agent", TASK), {}, "agent should be an agent of smolagents (a MultiStepAgent), not str"),
            ((web(), 3), {}, "task should be a string, not int"),
            ((web(), TASK), {"stream": True}, "stream is no argument here: the events always come as they happen"),
            ((web(), TASK), {"steps": 3}, "got an unexpected keyword argument 'steps'"),
        ],
    )
    @pytest.mark.parametrize("run", [run_agui, arun_agui])
    def test_it_is_raised(self, run: Any, args: Any, keywords: Any, says: str) -> None:
        """Before anything runs."""
        with pytest.raises(TypeError) as raised:
            run(*args, **keywords)
        assert says == str(raised.value)

    def test_arguments_of_run_are_passed_on(self) -> None:
        """`max_steps`, `reset`, `return_full_result` and the rest."""
        agent = web([("search", {"query": "x"})], "I could not.")
        assert "I could not." == events_of(agent, max_steps=1, return_full_result=True)[-1]["result"]


class TestMany:
    """Runs know nothing of each other."""

    def test_a_hundred_at_once(self, oracle: Oracle) -> None:
        """All started before any has ended; each says what it says alone."""
        names = [name for name in CASES if name not in ("times_out", "streaming")]
        chosen = [names[number % len(names)] for number in range(100)]
        alone = {name: Counter(shape(events_of(CASES[name]()))) for name in names}
        gathered = threading.Barrier(100)

        def run(make: Make) -> list[dict[str, Any]]:
            events = run_agui(make(), TASK)
            first = next(events)
            gathered.wait(60)
            return wire([first, *events])

        with ThreadPoolExecutor(100) as pool:
            found = list(pool.map(run, [CASES[name] for name in chosen]))
        assert [None] * 100 == [verdict.refused for verdict in oracle.judge(found)]
        parallel = ("parallel", "same_agent_at_once", "fails_in_parallel")
        for name, events in zip(chosen, found, strict=True):
            if name not in parallel:
                assert alone[name] == Counter(shape(events)), name
            assert Counter(types(events)) == Counter(kind for kind, *_ in alone[name].elements()), name
        ids = [event["subagentRunId"] for events in found for event in events if event["type"] == "SUBAGENT_STARTED"]
        assert len(set(ids)) == len(ids)

    def test_sixteen_sessions_in_one_loop(self) -> None:
        """Async consumers, each with its own thread id, several runs each."""

        async def session(number: int) -> list[tuple[str, str]]:
            ends = []
            for turn in range(3):
                events: list[Event] = [
                    event
                    async for event in arun_agui(
                        CASES["three_levels"](), TASK, thread_id=f"thread {number}", run_id=f"run {number}.{turn}"
                    )
                ]
                last = wire(events)[-1]
                ends.append((last["threadId"], last["runId"]))
            return ends

        async def main() -> list[list[tuple[str, str]]]:
            return await asyncio.gather(*(session(number) for number in range(16)))

        assert [[(f"thread {number}", f"run {number}.{turn}") for turn in range(3)] for number in range(16)] == (
            asyncio.run(main())
        )
