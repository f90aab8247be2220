"""Every recording gives the tree that the trace model says.

The golden files stand beside the recordings: `NAME.tree` with steps as span events, `NAME.steps.tree` with steps as
spans. They were read against the recording, event by event; tests/support/golden.py says how to read a new one.
"""

from __future__ import annotations

from typing import Literal

import pytest

from tests.support.golden import STREAMS, mint, names, spans, tree


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("steps", ["events", "spans"])
def test_tree(name: str, steps: Literal["events", "spans"]) -> None:
    """A recording's tree is its golden file."""
    golden = STREAMS / f"{name}{'.tree' if steps == 'events' else '.steps.tree'}"
    assert golden.read_text(encoding="utf-8") == tree(name, steps)


@pytest.mark.parametrize("name", [name for name in names() if name.endswith("_3_resume")])
def test_new_ids(name: str) -> None:
    """A producer that keeps no id: the interrupts join its run to the one that asked, and its agents are new ones.

    Nothing continues, and what the stream names is a parent only where the stream has announced it.
    """
    golden = STREAMS / f"{name}.minted.tree"
    assert golden.read_text(encoding="utf-8") == tree(name, minted=mint)


@pytest.mark.parametrize("name", names())
def test_steps_change_nothing_else(name: str) -> None:
    """The two golden files of a recording differ in its steps only, and have as many of them."""
    events = (STREAMS / f"{name}.tree").read_text(encoding="utf-8").splitlines()
    spans_ = (STREAMS / f"{name}.steps.tree").read_text(encoding="utf-8").splitlines()
    folded = [line for line in events if line.lstrip().startswith("* agui.step ")]
    steps = [line for line in spans_ if line.lstrip().startswith("step ")]
    assert sum(int(line.split("agui.step.count=")[1].split()[0]) for line in folded) == len(steps)
    assert sorted(set(events) - set(folded)) == sorted(set(spans_) - set(steps))


@pytest.mark.parametrize("name", names())
def test_identity(name: str) -> None:
    """Every span of a run carries its session and run, under both vocabularies, and stands in one trace."""
    by_run: dict[object, set[int]] = {}
    for span in spans(name).spans:
        attributes, context = span.attributes or {}, span.context
        assert context is not None
        thread = attributes["agui.thread.id"]
        assert (thread, thread) == (attributes["session.id"], attributes["gen_ai.conversation.id"])
        by_run.setdefault(attributes["agui.run.id"], set()).add(context.trace_id)
    assert [1] * len(by_run) == [len(traces) for traces in by_run.values()]
