"""What a delta costs through `trace_events`, against `EventEncoder.encode` of the same event.

python -m benchmarks.delta
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

from ag_ui.core import (
    EventType,
    RunFinishedEvent,
    RunStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
)
from ag_ui.encoder import EventEncoder
from opentelemetry.sdk.trace import TracerProvider

from agui_otel import Settings, trace_events
from benchmarks.timing import best, report

DELTAS = 20_000
ROUNDS = 15


def stream() -> list[Any]:
    """A run of one long message."""
    return [
        RunStartedEvent(type=EventType.RUN_STARTED, thread_id="t", run_id="r"),
        TextMessageStartEvent(type=EventType.TEXT_MESSAGE_START, message_id="m", role="assistant"),
        *(
            TextMessageContentEvent(type=EventType.TEXT_MESSAGE_CONTENT, message_id="m", delta=f"word {n} ")
            for n in range(DELTAS)
        ),
        TextMessageEndEvent(type=EventType.TEXT_MESSAGE_END, message_id="m"),
        RunFinishedEvent(type=EventType.RUN_FINISHED, thread_id="t", run_id="r"),
    ]


def main() -> None:
    """Time the bare stream, the traced one and the encoder."""
    events = stream()
    encoder = EventEncoder()
    provider = TracerProvider()
    settings = Settings(capture="full", metrics=False)

    async def produced() -> AsyncIterator[Any]:
        for event in events:
            yield event

    def produced_sync() -> Iterator[Any]:
        yield from events

    async def consume(source: Any) -> None:
        async for _ in source:
            pass

    def bare_sync() -> None:
        for _ in produced_sync():
            pass

    def traced_sync() -> None:
        for _ in trace_events(produced_sync(), tracer_provider=provider, config=settings):
            pass

    bare, traced, sync, synced, encoded = best(
        ROUNDS,
        lambda: asyncio.run(consume(produced())),
        lambda: asyncio.run(consume(trace_events(produced(), tracer_provider=provider, config=settings))),
        bare_sync,
        traced_sync,
        lambda: [encoder.encode(event) for event in events],
    )
    each = 1e6 / len(events)
    detail = f"{(traced - bare) * each:.2f} µs added, encode {encoded * each:.2f} µs"
    report("a delta through trace_events / EventEncoder.encode, async", (traced - bare) / encoded, "<= 0.25", detail)
    detail = f"{(synced - sync) * each:.2f} µs added"
    report("the same, sync", (synced - sync) / encoded, "<= 0.25", detail)


if __name__ == "__main__":
    main()
