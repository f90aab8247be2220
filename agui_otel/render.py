"""Span trees for people: what ran under what, how it ended, how long it took, and what happened on the way.

`render_text` gives stable plain text, `render_rich` the same lines as coloured trees for a terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from agui_otel.forest import AnySpan, Node, SpanEvent, SpanLink, forest, read_span
from agui_otel.tracing import semconv as s

if TYPE_CHECKING:
    from rich.tree import Tree

OUTCOME_STYLES = {
    "success": "green",
    "suspended": "yellow",
    "interrupt": "yellow",
    "pending": "yellow",
    "cancelled": "magenta",
    "disconnected": "magenta",
    "unfinished": "magenta",
    "aborted": "magenta",
    "unreported": "dim",
    "error": "bold red",
}

_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that turn the direction of the text after them, so that it reads as it is not."""
_CONTROLS = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), *_BIDI), "\ufffd")
_PATHS_SHOWN = 6
_TEXT_SHOWN = 100


class Piece(NamedTuple):
    """A piece of a line and its style, in rich's words; empty for plain."""

    text: str
    style: str = ""


Line = list[Piece]
Names = dict[tuple[str, str], str]


def render_text(spans: Iterable[AnySpan], *, known: Iterable[AnySpan] = ()) -> str:
    """Render spans as trees of plain text, one line each, without a line end at the end.

    `known` are other spans that links may lead to: they give the names.
    """
    roots = forest(spans)
    names = _names(roots, known)
    lines: list[str] = []
    for root in roots:
        pending: list[tuple[str, str, Node | Line]] = [("", "", root)]
        while pending:
            lead, below, item = pending.pop()
            line = _title(item) if isinstance(item, Node) else item
            lines.append(lead + printable("".join(piece.text for piece in line)))
            inner = _inner(item, names) if isinstance(item, Node) else []
            for position in range(len(inner) - 1, -1, -1):
                last = position == len(inner) - 1
                corner, rest = ("└─ ", "   ") if last else ("├─ ", "│  ")
                pending.append((below + corner, below + rest, inner[position]))
    return "\n".join(lines)


def render_rich(spans: Iterable[AnySpan], *, known: Iterable[AnySpan] = ()) -> list[Tree]:
    """Render spans as rich trees, one a root: errors red, what waits yellow. Like `render_text`."""
    from rich.text import Text
    from rich.tree import Tree

    def styled(line: Line) -> Text:
        return Text.assemble(*((printable(piece.text), piece.style) for piece in line))

    roots = forest(spans)
    names = _names(roots, known)
    trees = []
    for root in roots:
        tree = Tree(styled(_title(root)), guide_style="dim")
        pending: list[tuple[Tree, Node]] = [(tree, root)]
        while pending:
            branch, node = pending.pop()
            for item in _inner(node, names):
                if isinstance(item, Node):
                    pending.append((branch.add(styled(_title(item))), item))
                else:
                    branch.add(styled(item))
        trees.append(tree)
    return trees


def duration(nanoseconds: float) -> str:
    """Write a duration as a person would: `12 ms`, `3.4 s`, `2 min 5 s`."""
    seconds = nanoseconds / 1_000_000_000
    if seconds < 0.01:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def printable(text: str) -> str:
    """Take the control characters out of a text that came from elsewhere, which a terminal would obey."""
    return text.translate(_CONTROLS)


def _names(roots: list[Node], known: Iterable[AnySpan]) -> Names:
    """What links call a span: its name, and its run where it has one."""
    named: Names = {}
    for node in chain(map(read_span, known), *(root.walk() for root in roots)):
        run = node.attributes.get(s.RUN_ID)
        named[node.trace_id, node.span_id] = f"{node.name} of run {run}" if run else node.name
    return named


def _title(node: Node) -> Line:
    attributes = node.attributes
    outcome = attributes.get(s.OUTCOME)
    failed = node.status == "ERROR"
    line = [Piece(node.name, "bold red" if failed else "bold" if node.kind == "AGENT" else "")]
    if outcome is not None:
        line.append(Piece(f"  {outcome}", OUTCOME_STYLES.get(str(outcome), "")))
    if failed:
        reason = node.description or attributes.get(s.ERROR_TYPE) or ""
        line.append(Piece(f"  {'' if outcome else 'ERROR '}{_short(reason)}", "red"))
    if not node.end:
        line.append(Piece("  running", "cyan"))
    lasted = [duration(node.end - node.start)] if node.end > node.start else []
    facts = ", ".join((*lasted, *_facts(attributes)))
    return [*line, Piece(f"  {facts}", "dim")] if facts else line


