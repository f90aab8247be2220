"""What every span has in common: how it is started, owned, and how it fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer

from agui_otel.config import Settings
from agui_otel.protocol.entities import Agent, Entity, Outcome, Run, Subagent
from agui_otel.tracing import semconv as s
from agui_otel.tracing.content import Content, short
from agui_otel.tracing.handles import Attributes

Describe = Callable[[Run], Mapping[str, Any]]


@dataclass(slots=True)
class Placement:
    """Where a run's root span goes: its parent's context, links, and attributes that say what links say."""

    context: Context
    links: list[Link] = field(default_factory=list)
    attributes: Attributes = field(default_factory=dict)


class Starter:
    """Starts the spans of one stream. ``common`` is what every span of the current run carries.

    `describe` gives the attributes that the host wants on every span of a run.
    """

    def __init__(self, tracer: Tracer, settings: Settings, content: Content, describe: Describe) -> None:
        self.content = content
        self.common: Attributes = {}
        self._tracer = tracer
        self._settings = settings
        self._describe = describe

    def identify(self, run: Run) -> Attributes:
        """The identity of `run`, which becomes ``common``."""
        identity: Attributes = {}
        thread = run.thread_id
        if thread is not None:
            identity[s.THREAD_ID] = short(thread)
            if thread not in self._settings.anonymous_threads:
                identity[s.SESSION_ID] = identity[s.GEN_AI_CONVERSATION_ID] = short(thread)
        if run.id:
            identity[s.RUN_ID] = short(run.id)
        if self._settings.user_id is not None:
            identity[s.USER_ID] = self._settings.user_id
        identity.update(self._describe(run))
        self.common = identity
        return identity

    def owned(self, owner: Agent, kind: str) -> Attributes:
        """What every span of `owner`'s carries; `kind` is OpenInference's."""
        attributes = self.common.copy()
        attributes[s.SPAN_KIND] = kind
        if type(owner) is Subagent:
            attributes[s.SUBAGENT_RUN_ID] = short(owner.id)
            if owner.name is not None:
                attributes[s.SUBAGENT_NAME] = short(owner.name)
        return attributes

    def entity(
        self, name: str, entity: Entity, parent: Context, attributes: Attributes, links: Sequence[Link] = ()
    ) -> Span:
        """Start the span of an entity, with what it continues and its step."""
        if entity.continues is not None:
            attributes[s.CONTINUED] = True
            attributes[s.CONTINUES_TRACE_ID] = entity.continues.trace_id
            attributes[s.CONTINUES_SPAN_ID] = entity.continues.span_id
            attributes[s.CONTINUES_RUN_ID] = short(entity.continues.run_id)
        if entity.step is not None:
            attributes[s.STEP_NAME] = short(entity.step)
        return self.plain(name, parent, attributes, entity.opened_at, links)

    def plain(
        self, name: str, parent: Context, attributes: Attributes, at: int, links: Sequence[Link] | None = None
    ) -> Span:
        """Start a span at `at`, in nanoseconds since the epoch."""
        return self._tracer.start_span(
            name, context=parent, kind=SpanKind.INTERNAL, attributes=attributes, links=links, start_time=at
        )

    def fail(self, entity: Entity, attributes: Attributes) -> str | None:
        """Status, error attributes and the exception event of what failed; returns its ``error.type``.

        What was cancelled has not failed: it only tells its message.
        """
        failure = entity.failure
        if failure is None:
            return None
        if entity.outcome is not Outcome.ERROR:
            self.content.output(s.MESSAGE, failure.message, attributes)
            return None
        kind = short(failure.type)
        attributes[s.ERROR_TYPE] = kind
        exception: Attributes = {s.EXCEPTION_TYPE: kind}
        message = self.content.error_message(failure.message, exception) if failure.message else None
        if failure.stacktrace:
            self.content.output(s.EXCEPTION_STACKTRACE, failure.stacktrace, exception)
        span: Span = entity.handle.span
        span.add_event(s.EXCEPTION, exception, entity.ended_at)
        span.set_status(Status(StatusCode.ERROR, message or kind))
        return kind


def put(attributes: Attributes, key: str, value: str | None) -> None:
    """Set a name or an id, where there is one."""
    if isinstance(value, str):
        attributes[key] = short(value)
