"""How streams end, and that those which are open end before what exports them does (trace model: outcomes)."""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import traceback
import weakref
from functools import cache
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Literal, Protocol

from opentelemetry.trace import Tracer, TracerProvider

from agui_otel.protocol.entities import Failure, Outcome
from agui_otel.tracing.background import settle_at_exit
from agui_otel.tracing.forking import renewed
from agui_otel.tracing.inside import SCOPE

Reason = Literal["exhausted", "error", "cancelled", "disconnected"]

EXIT_SECONDS = 2.0
"""How long the interpreter's exit waits for a shared thread memory at most."""

OUTCOMES: dict[Reason, Outcome] = {
    "exhausted": Outcome.UNFINISHED,
    "error": Outcome.ERROR,
    "cancelled": Outcome.CANCELLED,
    "disconnected": Outcome.DISCONNECTED,
}
"""The outcome of a run that had no terminal event, by how its stream ended."""


def reason_of(error: BaseException) -> Reason:
    """How a stream ended that ended with `error`: the consumer left, the producer was stopped, or it failed.

    What is no ``Exception`` stops the producer: a cancelled task (of any event loop), Ctrl-C, ``sys.exit``.
    """
    if isinstance(error, GeneratorExit):
        return "disconnected"
    return "error" if isinstance(error, Exception) else "cancelled"


def reason_to_leave(error: BaseException) -> Reason:
    """How a stream ended into which its consumer threw `error`: a cancelled closing is a closing."""
    return "disconnected" if isinstance(error, asyncio.CancelledError) else reason_of(error)


def failure_of(error: BaseException | None) -> Failure:
    """What `error` says: its class, its message and its traceback."""
    if error is None:
        return Failure("agui.run_error", "")
    kind = type(error)
    local = kind.__module__ in ("builtins", "__main__")
    name = kind.__qualname__ if local else f"{kind.__module__}.{kind.__qualname__}"
    try:
        return Failure(name, str.__str__(str(error)), "".join(traceback.format_exception(error)))
    except Exception:  # noqa: BLE001 - an exception whose __str__ raises
        return Failure(name, "")


def refusal(status: int) -> Failure:
    """What an HTTP status of 400 or more says: 4xx is the request's fault."""
    try:
        phrase = f" {HTTPStatus(status).phrase}"
    except ValueError:
        phrase = ""
    return Failure(str(status), f"HTTP {status}{phrase}", refused=400 <= status < 500)


class Open(Protocol):
    """What is to end before the interpreter does: a session."""

    def finish(self, reason: Reason) -> None:
        """End it, if it has not ended."""

    def forget(self) -> None:
        """Never end it: that is another process's."""


_open: dict[int, weakref.ref[Open]] = {}
_providers: dict[int, TracerProvider] = {}
"""Of each open session, the provider of its spans."""
_tracers: weakref.WeakKeyDictionary[TracerProvider, Tracer] = weakref.WeakKeyDictionary()
_making = renewed(sys.modules[__name__], "_making", threading.Lock)


def opened(session: Open, provider: TracerProvider) -> None:
    """`session` is to end before the interpreter does, and before `provider` is shut down by us."""
    _open[id(session)] = weakref.ref(session)
    _providers[id(session)] = provider


def ended(session: Open) -> None:
    """`session` has ended."""
    _open.pop(id(session), None)
    _providers.pop(id(session), None)


def open_sessions() -> int:
    """How many sessions are open in this process."""
    return len(_open)


def _forget_all() -> None:
    """In a forked child: what was open is the parent's to end."""
    for reference in list(_open.values()):
        session = reference()
        if session is not None:
            session.forget()
    _open.clear()
    _providers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def tracer_of(provider: TracerProvider) -> Tracer:
    """This package's tracer of a provider.

    A provider that is new here exports at the interpreter's exit already: open sessions have to end before it does.
    """
    try:
        tracer = _tracers.get(provider)
    except TypeError:  # a provider that cannot be a weak key
        return provider.get_tracer(SCOPE, _version())
    if tracer is None:
        with _making:
            tracer = provider.get_tracer(SCOPE, _version())
            _tracers[provider] = tracer
            atexit.unregister(_end_all)
            atexit.register(_end_all)
    return tracer


def _end_all() -> None:
    """The interpreter exits: what is open is cancelled, and what waits for a shared thread memory has a moment yet."""
    for reference in list(_open.values()):
        session = reference()
        if session is not None:
            session.finish("cancelled")
    settle_at_exit(EXIT_SECONDS)


def end_all_of(provider: TracerProvider) -> None:
    """The provider is shut down: what is open there is cancelled, while it can still be exported."""
    for ident, reference in list(_open.items()):
        session = reference()
        if session is not None and _providers.get(ident) is provider:
            session.finish("cancelled")


@cache
def _version() -> str:
    try:
        return version("agui-otel")
    except PackageNotFoundError:
        return ""