def _facts(attributes: dict[str, Any]) -> Iterator[str]:
    first = attributes.get(s.TIME_TO_FIRST_CHUNK)
    if first is not None:
        yield f"first chunk {duration(first * 1_000_000_000)}"
    if s.CHARS in attributes:
        yield f"{_count(attributes.get(s.CHUNKS, 0), 'chunk')} / {_count(attributes[s.CHARS], 'character')}"
    for key, word in (("input", "in"), ("output", "out")):
        tokens = attributes.get(s.LLM_TOKEN_COUNT[key])
        if tokens is not None:
            yield f"{_count(tokens, 'token')} {word}"
    if s.TOOL_ANSWERED_BY in attributes:
        yield f"answered by {_who(attributes, s.TOOL_ANSWERED_BY, s.TOOL_ANSWERED_BY_NAME)}"
    if attributes.get(s.CONTINUED):
        yield f"continues run {attributes.get(s.CONTINUES_RUN_ID, 'unknown')}"
    if attributes.get(s.SUBAGENT_ANNOUNCED) is False:
        yield "never announced"
    if attributes.get(s.UNCLOSED):
        yield "never closed"
    if attributes.get(s.RUN_IMPLICIT):
        yield "no RUN_STARTED"


def _inner(node: Node, names: Names) -> list[Node | Line]:
    """What stands below a span: events, links and children, as they came."""
    rows: list[tuple[int, Node | Line]] = [(node.start, _link(link, names)) for link in node.links]
    rows += [(event.at, _event(event)) for event in node.events if event.name != s.EXCEPTION]
    rows += [(child.start, child) for child in node.children]
    rows.sort(key=lambda row: row[0])
    return [row for _, row in rows]


def _link(link: SpanLink, names: Names) -> Line:
    name = names.get((link.trace_id, link.span_id))
    target = name if name is not None else f"span {link.span_id} of trace {link.trace_id}"
    return [Piece(f"→ {target}", "cyan")]


def _event(event: SpanEvent) -> Line:
    writer = _EVENTS.get(event.name, _other)
    text = writer(event.attributes) if writer is not _other else f"{event.name}{_other(event.attributes)}"
    return [Piece(f"{_MARKS.get(event.name, '·')} {text}", _STYLES.get(event.name, "dim"))]


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _TEXT_SHOWN else text[: _TEXT_SHOWN - 1] + "…"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _who(attributes: dict[str, Any], ident: str = s.SUBAGENT_RUN_ID, name: str = s.SUBAGENT_NAME) -> str:
    """The name of an invocation, else its id; the run's own agent where there is neither."""
    return str(attributes.get(name) or attributes.get(ident) or "the run's own agent")


