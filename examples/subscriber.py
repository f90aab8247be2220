"""Trace events that are dispatched one by one: a `TracingSubscriber` among the subscribers of a client.

    python examples/subscriber.py                          # the traces as trees, here
    python examples/subscriber.py http://localhost:6006    # the traces in a Phoenix that runs there

Needs `pip install .` in a checkout of agui-otel. The events are JSON objects, as they come from the wire; the second
run fails.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from agui_otel import TracingSubscriber, setup
from agui_otel.render import render_text
from agui_otel.testing import capture

Event = dict[str, Any]


def answers(run_id: str) -> Iterator[Event]:
    """A run that answers."""
    yield {"type": "RUN_STARTED", "threadId": "thread-1", "runId": run_id}
    yield {"type": "TEXT_MESSAGE_START", "messageId": "message-1", "role": "assistant"}
    yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": "message-1", "delta": "Hello"}
    yield {"type": "TEXT_MESSAGE_END", "messageId": "message-1"}
    yield {"type": "RUN_FINISHED", "threadId": "thread-1", "runId": run_id}


def breaks_off(run_id: str) -> Iterator[Event]:
    """A run whose connection is lost in the middle of a text."""
    yield {"type": "RUN_STARTED", "threadId": "thread-1", "runId": run_id}
    yield {"type": "TEXT_MESSAGE_START", "messageId": "message-2", "role": "assistant"}
    yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": "message-2", "delta": "Hel"}
    raise ConnectionError("the agent is gone")


class Printer:
    """Another subscriber: the three methods are all that a client asks for."""

    def on_event(self, event: Event) -> None:
        """Show the text as it comes."""
        if event["type"] == "TEXT_MESSAGE_CONTENT":
            print(event["delta"])

    def on_run_failed(self, error: Exception) -> None:
        """Say what went wrong."""
        print(f"failed: {error}")

    def on_run_finalized(self) -> None:
        """Nothing to put away."""


def follow(events: Iterator[Event], subscribers: list[Any]) -> None:
    """A client's loop: every event to every subscriber, then how it ended."""
    try:
        for event in events:
            for subscriber in subscribers:
                subscriber.on_event(event)
    except ConnectionError as error:
        for subscriber in subscribers:
            subscriber.on_run_failed(error)
    for subscriber in subscribers:
        subscriber.on_run_finalized()


def main() -> None:
    """Follow two runs, and show their traces or send them."""
    captured = capture()
    handle = setup(phoenix=sys.argv[1], service_name="examples") if len(sys.argv) > 1 else None
    provider = handle.tracer_provider if handle is not None else captured.tracer_provider
    for events in (answers("run-1"), breaks_off("run-2")):
        tracing = TracingSubscriber(agent_name="greeter", tracer_provider=provider)
        follow(events, [Printer(), tracing])
        if tracing.trace_url is not None:
            print(tracing.trace_url)
    if handle is not None:
        handle.shutdown()
    else:
        print(render_text(captured.spans))


if __name__ == "__main__":
    main()
