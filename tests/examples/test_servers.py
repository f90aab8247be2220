"""The servers among the examples, started by the commands in their docstrings, each in its framework's environment."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from agui_otel.forest import forest
from agui_otel.testing import span_tree
from tests.support.commands import QUESTION, ROOT, THREAD, Serving, serving
from tests.support.frameworks import scripts_of
from tests.support.servers import ask

pytestmark = pytest.mark.slow

COMMAND = re.compile(r"^    export (?P<variables>.+)\n    (?P<command>.*uvicorn .+)$", re.MULTILINE)


def commanded(example: str) -> tuple[dict[str, str], list[str]]:
    """The variables and the command with which an example says that it is run."""
    documentation = ast.get_docstring(ast.parse((ROOT / "examples" / f"{example}.py").read_text()), clean=False)
    assert documentation is not None
    found = COMMAND.search(documentation)
    assert found is not None
    return dict(item.split("=") for item in found["variables"].split()), shlex.split(found["command"])


def served(example: str, framework: str | None = None) -> Serving:
    """Run an example's command, ask it, and stop it."""
    scripts = Path(sys.executable).parent if framework is None else scripts_of(framework)
    variables, command = commanded(example)
    assert "http://localhost:6006" == variables.pop("PHOENIX_COLLECTOR_ENDPOINT")
    path = os.pathsep.join((str(scripts), os.environ["PATH"]))
    with serving(
        [scripts / command[0], *command[1:]], PHOENIX_COLLECTOR_ENDPOINT="{receiver}", PATH=path, **variables
    ) as it:
        answer = ask(it.port, QUESTION)
    assert 200 == answer.status
    assert "Traceback" not in it.output
    return it


def tree(serving: Serving) -> str:
    """What this package and the example's own code have traced."""
    spans = [span for span in serving.spans() if not span["scope"].startswith("openinference")]
    return span_tree(spans, attributes=["input.value", "output.value"], event_attributes=["agui.step.name"])


def tokens(serving: Serving) -> int:
    """The tokens that the LLM spans of a trace add up to, as Phoenix adds them."""
    llm = [span["attributes"] for span in serving.spans() if span["attributes"].get("openinference.span.kind") == "LLM"]
    return sum(attributes["llm.token_count.total"] for attributes in llm)


def test_starlette() -> None:
    """A tool call, a span of the agent's own code, and an answer."""
    expected = """\
invoke_agent weather [AGENT] success input.value="What moves the sea?" output.value="Take an umbrella."
  execute_tool forecast [TOOL] success input.value="{\\"day\\": \\"today\\"}" output.value="rain"
  look up
  message assistant [CHAIN] output.value="Take an umbrella.\""""
    assert expected == tree(served("starlette_server"))


def test_zero_code() -> None:
    """A subagent below the call that dispatched it, without a line of the application's."""
    expected = """\
invoke_agent [AGENT] success input.value="What moves the sea?" output.value="Take an umbrella."
  execute_tool task [TOOL] success input.value="{\\"day\\": \\"today\\"}" output.value="It rains."
    invoke_agent forecaster [AGENT] success input.value="{\\"day\\": \\"today\\"}" output.value="It rains."
      message assistant [CHAIN] output.value="It rains."
  message assistant [CHAIN] output.value="Take an umbrella.\""""
    assert expected == tree(served("zero_code_server"))


def test_pydantic_ai() -> None:
    """A tool call, an answer, and the tokens that the stream reports."""
    expected = """\
invoke_agent planner [AGENT] success input.value="What moves the sea?" output.value="The moon moves the sea."
  message assistant [CHAIN]
  execute_tool search [TOOL] success input.value="{\\"query\\":\\"a\\"}" output.value="results for a"
  message assistant [CHAIN] output.value="The moon moves the sea."
  usage test [LLM]"""
    it = served("pydantic_ai_server", "pydantic")
    assert (expected, 122) == (tree(it), tokens(it))


def researched(topic: str) -> str:
    """What the supervisor's call for this topic leads to."""
    asked = json.dumps(json.dumps({"description": topic, "subagent_type": "researcher"}))
    return f"""\
  execute_tool task [TOOL] success input.value={asked} output.value="It is about tides."
    invoke_agent researcher [AGENT] success input.value={asked} output.value="It is about tides."
      * agui.step agui.step.name="PatchToolCallsMiddleware.before_agent"
      * agui.step agui.step.name="model"
      * agui.step agui.step.name="tools"
      execute_tool search [TOOL] success input.value="{{\\"query\\": \\"tides\\"}}" output.value="results for tides"
      message assistant [CHAIN] output.value="It is about tides. "
"""


SUPERVISED = f"""\
invoke_agent supervisor [AGENT] success input.value="What moves the sea?" output.value="The moon moves the sea. "
  * agui.state.snapshot
  * agui.messages.snapshot
  * agui.state.snapshot
  * agui.messages.snapshot
  * agui.step agui.step.name="PatchToolCallsMiddleware.before_agent"
  * agui.step agui.step.name="model"
  * agui.step agui.step.name="tools"
  * agui.step agui.step.name="_ParentNotifierMiddleware.after_agent"
{researched("the sea")}{researched("the moon")}\
  message assistant [CHAIN] output.value="The moon moves the sea. \""""


def test_langgraph() -> None:
    """Two researchers at work at once, each below its call, and the tokens that the stream reports."""
    it = served("langgraph_server", "langgraph")
    assert (f"{SUPERVISED}\n  usage [LLM]", 77) == (tree(it), tokens(it))


def test_langgraph_with_llm_spans() -> None:
    """LangChain's spans are below the run and in its session; the tokens are theirs, and counted once."""
    it = served("langgraph_llm_spans", "langgraph")
    assert (SUPERVISED, 77) == (tree(it), tokens(it))
    spans = it.spans()
    assert ["invoke_agent supervisor"] == [root.name for root in forest(spans)]
    assert {THREAD} == {span["attributes"].get("session.id") for span in spans}
    names = [span["name"] for span in spans if span["scope"].startswith("openinference")]
    assert (6, 2, 2) == tuple(names.count(name) for name in ("ScriptedModel", "task", "search"))
