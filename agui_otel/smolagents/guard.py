"""The boundary of this bridge: what fails in observing an agent never reaches the agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from agui_otel.tracing.boundary import Boundary, tell

P = ParamSpec("P")
R = TypeVar("R")


def quietly(observe: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
    """What `observe` returns; None where it fails. The first failure of its kind is logged."""
    try:
        return observe(*args, **kwargs)
    except Exception as error:
        if Boundary.strict:
            raise
        tell("smolagents", error, "the agents are not affected, the stream may be incomplete.")
        return None
