"""The span processor of `agui_otel.tracing.inside`, imported only where a provider is the SDK's, which it needs."""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from agui_otel.tracing import semconv as s
from agui_otel.tracing.inside import OPEN_RUNS, SCOPE, presence_in

_LLM_OPERATIONS = frozenset({"chat", "text_completion", "generate_content"})


class InsideProcessor(SpanProcessor):
    """Gives spans inside a run its identity, and tells the run of LLM spans. Never raises."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Set the attributes that the span does not have."""
        try:
            scope = span.instrumentation_scope
            if scope is not None and scope.name == SCOPE:
                return
            presence = presence_in(parent_context)
            if presence is None:
                context = span.get_span_context()
                presence = OPEN_RUNS.sole(context.trace_id) if context is not None else None
            if presence is None:
                return
            present = span.attributes or {}
            for key, value in presence.inherited.items():
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
            operation = attributes.get(s.GEN_AI_OPERATION_NAME)
            if attributes.get(s.SPAN_KIND) != "LLM" and operation not in _LLM_OPERATIONS:
                return
            context = span.get_span_context()
            presence = OPEN_RUNS.of(context.trace_id, attributes.get(s.RUN_ID)) if context is not None else None
            if presence is not None:
                presence.saw_llm_span = True
        except Exception:  # noqa: BLE001 - in the host's path nothing is raised
            return

    def shutdown(self) -> None:
        """Nothing is held."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:  # noqa: ARG002 (the SDK's signature)
        """Nothing is held."""
        return True
