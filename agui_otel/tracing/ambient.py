"""What a run does with the span that is current where it starts (trace model: ambient context)."""

from __future__ import annotations

from typing import Literal

from opentelemetry.context import Context
from opentelemetry.trace import Link, get_current_span

from agui_otel.tracing import semconv as s
from agui_otel.tracing.inside import presence_in
from agui_otel.tracing.starting import Placement

Ambient = Literal["auto", "child", "link", "ignore"]


def place(context: Context, mode: Ambient, *, phoenix: bool) -> Placement:
    """Where a run that starts in `context` hangs.

    `child`: under the current span. `link`: a root, linked to it. `ignore`: a root. `auto`: a link where `phoenix` says
    that this process itself exports there, which shows a session's turns from root spans only; else a child of a local
    span (a host that does not sample it decides for the run too), and a link to a remote one, whose parent nobody may
    export. Inside another run it is a root of its own in any mode but `ignore`, linked to the current span: nothing is
    parented into another run's tree.
    """
    current = get_current_span(context).get_span_context()
    if not current.is_valid or mode == "ignore":
        return Placement(Context())
    presence = presence_in(context)
    inside_a_run = presence is not None and presence.runs > 0
    child = mode == "child" or (mode == "auto" and not phoenix and not current.is_remote)
    if child and not inside_a_run:
        return Placement(context)
    return Placement(
        Context(),
        [Link(current)],
        {s.AMBIENT_TRACE_ID: f"{current.trace_id:032x}", s.AMBIENT_SPAN_ID: f"{current.span_id:016x}"},
    )
