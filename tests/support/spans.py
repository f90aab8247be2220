"""A small conversation as finished spans, made with the SDK alone: a run, and one that resumes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, Span, TracerProvider
from opentelemetry.util.types import AttributeValue

from agui_otel.testing import Captured, capture

START = 1_767_225_600_000_000_000
MS = 1_000_000

EventRow = tuple[str, float, Mapping[str, AttributeValue]]


def _span(
    provider: TracerProvider,
    name: str,
    times: tuple[float, float],
    parent: Span | None = None,
    attributes: Mapping[str, AttributeValue] | None = None,
    events: Sequence[EventRow] = (),
    links: Sequence[Span] = (),
    error: str | None = None,
) -> Span:
    """One finished span; times in milliseconds after `START`."""
    context = trace.set_span_in_context(parent) if parent is not None else None
    span = provider.get_tracer("tests").start_span(
        name,
        context=context,
        attributes=dict(attributes or {}),
        start_time=START + round(times[0] * MS),
        links=[trace.Link(link.get_span_context()) for link in links],
    )
    assert isinstance(span, Span)
    for event, at, values in events:
        span.add_event(event, dict(values), START + round(at * MS))
    if error is not None:
        span.set_status(trace.StatusCode.ERROR, error)
    span.end(START + round(times[1] * MS))
    return span


def _kind(kind: str, outcome: str | None = None, **more: Any) -> dict[str, Any]:
    values: dict[str, Any] = {"openinference.span.kind": kind}
    if outcome is not None:
        values["agui.outcome"] = outcome
    values.update({name.replace("__", "."): value for name, value in more.items()})
    return values


def first_run(provider: TracerProvider) -> Span:
    """A run with a tool call, a subagent that fails, state, a violation and an interrupt."""
    run = _span(
        provider,
        "invoke_agent planner",
        (0, 489),
        attributes={**_kind("AGENT", "interrupt"), "agui.time_to_first_chunk": 0.0596},
        events=[
            ("agui.state.snapshot", 5, {"agui.state.seq": 1, "agui.state.paths": ["/plan", "/notes"]}),
            (
                "agui.violation",
                400,
                {
                    "agui.rule": "open",
                    "agui.message": "l\nopen",
                    "agui.event.index": 7,
                    "agui.event.type": "RUN_FINISHED",
                },
            ),
            (
                "agui.interrupt",
                410,
                {"agui.interrupt.reason": "approval", "agui.interrupt.message": "Send it?"},
            ),
        ],
    )
    _span(
        provider,
        "message assistant",
        (1, 4),
        run,
        {**_kind("CHAIN"), "agui.chunks": 1, "agui.chars": 1234, "output.value": "Hello"},
    )
    tool = _span(provider, "execute_tool task", (6, 300), run, _kind("TOOL", "aborted", agui__unclosed=True))
    _span(
        provider,
        "invoke_agent scout",
        (10, 290),
        tool,
        {**_kind("AGENT", "error"), "error.type": "timeout"},
        events=[("exception", 290, {"exception.type": "timeout", "exception.stacktrace": "…"})],
        error="no answer\nfrom upstream",
    )
    return run


def second_run(provider: TracerProvider, first: Span) -> Span:
    """The run that resumes the first."""
    run = _span(
        provider,
        "invoke_agent planner",
        (75_000, 140_500),
        attributes=_kind("AGENT", "success"),
        events=[
            (
                "agui.interrupt.resolved",
                75_000,
                {"agui.interrupt.decision": "approved", "agui.interrupt.wait": 74.5},
            )
        ],
        links=[first],
    )
    _span(
        provider,
        "usage m-1",
        (140_500, 140_500),
        run,
        {**_kind("LLM"), "llm.token_count.prompt": 1, "llm.token_count.completion": 20_000},
    )
    return run


def conversation() -> Captured:
    """Both runs, finished."""
    captured = capture()
    second_run(captured.tracer_provider, first_run(captured.tracer_provider))
    return captured


def single(**keywords: Any) -> tuple[ReadableSpan, ...]:
    """One finished span, of the keywords of `_span`."""
    captured = capture()
    _span(captured.tracer_provider, keywords.pop("name", "invoke_agent a"), (0, 1), **keywords)
    return captured.spans
