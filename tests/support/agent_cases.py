"""Hierarchies of smolagents agents, one for each thing that can happen in them; each call makes new agents."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from smolagents import MultiStepAgent, Tool, tool

from tests.support.agents import Reply, Streaming, answer, code, coder, tool_caller

Make = Callable[[], MultiStepAgent]


@tool  # type: ignore[untyped-decorator]
def search(query: str) -> str:
    """Search the web.

    Args:
        query: what to look for.
    """
    return f"found {query}"


@tool  # type: ignore[untyped-decorator]
def broken(query: str) -> str:
    """Fails.

    Args:
        query: anything.
    """
    raise ConnectionError(f"no route to {query}")


class AskHelper(Tool):  # type: ignore[misc]
    """A tool that runs an agent."""

    name = "ask_helper"
    description = "Asks a helper."
    inputs = {"question": {"type": "string", "description": "The question."}}  # noqa: RUF012
    output_type = "string"

    def __init__(self, runs: Any = None, *, stream: bool = False) -> None:
        super().__init__()
        self.runs = runs
        self._stream = stream

    def forward(self, question: str) -> str:
        """The helper's answer."""
        if self._stream:
            return str(list(self.runs.run(question, stream=True))[-1].output)
        return str(self.runs.run(question))


def web(*replies: Reply, name: str = "web", **keywords: Any) -> MultiStepAgent:
    """An agent that searches, then answers."""
    made = replies or ([("search", {"query": "weather"})], answer(f"{name} says sunny"))
    keywords.setdefault("tools", [search])
    return tool_caller(name, *made, **keywords)


def failing(name: str = "web") -> MultiStepAgent:
    """An agent whose model breaks in its first step."""
    return tool_caller(name, RuntimeError("the model is gone"))


def ask(*names: str, **tasks: str) -> Reply:
    """Calls of managed agents."""
    return [(name, {"task": tasks.get(name, f"ask {name}")}) for name in names]


def code_manager() -> MultiStepAgent:
    """A code manager calls a managed agent, and a tool."""
    return coder(
        "manager",
        code('print(web(task="the weather"))\nprint(search(query="news"))'),
        code('final_answer("sunny")'),
        tools=[search],
        managed_agents=[web()],
    )


def parallel() -> MultiStepAgent:
    """A tool-calling manager calls two managed agents at once: each waits until the other is at work too."""
    both = threading.Barrier(2)

    def meet(reply: Reply) -> Reply:
        both.wait(10)
        return reply

    def one(name: str) -> MultiStepAgent:
        return web(partial(meet, [("search", {"query": name})]), partial(meet, answer(f"{name} is done")), name=name)

    return tool_caller(
        "manager", ask("left", "right"), answer("both are done"), managed_agents=[one("left"), one("right")]
    )


def three_levels() -> MultiStepAgent:
    """A code manager, a tool-calling lead, and a code worker, which calls a tool."""
    worker = coder("worker", code('print(search(query="x"))'), code('final_answer("worked")'), tools=[search])
    lead = tool_caller("lead", ask("worker"), answer("led"), managed_agents=[worker])
    return coder("manager", code('print(lead(task="lead it"))'), code('final_answer("managed")'), managed_agents=[lead])


def same_agent_twice() -> MultiStepAgent:
    """The same agent object, twice in one piece of code."""
    twice = tool_caller("web", answer("first"), answer("second"))
    return coder(
        "manager",
        code('a = web(task="one")\nb = web(task="two")\nprint(a + b)'),
        code("final_answer(a)"),
        managed_agents=[twice],
    )


def same_agent_at_once() -> MultiStepAgent:
    """The same agent object, twice at once."""
    both = threading.Barrier(2)

    def meet() -> Reply:
        both.wait(10)
        return answer("done")

    again = tool_caller("web", meet, meet)
    calls = [("web", {"task": "one"}), ("web", {"task": "two"})]
    return tool_caller("manager", calls, answer("both"), managed_agents=[again])


def mutual() -> MultiStepAgent:
    """Two agents that manage each other: one runs inside itself."""
    one = tool_caller("one", ask("two"), answer("inner one"), answer("outer one"))
    two = tool_caller("two", ask("one"), answer("two"), managed_agents=[one])
    one.managed_agents = {"two": two}
    two.inputs = one.inputs
    two.output_type = one.output_type
    return one


def run_summary() -> MultiStepAgent:
    """The report that the manager sees is more than the answer."""
    return tool_caller(
        "manager", ask("web"), answer("read it"), managed_agents=[web(answer("short"), provide_run_summary=True)]
    )


def fails_in_parallel() -> MultiStepAgent:
    """Of two managed agents at once, one raises; the other one's result is lost in smolagents."""
    return tool_caller("manager", ask("web", "other"), answer("went on"), managed_agents=[failing(), web(name="other")])


