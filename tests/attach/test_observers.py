"""One observer a stream, and runs inside runs (trace model: parents)."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from agui_otel import Settings, TracingSubscriber, trace_events
from agui_otel.tracing.host import MAX_ATTRIBUTES
from tests.support.sources import DONE, HALF, INPUT, RUN, WHOLE, custom, produced, read
from tests.support.watched import Watched, span_id, trace_id, values

OTHER: dict[str, Any] = {"type": "RUN_STARTED", "threadId": "thread", "runId": "other"}
OTHER_DONE: dict[str, Any] = {"type": "RUN_FINISHED", "threadId": "thread", "runId": "other"}


def one(watched: Watched) -> dict[str, Any]:
    """The attributes of the only run, which was counted once."""
    watched.check()
    (duration,) = watched.captured.metrics()["gen_ai.invoke_agent.duration"][:1]
    assert 1 == duration[1]
    return dict(values(watched.run))


@pytest.mark.parametrize("inner_input", [None, INPUT], ids=["bare", "given"])
def test_a_stream_inside_its_own_is_counted_once(watched: Watched, inner_input: Any) -> None:
    """The inner observer hands over what the outer one lacks: its name and its attributes."""

    def source() -> Iterator[Any]:
        yield from trace_events(
            iter(WHOLE), input=inner_input, agent_name="inner", attributes={"tenant": "inner", "plan": 1},
            **watched.keywords,
        )  # fmt: skip

    stream = trace_events(source(), input=INPUT, attributes={"tenant": "outer"}, **watched.keywords)
    assert list(WHOLE) == list(stream)
    found = one(watched)
    assert ("inner", "outer", 1) == (found["gen_ai.agent.name"], found["tenant"], found["plan"])
    assert "invoke_agent inner" == watched.run.name


def test_an_event_outside_a_run_is_no_run_that_was_started(watched: Watched) -> None:
    """An observer without an input that starts after it still follows the same stream."""

    def source() -> Iterator[Any]:
        yield custom("early")
        yield from trace_events([RUN, DONE], agent_name="inner", **watched.keywords)

    list(trace_events(source(), **watched.keywords))
    watched.check()
    assert [(True, None), (None, "run")] == [
        (values(run).get("agui.run.implicit"), values(run).get("agui.run.id")) for run in watched.runs
    ]
    assert ["inner", "inner"] == [values(run)["gen_ai.agent.name"] for run in watched.runs]


def test_an_async_stream_inside_its_own_is_counted_once(watched: Watched) -> None:
    """Likewise; what the inner one brings is on every span of the run."""
    inner = trace_events(produced(WHOLE), agent_name="inner", attributes={"tenant": "t"}, **watched.keywords)
    assert list(WHOLE) == asyncio.run(read(trace_events(inner, **watched.keywords)))
    assert "inner" == one(watched)["gen_ai.agent.name"]
    assert {"t"} == {values(span)["tenant"] for span in watched.spans}


def test_what_the_outer_observer_has_stands(watched: Watched) -> None:
    """The inner one only fills gaps."""
    inner = trace_events(iter(WHOLE), agent_name="inner", attributes={"tenant": "i"}, **watched.keywords)
    list(trace_events(inner, agent_name="outer", attributes={"tenant": "o"}, input=INPUT, **watched.keywords))
    found = one(watched)
    assert ("outer", "o") == (found["gen_ai.agent.name"], found["tenant"])


def test_three_observers_are_one(watched: Watched) -> None:
    """However deep."""
    stream: Iterator[Any] = iter(WHOLE)
    for number in range(3):
        stream = trace_events(stream, attributes={f"from {number}": True}, **watched.keywords)
    assert list(WHOLE) == list(stream)
    assert [True] * 3 == [one(watched)[f"from {number}"] for number in range(3)]


@pytest.mark.parametrize("how", ["close", "aclose"])
def test_closing_the_outer_one_closes_the_source(watched: Watched, how: str) -> None:
    """Through the inner one, which passes through."""
    closed: list[str] = []

    def source() -> Iterator[Any]:
        try:
            yield from HALF
        finally:
            closed.append("close")

    async def async_source() -> AsyncIterator[Any]:
        try:
            for event in HALF:
                yield event
        finally:
            closed.append("aclose")

    async def main() -> None:
        stream = trace_events(trace_events(async_source(), **watched.keywords), **watched.keywords)
        await anext(stream)
        await stream.aclose()

    if how == "close":
        stream = trace_events(trace_events(source(), **watched.keywords), **watched.keywords)
        next(stream)
        stream.close()
    else:
        asyncio.run(main())
    assert [how] == closed
    assert "disconnected" == one(watched)["agui.outcome"]


def test_a_subscriber_inside_the_stream_is_counted_once(watched: Watched) -> None:
    """It shows the run of the one that counts."""
    shown: list[Any] = []

    def source() -> Iterator[Any]:
        subscriber = TracingSubscriber(agent_name="inner", **watched.keywords)
        for event in (RUN, DONE):
            subscriber.on_event(event)
            yield event
        shown.append(subscriber.span_context)
        subscriber.on_run_finalized()

    list(trace_events(source(), **watched.keywords))
    assert "inner" == one(watched)["gen_ai.agent.name"]
    assert [watched.run.get_span_context()] == shown


def inside(watched: Watched, mode: str, **inner: Any) -> tuple[Any, Any]:
    """A run that starts inside another: the outer one's span, and its own."""
    settings = {**watched.keywords, "config": Settings(ambient=mode)}  # type: ignore[arg-type]

    def source() -> Iterator[Any]:
        yield RUN
        with watched.tracer.start_as_current_span("tool"):
            list(trace_events([OTHER, OTHER_DONE], **settings, **inner))
        yield DONE

    list(trace_events(source(), **settings))
    watched.check()
    other, run = watched.runs
    return run, other


