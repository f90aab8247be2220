"""The whole way of an alert: services, collector, Phoenix, Prometheus, Alertmanager, a webhook receiver; all real."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from agui_otel import trace_events
from agui_otel.cli.recordings import open_recordings
from agui_otel.cli.script import START, Conversation
from agui_otel.cli.tracing import trace_recordings
from agui_otel.config import Settings
from agui_otel.exporting import Handle, setup
from agui_otel.phoenix import EmbeddedPhoenix, PhoenixClient
from tests.support import monitoring, services
from tests.support.collectors import Collector, collector
from tests.support.monitoring import Prometheus, Webhook
from tests.support.receivers import http_receiver
from tests.support.recordings import STREAMS

QUICKER = 30
"""How much faster than configured rules and routes go: a minute is two seconds."""

TOOL_ERROR: list[dict[str, Any]] = [
    {"type": "RUN_STARTED", "threadId": "t", "runId": "r"},
    {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "role": "assistant", "delta": "I ask."},
    {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "clerk"},
    {"type": "TOOL_CALL_START", "toolCallId": "c", "toolCallName": "file", "subagentRunId": "s"},
    {"type": "TOOL_CALL_END", "toolCallId": "c", "subagentRunId": "s"},
    {"type": "SUBAGENT_FINISHED", "subagentRunId": "s"},
    {
        "type": "MESSAGES_SNAPSHOT",
        "messages": [{"id": "m", "role": "tool", "toolCallId": "c", "content": "no disk", "error": "no disk"}],
    },
    {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"},
]

INTERRUPT: list[dict[str, Any]] = [
    {"type": "RUN_STARTED", "threadId": "waits", "runId": "r"},
    {
        "type": "RUN_FINISHED",
        "threadId": "waits",
        "runId": "r",
        "outcome": {"type": "interrupt", "interrupts": [{"id": "i", "reason": "approval"}]},
    },
]


STARTED = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
SUBAGENT = {"type": "SUBAGENT_STARTED", "subagentRunId": "s", "name": "clerk"}
CANCELLED: list[dict[str, Any]] = [
    STARTED,
    SUBAGENT,
    {"type": "SUBAGENT_ERROR", "subagentRunId": "s", "message": "stopped", "code": "cancelled"},
    {"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": {"type": "cancelled"}},
]
BROKEN: list[dict[str, Any]] = [STARTED, {"type": "RUN_ERROR", "message": "the model is gone", "code": "no_model"}]


@dataclass(frozen=True)
class Pipeline:
    """What runs, and where."""

    phoenix: PhoenixClient
    project: str
    """The page of the project in Phoenix."""
    collector: Collector
    prometheus: Prometheus
    alertmanager: str
    """`127.0.0.1:PORT`."""
    webhook: Webhook


@contextmanager
def pipeline(directory: Path) -> Iterator[Pipeline]:
    """Everything between a service and the person who is paged, and a second collector that is in trouble."""
    monitoring.require(monitoring.PROMETHEUS, monitoring.ALERTMANAGER)
    try:
        version("arize-phoenix")
    except PackageNotFoundError:
        services.require(False, "arize-phoenix")
    (directory / "phoenix").mkdir()
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedPhoenix(directory / "phoenix"))
        project = f"{server.url}/projects/{_project_id(server.url)}"
        reading = stack.enter_context(
            collector(
                directory / "collector", PHOENIX_COLLECTOR_ENDPOINT=server.url, AGUI_COLLECTOR_FLUSH_INTERVAL="2s"
            )
        )
        refusing = stack.enter_context(http_receiver(status=400))
        troubled = stack.enter_context(
            collector(
                directory / "troubled", PHOENIX_COLLECTOR_ENDPOINT=refusing.url, AGUI_COLLECTOR_QUEUE_BYTES="20000"
            )
        )
        _overload(troubled)
        webhook = stack.enter_context(monitoring.webhook())
        manager = stack.enter_context(monitoring.alertmanager(directory, webhook.url, QUICKER))
        read = [one.address(page) for one in (reading, troubled) for page in ("metrics", "telemetry")]
        prometheus = stack.enter_context(monitoring.prometheus(directory, read, manager, project, QUICKER))
        yield Pipeline(PhoenixClient(server.url), project, reading, prometheus, manager, webhook)


def _project_id(url: str) -> str:
    found: str = monitoring.get(f"{url}/v1/projects/default")["data"]["id"]
    return found


def _overload(troubled: Collector) -> None:
    """Send what is refused behind the collector, and what its queue has no room for."""
    for name in ("single", "parallel", "nested"):
        with service("troubled", troubled, exit_timeout=0.3) as handle:
            replay(handle, name)


@contextmanager
def service(name: str, to: Collector, exit_timeout: float = 5.0) -> Iterator[Handle]:
    """The providers of a service: its spans and metrics go to the collector, metrics
    a little less often than they are scraped, so that no exemplar is missed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1500")
        handle = setup(endpoint=to.endpoint, service_name=name, set_global=False, exit_timeout=exit_timeout)
    with handle:
        yield handle


def replay(handle: Handle, *names: str) -> None:
    """Trace recordings as the service's runs; files of one call share a thread memory."""
    errors = trace_recordings(
        open_recordings([str(STREAMS / f"{name}.jsonl") for name in names]),
        settings=Settings(),
        tracer_provider=handle.tracer_provider,
        meter_provider=handle.meter_provider,
    )
    assert not errors


def play(handle: Handle, events: Sequence[dict[str, Any]], *, until: int | None = None, **options: Any) -> None:
    """Trace a run of `planner`, another one each time; its consumer leaves after `until` events."""
    source = events if "input" in options else _anew(events)

    async def consume() -> None:
        stream = trace_events(
            _source(source),
            agent_name="planner",
            tracer_provider=handle.tracer_provider,
            meter_provider=handle.meter_provider,
            **options,
        )
        seen = 0
        async for _ in stream:
            seen += 1
            if seen == until:
                await stream.aclose()
                return

    asyncio.run(consume())


def _anew(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same run under another id: under its own it would be the same run, told again."""
    run_id = uuid4().hex
    return [{**event, "runId": run_id} if "runId" in event else event for event in events]


def demonstrate(handle: Handle) -> None:
    """Trace the demonstration's first run, in which the subagent `restaurant-scout` fails."""
    conversation = Conversation("offsite")
    given = conversation.input(1, state=START)
    play(handle, asyncio.run(_all(conversation.first_run(given))), input=given)


async def _all(events: AsyncIterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event async for event in events]


async def _source(events: Sequence[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    for event in events:
        yield event
