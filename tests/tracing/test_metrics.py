"""The metrics: every instrument with its labels, read back from the SDK."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import set_span_in_context

from agui_otel.protocol.entities import Outcome
from tests.support.measurements import Kit, labels, waits


@pytest.fixture
def kit() -> Iterator[Kit]:
    """Instruments of their own for each test."""
    made = Kit()
    yield made
    made.provider.shutdown()


def use_everything(kit: Kit) -> None:
    """Record on every instrument once."""
    it = kit.instruments
    kit.memory.write(waits("t", "i", since=900.0))
    it.watch(kit.memory)
    run = it.opened("run", "planner", heard=kit.stream)
    subagent = it.opened("subagent", "researcher", heard=kit.stream)
    it.first_chunk(subagent, 0.5)
    it.tool_opened("search", subagent)
    it.tool_closed("search", subagent, outcome="error", duration_s=2.0)
    it.closed(subagent, outcome="error", duration_s=3.0, error_type="boom")
    it.closed(run, outcome="success", duration_s=4.0)
    it.interrupt_answered("approval", "approved", 60.0)
    it.tokens("openai", "gpt", 10, 20)
    it.violation("first_event")
    it.events({"RUN_STARTED": 1})
    it.exported("exported", 3)
    it.observer_error("session")


UNITS = {
    "gen_ai.invoke_agent.duration": "s",
    "gen_ai.execute_tool.duration": "s",
    "agui.subagent.errors": "{error}",
    "agui.run.errors": "{error}",
    "agui.tool.errors": "{error}",
    "agui.active": "{invocation}",
    "agui.active.oldest_age": "s",
    "agui.active.idle": "s",
    "agui.interrupts.open": "{interrupt}",
    "agui.interrupts.oldest_age": "s",
    "agui.interrupt.wait": "s",
    "agui.time_to_first_chunk": "s",
    "agui.tokens": "{token}",
    "agui.export.spans": "{span}",
    "agui.violations": "{violation}",
    "agui.events": "{event}",
    "agui.observer.errors": "{error}",
}


def test_every_instrument_has_its_name_and_unit(kit: Kit) -> None:
    """The table of the trace model, section metrics."""
    use_everything(kit)
    assert UNITS == {name: metric.unit for name, metric in kit.metrics().items()}


def test_durations_have_the_buckets_of_the_genai_conventions(kit: Kit) -> None:
    """Doubling buckets up to 409.6 s for agents and 81.92 s for tools; waits reach a week."""
    use_everything(kit)
    found = kit.metrics()
    bounds = {
        name: list(found[name].data.data_points[0].explicit_bounds)
        for name, unit in UNITS.items()
        if unit == "s" and hasattr(found[name].data.data_points[0], "explicit_bounds")
    }
    tool = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
    assert bounds["gen_ai.invoke_agent.duration"] == [
        0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 51.2, 102.4, 204.8, 409.6,
    ]  # fmt: skip
    assert bounds["gen_ai.execute_tool.duration"] == tool
    assert bounds["agui.time_to_first_chunk"] == tool
    assert (bounds["agui.interrupt.wait"][0], bounds["agui.interrupt.wait"][-1]) == (1.0, 7 * 86400.0)


def test_an_up_down_counter_is_a_sum_that_may_fall(kit: Kit) -> None:
    """`agui.active` is a sum of +1 and −1, not a gauge: backends add it up over processes."""
    use_everything(kit)
    data = kit.metrics()["agui.active"].data
    assert (data.is_monotonic, data.aggregation_temporality.name) == (False, "CUMULATIVE")


def test_an_invocation_is_timed_with_its_name_level_and_outcome(kit: Kit) -> None:
    """Runs and subagents share the histogram; an error adds its type."""
    run = kit.instruments.opened("run", "planner")
    subagent = kit.instruments.opened("subagent", "researcher")
    kit.instruments.closed(subagent, outcome="error", duration_s=3.0, error_type="boom")
    kit.instruments.closed(run, outcome="success", duration_s=4.0)
    assert kit.points("gen_ai.invoke_agent.duration") == {
        labels(agent="researcher", level="subagent", outcome="error", error="boom"): (1, 3.0),
        labels(agent="planner", level="run", outcome="success"): (1, 4.0),
    }


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_an_error_counts_as_one(kit: Kit, outcome: Outcome) -> None:
    """Every outcome is timed under its plain name; interrupts, cancellations and the rest are no errors."""
    token = kit.instruments.opened("run", "planner")
    kit.instruments.closed(token, outcome=outcome, duration_s=1.0)
    (found,) = kit.points("gen_ai.invoke_agent.duration")
    assert type(dict(found)["agui.outcome"]) is str
    assert dict(found)["agui.outcome"] == outcome.value
    assert sum(kit.points("agui.run.errors").values()) == (1 if outcome is Outcome.ERROR else 0)


def test_errors_start_at_zero_for_each_cause(kit: Kit) -> None:
    """The first time a name is seen, so that an increase from nothing is seen too."""
    kit.instruments.opened("run", "planner")
    token = kit.instruments.opened("subagent", "researcher")
    assert kit.points("agui.run.errors") == {
        labels(agent="planner", cause="own"): 0,
        labels(agent="planner", cause="subagent"): 0,
        labels(agent="planner", cause="refused"): 0,
    }
    assert kit.points("agui.subagent.errors") == {
        labels(agent="researcher", cause="own"): 0,
        labels(agent="researcher", cause="subagent"): 0,
    }
    kit.instruments.closed(token, outcome="error", duration_s=1.0, cause="subagent")
    kit.instruments.opened("subagent", "researcher")
    assert kit.points("agui.subagent.errors") == {
        labels(agent="researcher", cause="own"): 0,
        labels(agent="researcher", cause="subagent"): 1,
    }


def test_a_tool_call_is_timed_and_its_errors_start_at_zero(kit: Kit) -> None:
    """Under its name and its owner's; without a duration only the error counts."""
    it = kit.instruments
    owner = it.opened("subagent", "researcher")
    unnamed = it.opened("run", None)
    it.tool_opened("search", owner)
    assert kit.points("agui.tool.errors") == {labels(tool="search", agent="researcher"): 0}
    it.tool_closed("search", owner, outcome="success", duration_s=2.0)
    it.tool_closed("search", owner, outcome="error")
    it.tool_closed("search", unnamed, outcome="aborted", duration_s=1.0)
    assert kit.points("agui.tool.errors") == {
        labels(tool="search", agent="researcher"): 1,
        labels(tool="search"): 0,
    }
    assert kit.points("gen_ai.execute_tool.duration") == {
        labels(tool="search", agent="researcher", outcome="success"): (1, 2.0),
        labels(tool="search", outcome="aborted"): (1, 1.0),
    }


