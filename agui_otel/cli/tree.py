"""`agui-otel tree`: recordings as trees in the terminal."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from agui_otel.cli.recordings import Recording, open_recordings
from agui_otel.cli.terminal import print_trees
from agui_otel.cli.tracing import report, require_tracing, trace_recordings
from agui_otel.config import Settings

_ABOUT = """\
Show the span tree of each recording: names, outcomes, durations, first-chunk times, who wrote which
state, notes, violations, what it waits for and what it continues. Needs no backend.

Files of one call are traced in their order with one memory, so that a resumed run finds the run
that it continues: agui-otel tree approve_1.jsonl approve_2.jsonl
"""


def register(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "tree",
        help="show recordings as trees in the terminal",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="a recording, or - for standard input")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show the trees. Exit status 2 where a file could not be read to its end, else 0."""
    require_tracing()
    recordings = open_recordings(arguments.files)
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ALWAYS_ON, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    earlier: list[ReadableSpan] = []

    def show(recording: Recording) -> None:
        spans = exporter.get_finished_spans()
        exporter.clear()
        if len(recordings) > 1:
            print(f"{recording.path}:")
        print_trees(spans, known=earlier)
        if len(recordings) > 1:
            print()
        sys.stdout.flush()
        earlier.extend(spans)

    settings = Settings().model_copy(update={"metrics": False})
    return report(trace_recordings(recordings, settings=settings, tracer_provider=provider, after=show))
