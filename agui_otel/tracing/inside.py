"""Spans of other instrumentations inside a run: they get the run's session, and show whether tokens are counted already.

A processor on the host's provider puts ``session.id``, ``user.id``, ``agui.thread.id`` and ``agui.run.id`` on every
span whose parent context carries a session, else whose trace is that of exactly one open run (trace model: what runs
inside).
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, Protocol

from opentelemetry.context import Context, create_key, get_value, set_value
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import TracerProvider

from agui_otel.tracing import semconv as s

SCOPE = "agui_otel"
"""The instrumentation scope of this package's own spans."""

_SESSION = create_key("agui-otel-session")
_LLM_OPERATIONS = frozenset({"chat", "text_completion", "generate_content"})
_INHERITED = (s.SESSION_ID, s.USER_ID, s.THREAD_ID, s.RUN_ID)


class Inhabited(Protocol):
    """A run that spans of others may be inside of: the session."""

    saw_llm_span: bool

    @property
    def inherited(self) -> dict[str, Any]:
        """The attributes of the current run that spans inside it get; empty when none is open."""


def with_session(context: Context, session: Inhabited) -> Context:
    """`context`, carrying the session."""
    return set_value(_SESSION, session, context)


def session_in(context: Context | None = None) -> Any:
    """The session that `context` (None: the current one) carries, or None."""
    return get_value(_SESSION, context)


class OpenRuns:
    """Which sessions have an open run in which trace."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_trace: dict[int, list[Inhabited]] = {}

    def enter(self, trace_id: int, session: Inhabited) -> None:
        """A run of `session` was opened in the trace."""
        with self._lock:
            self._by_trace.setdefault(trace_id, []).append(session)

    def leave(self, trace_id: int, session: Inhabited) -> None:
        """The run has ended."""
        with self._lock:
            sessions = self._by_trace.get(trace_id, [])
            sessions[:] = [other for other in sessions if other is not session]
            if not sessions:
                self._by_trace.pop(trace_id, None)

    def sole(self, trace_id: int) -> Inhabited | None:
        """The session of the only open run in this trace."""
        sessions = self._by_trace.get(trace_id)
        return sessions[0] if sessions is not None and len(sessions) == 1 else None

    def of(self, trace_id: int, run_id: object) -> Inhabited | None:
        """The session whose run has this id, among those of the trace."""
        for session in self._by_trace.get(trace_id, ()):
            if session.inherited.get(s.RUN_ID) == run_id:
                return session
        return None


OPEN_RUNS = OpenRuns()
"""Of this process."""


class InsideProcessor(SpanProcessor):
    """Gives spans inside a run its identity, and tells the run of LLM spans. Never raises."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Set the attributes that the span does not have."""
        try:
            scope = span.instrumentation_scope
            if scope is not None and scope.name == SCOPE:
                return
            context = span.get_span_context()
            session = session_in(parent_context) or (
                OPEN_RUNS.sole(context.trace_id) if context is not None else None
            )
            if session is None:
                return
            present = span.attributes or {}
            for key, value in session.inherited.items():
                if key not in present:
                    span.set_attribute(key, value)
        except Exception:  # noqa: BLE001 - in the host's path nothing is raised
            return

    def on_end(self, span: ReadableSpan) -> None:
        """An LLM span of another instrumentation reports its tokens itself."""
        try:
            scope = span.instrumentation_scope
            attributes = span.attributes
            if not attributes or (scope is not None and scope.name == SCOPE):
                return
            if (
                attributes.get(s.SPAN_KIND) != "LLM"
                and attributes.get(s.GEN_AI_OPERATION_NAME) not in _LLM_OPERATIONS
            ):
                return
            context = span.get_span_context()
            session = (
                OPEN_RUNS.of(context.trace_id, attributes.get(s.RUN_ID)) if context is not None else None
            )
            if session is not None:
                session.saw_llm_span = True
        except Exception:  # noqa: BLE001 - in the host's path nothing is raised
            return

    def shutdown(self) -> None:
        """Nothing is held."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 (the SDK's signature)
        """Nothing is held."""
        return True


_watched: weakref.WeakKeyDictionary[TracerProvider, bool] = weakref.WeakKeyDictionary()
_watching = threading.Lock()


def watch_inside(provider: TracerProvider) -> bool:
    """Add the processor to an SDK provider, once; whether the provider has it."""
    known = _watched.get(provider)
    if known is not None:
        return known
    with _watching:
        if provider not in _watched:
            add = getattr(provider, "add_span_processor", None)
            if callable(add):
                add(InsideProcessor())
            _watched[provider] = callable(add)
        return _watched[provider]


def inherited(common: dict[str, Any]) -> dict[str, Any]:
    """Of a run's common attributes, those that spans inside it get."""
    return {key: common[key] for key in _INHERITED if key in common}
