"""The span of an agent or a tool call that may not have been made yet.

Where a stream is traced by whoever consumes it, an agent's span is made when its SUBAGENT_STARTED arrives there, which
is after the agent has gone on. A span of another instrumentation needs its parent at once. So what is current while an
agent works is a stand-in, which looks for the real span when it is first asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanContext, get_current_span

from agui_otel.tracing.session import Session

PATIENCE = 0.1
"""Seconds that the first question may wait for a consumer that is busy with what it got. Nobody asks unless another
instrumentation traces.
"""
MOST_PATIENCE = 2.0
"""Seconds that it may wait for one that waits for events itself: then it is a matter of which thread runs."""


class LateSpan(Span):
    """The span of a subagent, or of one of its tool calls, once `session` has made it; before, that of `context`.

    `patience`: for how many seconds the first question may wait, as things are now.
    """

    def __init__(
        self,
        session: Session,
        context: Context,
        subagent_run_id: str | None,
        tool_call_id: str | None,
        patience: Callable[[], float],
    ) -> None:
        self._session = session
        self._context = context
        self._patience = patience
        self._names = (subagent_run_id, tool_call_id)
        self._span: Span | None = None
        self._waited = False

    def _real(self) -> Span:
        if self._span is not None:
            return self._span
        began = time.monotonic()
        while True:
            self._span = self._session.span_of(*self._names)
            if self._span is not None:
                return self._span
            if self._waited or time.monotonic() - began >= self._patience():
                self._waited = True
                return get_current_span(self._context)
            time.sleep(0.001)

    def get_span_context(self) -> SpanContext:
        """The real span's."""
        return self._real().get_span_context()

    def is_recording(self) -> bool:
        """Whether the real span does."""
        return self._real().is_recording()

    def end(self, end_time: int | None = None) -> None:
        """Nothing: whoever made the real span ends it."""

    def set_attributes(self, attributes: Any) -> None:
        """On the real span."""
        self._real().set_attributes(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        """On the real span."""
        self._real().set_attribute(key, value)

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        """On the real span."""
        self._real().add_event(name, attributes, timestamp)

    def add_link(self, context: SpanContext, attributes: Any = None) -> None:
        """On the real span."""
        self._real().add_link(context, attributes)

    def update_name(self, name: str) -> None:
        """Nothing: an agent's span is named after the agent."""

    def set_status(self, status: Any, description: str | None = None) -> None:
        """Nothing: an agent's outcome is what its events say."""

    def record_exception(
        self, exception: BaseException, attributes: Any = None, timestamp: int | None = None, escaped: bool = False
    ) -> None:
        """On the real span."""
        self._real().record_exception(exception, attributes, timestamp, escaped)