def test_a_run_without_a_name_has_no_name_label(kit: Kit) -> None:
    """An absent name is absent, not an empty string."""
    kit.instruments.closed(kit.instruments.opened("run", None), outcome="success", duration_s=1.0)
    assert set(kit.points("agui.active")) == {labels(level="run")}
    assert set(kit.points("gen_ai.invoke_agent.duration")) == {labels(level="run", outcome="success")}


def test_names_beyond_the_limit_are_other() -> None:
    """The first names keep their labels, the rest share one; each kind has a limit of its own."""
    kit = Kit(max_names=2)
    it = kit.instruments
    for number in range(5):
        token = it.opened("subagent", f"agent-{number}")
        it.tool_closed(f"tool-{number}", token, outcome="error")
        it.closed(token, outcome="error", duration_s=1.0, error_type=f"type-{number}")
        it.events({f"EVENT_{number}": 1})
        it.interrupt_answered(f"reason-{number}", "unknown", 1.0)
        it.tokens(f"provider-{number}", f"model-{number}", 1, 0)
    it.opened("subagent", "agent-1")
    it.opened("subagent", None, announced=False)
    found = {name: sorted(dict(each)[key] for each in kit.points(name)) for name, key in [
        ("agui.active", "gen_ai.agent.name"),
        ("agui.tool.errors", "gen_ai.tool.name"),
        ("gen_ai.invoke_agent.duration", "error.type"),
        ("agui.events", "agui.event.type"),
        ("agui.interrupt.wait", "agui.interrupt.reason"),
        ("agui.tokens", "gen_ai.request.model"),
    ]}  # fmt: skip
    assert found == {
        "agui.active": ["agent-0", "agent-1", "other", "unannounced"],
        "agui.tool.errors": ["other", "tool-0", "tool-1"],
        "gen_ai.invoke_agent.duration": ["other", "type-0", "type-1"],
        "agui.events": ["EVENT_0", "EVENT_1", "other"],
        "agui.interrupt.wait": ["other", "reason-0", "reason-1"],
        "agui.tokens": ["model-0", "model-1", "other"],
    }
    assert kit.points("agui.active")[labels(level="subagent", agent="other")] == 0
    kit.provider.shutdown()


