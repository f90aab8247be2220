"""Whose model it was, and what it used."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from smolagents import (
    AmazonBedrockModel,
    AzureOpenAIModel,
    InferenceClientModel,
    LiteLLMModel,
    LiteLLMRouterModel,
    MLXModel,
    Model,
    OpenAIModel,
    TransformersModel,
    VLLMModel,
)
from smolagents.monitoring import TokenUsage

from agui_otel import trace_events
from agui_otel.smolagents import run_agui
from agui_otel.smolagents.usage import provider_and_model, usage_entry
from agui_otel.testing import capture
from tests.support.agent_cases import CASES
from tests.support.agent_trees import TASK, events_of, wire
from tests.support.agents import Scripted, answer, tool_caller

ROUTES = [{"model_name": "group", "litellm_params": {"model": "anthropic/claude-x"}}]
TWO_ROUTES = [*ROUTES, {"model_name": "group", "litellm_params": {"model": "openai/gpt-x"}}]


class _Client:
    """Stands for the client of a provider, which is not installed here: it is never called."""


def api(kind: Any, model_id: str, **keywords: Any) -> Model:
    """A model class that reaches an API."""
    return kind(model_id=model_id, client=_Client(), **keywords)


def local(kind: Any, model_id: str) -> Model:
    """A model class that would load weights: everything but that."""
    made: Model = kind.__new__(kind)
    Model.__init__(made, model_id=model_id)
    return made


class Mine(OpenAIModel):  # type: ignore[misc]
    """A user's subclass of a shipped class."""


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (api(OpenAIModel, "gpt-x"), ("openai", "gpt-x")),
        (api(OpenAIModel, "gpt-x", api_base="https://api.openai.com/v1"), ("openai", "gpt-x")),
        (api(OpenAIModel, "deepseek-chat", api_base="https://api.deepseek.com"), ("deepseek", "deepseek-chat")),
        (api(OpenAIModel, "llama", api_base="http://localhost:8000/v1"), ("localhost", "llama")),
        (api(Mine, "gpt-x"), ("openai", "gpt-x")),
        (api(AzureOpenAIModel, "gpt-x", azure_endpoint="https://x.openai.azure.com"), ("azure", "gpt-x")),
        (api(AmazonBedrockModel, "us.amazon.nova-pro-v1:0"), ("aws", "us.amazon.nova-pro-v1:0")),
        (api(InferenceClientModel, "Qwen/Qwen3"), ("huggingface", "Qwen/Qwen3")),
        (api(InferenceClientModel, "Qwen/Qwen3", provider="auto"), ("huggingface", "Qwen/Qwen3")),
        (api(InferenceClientModel, "Qwen/Qwen3", provider="together"), ("together", "Qwen/Qwen3")),
        (api(InferenceClientModel, "Qwen/Qwen3", base_url="http://tgi.local/v1"), ("tgi.local", "Qwen/Qwen3")),
        (api(LiteLLMModel, "anthropic/claude-x"), ("anthropic", "claude-x")),
        (api(LiteLLMModel, "bedrock/nova"), ("aws", "nova")),
        (api(LiteLLMModel, "gpt-x"), (None, "gpt-x")),
        (api(LiteLLMModel, "gpt-x", api_base="https://api.x.ai/v1"), ("xai", "gpt-x")),
        (api(LiteLLMModel, "openrouter/meta/llama"), ("openrouter", "meta/llama")),
        (api(LiteLLMRouterModel, "group", model_list=ROUTES), ("anthropic", "claude-x")),
        (api(LiteLLMRouterModel, "group", model_list=TWO_ROUTES), (None, "group")),
        (local(TransformersModel, "HuggingFaceTB/SmolLM2"), ("transformers", "HuggingFaceTB/SmolLM2")),
        (local(VLLMModel, "Qwen/Qwen3"), ("vllm", "Qwen/Qwen3")),
        (local(MLXModel, "mlx-community/Qwen"), ("mlx", "mlx-community/Qwen")),
        (Scripted(model_id="mine"), (None, "mine")),
        (Model(), (None, "Model")),
        (object(), (None, "object")),
    ],
)
def test_provider_and_model(model: Any, names: tuple[str | None, str]) -> None:
    """Of each class that smolagents ships, of a subclass of one, and of what is none."""
    assert names == provider_and_model(model)


def test_litellm_itself_is_asked_where_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows the provider of names without one."""
    litellm = ModuleType("litellm")
    litellm.get_llm_provider = lambda name: (name, "vertex_ai", None, None)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "litellm", litellm)
    assert ("google", "gemini-x") == provider_and_model(api(LiteLLMModel, "gemini-x"))


@pytest.mark.parametrize("tokens", [None, TokenUsage(0, 0), object()])
def test_nothing_was_reported(tokens: Any) -> None:
    """smolagents makes 0 and 0 of "not reported" where it streams or plans."""
    assert None is usage_entry(Scripted(), tokens)


def test_an_entry() -> None:
    """As AG-UI's TokenUsage; what is not known is left out."""
    assert {"model": "scripted", "inputTokens": 3, "outputTokens": 0, "totalTokens": 3} == usage_entry(
        Scripted(), TokenUsage(3, 0)
    )


def test_models_are_told_apart() -> None:
    """A run that uses two has an entry for each, its managed agents' included; each agent has its own."""
    worker = tool_caller("web", model=Scripted(answer("ok"), model_id="small", usage=TokenUsage(1, 2)))
    big = Scripted([("web", {"task": "x"})], answer("ok"), model_id="big", usage=TokenUsage(100, 50))
    manager = tool_caller("manager", model=big, managed_agents=[worker])
    captured = capture()
    events = list(trace_events(run_agui(manager, TASK), tracer_provider=captured.tracer_provider))
    usage = wire(events)[-1]["usage"]
    assert {("small", 3), ("big", 300)} == {(entry["model"], entry["totalTokens"]) for entry in usage}
    by_id = {span.context.span_id: span for span in captured.spans if span.context is not None}
    assert {("usage small", "invoke_agent web", 1), ("usage big", "invoke_agent manager", 200)} == {
        (span.name, by_id[span.parent.span_id].name, (span.attributes or {})["llm.token_count.prompt"])
        for span in captured.spans
        if span.name.startswith("usage") and span.parent is not None
    }


def test_an_answer_at_max_steps_counts() -> None:
    """smolagents reports its usage to callbacks only."""
    assert 30 == events_of(CASES["top_max_steps"]())[-1]["usage"][0]["totalTokens"]


def test_a_model_without_usage() -> None:
    """No entry, no span, and the run goes on."""
    events = events_of(CASES["no_usage"]())
    assert "usage" not in events[-1]
    assert [] == [event for event in events if "usage" in event.get("metadata", {})]
