"""The entry point of `agui-otel`: its commands, and what their ends mean to a shell."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from agui_otel.cli import blame, check, demo, doctor, proxy, replay, tree
from agui_otel.errors import AguiOtelError

_COMMANDS = (demo, proxy, replay, tree, check, blame, doctor)

_ABOUT = """\
See AG-UI agent runs as span trees: subagents, tool calls, state, interrupts.

Recordings (FILE) are JSON lines, server-sent events, one JSON array of events or binary frames
(protobuf), with an HTTP head (curl -i) or without, or HAR files that a browser saved. The content
says which, and - is standard input. FILE#2 is the second AG-UI response in a HAR file. Beside
NAME.jsonl, NAME.sse or NAME.bin are looked for:
  NAME.input.json  the RunAgentInput that was posted
  NAME.times       when each event was received, a line each, in ms since the request
"""

_ENDS = """\
exit status: 0 fine; 1 violations (check) or something to fix (doctor); 2 wrong input, usage or a
server that does not answer.
Options that hold for every command are environment variables: AGUI_OTEL_STEPS=spans, for instance.
"""


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="agui-otel",
        description=_ABOUT,
        epilog=_ENDS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"agui-otel {_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.register(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status."""
    arguments = make_parser().parse_args(argv)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except AguiOtelError as error:
        print(f"agui-otel: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has gone; nor must the interpreter's own last flush complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def _version() -> str:
    try:
        return version("agui-otel")
    except PackageNotFoundError:
        return "(not installed)"


if __name__ == "__main__":
    sys.exit(main())
