"""The harmlessness boundary: an error of the observer is counted and logged once, and never reaches the host."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import traceback

from agui_otel.tracing.forking import renewed
from agui_otel.tracing.metrics import Instruments

_logger = logging.getLogger("agui_otel")
_lock = renewed(sys.modules[__name__], "_lock", threading.RLock)  # a collection in here may end a stream
_told: set[tuple[str, str]] = set()

MAX_TOLD = 1000
"""Kinds of errors that are logged in one process."""


class Boundary:
    """Takes the errors of one session. Logs carry the place and the error's class: no content.

    ``strict`` raises them instead: for this package's own tests.
    """

    strict = False

    def __init__(self, metrics: Instruments) -> None:
        self._metrics = metrics

    def swallow(self, where: str, error: BaseException) -> None:
        """Count `error`, and log the first of its kind in this process."""
        if Boundary.strict:
            raise error
        self._metrics.observer_error(where)
        tell(
            where,
            error,
            "the stream is not affected, its trace may be incomplete. "
            "Further errors of this kind are only counted (agui.observer.errors).",
        )

    def count(self, where: str, times: int) -> None:
        """Count what was lost by no error."""
        if times:
            self._metrics.observer_error(where, times)


def tell(where: str, error: BaseException, consequence: str) -> None:
    """Log that something of the observer failed, and what that means: the first of its kind in this process."""
    kind = (where, type(error).__name__)
    with _lock:
        first = kind not in _told and len(_told) < MAX_TOLD
        if first:
            _told.add(kind)
    if first:
        with contextlib.suppress(Exception):  # a handler of the host's that raises
            _logger.warning("agui-otel: %s failed with %s; %s", *kind, consequence)
            if _logger.isEnabledFor(logging.DEBUG):
                _logger.debug("%s", "".join(traceback.format_tb(error.__traceback__)))
