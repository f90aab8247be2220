"""Output: rich on a terminal, plain when piped."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from agui_otel.forest import AnySpan
from agui_otel.render import render_rich, render_text


def print_trees(spans: Iterable[AnySpan], *, known: Iterable[AnySpan] = ()) -> None:
    """Print finished spans as trees; `known` are others that their links may lead to."""
    if not sys.stdout.isatty():
        text = render_text(spans, known=known)
        if text:
            print(text)
        return
    from rich.console import Console

    console = Console(highlight=False)
    for tree in render_rich(spans, known=known):
        console.print(tree)
