"""Recordings traced one after another, as one process would have traced them when they were streams."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from agui_otel.cli.recordings import Recording
from agui_otel.config import Settings, memory_kind, switched_off, variable
from agui_otel.errors import ConfigurationError, InputError
from agui_otel.protocol.recording import Timeline, lay_out
from agui_otel.tracing.memory import InProcessMemory, ThreadMemory
from agui_otel.tracing.observer import Observer
from agui_otel.tracing.remembering import memory_of
from agui_otel.tracing.session import Session

_LONG = 1024 * 1024
"""From this size in bytes on, a file has a progress bar."""


def require_tracing(*, exported: bool = False) -> None:
    """Raise `ConfigurationError` where the environment switches tracing off, or, `exported`, the sending of traces."""
    name = switched_off()
    if name is not None:
        raise ConfigurationError(f"tracing is switched off by {name}: unset it")
    if exported and variable("OTEL_TRACES_EXPORTER") == "none":
        raise ConfigurationError("the sending of traces is switched off by OTEL_TRACES_EXPORTER=none: unset it")


def why_dropped() -> str:
    """What to say where no span came out of a stream that was traced."""
    sampler = variable("OTEL_TRACES_SAMPLER")
    if sampler is None:
        return "no span was recorded"
    argument = variable("OTEL_TRACES_SAMPLER_ARG")
    told = f" with OTEL_TRACES_SAMPLER_ARG={argument}" if argument is not None else ""
    return f"OTEL_TRACES_SAMPLER={sampler}{told} dropped it: unset it"


def trace_recordings(
    recordings: Sequence[Recording],
    *,
    settings: Settings,
    tracer_provider: TracerProvider,
    meter_provider: MeterProvider | None = None,
    after: Callable[[Recording], None] | None = None,
) -> list[InputError]:
    """Trace the recordings with the thread memory of the settings, and return what was wrong with them as files.

    In the process's own memory they know of each other only.

    Receive times are laid out so that the last recording ends now (trace model: time). `after` is called
    when a recording has been traced, as far as it could be read. Content is captured unless the settings say
    otherwise.
    """
    observer = Observer(
        settings,
        tracer_provider,
        meter_provider,
        phoenix=True,
        memory=_memory(settings),
        waits=True,
    )
    timelines = lay_out(
        [recording.times for recording in recordings],
        now=time.time_ns(),
        began=[recording.began for recording in recordings],
    )
    errors = []
    for recording, timeline in zip(recordings, timelines, strict=True):
        error = _trace(recording, timeline, observer)
        if error is not None:
            errors.append(error)
        if after is not None:
            after(recording)
    return errors


def _memory(settings: Settings) -> ThreadMemory:
    if memory_kind(settings.thread_memory) == "memory":
        return InProcessMemory(settings.thread_memory_ttl, settings.thread_memory_size)
    return memory_of(settings)


def report(errors: Sequence[InputError]) -> int:
    """Say on standard error what was wrong with the input; return the exit status."""
    for error in errors:
        print(f"agui-otel: {error}", file=sys.stderr)
    return 2 if errors else 0


def _trace(recording: Recording, timeline: Timeline | None, observer: Observer) -> InputError | None:
    session: Session | None = None
    at = 0
    try:
        with _progress(recording) as on_read:
            events = recording.events(max_event_bytes=observer.settings.max_event_bytes, on_read=on_read)
            for index, event in enumerate(events):
                at = time.time_ns() if timeline is None else timeline.at(index)
                if session is None:
                    session = Session(observer, Context(), given=recording.given)
                    if observer.settings.clock == "receive":  # by their own clock, events may be older than the replay
                        session.begin(at if timeline is None else timeline.begin)
                session.feed(event, at)
    except InputError as error:
        return error
    finally:
        if session is not None:
            session.finish("exhausted", at_ns=at)
    return None


@contextmanager
def _progress(recording: Recording) -> Iterator[Callable[[int], object] | None]:
    """A progress bar on the terminal while a long file is read."""
    if recording.size is None or recording.size < _LONG or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(recording.path, total=recording.size)
        yield lambda size: bar.advance(task, size)
