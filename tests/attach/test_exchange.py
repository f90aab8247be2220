"""What is read of an exchange, and when: deltas wait for each other, and nothing else waits for them."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from opentelemetry.context import Context

from agui_otel.attach import exchange as module
from agui_otel.attach.exchange import MAX_WAITING, Exchange
from agui_otel.testing import capture
from agui_otel.tracing.memory import InProcessMemory
from agui_otel.tracing.session import Observer
from tests.support.recordings import SSE_NAMES, STREAMS, events
from tests.support.servers import SSE, sse
from tests.support.sources import HALF, INPUT
from tests.support.watched import FULL

START = 1_767_225_600_000_000_000
DELTA = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hello"}
MS = 1_000_000


def begun(given: Any = INPUT) -> tuple[Exchange, Any]:
    """An exchange whose response has begun, at a standing clock; and what it records."""
    captured = capture()
    how = Observer(
        FULL, captured.tracer_provider, captured.meter_provider, memory=InProcessMemory(), clock=lambda: START
    )
    made = Exchange(how, Context(), (), agent_name="supervisor")
    made.ask(json.dumps(given).encode())
    made.answer(200, [(b"content-type", SSE.encode())])
    return made, captured


def heard(exchange: Exchange, *sent: Any, at: int = START) -> None:
    """The exchange takes events, each in a part of its own, and reads them as it will."""
    for event in sent:
        exchange.take(sse([event]), at)
        exchange.listen()


def last(exchange: Exchange) -> int:
    """When the last event came that was read, in ms."""
    assert exchange.session is not None
    return (exchange.session._tracker.last_event_ns - START) // MS


def test_deltas_wait_for_each_other() -> None:
    """They are read when there are enough of them."""
    exchange, _ = begun()
    heard(exchange, *HALF[:-1])
    for number in range(1, MAX_WAITING + 1):
        heard(exchange, DELTA, at=START + number * MS)
        assert (MAX_WAITING if number == MAX_WAITING else 0) == last(exchange)
    exchange.end("exhausted")


def test_deltas_do_not_wait_long() -> None:
    """A new one is read with those that are much older."""
    exchange, _ = begun()
    heard(exchange, *HALF[:-1])
    heard(exchange, DELTA, at=START + 1 * MS)
    heard(exchange, DELTA, at=START + 490 * MS)
    assert 0 == last(exchange)
    heard(exchange, DELTA, at=START + 550 * MS)
    assert 550 == last(exchange)
    exchange.end("exhausted")


@pytest.mark.parametrize(
    "event",
    [
        {"type": "TEXT_MESSAGE_END", "messageId": "m"},
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m2", "delta": "Hello"},
        {**DELTA, "delta": "x" * 2000},
        {"type": "CUSTOM", "name": "n", "value": {"type": "TEXT_MESSAGE_CONTENT"}},
    ],
)
def test_nothing_else_waits(event: Any) -> None:
    """What opens or ends something is read at once, and the deltas before it."""
    exchange, _ = begun()
    heard(exchange, *HALF, DELTA)
    heard(exchange, event, at=START + 7 * MS)
    assert 7 == last(exchange)
    exchange.end("exhausted")


@pytest.mark.parametrize("reason", ["exhausted", "disconnected", "cancelled", "error"])
def test_the_end_does_not_wait(reason: Any) -> None:
    """However it comes, what waits is read before it."""
    exchange, captured = begun()
    heard(exchange, *HALF, DELTA, DELTA)
    exchange.end(reason)
    (run,) = [span for span in captured.spans if span.name == "invoke_agent supervisor"]
    assert len(HALF) + 2 == run.attributes["agui.events.count"]


TIMED = ("agui.chunks", "agui.chars", "agui.max_chunk_gap", "agui.time_to_first_chunk", "agui.outcome", "output.value")


@pytest.mark.parametrize("name", SSE_NAMES)
def test_waiting_changes_no_trace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts, texts and times are those of a stream that is read event by event."""

    def traced() -> str:
        exchange, captured = begun(json.loads((STREAMS / f"{name}.input.json").read_text()))
        random = Random(7)
        at = START
        for event in events(name):
            at += random.randrange(100) * MS
            heard(exchange, event, at=at)
        exchange.end("exhausted", at_ns=at)
        return str(captured.tree(attributes=TIMED))

    waiting = traced()
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    assert traced() == waiting
