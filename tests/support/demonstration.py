"""The demonstration's spans as the text of its golden file, wherever they were read."""

from __future__ import annotations

from collections.abc import Iterable

from agui_otel.forest import AnySpan
from agui_otel.testing import span_tree

ATTRIBUTES = (
    "session.id",
    "graph.node.id",
    "input.value",
    "output.value",
    "error.type",
    "gen_ai.tool.call.id",
    "agui.cause",
    "agui.step.name",
    "agui.continued",
    "agui.continues.run_id",
    "agui.resumes.run_id",
    "agui.tool_call.answered_by*",
    "llm.token_count.prompt",
    "llm.token_count.completion",
)


def tree(spans: Iterable[AnySpan], *, thread: str) -> str:
    """The tree; links are left out, since Phoenix keeps none."""
    return span_tree(spans, attributes=ATTRIBUTES, links=False).replace(thread, "THREAD") + "\n"
