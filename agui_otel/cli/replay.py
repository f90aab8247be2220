"""`agui-otel replay`: recordings as traces, to Phoenix, over OTLP, or on standard output."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from agui_otel.cli.recordings import Recording, open_recordings
from agui_otel.cli.refusals import Refusals
from agui_otel.cli.tracing import report, require_tracing, trace_recordings, why_dropped
from agui_otel.config import Settings
from agui_otel.errors import AguiOtelError, InputError
from agui_otel.exporting import Handle, setup
from agui_otel.phoenix import PhoenixClient, trace_url
from agui_otel.render import printable

_ABOUT = """\
Trace recordings as if they were being streamed now, and send the traces somewhere:

  phoenix  to Phoenix: --endpoint, else PHOENIX_COLLECTOR_ENDPOINT, else http://localhost:6006;
           prints the page of each trace
  otlp     over OTLP, with metrics: --endpoint, else the OTEL_EXPORTER_OTLP_* variables
  console  on standard output, as OpenTelemetry's console exporter writes spans
  json     on standard output, one span a line, and nothing else

With receive times (NAME.times) the spans have the recorded durations and the last file ends now. Files
of one call share a memory, so that a resumed run finds the run that it continues; with a shared
AGUI_OTEL_THREAD_MEMORY so do the files of all calls.
"""

_FLUSH_EVERY = 500
"""Spans after which it waits until they are sent: a recording is read faster than the queue is emptied."""
_FLUSH_SECONDS = 60.0


def register(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "replay",
        help="send recordings as traces to Phoenix, OTLP or standard output",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="a recording, or - for standard input")
    parser.add_argument(
        "--to",
        choices=("phoenix", "otlp", "console", "json"),
        default="phoenix",
        help="where the traces go (default: phoenix)",
    )
    parser.add_argument("--endpoint", metavar="URL", help="Phoenix, or the base URL of an OTLP receiver")
    parser.add_argument(
        "--project", metavar="NAME", help="Phoenix project (else PHOENIX_PROJECT or PHOENIX_PROJECT_NAME)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Replay. Exit status 2 where a file could not be read whole or the traces were not taken, else 0."""
    printed = arguments.to in ("console", "json")
    require_tracing(exported=not printed)
    recordings = open_recordings(arguments.files)
    if printed:
        return _print(recordings, indent=4 if arguments.to == "console" else None)
    return _send(recordings, arguments)


def _print(recordings: Sequence[Recording], *, indent: int | None) -> int:
    exporter = _Printer(indent)
    provider = TracerProvider(sampler=ALWAYS_ON, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = Settings().model_copy(update={"metrics": False})
    errors = trace_recordings(recordings, settings=settings, tracer_provider=provider, after=lambda _: exporter.check())
    return report(errors)


def _send(recordings: Sequence[Recording], arguments: argparse.Namespace) -> int:
    phoenix = arguments.to == "phoenix"
    handle = setup(
        phoenix=(arguments.endpoint or True) if phoenix else False,
        endpoint=None if phoenix else arguments.endpoint,
        project=arguments.project,
        set_global=False,
    )
    refusals = Refusals()
    with handle, refusals:
        if handle.phoenix_url is not None:
            PhoenixClient(handle.phoenix_url, api_key=os.environ.get("PHOENIX_API_KEY")).ping()
        assert isinstance(handle.tracer_provider, TracerProvider)
        ended = _Ended(handle)
        handle.tracer_provider.add_span_processor(ended)
        dropped: list[str] = []

        def after(recording: Recording) -> None:
            if not handle.force_flush(_FLUSH_SECONDS) or refusals.first is not None:
                raise AguiOtelError(f"the traces were not taken: {refusals.first or 'it took too long'}")
            roots = ended.take_roots()
            if not roots:
                dropped.append(recording.path)
            for name, trace_id in roots:
                page = trace_url(handle.phoenix_url, trace_id) if handle.phoenix_url else f"trace {trace_id}"
                print(printable(f"{recording.path}: {name}: {page}"))
            sys.stdout.flush()

        errors = trace_recordings(
            recordings,
            settings=Settings(),
            tracer_provider=handle.tracer_provider,
            meter_provider=handle.meter_provider,
            after=after,
        )
    unread = {error.path for error in errors}
    return report([*errors, *_nothing_of(path for path in dropped if path not in unread)])


def _nothing_of(paths: Iterable[str]) -> Iterator[InputError]:
    """What to say of recordings of which nothing was sent though they could be read."""
    return (InputError(f"nothing was sent: {why_dropped()}", path=path) for path in paths)


class _Printer(SpanExporter):
    """Writes spans to standard output as they end."""

    def __init__(self, indent: int | None) -> None:
        self._indent = indent
        self._error: OSError | None = None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._error is None:
            try:
                for span in spans:
                    sys.stdout.write(span.to_json(indent=self._indent) + "\n")
            except OSError as error:
                self._error = error
        return SpanExportResult.SUCCESS

    def check(self) -> None:
        """Raise what writing raised: not where the tracing would take it for its own."""
        if self._error is not None:
            raise self._error


class _Ended(SpanProcessor):
    """Collects the roots of what has ended, and keeps the reading from outrunning the sending."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._count = 0
        self._roots: list[tuple[str, str]] = []

    def on_end(self, span: ReadableSpan) -> None:
        context = span.get_span_context()
        if span.parent is None and context is not None and context.trace_flags.sampled:
            self._roots.append((span.name, f"{context.trace_id:032x}"))
        self._count += 1
        if self._count % _FLUSH_EVERY == 0:
            self._handle.force_flush(_FLUSH_SECONDS)

    def take_roots(self) -> list[tuple[str, str]]:
        """Return (name, trace id) of the roots since the last call."""
        roots, self._roots = self._roots, []
        return roots
