"""Who is at work in this thread: the one context variable that all hooks read.

smolagents passes no identity of an invocation anywhere, and the same agent object may run twice at once. So the hooks
keep it themselves: a frame is set while code of an invocation runs, and threads that smolagents starts inherit it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

from opentelemetry.context import Context, attach, detach

if TYPE_CHECKING:
    from agui_otel.smolagents.invocation import Invocation


@dataclass(eq=False)
class Call:
    """A tool call that has been announced. ``arguments`` are the host's own object: calls are told apart by it."""

    id: str
    name: str
    arguments: Any
    message_id: str | None
    claimed: bool = False
    failures: list[str] = field(default_factory=list)
    """The messages of the subagents that failed below this call."""


@dataclass(frozen=True)
class Asked:
    """What the caller of a managed agent said, before it went into the template of managed agents."""

    agent: Any
    task: Any
    additional_args: Any


@dataclass(frozen=True)
class Frame:
    """An invocation at work, and in which of its tool calls. ``fresh``: the call's own tool has not begun yet."""

    invocation: Invocation
    call: Call | None = None
    message_id: str | None = None
    fresh: bool = False
    asked: Asked | None = None


FRAME: ContextVar[Frame | None] = ContextVar("agui_otel_smolagents", default=None)


def current() -> Frame | None:
    """The frame of this thread, where its invocation can still say something."""
    frame = FRAME.get()
    return frame if frame is not None and frame.invocation.is_open else None


class Within:
    """While entered, `frame` is current, and so is `context` (None: the OpenTelemetry context stays)."""

    __slots__ = ("_context", "_frame", "_otel", "_token")

    def __init__(self, frame: Frame, context: Context | None = None) -> None:
        self._frame = frame
        self._context = context

    def __enter__(self) -> None:
        self._token = FRAME.set(self._frame)
        self._otel = attach(self._context) if self._context is not None else None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._otel is not None:
            detach(self._otel)
        FRAME.reset(self._token)
