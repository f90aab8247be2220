"""Whose model it was, and what it used: entries as AG-UI's ``TokenUsage``.

Provider names are those that traces use (OpenInference's `llm.provider`), so that prices are found. Models that run in
this process have their engine as provider.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from agui_otel.smolagents.values import clean

_ENGINES = {
    "AzureOpenAIModel": "azure",
    "AmazonBedrockModel": "aws",
    "TransformersModel": "transformers",
    "VLLMModel": "vllm",
    "MLXModel": "mlx",
}
"""The classes of smolagents that always reach the same provider; of a class of the user's, its nearest base counts."""

_HOSTS = {
    "openai.com": "openai",
    "azure.com": "azure",
    "anthropic.com": "anthropic",
    "deepseek.com": "deepseek",
    "x.ai": "xai",
    "mistral.ai": "mistralai",
    "googleapis.com": "google",
    "groq.com": "groq",
    "cohere.com": "cohere",
    "cohere.ai": "cohere",
    "together.xyz": "together",
    "fireworks.ai": "fireworks",
    "openrouter.ai": "openrouter",
    "perplexity.ai": "perplexity",
    "huggingface.co": "huggingface",
    "amazonaws.com": "aws",
}
"""Who answers at an address, by the end of its host name; another host stands for itself."""

_LITELLM = {"bedrock": "aws", "gemini": "google", "vertex_ai": "google", "mistral": "mistralai", "hosted_vllm": "vllm"}
"""LiteLLM's names that are another's here."""


def provider_and_model(model: Any) -> tuple[str | None, str | None]:
    """The provider and the model's name of a smolagents model object; of a user's own class, its class's name at least.

    Never raises.
    """
    try:
        name = _model_id(model)
        for kind in type(model).__mro__:
            if kind.__module__.startswith("smolagents."):
                return _provider(kind.__name__, model, name)
    except Exception:  # noqa: BLE001 - a host's object
        return None, type(model).__name__
    return None, name


def _model_id(model: Any) -> str:
    name = getattr(model, "model_id", None)
    return clean(name) if isinstance(name, str) and name else type(model).__name__


def _provider(kind: str, model: Any, name: str) -> tuple[str | None, str]:
    if kind in _ENGINES:
        return _ENGINES[kind], name
    keywords = getattr(model, "client_kwargs", None) or {}
    if kind == "OpenAIModel":
        return _at(keywords.get("base_url"), "openai"), name
    if kind == "InferenceClientModel":
        return _of_inference(keywords, name)
    if kind == "LiteLLMModel":
        return _of_litellm(name, getattr(model, "api_base", None))
    if kind == "LiteLLMRouterModel":
        return _of_litellm(_routed(name, keywords.get("model_list")), None)
    return None, name


def _at(address: Any, usual: str) -> str:
    """Who answers at a base URL; `usual` where none was given."""
    if address is None:
        return usual
    host = urlsplit(str(address)).hostname or str(address)
    return next((name for end, name in _HOSTS.items() if host == end or host.endswith("." + end)), host)


def _of_inference(keywords: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Hugging Face routes to a provider, which may be named; `auto` leaves it open."""
    address = keywords.get("base_url") or (name if name.startswith(("http://", "https://")) else None)
    if address is not None:
        return _at(address, "huggingface"), name
    provider = keywords.get("provider")
    return provider if isinstance(provider, str) and provider not in ("", "auto") else "huggingface", name


def _of_litellm(name: str, address: Any) -> tuple[str | None, str]:
    """LiteLLM writes the provider before the model; where it does not, LiteLLM itself knows."""
    litellm = sys.modules.get("litellm")
    if litellm is not None:
        try:
            model, provider, *_ = litellm.get_llm_provider(name)
            return _LITELLM.get(provider, provider), model
        except Exception:  # noqa: BLE001 - a name that LiteLLM does not know either
            return _named(name, address)
    return _named(name, address)


def _named(name: str, address: Any) -> tuple[str | None, str]:
    before, slash, rest = name.partition("/")
    if not slash:
        return (_at(address, "openai") if address is not None else None), name
    return _LITELLM.get(before, before), rest


def _routed(group: str, models: Any) -> str:
    """The model behind a group of a router's; the group's name where it has several, or none is known."""
    parameters = [entry.get("litellm_params", {}) for entry in models or () if entry.get("model_name") == group]
    names = {entry.get("model") for entry in parameters}
    return str(names.pop()) if len(names) == 1 else group


def _count(tokens: Any, name: str) -> int:
    count = getattr(tokens, name, None)
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 0


def usage_entry(model: Any, tokens: Any) -> dict[str, Any] | None:
    """The ``TokenUsage`` of one model call; None where the model reported nothing.

    smolagents makes 0 and 0 of "not reported" where it streams or plans, so 0 and 0 are nothing too.
    """
    given, made = _count(tokens, "input_tokens"), _count(tokens, "output_tokens")
    if not given and not made:
        return None
    provider, name = provider_and_model(model)
    named = {"provider": provider, "model": name}
    return {
        **{key: value for key, value in named.items() if value is not None},
        "inputTokens": given,
        "outputTokens": made,
        "totalTokens": given + made,
    }
