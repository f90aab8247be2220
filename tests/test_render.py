"""Trees for people: every line of the text, and the colours of the terminal."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from agui_otel.render import duration, render_rich, render_text
from tests.support import spans
from tests.support.traced import Thread, trace
from tests.support.wire import event, finished, started, text

TEXT = """\
invoke_agent planner  interrupt  489 ms, first chunk 60 ms
├─ message assistant  3.0 ms, 1 chunk / 1,234 characters
├─ · state 1, snapshot by the run's own agent: /plan, /notes
├─ execute_tool task  aborted  294 ms, never closed
│  └─ invoke_agent scout  error  no answer from upstream  280 ms
├─ ✗ open: l open (event 7, RUN_FINISHED)
└─ ‖ waits for approval: Send it?
invoke_agent planner  success  1 min 6 s
├─ → invoke_agent planner
├─ · answer: approved, after 1 min 14 s
└─ usage m-1  1 token in, 20,000 tokens out"""


def line_of(name: str, attributes: dict[str, Any]) -> str:
    """The line of a span event."""
    text = render_text(spans.single(events=[(name, 0, attributes)]))
    return text.partition("└─ ")[2]


def test_text() -> None:
    """The whole of two runs, as text."""
    assert TEXT == render_text(spans.conversation().spans)


def test_rich_says_the_same() -> None:
    """The rich trees have the lines of the text, in its order."""
    console = Console(width=200, color_system=None)
    with console.capture() as output:
        for tree in render_rich(spans.conversation().spans):
            console.print(tree)
    lines = [line.lstrip("│├└─ ").rstrip() for line in output.get().splitlines()]
    assert [line.lstrip("│├└─ ") for line in TEXT.splitlines()] == lines


def test_colours() -> None:
    """Errors and violations are red, what waits is yellow, success is green."""
    console = Console(width=200, color_system="standard", force_terminal=True)
    with console.capture() as output:
        for tree in render_rich(spans.conversation().spans):
            console.print(tree)
    coloured = output.get()
    assert "\x1b[1;31minvoke_agent scout" in coloured
    assert "\x1b[31m✗ open" in coloured
    assert "\x1b[33m  interrupt" in coloured
    assert "\x1b[33m‖ waits" in coloured
    assert "\x1b[32m  success" in coloured


@pytest.mark.parametrize(
    ("name", "attributes", "line"),
    [
        (
            "agui.state.delta",
            {
                "agui.state.seq": 3,
                "agui.state.paths": [f"/{n}" for n in range(8)],
                "agui.subagent.name": "scout",
                "agui.state.paths_omitted": 2,
            },
            "· state 3, delta by scout: /0, /1, /2, /3, /4, /5 and 4 more",
        ),
        (
            "agui.state.delta",
            {"agui.state.seq": 1, "agui.subagent.run_id": "s1"},
            "· state 1, delta by s1: nothing",
        ),
        (
            "agui.state.overwrite",
            {
                "agui.state.seq": 4,
                "agui.state.path": "/a",
                "agui.subagent.name": "b",
                "agui.state.previous.subagent.run_id": "s1",
            },
            "! state 4: b overwrote /a of s1",
        ),
        (
            "agui.state.updates_folded",
            {
                "agui.state.first_seq": 65,
                "agui.state.last_seq": 90,
                "agui.state.count": 1,
                "agui.state.paths": [""],
            },
            '· state 65 to 90, 1 update by the run\'s own agent: ""',
        ),
        (
            "agui.note",
            {
                "agui.rule": "repeated_id",
                "agui.message": "x" * 200,
                "agui.event.index": 3,
                "agui.event.type": "RAW",
            },
            f"! repeated_id: {'x' * 99}… (event 3, RAW)",
        ),
        (
            "agui.step",
            {"agui.step.name": "model", "agui.step.count": 3, "agui.step.duration": 0.5},
            "· step model × 3  500 ms",
        ),
        ("agui.step", {"agui.step.name": "model"}, "· step model  0.0 ms"),
        ("agui.interrupt", {"agui.interrupt.reason": "on_interrupt"}, "‖ waits for on_interrupt"),
        ("agui.interrupt.cancelled", {}, "· cancelled answer"),
        (
            "agui.tool_call.answered",
            {"gen_ai.tool.name": "pick", "agui.tool_call.wait": 2.0},
            "· result for pick of an earlier run, after 2.0 s",
        ),
        ("agui.subagent.suspended", {"agui.interrupt.ids": ["a", "b"]}, "· suspended, 2 interrupts"),
        ("agui.subagent.suspended", {}, "· suspended, because of a descendant"),
        ("agui.subagent.resumed", {"agui.continues.run_id": "r1"}, "· resumed, continues run r1"),
        (
            "agui.custom",
            {"agui.custom.name": "progress", "agui.custom.value": "{\n}"},
            "· custom progress: { }",
        ),
        ("agui.custom", {"agui.custom.name": "progress"}, "· custom progress"),
        ("agui.activity", {"agui.activity.type": "PLAN", "agui.activity.updates": 4}, "· activity PLAN × 4"),
        ("agui.messages.snapshot", {"agui.messages.count": 1}, "· snapshot of 1 message"),
        ("agui.unknown_event", {"agui.event.type": "FUTURE"}, "· unknown event FUTURE"),
        ("other", {"b": 1, "a": "x"}, "· other a=x b=1"),
    ],
)
def test_event_lines(name: str, attributes: dict[str, Any], line: str) -> None:
    """Each kind of span event has its sentence."""
    assert line == line_of(name, attributes)


@pytest.mark.parametrize(
    ("attributes", "facts"),
    [
        ({"agui.tool_call.answered_by": "s1", "agui.tool_call.answered_by_name": "bank"}, "answered by bank"),
        ({"agui.continued": True, "agui.continues.run_id": "r1"}, "continues run r1"),
        ({"agui.subagent.announced": False}, "never announced"),
        ({"agui.run.implicit": True}, "no RUN_STARTED"),
    ],
)
def test_facts(attributes: dict[str, Any], facts: str) -> None:
    """What is unusual about a span stands in its line."""
    assert f"invoke_agent a  1.0 ms, {facts}" == render_text(spans.single(attributes=attributes))


def test_error_without_outcome() -> None:
    """A foreign span that failed says so, with what it has as a reason."""
    assert "call  ERROR boom  1.0 ms" == render_text(spans.single(name="call", error="boom"))


def test_deep_trees() -> None:
    """A tree deeper than Python's recursion limit is rendered."""
    captured = spans.conversation()
    parent = spans.first_run(captured.tracer_provider)
    for _ in range(1_500):
        parent = spans._span(captured.tracer_provider, "deep", (0, 1), parent)
    assert 1_500 == render_text(captured.spans).count("deep")


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0.0 ms"),
        (9_940_000, "9.9 ms"),
        (489_000_000, "489 ms"),
        (3_440_000_000, "3.4 s"),
        (125_000_000_000, "2 min 5 s"),
        (3_725_000_000_000, "1 h 2 min"),
    ],
)
def test_durations(nanoseconds: int, text: str) -> None:
    """Durations read as a person writes them."""
    assert text == duration(nanoseconds)


def test_a_run_that_comes_again() -> None:
    """Whether it was seen before, and whether its beginning was."""
    thread = Thread()
    run = [started(), text("m", "x"), finished()]
    thread.run(run)
    assert "seen before, sent once more" in render_text(thread.run(run).spans).splitlines()[0]
    late = trace(event("TEXT_MESSAGE_CONTENT", messageId="m", delta="x"), finished())
    assert "its beginning is missing" in render_text(late.spans).splitlines()[0]
