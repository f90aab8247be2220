"""`agui-otel check`: what the reference client would refuse in recordings."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from agui_otel.cli.recordings import Recording, open_each
from agui_otel.config import Settings
from agui_otel.errors import InputError
from agui_otel.protocol.chunks import Expander, Refused
from agui_otel.protocol.events import EVENT_TYPES, Malformed, read
from agui_otel.protocol.recording import Payload
from agui_otel.protocol.rules import Judge
from agui_otel.render import printable

_ABOUT = """\
Report each violation of AG-UI in recordings: what the reference client (@ag-ui/client 1.0) refuses, at
the event where it does, and events that are malformed. Reading goes on after a violation as if what the
event presupposes had been there, so that one defect is one violation. That a stream ends before its run
does is no violation: standard error says so, and the exit status does not. Needs no backend.

With --json each is {"file", "at", "rule", "message"} on a line of its own; "at" counts events from 0.
"""


class Violation(NamedTuple):
    """A violation of `rule` by the event `at` (counted from 0)."""

    at: int
    rule: str
    message: str


def register(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "check",
        help="report violations of AG-UI in recordings",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", metavar="FILE", nargs="+", help="a recording, or - for standard input")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Report the violations. Exit status 2 where a file could not be read whole, else 1 if there are any."""
    limit = Settings().max_event_bytes
    found = wrong = 0
    for one in open_each(arguments.files):
        try:
            if isinstance(one, InputError):
                raise one
            found += _report(one, limit, as_json=arguments.json)
        except InputError as error:
            wrong += 1
            sys.stdout.flush()
            print(f"agui-otel: {error}", file=sys.stderr)
    if not (arguments.json or found or wrong):
        print("no violations")
    return 2 if wrong else 1 if found else 0


def _report(recording: Recording, limit: int, *, as_json: bool) -> int:
    """Print the violations of a recording, and return how many."""
    found = 0
    judge = Judge()
    for violation in violations(recording.events(max_event_bytes=limit), judge):
        found += 1
        if as_json:
            print(json.dumps({"file": recording.path, **violation._asdict()}))
        else:
            at, rule, message = violation
            print(printable(f"{recording.path}: event {at}: {rule}: {message}"))
    if judge.in_run:
        sys.stdout.flush()
        print(f"agui-otel: {recording.path}: the last run has no end", file=sys.stderr)
    return found


def violations(events: Iterable[Payload], judge: Judge | None = None) -> Iterator[Violation]:
    """Yield the violations of one stream, in order; an event may have several.

    Nothing is judged at the end; afterwards `judge` knows whether a run is open.
    """
    expander, judge = Expander(), judge or Judge()
    for at, raw in enumerate(events):
        try:
            event = read(raw, [])
        except Malformed as error:
            yield Violation(at, "malformed_event", str(error))
            continue
        if event["type"] not in EVENT_TYPES:
            continue
        try:
            expanded = expander.expand(event)
        except Refused as refused:
            yield Violation(at, refused.rule, refused.message)
            expanded = refused.recovered
        for part in expanded:
            breach = judge.judge(part)
            if breach is not None:
                yield Violation(at, breach.rule, breach.message)