def test_an_interrupts_wait_is_recorded_by_reason_and_decision(kit: Kit) -> None:
    """In seconds."""
    kit.instruments.interrupt_answered("approval", "denied", 90.0)
    assert kit.points("agui.interrupt.wait") == {labels(reason="approval", decision="denied"): (1, 90.0)}


def test_tokens_are_counted_by_model_and_type(kit: Kit) -> None:
    """What is not known of provider and model has no label; nothing is recorded for 0."""
    kit.instruments.tokens("openai", "gpt", 10, 20)
    kit.instruments.tokens("openai", "gpt", 1, 0)
    kit.instruments.tokens(None, None, 0, 5)
    assert kit.points("agui.tokens") == {
        labels(provider="openai", model="gpt", token="input"): 11,
        labels(provider="openai", model="gpt", token="output"): 20,
        labels(token="output"): 5,
    }


def test_counts_are_added_up(kit: Kit) -> None:
    """Events by type, violations by rule, exports by result, swallowed errors by place."""
    it = kit.instruments
    it.events({"TEXT_MESSAGE_CONTENT": 40, "RUN_STARTED": 1})
    it.events({"TEXT_MESSAGE_CONTENT": 2})
    it.violation("first_event")
    it.violation("first_event", 2)
    it.exported("dropped", 7)
    it.observer_error("session")
    assert kit.points("agui.events") == {
        frozenset({("agui.event.type", "TEXT_MESSAGE_CONTENT")}): 42,
        frozenset({("agui.event.type", "RUN_STARTED")}): 1,
    }
    assert kit.points("agui.violations") == {frozenset({("agui.rule", "first_event")}): 3}
    assert kit.points("agui.export.spans") == {frozenset({("agui.result", "dropped")}): 7}
    assert kit.points("agui.observer.errors") == {frozenset({("agui.where", "session")}): 1}


def test_records_carry_the_spans_context(kit: Kit) -> None:
    """An exemplar leads from a measurement to the trace it belongs to."""
    span = TracerProvider().get_tracer("test").start_span("invoke_agent planner")
    context = set_span_in_context(span)
    it = kit.instruments
    token = it.opened("run", "planner")
    it.first_chunk(token, 0.5, context)
    it.tool_closed("search", token, outcome="success", duration_s=1.0, context=context)
    it.interrupt_answered("approval", "approved", 1.0, context)
    it.tokens("openai", "gpt", 1, 1, context)
    it.violation("first_event", context=context)
    it.closed(token, outcome="error", duration_s=1.0, context=context)
    found = kit.metrics()
    with_exemplars = {
        name
        for name in UNITS
        if name in found
        and any(exemplar.span_id for point in found[name].data.data_points for exemplar in point.exemplars)
    }
    assert with_exemplars == {
        "gen_ai.invoke_agent.duration",
        "gen_ai.execute_tool.duration",
        "agui.time_to_first_chunk",
        "agui.interrupt.wait",
        "agui.tokens",
        "agui.violations",
        "agui.run.errors",
    }
