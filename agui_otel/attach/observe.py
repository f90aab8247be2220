"""What every way in does first: decide how to observe, and whether somebody observes this stream already."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider, get_tracer_provider

from agui_otel.config import Settings
from agui_otel.exporting import current_handle, handle_for
from agui_otel.tracing.boundary import Boundary
from agui_otel.tracing.inside import session_in
from agui_otel.tracing.session import Attributes, Observer, Session

_logger = logging.getLogger("agui_otel")


@lru_cache(maxsize=1)
def environment_settings() -> Settings:
    """The settings of the environment, read once a process."""
    return Settings()


def observer(
    config: Settings | None,
    tracer_provider: TracerProvider | None,
    meter_provider: MeterProvider | None,
    *,
    redact: Callable[[str], str] | None = None,
    tool_failed: Callable[[str, Any], bool | str] | None = None,
    decision: Callable[[Mapping[str, Any]], str | None] | None = None,
) -> Observer:
    """How to observe: the caller's providers, else those of `setup`, else the process's global ones.

    Raises ConfigurationError where the environment holds a setting that is not allowed.
    """
    settings = config if config is not None else environment_settings()
    handle = current_handle() if tracer_provider is None else handle_for(tracer_provider)
    if handle is not None:
        tracer_provider = tracer_provider or handle.tracer_provider
        meter_provider = meter_provider or handle.meter_provider
    phoenix = handle is not None and handle.exports_to_phoenix
    if not phoenix:
        _say_that_content_is_left_out(settings)
    return Observer(
        settings=settings,
        tracer_provider=tracer_provider or get_tracer_provider(),
        meter_provider=meter_provider,
        redact=redact,
        tool_failed=tool_failed,
        decision=decision,
        phoenix=phoenix,
    )


@lru_cache(maxsize=1)
def _say_that_content_is_left_out(settings: Settings) -> None:
    if settings.capture == "auto" and settings.genai_capture is None and not settings.disabled:
        _logger.info(
            "agui-otel exports names, ids, counts and times, and no content (texts, arguments, results); "
            "AGUI_OTEL_CAPTURE=full adds it, AGUI_OTEL_CAPTURE=metadata silences this line"
        )


def start(
    how: Observer | None, context: Context, given: Any, agent_name: str | None, attributes: Attributes | None
) -> Session | None:
    """A session for a stream that starts in `context`; None where nothing is to be observed here.

    That is so when observing is disabled, or when the context's own session follows the same run: it takes over what it
    lacks. Never raises.
    """
    try:
        if how is None or how.settings.disabled:
            return None
        outer: Session | None = session_in(context)
        if outer is not None and outer.serves(given):
            outer.adopt(agent_name, attributes, given)
            return None
        return Session(how, context, given=given, agent_name=agent_name, attributes=attributes)
    except Exception as error:
        if Boundary.strict:
            raise
        _logger.warning("agui-otel cannot observe a stream: %s", type(error).__name__)
        return None