def _paths(attributes: dict[str, Any]) -> str:
    paths = attributes.get(s.STATE_PATHS) or []
    more = len(paths) - _PATHS_SHOWN + attributes.get(s.STATE_PATHS_OMITTED, 0)
    shown = ", ".join(path or '""' for path in paths[:_PATHS_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown or "nothing"


def _state(kind: str) -> Callable[[dict[str, Any]], str]:
    return lambda a: f"state {a.get(s.STATE_SEQ, '?')}, {kind} by {_who(a)}: {_paths(a)}"


def _overwrite(a: dict[str, Any]) -> str:
    previous = _who(a, s.STATE_PREVIOUS_RUN_ID, s.STATE_PREVIOUS_NAME)
    return f"state {a.get(s.STATE_SEQ, '?')}: {_who(a)} overwrote {a.get(s.STATE_PATH)} of {previous}"


def _folded(a: dict[str, Any]) -> str:
    span = f"{a.get(s.STATE_FIRST_SEQ, '?')} to {a.get(s.STATE_LAST_SEQ, '?')}"
    return f"state {span}, {_count(a.get(s.STATE_COUNT, 0), 'update')} by {_who(a)}: {_paths(a)}"


def _remark(a: dict[str, Any]) -> str:
    place = f"event {a.get(s.EVENT_INDEX)}, {a.get(s.EVENT_TYPE)}"
    return f"{a.get(s.RULE)}: {_short(a.get(s.MESSAGE, ''))} ({place})"


def _step(a: dict[str, Any]) -> str:
    times = a.get(s.STEP_COUNT, 1)
    often = f" × {times}" if times != 1 else ""
    return f"step {a.get(s.STEP_NAME)}{often}  {duration(a.get(s.STEP_DURATION, 0) * 1_000_000_000)}"


def _interrupt(a: dict[str, Any]) -> str:
    message = a.get(s.INTERRUPT_MESSAGE)
    return f"waits for {a.get(s.INTERRUPT_REASON)}" + (f": {_short(message)}" if message else "")


def _answered(a: dict[str, Any]) -> str:
    decision = a.get(s.INTERRUPT_DECISION)
    wait = a.get(s.INTERRUPT_WAIT)
    text = f"answer: {decision}" if decision else "answer"
    return text + (f", after {duration(wait * 1_000_000_000)}" if wait is not None else "")


def _tool_answered(a: dict[str, Any]) -> str:
    wait = a.get(s.TOOL_CALL_WAIT)
    after = f", after {duration(wait * 1_000_000_000)}" if wait is not None else ""
    return f"result for {a.get(s.GEN_AI_TOOL_NAME)} of an earlier run{after}"


def _suspended(a: dict[str, Any]) -> str:
    number = len(a.get(s.INTERRUPT_IDS) or ())
    return f"suspended, {_count(number, 'interrupt')}" if number else "suspended, because of a descendant"


def _custom(a: dict[str, Any]) -> str:
    value = a.get(s.CUSTOM_VALUE)
    return f"custom {a.get(s.CUSTOM_NAME)}" + (f": {_short(value)}" if value is not None else "")


def _other(a: dict[str, Any]) -> str:
    return "".join(f" {key}={_short(a[key])}" for key in sorted(a))


_EVENTS: dict[str, Callable[[dict[str, Any]], str]] = {
    s.EVENT_STATE["snapshot"]: _state("snapshot"),
    s.EVENT_STATE["delta"]: _state("delta"),
    s.EVENT_STATE_OVERWRITE: _overwrite,
    s.EVENT_STATE_FOLDED: _folded,
    s.EVENT_VIOLATION: _remark,
    s.EVENT_NOTE: _remark,
    s.EVENT_STEP: _step,
    s.EVENT_INTERRUPT: _interrupt,
    s.EVENT_INTERRUPT_ANSWERED["resolved"]: _answered,
    s.EVENT_INTERRUPT_ANSWERED["cancelled"]: lambda a: "cancelled " + _answered(a),
    s.EVENT_TOOL_CALL_ANSWERED: _tool_answered,
    s.EVENT_SUSPENDED: _suspended,
    s.EVENT_RESUMED: lambda a: f"resumed, continues run {a.get(s.CONTINUES_RUN_ID, 'unknown')}",
    s.EVENT_CUSTOM: _custom,
    s.EVENT_ACTIVITY: lambda a: f"activity {a.get(s.ACTIVITY_TYPE)} × {a.get(s.ACTIVITY_UPDATES, 1)}",
    s.EVENT_MESSAGES_SNAPSHOT: lambda a: f"snapshot of {_count(a.get(s.MESSAGES_COUNT, 0), 'message')}",
    s.EVENT_UNKNOWN: lambda a: f"unknown event {a.get(s.EVENT_TYPE)}",
}

_MARKS = {s.EVENT_VIOLATION: "✗", s.EVENT_NOTE: "!", s.EVENT_STATE_OVERWRITE: "!", s.EVENT_INTERRUPT: "‖"}

_STYLES = {
    s.EVENT_VIOLATION: "red",
    s.EVENT_NOTE: "yellow",
    s.EVENT_STATE_OVERWRITE: "yellow",
    s.EVENT_INTERRUPT: "yellow",
    s.EVENT_SUSPENDED: "yellow",
    s.EVENT_STATE["snapshot"]: "blue",
    s.EVENT_STATE["delta"]: "blue",
    s.EVENT_STATE_FOLDED: "blue",
}