def fails_in_code() -> MultiStepAgent:
    """A managed agent raises in code, which fails too; the manager goes on."""
    return coder("manager", code('print(web(task="x"))'), code('final_answer("went on")'), managed_agents=[failing()])


def caught_in_code() -> MultiStepAgent:
    """A managed agent raises, the code catches it and calls a tool."""
    source = 'try:\n    web(task="x")\nexcept Exception:\n    print(search(query="instead"))'
    return coder("manager", code(source), code('final_answer("went on")'), tools=[search], managed_agents=[failing()])


def tool_fails() -> MultiStepAgent:
    """A tool raises, one does not exist; the agent goes on."""
    return tool_caller(
        "manager",
        [("broken", {"query": "a"})],
        [("missing", {"query": "b"})],
        [("broken", {"wrong": "c"})],
        answer("went on"),
        tools=[broken],
    )


def managed_max_steps() -> MultiStepAgent:
    """A managed agent uses up its steps, and answers all the same."""
    worker = web([("search", {"query": "a"})], "I could not finish.", max_steps=1)
    return tool_caller("manager", ask("web"), answer("so be it"), managed_agents=[worker])


def top_max_steps() -> MultiStepAgent:
    """The run's own agent uses up its steps."""
    return web([("search", {"query": "a"})], "I could not finish.", name="manager", max_steps=1)


def top_fails() -> MultiStepAgent:
    """The run's own agent fails after a managed agent has answered."""
    return tool_caller("manager", ask("web"), RuntimeError("out of credit"), managed_agents=[web()])


def interrupted() -> MultiStepAgent:
    """A managed agent is interrupted while it searches, and its manager with it."""
    agents: list[MultiStepAgent] = []

    def interrupt() -> Reply:
        for agent in agents:
            agent.interrupt()
        return [("search", {"query": "a"})]

    worker = web(interrupt)
    manager = tool_caller("manager", ask("web"), managed_agents=[worker])
    agents.extend((worker, manager))
    return manager


def no_usage() -> MultiStepAgent:
    """Models that report no usage."""
    made = code_manager()
    for agent in (made, *made.managed_agents.values()):
        agent.model._usage = None
    return made


def tool_runs_agent() -> MultiStepAgent:
    """A tool that runs an agent, from code and from a call."""
    helper = tool_caller("helper", answer("helped"), answer("helped again"))
    inner = tool_caller("inner", [("ask_helper", {"question": "why"})], answer("because"), tools=[AskHelper(helper)])
    return coder(
        "manager",
        code('print(inner(task="ask"))\nprint(ask_helper(question="how"))'),
        code('final_answer("known")'),
        tools=[AskHelper(helper, stream=True)],
        managed_agents=[inner],
    )


def times_out() -> MultiStepAgent:
    """Code runs out of time while a managed agent works, which completes all the same."""

    def slowly() -> Reply:
        time.sleep(1.5)
        return answer("late")

    return coder(
        "manager",
        code('print(web(task="slow"))'),
        code('final_answer("went on")'),
        managed_agents=[tool_caller("web", slowly)],
        executor_kwargs={"timeout_seconds": 1},
    )


def planning() -> MultiStepAgent:
    """Agents that plan first."""
    worker = web(
        "The plan of web.", [("search", {"query": "a"})], "Another plan.", answer("planned"), planning_interval=1
    )
    return tool_caller("manager", "The plan.", ask("web"), answer("done"), managed_agents=[worker], planning_interval=5)


def streaming() -> MultiStepAgent:
    """Agents that stream what their models say."""
    worker = web(model=Streaming([("search", {"query": "a"})], answer("streamed")), stream_outputs=True, name="web")
    model = Streaming("A plan\nof two lines.", code('print(web(task="x"))'), code('final_answer("done")'))
    return coder("manager", model=model, stream_outputs=True, managed_agents=[worker], planning_interval=5)


def parse_error() -> MultiStepAgent:
    """A reply without code; a reply without calls."""
    worker = web("no call at all", answer("now it is"))
    return coder(
        "manager", "no code at all", code('print(web(task="x"))'), code('final_answer("done")'), managed_agents=[worker]
    )


def _is_yes(found: Any, _memory: Any, agent: Any) -> bool:
    assert agent is not None
    return bool(found == "yes")


def rejected_answer() -> MultiStepAgent:
    """The first answer does not pass its check."""
    return tool_caller(
        "manager",
        answer("no"),
        answer("yes"),
        final_answer_checks=[_is_yes],
    )


CASES: dict[str, Make] = {
    made.__name__: made
    for made in (
        code_manager, parallel, three_levels, same_agent_twice, same_agent_at_once, mutual, run_summary,
        fails_in_parallel, fails_in_code, caught_in_code, tool_fails, managed_max_steps, top_max_steps, top_fails,
        interrupted, no_usage, tool_runs_agent, times_out, planning, streaming, parse_error, rejected_answer,
    )
}  # fmt: skip
"""By name."""

RAISES = ("top_fails", "interrupted")
"""Cases whose `run` raises."""
