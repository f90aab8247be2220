"""A team of smolagents agents: a code manager, a lead that calls two agents in parallel, and searches on the web.

    python examples/smolagents_team.py                          # the trace as a tree, here
    python examples/smolagents_team.py http://localhost:6006    # the trace in a Phoenix that runs there
    python examples/smolagents_team.py --events                 # the events, as an AG-UI front end gets them

Needs `pip install '.[smolagents]'` in a checkout of agui-otel. The models are scripts and the web is a dictionary, so
that it runs anywhere: put a model of yours in the place of `Script(...)`, and `WebSearchTool()` in the place of
`search_web`.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from smolagents import ChatMessage, CodeAgent, LogLevel, MessageRole, Model, ToolCallingAgent, tool
from smolagents.models import ChatMessageToolCall, ChatMessageToolCallFunction
from smolagents.monitoring import TokenUsage

from agui_otel import Settings, setup
from agui_otel.render import render_text
from agui_otel.smolagents import run_agui, trace_smolagents
from agui_otel.testing import capture

WEB = {"tides in Brest": "The tidal range is up to 8 m.", "tides in Kiel": "There is almost no tide."}


class Script(Model):  # type: ignore[misc]
    """A model that has its answers ready: texts, or calls as `{name: arguments}`."""

    def __init__(self, *answers: str | dict[str, dict[str, str]]) -> None:
        super().__init__(model_id="script")
        self._answers = iter(answers)

    def generate(self, messages: list[Any], **_: Any) -> ChatMessage:
        """The next answer."""
        answer = next(self._answers)
        calls = [
            ChatMessageToolCall(
                id=f"call_{number}",
                type="function",
                function=ChatMessageToolCallFunction(name=name, arguments=arguments),
            )
            for number, (name, arguments) in enumerate(answer.items() if isinstance(answer, dict) else ())
        ]
        return ChatMessage(
            role=MessageRole.ASSISTANT,
            content=answer if isinstance(answer, str) else None,
            tool_calls=calls or None,
            token_usage=TokenUsage(input_tokens=100 + len(messages), output_tokens=20),
        )


@tool  # type: ignore[untyped-decorator]
def search_web(query: str) -> str:
    """Search the web.

    Args:
        query: what to look for.
    """
    return WEB.get(query, "Nothing was found.")


def searcher(place: str) -> ToolCallingAgent:
    """An agent that searches the web for the tides of a place."""
    query = f"tides in {place}"
    model = Script({"search_web": {"query": query}}, {"final_answer": {"answer": WEB[query]}})
    return ToolCallingAgent(
        tools=[search_web],
        model=model,
        name=f"{place.lower()}_searcher",
        description=f"Searches the web for what concerns {place}.",
        verbosity_level=LogLevel.OFF,
    )


def team() -> CodeAgent:
    """The manager, with all that it manages."""
    lead = ToolCallingAgent(
        tools=[],
        model=Script(
            {"brest_searcher": {"task": "How high are tides?"}, "kiel_searcher": {"task": "How high are tides?"}},
            {"final_answer": {"answer": "8 m in Brest, almost none in Kiel."}},
        ),
        managed_agents=[searcher("Brest"), searcher("Kiel")],
        name="research_lead",
        description="Asks those who search, all at once.",
        verbosity_level=LogLevel.OFF,
    )
    return CodeAgent(
        tools=[],
        model=Script(
            'I ask the lead.\n<code>\nprint(research_lead(task="Compare the tides of Brest and Kiel."))\n</code>',
            '<code>\nfinal_answer("Go to Brest for tides, to Kiel for calm water.")\n</code>',
        ),
        managed_agents=[lead],
        name="manager",
        description="Answers questions about the sea.",
        verbosity_level=LogLevel.OFF,
    )


QUESTION = "Where should I go to see tides?"


def main() -> None:
    """Run the team once."""
    if "--events" in sys.argv:
        for event in run_agui(team(), QUESTION):
            print(event.type.value, getattr(event, "subagent_run_id", None) or "")
    elif len(sys.argv) > 1:
        with setup(phoenix=sys.argv[1], service_name="examples") as handle, trace_smolagents():
            print(team().run(QUESTION))
        print(f"sent to {handle.phoenix_url}, project {handle.project}")
    else:
        captured = capture()
        with trace_smolagents(config=Settings(capture="full"), tracer_provider=captured.tracer_provider):
            print(team().run(QUESTION))
        print(render_text(captured.spans))


if __name__ == "__main__":
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read this has seen enough: `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
