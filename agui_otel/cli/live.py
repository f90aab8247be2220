"""Running traces as trees in the terminal: those that run are redrawn, those that ended stay. Plain when piped."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from agui_otel.cli.terminal import print_trees
from agui_otel.forest import Node, read_span
from agui_otel.render import render_rich

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_REDRAW_SECONDS = 0.25
_RUNNING_SHOWN = 8
MAX_SPANS = 500
"""Spans that are kept of one running trace; of the others only the number is."""
MAX_WAITING = 100
"""Trees that wait for a slow terminal; more are counted only."""

_Key = tuple[str, str]
"""Trace and span id."""


class _Trace:
    """What is known of a local root and of what is below it."""

    def __init__(self, root: _Key) -> None:
        self.root = root
        self.nodes: dict[_Key, Node] = {}
        self.left_out = 0


class LiveTrees(SpanProcessor):
    """A span processor that shows each trace while it runs. A context manager, which draws while its block lasts.

    A thread of its own writes, so a terminal that is slow, or gone, holds nobody up. What it shows of a span was read
    where the span started and where it ended.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._traces: dict[_Key, _Trace] = {}
        self._of: dict[_Key, _Trace] = {}
        self._ended: deque[_Trace] = deque()
        self._untold = 0
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._write, name="agui-otel-live", daemon=True)

    def __enter__(self) -> LiveTrees:
        """Begin to draw."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Write what has ended, and stop; waits for a second at most."""
        self._closed.set()
        self._changed.set()
        self._thread.join(1.0)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:  # noqa: ARG002
        """A span is there."""
        node = read_span(span)
        key = (node.trace_id, node.span_id)
        with self._lock:
            trace = self._above(node, remote=span.parent is not None and span.parent.is_remote)
            if trace is None:
                trace = self._traces[key] = _Trace(key)
            if len(trace.nodes) < MAX_SPANS:
                trace.nodes[key] = node
                self._of[key] = trace
            else:
                trace.left_out += 1
        self._changed.set()

    def _above(self, node: Node, *, remote: bool) -> _Trace | None:
        """What a span that starts is part of; None: it is a root here.

        A parent in this process that is not known was left out, where that was done in its trace.
        """
        if node.parent_id is None:
            return None
        known = self._of.get((node.trace_id, node.parent_id))
        if known is not None or remote:
            return known
        running = self._traces.values()
        return next((trace for trace in running if trace.left_out and trace.root[0] == node.trace_id), None)

    def on_end(self, span: ReadableSpan) -> None:
        """A span has ended; with a root its trace has."""
        node = read_span(span)
        key = (node.trace_id, node.span_id)
        with self._lock:
            trace = self._of.get(key)
            if trace is None:
                return
            trace.nodes[key] = node
            if key == trace.root:
                del self._traces[key]
                for known in trace.nodes:
                    del self._of[known]
                if len(self._ended) < MAX_WAITING:
                    self._ended.append(trace)
                else:
                    self._untold += 1
        self._changed.set()

    def _write(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more: the terminal, or the pipe, is closed
            if sys.stdout.isatty():
                self._draw()
            else:
                while self._waits():
                    self._print_ended()
                self._print_ended()

    def _draw(self) -> None:
        from rich.console import Console
        from rich.live import Live

        console = Console(highlight=False)
        with Live(console=console, auto_refresh=False, vertical_overflow="ellipsis") as live:
            while self._waits():
                self._draw_ended(console)
                live.update(self._running(), refresh=True)
                self._closed.wait(_REDRAW_SECONDS)
            self._draw_ended(console)
            live.update(self._running(), refresh=True)

    def _waits(self) -> bool:
        """Wait for something to show; whether there may be more afterwards. What ended before the end is there."""
        self._changed.wait()
        self._changed.clear()
        return not self._closed.is_set()

    def _draw_ended(self, console: Console) -> None:
        for trace in self._take():
            for tree in render_rich(trace.nodes.values()):
                console.print(tree)
            for line in _left_out(trace):
                console.print(line)

    def _running(self) -> RenderableType:
        from rich.console import Group

        with self._lock:
            shown = [list(trace.nodes.values()) for trace in list(self._traces.values())[:_RUNNING_SHOWN]]
            more = len(self._traces) - len(shown)
        trees = [tree for nodes in shown for tree in render_rich(nodes)]
        return Group(*trees, *([f"and {more} more"] if more else []))

    def _print_ended(self) -> None:
        for trace in self._take():
            print_trees(trace.nodes.values())
            for line in _left_out(trace):
                print(line)
            sys.stdout.flush()

    def _take(self) -> Iterable[_Trace]:
        while self._ended:
            yield self._ended.popleft()
        with self._lock:
            untold, self._untold = self._untold, 0
        if untold:
            print(f"{untold} more runs ended that are not shown: the terminal is too slow")


def _left_out(trace: _Trace) -> list[str]:
    return [f"and {trace.left_out:,} more spans"] if trace.left_out else []
