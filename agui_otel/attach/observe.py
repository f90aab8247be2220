"""What every way in does first: decide how to observe, and whether somebody observes this stream already."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from opentelemetry.context import Context, attach, create_key, detach, get_current, get_value, set_value
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider, get_tracer_provider

from agui_otel.config import Settings, checked
from agui_otel.exporting import Handle, current_handle, handle_for, nobody_provides
from agui_otel.tracing.background import settle
from agui_otel.tracing.boundary import Boundary, tell
from agui_otel.tracing.host import Attributes
from agui_otel.tracing.inside import Presence, session_in
from agui_otel.tracing.metrics import instruments
from agui_otel.tracing.observer import Observer
from agui_otel.tracing.remembering import memory_of
from agui_otel.tracing.session import Session

_logger = logging.getLogger("agui_otel")
_INNER = create_key("agui-otel-inner")


class Inner:
    """The sessions that started inside a request, for a way in that sees the request's stream later than they do."""

    __slots__ = ("_presences",)

    def __init__(self) -> None:
        self._presences: list[Presence] = []

    def add(self, session: Session) -> None:
        """`session` started inside."""
        self._presences.append(session.presence)

    def follows(self, event: Mapping[str, Any]) -> bool:
        """Whether one of them follows the stream whose first event this is, or did: they have seen it before.

        RUN_STARTED says which run it is. With any other first event, what was traced inside is taken to be this.
        """
        if event.get("type") != "RUN_STARTED":
            return bool(self._presences)
        ident = event.get("runId")
        return isinstance(ident, str) and any(presence.began(ident) for presence in self._presences)


def with_inner(context: Context, inner: Inner) -> Context:
    """`context`, in which sessions that start make themselves known to `inner`."""
    return set_value(_INNER, inner, context)


def current_context() -> tuple[Callable[[], Context], Callable[[Context], Any], Callable[[Any], None]]:
    """How to get, set and reset the current context: of the variable that holds it, which costs half the API's way.

    Resetting raises ValueError in another context than the one that was set.
    """
    token: Any = attach(get_current())
    variable = getattr(token, "var", None)
    detach(token)
    if variable is None:  # a context runtime of the host's own
        return get_current, attach, detach
    return variable.get, variable.set, variable.reset


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

    Raises ConfigurationError where the environment holds a setting that is not allowed, and where `config` is none.
    """
    settings = checked(config) or environment_settings()
    if not settings.disabled:
        memory_of(settings)  # what has to be imported for it is not imported in a stream
    return Observer(
        settings=settings,
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
        session = Session(_resolved(how), context, given=given, agent_name=agent_name, attributes=attributes)
        inner = get_value(_INNER, context)
        if isinstance(inner, Inner):
            inner.add(session)
        return session
    except Exception as error:
        if Boundary.strict:
            raise
        tell("start", error, "such streams pass through, and are not traced.")
        return None


def _resolved(how: Observer) -> Observer:
    """`how` with the providers of `setup`, where it has none of its own; a session takes the global ones else."""
    handle = handle_of(how)
    if handle is None and how.tracer_provider is None and nobody_provides():
        _say_that_it_goes_nowhere()
    elif handle is None or not handle.exports_to_phoenix:
        say_what_is_left_out(how.settings)
    if handle is None:
        how.derived.pop(_resolved, None)
        return how
    known: Handle | None
    resolved: Observer
    known, resolved = how.derived.get(_resolved, (None, how))
    if known is not handle:
        resolved = replace(
            how,
            tracer_provider=handle.tracer_provider,
            meter_provider=handle.meter_provider if how.meter_provider is None else how.meter_provider,
            phoenix=handle.exports_to_phoenix,
        )
        how.derived[_resolved] = handle, resolved
    return resolved


def without_content(settings: Settings) -> Settings:
    """The settings of a way in that exports no content, wherever it exports to, until somebody asks for it."""
    if settings.capture == "auto" and settings.genai_capture is None:
        return settings.model_copy(update={"capture": "metadata"})
    return settings


def say_what_is_left_out(settings: Settings) -> None:
    """Log, once a process, that no content is exported, where nobody has decided that."""
    if settings.capture == "auto" and settings.genai_capture is None:
        _say_once()


@lru_cache(maxsize=1)
def _say_once() -> None:
    _logger.info(
        "agui-otel exports names, ids, counts and times, and no content (texts, arguments, results); "
        "AGUI_OTEL_CAPTURE=full adds it, AGUI_OTEL_CAPTURE=metadata silences this line"
    )


@lru_cache(maxsize=1)
def _say_that_it_goes_nowhere() -> None:
    _logger.warning(
        "agui-otel: spans and metrics go nowhere, because this process has no OpenTelemetry provider yet; call "
        "agui_otel.setup() when it starts, or set OpenTelemetry up (AGUI_OTEL_DISABLED=true silences this line)"
    )


def swallow(how: Observer, where: str, error: Exception) -> None:
    """Count and log an error that a way in made outside any session."""
    settings = how.settings
    Boundary(instruments(how.meter_provider, max_names=settings.max_names, enabled=settings.metrics)).swallow(
        where, error
    )


def flush(how: Observer, seconds: float) -> None:
    """Export what has ended, with whatever provider `how` uses; returns when that is done, or took too long.

    What still waits for a shared thread memory has half of the time to end.
    """
    try:
        settle(seconds / 2)
        handle = handle_of(how)
        if handle is not None:
            handle.force_flush(seconds)
            return
        provider = how.tracer_provider if how.tracer_provider is not None else get_tracer_provider()
        force = getattr(provider, "force_flush", None)
        if callable(force):
            force(round(seconds * 1000))
    except Exception as error:  # noqa: BLE001 - a host's provider
        swallow(how, "flush", error)
