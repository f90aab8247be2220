"""The kit for tests: what is fixed is fixed, and the tree says what a test compares."""

from __future__ import annotations

import json
import threading
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from agui_otel.testing import FixedClock, FixedIds, capture, span_tree
from tests.support import spans

TREE = """\
invoke_agent planner [AGENT] interrupt
  * agui.state.snapshot agui.state.paths=["/plan", "/notes"] agui.state.seq=1
  * agui.violation agui.event.index=7 agui.event.type="RUN_FINISHED" agui.message="l\\nopen" agui.rule="open"
  * agui.interrupt agui.interrupt.message="Send it?" agui.interrupt.reason="approval"
  message assistant [CHAIN]
  execute_tool task [TOOL] aborted
    invoke_agent scout [AGENT] error !ERROR "no answer\\nfrom upstream"
      * exception exception.type="timeout"
invoke_agent planner [AGENT] success
  * agui.interrupt.resolved agui.interrupt.decision="approved"
  > invoke_agent planner
  usage m-1 [LLM]"""


def phoenix_form(span: dict[str, Any]) -> dict[str, Any]:
    """A span's JSON as Phoenix's REST API gives it back."""
    attributes = dict(span["attributes"])
    return {
        "id": "U3Bhbjo2",
        "name": span["name"],
        "context": {key: span["context"][key].removeprefix("0x") for key in ("trace_id", "span_id")},
        "span_kind": attributes.pop("openinference.span.kind"),
        "parent_id": span["parent_id"].removeprefix("0x") if span["parent_id"] else None,
        "start_time": span["start_time"].replace("Z", "+00:00"),
        "end_time": span["end_time"].replace("Z", "+00:00"),
        "status_code": span["status"]["status_code"],
        "status_message": span["status"].get("description", ""),
        "attributes": attributes,
        "events": span["events"],
    }


def test_span_tree() -> None:
    """The tree has names, kinds, outcomes, events and links, and nothing that differs from run to run."""
    assert TREE == span_tree(spans.conversation().spans)


def test_span_tree_from_json() -> None:
    """The parsed JSON of the spans gives the same tree, in whatever order they come."""
    parsed = [json.loads(span.to_json()) for span in spans.conversation().spans]
    assert TREE == span_tree(parsed)
    assert TREE == span_tree(reversed(parsed))


def test_span_tree_from_phoenix() -> None:
    """What Phoenix gives back compares equal, but for the links that it drops."""
    conversation = spans.conversation()
    stored = [phoenix_form(json.loads(span.to_json())) for span in conversation.spans]
    assert conversation.tree(links=False) == span_tree(stored, links=False)


def test_chosen_attributes() -> None:
    """Attributes come by pattern, sorted; what differs from run to run only by its exact name."""
    span = spans.single(
        attributes={
            "openinference.span.kind": "AGENT",
            "agui.outcome": "success",
            "agui.zebra": 1,
            "agui.ant": ["ü"],
            "agui.continues.span_id": "0001",
            "agui.time_to_first_chunk": 0.5,
            "session.id": "t",
        },
        events=[("e", 0, {"agui.index": 1, "agui.step.duration": 2.0, "x": True})],
    )
    assert "invoke_agent a [AGENT] success\n  * e agui.index=1 x=true" == span_tree(span)
    assert 'invoke_agent a [AGENT] success agui.ant=["ü"] agui.zebra=1\n  * e' == span_tree(
        span, attributes=["agui.*"], event_attributes=[]
    )
    assert 'invoke_agent a [AGENT] success agui.time_to_first_chunk=0.5 session.id="t"\n  * e x=true' == span_tree(
        span, attributes=["session.id", "agui.time_to_first_chunk"], event_attributes=["?"]
    )


def test_missing_parent() -> None:
    """A span whose parent is elsewhere is a root, and a link that leads elsewhere says so."""
    first, *_ = conversation = spans.conversation().spans
    children = [span for span in conversation if span.parent is not None]
    assert "invoke_agent planner" not in span_tree(children)
    assert span_tree([span for span in conversation if span.links]).endswith("> elsewhere")
    assert first.name in span_tree([first])


def test_children_in_order() -> None:
    """Children stand by start, then name."""
    captured = capture()
    tracer = captured.tracer_provider.get_tracer("tests")
    with tracer.start_as_current_span("root", start_time=1):
        for name, start in (("late", 3), ("b", 2), ("a", 2)):
            tracer.start_span(name, start_time=start).end()
    assert "root\n  a\n  b\n  late" == captured.tree()


def test_no_spans() -> None:
    """No spans make an empty text."""
    assert "" == span_tree([])


def test_fixed_ids() -> None:
    """Ids count up, and no two threads get the same."""
    provider = TracerProvider(id_generator=FixedIds())
    made = [provider.get_tracer("tests").start_span("x").get_span_context() for _ in range(2)]
    assert [(1, 1), (2, 2)] == [(context.trace_id, context.span_id) for context in made]
    ids = FixedIds()
    seen: list[int] = []
    threads = [
        threading.Thread(target=lambda: seen.extend(ids.generate_span_id() for _ in range(1_000))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 4_000 == len(set(seen))


def test_fixed_clock() -> None:
    """The clock steps with each reading, and on demand."""
    clock = FixedClock(1_000, step=5)
    assert [1_000, 1_005] == [clock(), clock()]
    clock.advance(1.5)
    assert 1_500_001_010 == clock()
    assert 1_767_225_600_000_000_000 == FixedClock()()


def test_capture() -> None:
    """Spans and metrics of one test are kept, and spans can be forgotten."""
    captured = capture()
    captured.tracer_provider.get_tracer("tests").start_span("x").end()
    meter = captured.meter_provider.get_meter("tests")
    meter.create_counter("runs").add(2, {"kind": "a"})
    meter.create_histogram("wait").record(0.3)
    assert "x" == captured.tree()
    assert {"runs": [({"kind": "a"}, 2)], "wait": [({}, 1)]} == captured.metrics()
    captured.clear()
    assert () == captured.spans
