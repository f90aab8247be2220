"""Spans of other instrumentations inside a run: they get the run's session, and show if tokens are counted already.

A processor on the host's provider puts ``session.id``, ``user.id``, ``agui.thread.id`` and ``agui.run.id`` on every
span whose parent context carries a session, else whose trace is that of exactly one open run (trace model: what runs
inside).
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Mapping
from typing import Any

from opentelemetry.context import Context, create_key, get_value, set_value
from opentelemetry.trace import TracerProvider

from agui_otel.tracing import semconv as s
from agui_otel.tracing.content import short
from agui_otel.tracing.forking import renewed

SCOPE = "agui_otel"
"""The instrumentation scope of this package's own spans."""

_PRESENCE = create_key("agui-otel-session")
_INHERITED = (s.SESSION_ID, s.USER_ID, s.THREAD_ID, s.RUN_ID)


class Presence:
    """What contexts carry of a session: the identity of its current run, and the way back to the session.

    Contexts outlive streams: a task that the producer started keeps its own for as long as it runs. So a presence
    does not keep its session alive.
    """

    __slots__ = ("_first", "_session", "_trace_id", "inherited", "runs", "saw_llm_span")

    def __init__(self, session: object) -> None:
        self._session = weakref.ref(session)
        self._trace_id: int | None = None
        self._first: object = None
        self.runs = 0
        """How many runs were opened."""
        self.saw_llm_span = False
        """Whether an LLM span of another instrumentation ended in the current run."""
        self.inherited: Mapping[str, Any] = {}
        """The attributes that spans inside the current run, or the last one, get."""

    @property
    def session(self) -> Any:
        """The session; None when it is gone."""
        return self._session()

    def enter(self, trace_id: int) -> None:
        """A run was opened in the trace."""
        self.leave()
        self.runs += 1
        self.saw_llm_span = False
        self._trace_id = trace_id
        OPEN_RUNS.enter(trace_id, self)

    def identify(self, common: Mapping[str, Any]) -> None:
        """What every span of the current run carries is known, or better known."""
        self.inherited = {key: common[key] for key in _INHERITED if key in common}
        if self.runs == 1:
            self._first = self.inherited.get(s.RUN_ID)

    def began(self, run_id: str) -> bool:
        """Whether the first run has, or had, this id."""
        return self._first == short(run_id)

    def leave(self) -> None:
        """The run has ended; a second time is nothing."""
        if self._trace_id is not None:
            OPEN_RUNS.leave(self._trace_id, self)
            self._trace_id = None


def with_presence(context: Context, presence: Presence) -> Context:
    """`context`, carrying a session's presence."""
    return set_value(_PRESENCE, presence, context)


def wants_usage(wanted: str, watched: bool, presence: Presence) -> bool:
    """Whether usage spans are wanted in the current run: `auto`, where nobody else's LLM span ended in it."""
    return wanted == "on" or (wanted == "auto" and watched and not presence.saw_llm_span)


def presence_in(context: Context | None = None) -> Presence | None:
    """The presence that `context` (None: the current one) carries."""
    found = get_value(_PRESENCE, context)
    return found if isinstance(found, Presence) else None


def session_in(context: Context | None = None) -> Any:
    """The session that `context` (None: the current one) carries; None where there is none, or it is gone."""
    presence = presence_in(context)
    return presence.session if presence is not None else None


class OpenRuns:
    """Which sessions have an open run in which trace."""

    def __init__(self) -> None:
        self._lock = renewed(self, "_lock", threading.RLock)  # a collection in here may end a stream
        self._by_trace: dict[int, dict[int, Presence]] = {}

    def __len__(self) -> int:
        return sum(map(len, list(self._by_trace.values())))

    def enter(self, trace_id: int, presence: Presence) -> None:
        """A run was opened in the trace."""
        with self._lock:
            present = self._by_trace.setdefault(trace_id, {})
            present[id(presence)] = presence
            self._by_trace[trace_id] = present

    def leave(self, trace_id: int, presence: Presence) -> None:
        """The run has ended."""
        with self._lock:
            present = self._by_trace.get(trace_id, {})
            present.pop(id(presence), None)
            if not present:
                self._by_trace.pop(trace_id, None)

    def sole(self, trace_id: int) -> Presence | None:
        """The session of the only open run in this trace."""
        present = self._by_trace.get(trace_id)
        return next(iter(list(present.values()))) if present is not None and len(present) == 1 else None

    def of(self, trace_id: int, run_id: object) -> Presence | None:
        """The session whose run has this id, among those of the trace; an id that none of them has, among all."""
        traces = [self._by_trace.get(trace_id, {})]
        if run_id is not None:
            traces += self._by_trace.values()
        found = (presence for present in traces for presence in list(present.values()))
        return next((presence for presence in found if presence.inherited.get(s.RUN_ID) == run_id), None)


OPEN_RUNS = OpenRuns()
"""Of this process."""


_watched: weakref.WeakKeyDictionary[TracerProvider, bool] = weakref.WeakKeyDictionary()
_watching = renewed(sys.modules[__name__], "_watching", threading.Lock)


def watch_inside(provider: TracerProvider) -> bool:
    """Add the processor to an SDK provider, once; whether the provider has it. Never raises."""
    try:
        known = _watched.get(provider)
        if known is not None:
            return known
        with _watching:
            if provider not in _watched:
                _watched[provider] = _add_processor(provider)
            return _watched[provider]
    except TypeError:  # a provider that cannot be a weak key: it would get one for each stream
        return False


def _add_processor(provider: TracerProvider) -> bool:
    add = getattr(provider, "add_span_processor", None)
    if not callable(add):
        return False
    try:
        from agui_otel.tracing.processor import InsideProcessor

        add(InsideProcessor())
    except Exception:  # noqa: BLE001 - a host's provider costs the attributes, never the run
        return False
    return True
