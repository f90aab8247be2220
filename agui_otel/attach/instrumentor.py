"""The way in without code: `opentelemetry-instrument uvicorn app:app` traces every Starlette and FastAPI application.

The middleware stands where Starlette handles an application's exceptions: inside all middlewares that the application
has added, so a server span of another instrumentation is the run's surrounding, and bodies are seen as the endpoint
sends them. It is reached through the class, so applications that exist already are traced as well, and taking it away
leaves nothing behind.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

from agui_otel.attach.asgi import Receive, Scope, Send, TracingMiddleware
from agui_otel.attach.observe import say_what_is_left_out, without_content
from agui_otel.config import Settings
from agui_otel.errors import ConfigurationError
from agui_otel.exporting import setup_where_nobody_did

_logger = logging.getLogger("agui_otel")

Call = Callable[[Any, Scope, Receive, Send], Awaitable[None]]


class AGUIInstrumentor(BaseInstrumentor):  # type: ignore[misc]
    """Trace the AG-UI runs of all Starlette and FastAPI applications of this process.

    `instrument()` takes the keywords of `TracingMiddleware`. Where nobody has set a global TracerProvider by the time
    that an application has started, `setup()` is called, and exports where the environment says. Content is exported
    only where the settings ask for it. `uninstrument()` takes the middleware away; providers stay.
    """

    def instrumentation_dependencies(self) -> Collection[str]:
        """What is instrumented."""
        return ("starlette >= 0.22",)

    def _instrument(self, **keywords: Any) -> None:
        from starlette.middleware.exceptions import ExceptionMiddleware

        settings = _settings(keywords.pop("config", None))
        if settings is None or settings.disabled:
            return
        exporting = _Exporting(settings, given=keywords.get("tracer_provider") is not None)
        middleware = TracingMiddleware(_unused, config=without_content(settings), **keywords)
        self._patch = _Patch(ExceptionMiddleware, middleware, exporting)

    def _uninstrument(self, **_: Any) -> None:
        patch: _Patch | None = self.__dict__.pop("_patch", None)
        if patch is not None:
            patch.undo()


class _Patch:
    """The call of a class of middlewares, with ours around it."""

    def __init__(self, kind: Any, middleware: TracingMiddleware, exporting: _Exporting) -> None:
        original: Call = kind.__call__
        self._kind = kind
        self._original = original
        self._active = True

        async def traced(middlewares: Any, scope: Scope, receive: Receive, send: Send) -> None:
            if not self._active:
                await original(middlewares, scope, receive, send)
                return
            if scope["type"] == "lifespan":
                send = exporting.from_startup(send)
            else:
                exporting.begin()
            await middleware.serve(partial(original, middlewares), scope, receive, send)

        self._traced = traced
        kind.__call__ = traced

    def undo(self) -> None:
        """Put the original call back; where somebody has put another around ours, ours does nothing."""
        self._active = False
        if self._kind.__call__ is self._traced:
            self._kind.__call__ = self._original


class _Exporting:
    """The providers of a process that has none: made once, when the application has had its time to make its own."""

    def __init__(self, settings: Settings, *, given: bool) -> None:
        self._settings = settings
        self._done = given

    def from_startup(self, send: Send) -> Send:
        """`send` for an application's lifespan: when its startup is complete, there are providers."""

        async def begin_then_send(message: Any) -> None:
            if message["type"] == "lifespan.startup.complete":
                self.begin()
            await send(message)

        return begin_then_send

    def begin(self) -> None:
        """Make what nobody has made. Never raises."""
        if self._done:
            return
        self._done = True
        say_what_is_left_out(self._settings)
        try:
            setup_where_nobody_did(self._settings)
        except Exception as error:  # noqa: BLE001 - what the environment says wrong is no reason to stop a server
            _logger.error("agui-otel exports nothing: %s", error)


def _settings(config: Settings | None) -> Settings | None:
    """The settings; None where the environment's are wrong: that is no reason to stop other instrumentations."""
    try:
        return config if config is not None else Settings()
    except ConfigurationError as error:
        _logger.error("agui-otel traces nothing: %s", error)
        return None


async def _unused(scope: Scope, receive: Receive, send: Send) -> None:
    """What the middleware would serve by itself: applications are given to it one by one."""
