"""What every way in does first: decide how to observe, and whether somebody observes this stream already."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from agui_otel.config import Settings
from agui_otel.exporting import Handle, current_handle, handle_for
from agui_otel.tracing.boundary import Boundary, tell
from agui_otel.tracing.host import Attributes
from agui_otel.tracing.inside import session_in
from agui_otel.tracing.session import Observer, Session

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
    """How to observe. Where no providers are given, each stream uses those that there are when it starts.

    Raises ConfigurationError where the environment holds a setting that is not allowed.
    """
    return Observer(
        settings=config if config is not None else environment_settings(),
        tracer_provider=tracer_provider,
        meter_provider=meter_provider,
        redact=redact,
        tool_failed=tool_failed,
        decision=decision,
    )


def handle_of(how: Observer) -> Handle | None:
    """What `setup` returned for the providers that `how` uses; None where they are the host's."""
    return current_handle() if how.tracer_provider is None else handle_for(how.tracer_provider)


def start(
    how: Observer, context: Context, given: Any, agent_name: str | None, attributes: Attributes | None
) -> Session | None:
    """A session for a stream that starts in `context`; None where nothing is to be observed here.

    That is so when observing is disabled, or when the context's own session follows the same run: it takes over what it
    lacks. Never raises.
    """
    try:
        if how.settings.disabled:
            return None
        outer: Session | None = session_in(context)
        if outer is not None and outer.serves(given):
            outer.adopt(agent_name, attributes, given)
            return None
        return Session(_resolved(how), context, given=given, agent_name=agent_name, attributes=attributes)
    except Exception as error:
        if Boundary.strict:
            raise
        tell("start", error, "such streams pass through, and are not traced.")
        return None


def _resolved(how: Observer) -> Observer:
    """`how` with the providers of `setup`, where it has none of its own; a session takes the global ones else."""
    handle = handle_of(how)
    if handle is None or not handle.exports_to_phoenix:
        _say_that_content_is_left_out(how.settings)
    if handle is None:
        return how
    return replace(
        how,
        tracer_provider=handle.tracer_provider,
        meter_provider=handle.meter_provider if how.meter_provider is None else how.meter_provider,
        phoenix=handle.exports_to_phoenix,
    )


def _say_that_content_is_left_out(settings: Settings) -> None:
    if settings.capture == "auto" and settings.genai_capture is None:
        _say_once()


@lru_cache(maxsize=1)
def _say_once() -> None:
    _logger.info(
        "agui-otel exports names, ids, counts and times, and no content (texts, arguments, results); "
        "AGUI_OTEL_CAPTURE=full adds it, AGUI_OTEL_CAPTURE=metadata silences this line"
    )
