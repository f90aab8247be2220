"""Trace model, spans: steps, as span events of their owner or as spans."""

from __future__ import annotations

import pytest

from tests.support.traced import seconds, trace
from tests.support.wire import done, event, finished, started, step, step_end, subagent, text, tool

RUN = "invoke_agent supervisor"
SHOWN = ("agui.step.*", "agui.unclosed", "agui.subagent.run_id", "agui.step.duration")


def test_they_are_folded_by_owner_and_name() -> None:
    """One event for each name when the owner ends: how often, and how long in sum."""
    traced = trace(
        started(),
        *(step("plan"), step_end("plan")),  # 1 s
        *(step("plan"), text("m"), step_end("plan")),  # 3 s
        step("act"),
        subagent("s"),
        *(step("plan", tag="s"), step_end("plan", tag="s")),
        done("s"),
        step_end("act"),  # 5 s
        finished(),
    )
    assert """
invoke_agent supervisor [AGENT] success
  * agui.step agui.step.count=2 agui.step.duration=4.0 agui.step.name="plan"
  * agui.step agui.step.count=1 agui.step.duration=5.0 agui.step.name="act"
  message assistant [CHAIN]
  invoke_agent researcher [AGENT] success
    * agui.step agui.step.count=1 agui.step.duration=1.0 agui.step.name="plan"
""" == traced.tree(events=SHOWN)


def test_after_its_owners_end_a_step_is_told_on_the_run() -> None:
    """A step that starts after its owner's end, and one that is still open then: at the run's end."""
    traced = trace(
        started(),
        subagent("mid", "mid"),
        subagent("s", "sub", above="mid"),
        step("open", tag="s"),
        done("s"),
        *(step("late", tag="s"), step_end("late", tag="s")),
        step_end("open", tag="s"),
        done("mid"),
        finished(),
    )
    assert """
invoke_agent supervisor [AGENT] success
  * agui.step agui.step.count=1 agui.step.name="late" agui.subagent.run_id="s"
  * agui.step agui.step.count=1 agui.step.name="open" agui.subagent.run_id="s"
  invoke_agent mid [AGENT] success
    invoke_agent sub [AGENT] success
""" == traced.tree(events=("agui.step.[!d]*", "agui.subagent.run_id"))


@pytest.mark.parametrize("steps", ["events", "spans", "off"])
def test_steps_do_not_adopt(steps: str) -> None:
    """Children are the agent's; they carry the owner's latest open step, a subagent that of the agent above it."""
    traced = trace(
        started(),
        step("outer"),
        step("inner"),
        text("m"),
        subagent("s"),
        step("own", tag="s"),
        text("n", tag="s"),
        step_end("own", tag="s"),
        done("s"),
        step_end("inner"),
        tool("c", "search"),
        step_end("outer"),
        text("o"),
        finished(),
        steps=steps,
    )
    tree = traced.tree("agui.step.name")
    without_steps = "\n".join(line for line in tree.splitlines() if not line.lstrip().startswith("step ")) + "\n"
    assert (
        """
invoke_agent supervisor [AGENT] success
  message assistant [CHAIN] agui.step.name="inner"
  invoke_agent researcher [AGENT] success agui.step.name="inner"
    message assistant [CHAIN] agui.step.name="own"
  execute_tool search [TOOL] pending agui.step.name="outer"
  message assistant [CHAIN]
"""
        == without_steps
    )
    assert {"events": 0, "spans": 3, "off": 0}[steps] == len(tree.splitlines()) - len(without_steps.splitlines())
    assert {"events": 2, "spans": 0, "off": 0}[steps] == len(traced.events(RUN, "agui.step"))


def test_as_spans_they_have_their_times() -> None:
    """STEP_STARTED to STEP_FINISHED, matched on owner and name."""
    traced = trace(
        started(),  # 1
        step("plan"),  # 2
        step("plan", tag="s"),  # 3
        step_end("plan"),  # 4
        step_end("plan", tag="s"),  # 5
        finished(),
        steps="spans",
    )
    assert """
invoke_agent supervisor [AGENT] success
  step plan [CHAIN] agui.step.name="plan"
  invoke_agent [AGENT] unreported agui.step.name="plan" agui.subagent.run_id="s"
    step plan [CHAIN] agui.step.name="plan" agui.subagent.run_id="s"
""" == traced.tree("agui.step.name", "agui.subagent.run_id")
    assert [(2, 4), (3, 5)] == sorted(seconds(span) for span in traced.spans if span.name == "step plan")


@pytest.mark.parametrize("steps", ["events", "spans"])
def test_without_an_end_they_end_with_their_owner(steps: str) -> None:
    """Or with the run, where the owner ended before; both are marked."""
    traced = trace(
        started(),  # 1
        subagent("s"),  # 2
        step("one", tag="s"),  # 3
        step("two"),  # 4
        done("s"),  # 5
        finished(),  # 6
        steps=steps,
    )
    if steps == "spans":
        assert [((3, 6), True), ((4, 6), True)] == [
            (traced.times(name), traced.attributes(name).get("agui.unclosed")) for name in ("step one", "step two")
        ]
    else:
        assert [("one", 3.0, True), ("two", 2.0, True)] == sorted(
            (told["agui.step.name"], told["agui.step.duration"], told.get("agui.unclosed"))
            for _, told in traced.events(RUN, "agui.step")
        )


def test_of_an_open_subagent_they_end_with_it() -> None:
    """A subagent that has no end of its own is closed at the run's end, and tells its steps."""
    traced = trace(started(), subagent("s"), step("one", tag="s"), finished())
    assert [{"agui.step.name": "one", "agui.step.count": 1, "agui.step.duration": 1.0, "agui.unclosed": True}] == [
        told for _, told in traced.events("invoke_agent researcher", "agui.step")
    ]


def test_a_step_finished_by_another_is_finished() -> None:
    """Rule step_of_another: the open step of that name ends. Nobody is opened by that."""
    traced = trace(started(), step("plan"), step_end("plan", tag="s"), finished())
    assert ["step_of_another"] == traced.rules()
    assert [{"agui.step.name": "plan", "agui.step.count": 1, "agui.step.duration": 1.0}] == [
        told for _, told in traced.events(RUN, "agui.step")
    ]
    assert [RUN] == [span.name for span in traced.spans]


def test_a_step_that_nobody_started_is_dropped() -> None:
    """Rule step_not_active."""
    traced = trace(started(), step_end("plan"), event("STEP_FINISHED", "s", stepName="plan"), finished())
    assert ["step_not_active", "step_not_active"] == traced.rules()
    assert [RUN] == [span.name for span in traced.spans]


def test_a_step_started_twice_is_one() -> None:
    """Rule step_already_active: the open one goes on."""
    traced = trace(started(), step("plan"), step("plan"), step_end("plan"), finished())
    assert [2.0] == [told["agui.step.duration"] for _, told in traced.events(RUN, "agui.step")]
    assert ["step_already_active"] == traced.rules()


def test_beyond_the_cap_steps_are_counted() -> None:
    """32 names a span; the rest leaves a number."""
    traced = trace(started(), [[step(f"s{n}"), step_end(f"s{n}")] for n in range(40)], finished())
    assert 32 == len(traced.events(RUN, "agui.step"))
    assert {"agui.omitted.steps": 8} == traced.some(RUN, "agui.omitted.steps")