@pytest.mark.parametrize("mode", ["auto", "link", "child"])
@pytest.mark.parametrize("given", [None, {**INPUT, "runId": "other"}], ids=["bare", "given"])
def test_a_run_inside_another_is_a_root_and_links(watched: Watched, mode: str, given: Any) -> None:
    """To the span that was current; nothing is parented into another run's tree."""
    run, other = inside(watched, mode, input=given)
    tool = watched.named("tool")
    assert (None, None) == (run.parent, other.parent)
    assert trace_id(run) != trace_id(other)
    assert [tool.get_span_context()] == [link.context for link in other.links]
    assert f"{trace_id(tool):032x}" == values(other)["agui.ambient.trace_id"]
    assert f"{span_id(tool):016x}" == values(other)["agui.ambient.span_id"]
    assert "other" == values(other)["agui.run.id"]


def test_a_run_inside_another_that_ignores_it_is_a_root(watched: Watched) -> None:
    """Without a link."""
    _, other = inside(watched, "ignore")
    assert (None, 0) == (other.parent, len(other.links))


def test_a_run_of_another_id_is_another_run(watched: Watched) -> None:
    """An inner observer with an input of its own is no duplicate, also before the outer run has started."""

    def source() -> Iterator[Any]:
        list(trace_events([OTHER, OTHER_DONE], input={**INPUT, "runId": "other"}, **watched.keywords))
        yield RUN
        yield DONE

    list(trace_events(source(), input=INPUT, **watched.keywords))
    watched.check()
    assert ["other", "run"] == [values(run)["agui.run.id"] for run in watched.runs]


def test_a_later_run_of_the_stream_is_served_too(watched: Watched) -> None:
    """By its ids; an observer without an input is another one's once a RUN_STARTED was seen."""

    def source() -> Iterator[Any]:
        yield RUN
        yield DONE
        yield OTHER
        list(trace_events([custom("same run")], input={**INPUT, "runId": "other"}, **watched.keywords))
        list(trace_events([custom("somebody's")], **watched.keywords))
        yield OTHER_DONE

    list(trace_events(source(), **watched.keywords))
    watched.check()
    assert ["run", None, "other"] == [values(run).get("agui.run.id") for run in watched.runs]


def test_a_context_that_outlives_its_stream_serves_nobody(watched: Watched) -> None:
    """A run that starts in it is another one, and links to where it came from."""
    contexts: list[Any] = []

    def source() -> Iterator[Any]:
        yield RUN
        contexts.append(contextvars.copy_context())
        yield DONE

    list(trace_events(source(), **watched.keywords))
    contexts[0].run(lambda: list(trace_events([OTHER, OTHER_DONE], **watched.keywords)))
    run, other = watched.runs
    assert (None, [run.get_span_context()]) == (other.parent, [link.context for link in other.links])
    watched.check()


def test_a_session_that_has_seen_no_run_is_no_run_to_be_inside_of(watched: Watched) -> None:
    """The inner run hangs where the caller is."""

    def source() -> Iterator[Any]:
        list(trace_events([OTHER, OTHER_DONE], input={**INPUT, "runId": "other"}, **watched.keywords))
        yield RUN
        yield DONE

    with watched.tracer.start_as_current_span("server"):
        list(trace_events(source(), **watched.keywords))
    server = watched.named("server")
    assert [span_id(server)] * 2 == [run.parent.span_id for run in watched.runs if run.parent is not None]
    watched.check()


def test_the_attributes_of_many_observers_stay_within_the_limit(watched: Watched) -> None:
    """What is left out is counted."""
    stream: Iterator[Any] = iter(WHOLE)
    for number in range(3):
        mine = {f"{number}.{name}": name for name in range(MAX_ATTRIBUTES - 2)}
        stream = trace_events(stream, attributes=mine, **watched.keywords)
    list(stream)
    found = one(watched)
    assert MAX_ATTRIBUTES == sum(key[0].isdigit() or key == "agui.omitted.attributes" for key in found)


@pytest.mark.parametrize("variable", ["AGUI_OTEL_DISABLED", "OTEL_SDK_DISABLED"])
def test_a_disabled_observer_passes_through(watched: Watched, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The events as they are, the source closed with the stream, and nothing current."""
    monkeypatch.setenv(variable, "true")
    closed: list[str] = []
    keywords = {name: value for name, value in watched.keywords.items() if name != "config"}

    def source() -> Iterator[Any]:
        try:
            yield from WHOLE
        finally:
            closed.append("close")

    async def main() -> list[Any]:
        partly = trace_events(produced(WHOLE), input=INPUT, **keywords)
        await anext(partly)
        await partly.aclose()
        return await read(trace_events(produced(WHOLE), input=INPUT, **keywords))

    assert list(map(id, WHOLE)) == list(map(id, trace_events(source(), input=INPUT, **keywords)))
    partly = trace_events(source(), **keywords)
    next(partly)
    partly.close()
    assert ["close", "close"] == closed
    assert list(map(id, WHOLE)) == list(map(id, asyncio.run(main())))
    with TracingSubscriber(input=INPUT, **keywords) as subscriber:
        subscriber.on_event(RUN)
    assert (None, None) == (subscriber.span_context, subscriber.trace_url)
    assert () == watched.captured.spans
    assert {} == watched.captured.metrics()


def test_settings_given_win_over_the_environment(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """And are asked instead of it."""
    monkeypatch.setenv("AGUI_OTEL_DISABLED", "true")
    list(trace_events(WHOLE, tracer_provider=watched.provider, config=Settings(disabled=False)))
    assert 1 == len(watched.runs)
