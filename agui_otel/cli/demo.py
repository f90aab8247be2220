"""`agui-otel demo`: a multi-agent conversation, traced into a Phoenix of its own."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import threading
import uuid
from types import FrameType
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agui_otel.attach.stream import trace_events
from agui_otel.cli.script import APPROVAL, PLANNER, START, Conversation
from agui_otel.cli.terminal import print_trees
from agui_otel.cli.tracing import require_tracing, why_dropped
from agui_otel.errors import AguiOtelError
from agui_otel.exporting import Handle, setup
from agui_otel.phoenix import EmbeddedPhoenix, PhoenixClient, session_url, trace_url
from agui_otel.protocol.patch import apply

PROJECT = "agui-otel-demo"

_ABOUT = """\
Start Phoenix (on this machine only, on SQLite), run a scripted conversation of a planner with its
subagents through agui-otel, show its span trees and the links to their pages, and wait for Ctrl-C.
No model, no key, no network. Needs Phoenix: pip install 'arize-phoenix>=20'

To see: agents that work at the same time, and under each other; a tool call that another agent
answers; a subagent that fails, and a supervisor that recovers; a state update that is lost among
concurrent agents; a run that waits for approval, and the one that resumes it.
"""

_PERSON_SECONDS = 1.0
"""How long the person who approves thinks."""


def register(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "demo",
        help="trace a scripted multi-agent conversation into Phoenix",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--once", action="store_true", help="print no links; stop Phoenix and exit when the traces are in it"
    )
    parser.add_argument("--port", type=int, help="Phoenix's port (default: 6006, or a free one)")
    parser.add_argument("--dir", metavar="DIR", help="keep Phoenix's database here (default: a temporary one)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the demonstration. Raises `PhoenixError` where Phoenix is not installed or does not come up.

    Raises `ConfigurationError` where the environment switches tracing off: before Phoenix is started.
    """
    require_tracing(exported=True)
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        return _demonstrate(arguments)
    finally:
        signal.signal(signal.SIGTERM, before)


def _demonstrate(arguments: argparse.Namespace) -> int:
    server = EmbeddedPhoenix(arguments.dir, port=arguments.port)
    print("Starting Phoenix, which takes up to half a minute …", flush=True)
    with server:
        print(f"Phoenix is up at {server.url}. The agents are at work …", flush=True)
        with setup(phoenix=server.url, project=PROJECT) as handle:
            thread = f"offsite-{uuid.uuid4().hex[:8]}"
            spans = _converse(handle, thread)
        _show(spans)
        if arguments.once and arguments.dir is None:
            print("Phoenix stops now, and its database goes with it. Without --once it stays up.", flush=True)
            return 0
        _show_links(spans, server.url, thread)
        if arguments.once:
            print(f"\nPhoenix stops now, and these pages with it. Its database is kept in {arguments.dir}.", flush=True)
            return 0
        print("\nPhoenix stays up until you press Ctrl-C.", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print()
    return 0


def _converse(handle: Handle, thread: str) -> tuple[ReadableSpan, ...]:
    """Have the conversation, wait until Phoenix has it, and return its spans."""
    exporter = InMemorySpanExporter()
    assert isinstance(handle.tracer_provider, TracerProvider)
    handle.tracer_provider.add_span_processor(SimpleSpanProcessor(exporter))
    asyncio.run(_play(Conversation(thread)))
    handle.force_flush()
    spans = exporter.get_finished_spans()
    if not spans:
        raise AguiOtelError(f"nothing of the conversation was sent: {why_dropped()}")
    assert handle.phoenix_url is not None
    PhoenixClient(handle.phoenix_url).wait_for_spans(PROJECT, len(spans), trace_ids=_trace_ids(spans))
    return spans


async def _play(conversation: Conversation) -> None:
    """Be the client: consume both runs, keep the state, and approve what the first one asks."""
    state: Any = START
    given = conversation.input(1, state=state)
    async for event in trace_events(conversation.first_run(given), input=given, agent_name=PLANNER):
        if event["type"] == "STATE_SNAPSHOT":
            state = event["snapshot"]
        elif event["type"] == "STATE_DELTA":
            state = apply(state, event["delta"])
    await asyncio.sleep(_PERSON_SECONDS)
    given = conversation.input(2, state=state, resume=[APPROVAL])
    async for _ in trace_events(conversation.second_run(given), input=given, agent_name=PLANNER):
        pass


def _show(spans: tuple[ReadableSpan, ...]) -> None:
    print()
    for trace_id in _trace_ids(spans):
        print_trees([span for span in spans if _trace_ids((span,)) == [trace_id]], known=spans)
        print()


def _show_links(spans: tuple[ReadableSpan, ...], url: str, thread: str) -> None:
    for number, trace_id in enumerate(_trace_ids(spans), start=1):
        print(f"run {number}:   {trace_url(url, trace_id)}")
    print(f"session: {session_url(url, thread)}", flush=True)


def _trace_ids(spans: tuple[ReadableSpan, ...]) -> list[str]:
    """The traces of the spans, in the order of their start."""
    started = sorted(spans, key=lambda span: span.start_time or 0)
    contexts = (span.get_span_context() for span in started)
    return list(dict.fromkeys(f"{context.trace_id:032x}" for context in contexts if context is not None))


def _terminate(number: int, frame: FrameType | None) -> None:
    """End as Ctrl-C does, so that Phoenix is stopped."""
    del frame
    sys.exit(128 + number)
