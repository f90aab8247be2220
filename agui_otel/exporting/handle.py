"""What `setup` returns, and which of them are alive in this process."""

from __future__ import annotations

import atexit
import logging
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from agui_otel.tracing.background import settle
from agui_otel.tracing.ending import end_all_of
from agui_otel.tracing.forking import renewed

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider

    from agui_otel.exporting.queue import SpanQueue

_logger = logging.getLogger(__name__)

_lock = renewed(sys.modules[__name__], "_lock", threading.Lock)
_alive: list[Handle] = []
_current: Handle | None = None


class Handle:
    """The providers that one call of `setup` made, until `shutdown`. A context manager that shuts down.

    `tracer_provider`, `meter_provider`: what spans and metrics are made with. Where metrics are not exported
    (to Phoenix alone, or with `metrics=False`) the meter provider is the process's global one.
    `phoenix_url`: the base URL of Phoenix's pages, None when traces do not go to Phoenix.
    `project`: the Phoenix project, None when traces do not go to Phoenix and none is set.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider,
        meter_provider: MeterProvider,
        *,
        queue: SpanQueue | None = None,
        own_meter_provider: SdkMeterProvider | None = None,
        phoenix_url: str | None = None,
        project: str | None = None,
        receiver: str | None = None,
        exit_timeout: float = 5.0,
    ) -> None:
        self.tracer_provider = tracer_provider
        self.meter_provider = meter_provider
        self.phoenix_url = phoenix_url
        self.project = project
        self._receiver = receiver
        self._queue = queue
        self._own_meter_provider = own_meter_provider
        self._exit_timeout = exit_timeout
        self._closed = False

    def __repr__(self) -> str:
        """Where traces go: the address, and nothing that is sent along."""
        if self.phoenix_url is not None:
            way = f"traces to Phoenix at {self.phoenix_url}, project {self.project}"
        else:
            way = f"traces to {self._receiver}" if self._receiver is not None else "traces go nowhere"
        return f"<Handle: {way}{', shut down' if self._closed else ''}>"

    @property
    def exports_to_phoenix(self) -> bool:
        """Whether this set-up itself sends traces to Phoenix, without a collector between."""
        return self.phoenix_url is not None

    @property
    def owns_meter_provider(self) -> bool:
        """Whether metrics are exported by this set-up, not recorded with the process's global provider."""
        return self._own_meter_provider is not None

    def trace_url(self, trace_id: int | str) -> str | None:
        """The Phoenix page of a trace by its id, a number or 32 hexadecimal digits; None without Phoenix."""
        if self.phoenix_url is None:
            return None
        digits = f"{trace_id:032x}" if isinstance(trace_id, int) else trace_id
        return f"{self.phoenix_url}/redirects/traces/{digits}"

    def force_flush(self, timeout: float = 10.0) -> bool:
        """Send everything that has ended until now; False when it was not sent within `timeout` seconds.

        Runs that still wait for a shared thread memory are part of it.

        Sent is not accepted: what the receiver refused is logged, and counted in `agui.export.spans`.
        """
        due = time.monotonic() + timeout
        settled = settle(timeout / 2)
        done = (self._queue is None or self._queue.force_flush(_left(due) * 1000)) and settled
        if self._own_meter_provider is not None:
            try:
                done = self._own_meter_provider.force_flush(_left(due) * 1000) and done
            except Exception:  # noqa: BLE001 - the SDK raises where a reader had no time
                done = False
        return done

    def shutdown(self, timeout: float | None = None) -> bool:
        """Send what waits and stop exporting; further calls do nothing. Happens by itself at the exit.

        Runs that are open end as `cancelled`: what they do afterwards could not be sent.
        Takes `timeout` seconds and a moment at most (default: `setup`'s `exit_timeout`); False when that was
        too short, and what was left is dropped. `setup` may be called again afterwards; OpenTelemetry's own
        global providers cannot be replaced, so other instrumentations keep the ones that are shut down.
        """
        with _lock:
            if self._closed:
                return True
            self._closed = True
        _retire(self)
        atexit.unregister(self.shutdown)
        seconds = self._exit_timeout if timeout is None else timeout
        due = time.monotonic() + seconds
        end_all_of(self.tracer_provider)
        settled = settle(seconds / 2)
        done = self._queue is None or self._queue.close(_left(due))
        if self._own_meter_provider is not None:
            try:
                self._own_meter_provider.shutdown(timeout_millis=max(_left(due), 0.1) * 1000)
            except Exception:  # noqa: BLE001 - the SDK raises where a reader had no time
                done = False
        return done and settled

    def __enter__(self) -> Handle:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()


def current_handle() -> Handle | None:
    """The handle whose providers are used where none is given: `setup`'s last, until its `shutdown`."""
    return _current


def handle_for(tracer_provider: TracerProvider) -> Handle | None:
    """The living handle that made this provider, current or not."""
    for handle in _alive:
        if handle.tracer_provider is tracer_provider:
            return handle
    return None


def register(handle: Handle, *, current: bool) -> None:
    """Make the handle known until its shutdown, which is bound to happen at the interpreter's exit."""
    global _current  # noqa: PLW0603 - there is one current handle a process, as there is one global provider
    with _lock:
        _alive.append(handle)
        if current:
            _current = handle
    atexit.register(handle.shutdown)


def _retire(handle: Handle) -> None:
    global _current  # noqa: PLW0603
    with _lock:
        if handle in _alive:
            _alive.remove(handle)
        if _current is handle:
            _current = None


def _left(due: float) -> float:
    return max(due - time.monotonic(), 0.0)
