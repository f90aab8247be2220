"""`agui-otel waiting`: what waits for a person now, in the thread memory of this environment."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from agui_otel.config import SQLITE, Settings, memory_kind, without_password
from agui_otel.errors import AguiOtelError, ConfigurationError
from agui_otel.exporting.destination import resolve
from agui_otel.phoenix import trace_url
from agui_otel.protocol.thread import SpanRef, ThreadRecord
from agui_otel.render import printable
from agui_otel.tracing.remembering import memory_of

_ABOUT = """\
List what waits for a person now, oldest first: interrupts, and tool calls that a front end has to answer.
Each with its thread, who asked first, since when, for what, and the trace in which it was asked (its page
in Phoenix, where the environment names one).

The thread memory is AGUI_OTEL_THREAD_MEMORY's: a file or a Redis that servers share. What waits in a
server's own memory (memory://) only that server knows.
"""


class Wait(NamedTuple):
    """One thing that waits. `kind` is `interrupt` or `tool_call`; `what` its reason, or the tool's name.

    `who` is the name or id of the subagent that asked first; None for the run's own agent. `since` and `expiry` are
    seconds since the epoch. `answered`: it had an answer, and the run that brought it did not end well.
    """

    thread: str
    kind: str
    ident: str
    who: str | None
    what: str
    since: float
    expiry: float | None
    answered: bool
    span: SpanRef


def register(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "waiting",
        help="list what waits for a person now, in a shared thread memory",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line, and nothing else")
    parser.add_argument("--limit", metavar="N", type=int, default=1000, help="threads to list (default: 1000)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """List. Raises `AguiOtelError` where the thread memory cannot be read."""
    settings = Settings()
    if memory_kind(settings.thread_memory) == "memory":
        raise ConfigurationError(
            "AGUI_OTEL_THREAD_MEMORY is memory://, or not set: what waits there only the server's own process knows; "
            "with sqlite:///path or redis://host it can be listed"
        )
    if arguments.limit < 1:
        raise ConfigurationError(f"--limit {arguments.limit}: it should be at least 1")
    url = settings.thread_memory
    if memory_kind(url) == "sqlite" and not Path(url.removeprefix(SQLITE)).exists():
        raise ConfigurationError(
            f"the thread memory {url} cannot be read: there is no such file; the first server that remembers a thread "
            "makes it"
        )
    records = _records(settings, arguments.limit + 1)
    waits = sorted((wait for record in records[: arguments.limit] for wait in waits_of(record)), key=_since)
    phoenix, now = _phoenix(), time.time()
    for wait in waits:
        page = trace_url(phoenix, wait.span.trace_id) if phoenix is not None else None
        print(json.dumps(_object(wait, page, now)) if arguments.json else printable(_line(wait, page, now)))
    if not arguments.json and not waits:
        print("Nothing waits.")
    if not arguments.json and len(records) > arguments.limit:
        print(f"More threads wait than these {arguments.limit}: --limit lists more.")
    return 0


def waits_of(record: ThreadRecord) -> Iterator[Wait]:
    """What waits in a thread: its interrupts, and the calls that no interrupt accounts for."""
    for interrupt in record.interrupts.values():
        yield Wait(
            record.thread_id, "interrupt", interrupt.id, interrupt.owner_name or interrupt.owner, interrupt.reason,
            interrupt.since, interrupt.expiry, interrupt.answered, interrupt.span or interrupt.run,
        )  # fmt: skip
    interrupted = {interrupt.owner for interrupt in record.interrupts.values()} | record.subagents.keys()
    named = {interrupt.tool_call for interrupt in record.interrupts.values()}
    dispatching = {subagent.parent_tool_call for subagent in record.subagents.values()}
    for call in record.tool_calls.values():
        if call.owner not in interrupted and call.id not in named | dispatching:
            yield Wait(
                record.thread_id,
                "tool_call",
                call.id,
                call.owner,
                call.name,
                call.since,
                None,
                call.answered,
                call.span,
            )


def _records(settings: Settings, limit: int) -> list[ThreadRecord]:
    memory = memory_of(settings)
    try:
        return list(memory.waiting(limit))
    except Exception as error:  # noqa: BLE001 - a store's own errors
        shown = without_password(settings.thread_memory)
        raise AguiOtelError(f"the thread memory {shown} cannot be read: {type(error).__name__}: {error}") from None
    finally:
        memory.close()


def _phoenix() -> str | None:
    try:
        return resolve(os.environ).phoenix_url
    except ConfigurationError:
        return None


def _since(wait: Wait) -> float:
    return wait.since


def _object(wait: Wait, page: str | None, now: float) -> dict[str, Any]:
    return {
        "thread": wait.thread,
        "kind": wait.kind,
        "id": wait.ident,
        "who": wait.who,
        "what": wait.what,
        "since": _time(wait.since),
        "seconds": round(max(0.0, now - wait.since), 3),
        "expires": _time(wait.expiry) if wait.expiry is not None else None,
        "expired": _expired(wait, now),
        "answered": wait.answered,
        "run": wait.span.run_id,
        "trace_id": wait.span.trace_id,
        "span_id": wait.span.span_id,
        "url": page,
    }


def _line(wait: Wait, page: str | None, now: float) -> str:
    what = wait.what if wait.kind == "interrupt" else f"an answer to the tool call {wait.what}"
    marks = "".join(
        f" ({mark})"
        for mark, holds in (
            ("expired", _expired(wait, now)),
            ("answered by a run that did not end well", wait.answered),
        )
        if holds
    )
    who = wait.who if wait.who is not None else "the run's own agent"
    where = page if page is not None else f"trace {wait.span.trace_id}"
    return (
        f"{wait.thread}: {who} waits for {what}{marks}, since {_time(wait.since)} "
        f"({_duration(now - wait.since)}): {where}"
    )


def _expired(wait: Wait, now: float) -> bool:
    return wait.expiry is not None and wait.expiry <= now


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return str(seconds)


def _duration(seconds: float) -> str:
    minutes, _ = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{max(0, int(seconds))} s"
