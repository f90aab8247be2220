"""What the host gives to a stream's tracing, its attributes and callables, so that none of it can do harm."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Any

from agui_otel.protocol.entities import Run
from agui_otel.protocol.inputs import RunInput, read_input
from agui_otel.protocol.scope import ToolFailed
from agui_otel.tracing.boundary import Boundary
from agui_otel.tracing.content import clean
from agui_otel.tracing.decisions import Decision
from agui_otel.tracing.semconv import OMITTED
from agui_otel.tracing.stops import STOPS

Attributes = Mapping[str, Any] | Callable[[Any], Mapping[str, Any]]

MAX_ATTRIBUTES = 32
"""Attributes of the host's on one span: the SDK evicts the oldest beyond 128, and ours are set first."""
_INT64 = 1 << 63


class HostAttributes:
    """The attributes that the host wants on every span of the stream's first run: a mapping, or input -> mapping."""

    def __init__(self, attributes: Attributes | None, given: Any, boundary: Boundary) -> None:
        self._attributes = attributes
        self._given = given
        self._boundary = boundary
        self._first: Run | None = None
        self._found: dict[str, Any] = {}

    def of(self, run: Run) -> Mapping[str, Any]:
        """Those of `run`: none but for the first that is asked about."""
        if self._first is None:
            self._first = run
            self._found = _bounded({**self._found, **self._read(self._attributes, self._given)})
        return self._found if run is self._first else {}

    def adopt(self, attributes: Attributes | None, given: Any, *, present: Collection[str]) -> Mapping[str, Any]:
        """Take those of another observer of the same run, but for names that are `present`; returns what that added."""
        lacking = {key: value for key, value in self._read(attributes, given).items() if key not in present}
        before = self._found
        self._found = _bounded({**before, **lacking, **before})
        return {key: value for key, value in self._found.items() if key not in before}

    def _read(self, attributes: Attributes | None, given: Any) -> dict[str, Any]:
        if attributes is None:
            return {}
        try:
            return exportable(attributes(given) if callable(attributes) else attributes)
        except STOPS:
            raise
        except BaseException as error:  # noqa: BLE001 - the boundary: the host's callable
            self._boundary.swallow("attributes", error)
            return {}


def _bounded(attributes: dict[str, Any]) -> dict[str, Any]:
    if len(attributes) <= MAX_ATTRIBUTES:
        return attributes
    kept = dict(islice(attributes.items(), MAX_ATTRIBUTES - 1))
    kept[f"{OMITTED}attributes"] = len(attributes) - len(kept)
    return kept


def exportable(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes as OpenTelemetry takes them and OTLP can carry them: what is no attribute value becomes a string."""
    found: dict[str, Any] = {}
    for key, value in attributes.items():
        name = _text(key)
        if name and value is not None:
            found[name] = _value(value)
    return found


def _value(value: Any) -> Any:
    if isinstance(value, list | tuple):
        items = [_primitive(item) for item in value]
        same = len({type(item) for item in items}) <= 1
        return items if same else [_text(item) for item in value]
    return _primitive(value)


def _primitive(value: Any) -> bool | int | float | str:
    kind = type(value)
    if kind is bool or kind is float or (kind is int and -_INT64 <= value < _INT64):
        primitive: bool | int | float = value
        return primitive
    return _text(value)


def _text(value: Any) -> str:
    return clean(str.__str__(value if isinstance(value, str) else str(value)))


def guarded_input(given: Any, boundary: Boundary) -> RunInput | None:
    """`given` as a RunInput; None where it cannot be read: a host's object may raise anything."""
    try:
        return read_input(given)
    except Exception as error:  # noqa: BLE001 - the boundary
        boundary.swallow("input", error)
        return None


def guarded_verdict(tool_failed: ToolFailed | None, boundary: Boundary) -> ToolFailed | None:
    """`tool_failed` that never raises: where it would, the call has not failed."""
    if tool_failed is None:
        return None

    def verdict(name: str, result: Any) -> bool | str:
        try:
            found = tool_failed(name, result)
            return str.__str__(found) if isinstance(found, str) else bool(found)
        except STOPS:
            raise
        except BaseException as error:  # noqa: BLE001 - the boundary: the host's callable
            boundary.swallow("tool_failed", error)
            return False

    return verdict


def guarded_decision(decision: Decision | None, boundary: Boundary) -> Decision | None:
    """`decision` that never raises: where it would, the decision is unknown."""
    if decision is None:
        return None

    def decided(entry: Mapping[str, Any]) -> str | None:
        try:
            found = decision(entry)
            return str.__str__(found) if isinstance(found, str) else None
        except STOPS:
            raise
        except BaseException as error:  # noqa: BLE001 - the boundary: the host's callable
            boundary.swallow("decision", error)
            return None

    return decided
