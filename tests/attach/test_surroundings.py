"""What is current where (trace model: what runs inside): the run's span for the source, the caller's for the caller."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import baggage
from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NoOpTracerProvider, get_current_span, set_span_in_context

from agui_otel import Settings, trace_events
from tests.support.sources import DONE, INPUT, RUN, WHOLE, custom
from tests.support.watched import FULL, Watched, parent_id, span_id, trace_id, values

Consume = Callable[[Iterator[Any], Callable[[Any], object], dict[str, Any]], None]


def consume_sync(source: Iterator[Any], each: Callable[[Any], object], keywords: dict[str, Any]) -> None:
    """Trace the source as a generator, and do something with each event."""
    for event in trace_events(source, **keywords):
        each(event)


def consume_async(source: Iterator[Any], each: Callable[[Any], object], keywords: dict[str, Any]) -> None:
    """Trace the source as an async generator."""

    class Source:
        def __aiter__(self) -> AsyncIterator[Any]:
            return self

        async def __anext__(self) -> Any:
            try:
                return next(source)
            except StopIteration:
                raise StopAsyncIteration from None

        async def aclose(self) -> None:
            source.close()  # type: ignore[attr-defined]

    async def main() -> None:
        async for event in trace_events(Source(), **keywords):
            each(event)

    asyncio.run(main())


both = pytest.mark.parametrize("consume", [consume_sync, consume_async])


def current_id() -> int:
    """The id of the current span, 0 for none."""
    return get_current_span().get_span_context().span_id


@both
@pytest.mark.parametrize("given", [None, INPUT], ids=["without input", "with input"])
def test_the_run_is_current_for_the_source(watched: Watched, consume: Consume, given: Any) -> None:
    """From the pull in which it is known: the first where there is an input, else the one after RUN_STARTED."""
    inside: list[int] = []
    outside: list[int] = []

    def source() -> Iterator[Any]:
        for event in WHOLE:
            inside.append(current_id())
            yield event
        inside.append(current_id())

    consume(source(), lambda _: outside.append(current_id()), {**watched.keywords, "input": given})
    run = span_id(watched.run)
    assert [0 if given is None else run] + [run] * len(WHOLE) == inside
    assert [0] * len(WHOLE) == outside
    watched.check()


@both
def test_spans_of_the_source_are_in_the_run(watched: Watched, consume: Consume) -> None:
    """In its trace, with its session, whoever makes them."""

    def source() -> Iterator[Any]:
        yield RUN
        with watched.tracer.start_as_current_span("llm"), watched.tracer.start_as_current_span("http"):
            pass
        yield DONE

    consume(source(), lambda _: None, watched.keywords)
    run, llm, http = watched.run, watched.named("llm"), watched.named("http")
    assert [span_id(run), span_id(llm)] == [parent_id(llm), parent_id(http)]
    assert {trace_id(run)} == {trace_id(llm), trace_id(http)}
    for span in (llm, http):
        assert ("thread", "run") == (values(span)["session.id"], values(span)["agui.run.id"])


@both
def test_a_span_that_the_source_keeps_over_its_yield_is_its_own(watched: Watched, consume: Consume) -> None:
    """It stays current for the source until the source ends it, and is never current for the consumer."""
    outside: list[int] = []

    def source() -> Iterator[Any]:
        yield RUN
        with watched.tracer.start_as_current_span("kept"):
            yield custom("a")
            watched.tracer.start_span("under kept").end()
            yield custom("b")
            watched.tracer.start_span("under kept too").end()
        watched.tracer.start_span("after").end()
        yield custom("c")
        watched.tracer.start_span("later").end()
        yield DONE

    consume(source(), lambda _: outside.append(current_id()), watched.keywords)
    run, kept = watched.run, watched.named("kept")
    assert [0] * 5 == outside
    assert [span_id(run)] + [span_id(kept)] * 2 + [span_id(run)] * 2 == [
        parent_id(watched.named(name)) for name in ("kept", "under kept", "under kept too", "after", "later")
    ]


@both
def test_a_run_that_begins_under_a_kept_span_follows_it(watched: Watched, consume: Consume) -> None:
    """What the source keeps current goes before the run; spans under it have the run's session all the same."""

    def source() -> Iterator[Any]:
        with watched.tracer.start_as_current_span("kept"):
            yield RUN
            watched.tracer.start_span("under kept").end()
        yield custom("a")
        watched.tracer.start_span("under the run").end()
        yield DONE

    consume(source(), lambda _: None, watched.keywords)
    assert span_id(watched.named("kept")) == parent_id(watched.named("under kept"))
    assert span_id(watched.run) == parent_id(watched.named("under the run"))
    assert "thread" == values(watched.named("under kept"))["session.id"]


@both
@pytest.mark.parametrize("end", ["exhausted", "raised", "closed"])
def test_the_caller_has_its_context_back(watched: Watched, consume: Consume, end: str) -> None:
    """The very object, after every pull and after the end, however the source left."""
    seen: list[object] = []

    def source() -> Iterator[Any]:
        try:
            yield RUN
            attach(set_span_in_context(watched.tracer.start_span("left behind")))
            yield custom("a")
            if end == "raised":
                raise ValueError
        finally:
            get_current_span().end()

    def each(event: Any) -> None:
        seen.append(get_current())
        if end == "closed" and event["type"] == "CUSTOM":
            raise ZeroDivisionError

    token = attach(baggage.set_baggage("caller", "here"))
    try:
        before = get_current()
        if end == "exhausted":
            consume(source(), each, watched.keywords)
        else:
            with pytest.raises(ValueError if end == "raised" else ZeroDivisionError):
                consume(source(), each, watched.keywords)
        assert all(context is before for context in (*seen, get_current()))
    finally:
        detach(token)
    assert 2 == len(seen)


@both
def test_the_source_sees_what_the_caller_sets(watched: Watched, consume: Consume) -> None:
    """The caller's current context is the base, pull by pull: its baggage, and spans it starts around the loop."""
    seen: list[object] = []

    def source() -> Iterator[Any]:
        for event in (RUN, custom("a"), DONE):
            seen.append(baggage.get_baggage("caller"))
            yield event

    def each(event: Any) -> None:
        attach(baggage.set_baggage("caller", event["type"]))

    contextvars.copy_context().run(consume, source(), each, watched.keywords)
    assert [None, "RUN_STARTED", "CUSTOM"] == seen


@both
def test_the_run_is_current_while_the_source_is_closed(watched: Watched, consume: Consume) -> None:
    """What it cleans up is in the run, and the run ends after it."""

    def source() -> Iterator[Any]:
        try:
            yield RUN
            yield custom("a")
        finally:
            watched.tracer.start_span("cleanup").end()

    def each(event: Any) -> None:
        if event is not RUN:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        consume(source(), each, watched.keywords)
    run, cleanup = watched.run, watched.named("cleanup")
    assert (span_id(run), "thread") == (parent_id(cleanup), values(cleanup)["session.id"])
    assert cleanup.end_time is not None
    assert run.end_time is not None
    assert cleanup.end_time <= run.end_time


@both
def test_each_run_of_a_stream_is_current_in_its_turn(watched: Watched, consume: Consume) -> None:
    """The next one's from the pull after its RUN_STARTED."""

    def source() -> Iterator[Any]:
        for number in range(3):
            yield {**RUN, "runId": str(number)}
            watched.tracer.start_span(f"in {number}").end()
            yield {**DONE, "runId": str(number)}

    consume(source(), lambda _: None, watched.keywords)
    spans = [watched.named(f"in {number}") for number in range(3)]
    assert [span_id(run) for run in watched.runs] == [parent_id(span) for span in spans]
    assert ["0", "1", "2"] == [values(span)["agui.run.id"] for span in spans]


@both
def test_a_provider_without_spans_leaves_the_current_one_alone(watched: Watched, consume: Consume) -> None:
    """A no-op run is no parent: the source's spans stay under the caller's."""

    def source() -> Iterator[Any]:
        yield RUN
        watched.tracer.start_span("inner").end()
        yield DONE

    with watched.tracer.start_as_current_span("outer"):
        consume(source(), lambda _: None, {"config": FULL, "tracer_provider": NoOpTracerProvider()})
    assert span_id(watched.named("outer")) == parent_id(watched.named("inner"))


@both
def test_a_run_of_one_provider_is_a_parent_for_spans_of_another(watched: Watched, consume: Consume) -> None:
    """The context carries the run whoever made it."""
    other = TracerProvider()
    seen: list[int] = []

    def source() -> Iterator[Any]:
        yield RUN
        seen.append(other.get_tracer("t").start_span("x").get_span_context().trace_id)
        yield DONE

    consume(source(), lambda _: None, watched.keywords)
    assert [trace_id(watched.run)] == seen


def test_a_generator_may_be_pulled_by_any_thread_in_any_context(watched: Watched) -> None:
    """Each pull attaches and detaches where it runs, as thread pools of web frameworks do it."""

    def source() -> Iterator[Any]:
        for number, event in enumerate(WHOLE):
            watched.tracer.start_span(f"span {number}").end()
            yield event

    stream = trace_events(source(), input=INPUT, **watched.keywords)
    with ThreadPoolExecutor(4) as pool:
        for event in WHOLE:
            assert event is pool.submit(contextvars.Context().run, next, stream).result()
        pool.submit(contextvars.Context().run, stream.close).result()
    spans = [watched.named(f"span {number}") for number in range(len(WHOLE))]
    assert {span_id(watched.run)} == {parent_id(span) for span in spans}
    watched.check()


def test_tasks_that_the_source_starts_are_in_the_run(watched: Watched) -> None:
    """Their context is a copy, also after the stream has ended."""

    async def main() -> None:
        release = asyncio.Event()

        async def background() -> None:
            watched.tracer.start_span("in time").end()
            await release.wait()
            watched.tracer.start_span("late").end()

        tasks: list[asyncio.Task[None]] = []

        async def source() -> AsyncIterator[Any]:
            yield RUN
            tasks.append(asyncio.create_task(background()))
            await asyncio.sleep(0)
            yield DONE

        async for _ in trace_events(source(), **watched.keywords):
            pass
        release.set()
        await tasks[0]

    asyncio.run(main())
    run = watched.run
    for name in ("in time", "late"):
        span = watched.named(name)
        assert (span_id(run), "thread", "run") == (
            parent_id(span), values(span)["session.id"], values(span)["agui.run.id"],
        )  # fmt: skip
    watched.check()


def test_a_span_without_the_context_is_known_by_its_trace(watched: Watched) -> None:
    """A worker thread that was only given the parent: the trace has exactly one open run."""

    def source() -> Iterator[Any]:
        yield RUN
        parent = set_span_in_context(get_current_span(), contextvars.Context().run(get_current))
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: watched.tracer.start_span("worker", context=parent).end()).result()
        yield DONE

    list(trace_events(source(), **watched.keywords))
    worker = watched.named("worker")
    assert (span_id(watched.run), "thread") == (parent_id(worker), values(worker)["session.id"])


def test_what_a_span_says_of_itself_stands(watched: Watched) -> None:
    """Only what it lacks is added."""

    def source() -> Iterator[Any]:
        yield RUN
        watched.tracer.start_span("own", attributes={"session.id": "mine"}).end()
        yield DONE

    list(trace_events(source(), **watched.keywords))
    own = values(watched.named("own"))
    assert ("mine", "run") == (own["session.id"], own["agui.run.id"])


USAGE = {**DONE, "usage": [{"model": "m", "inputTokens": 1}]}


@pytest.mark.parametrize("attributes", [{"openinference.span.kind": "LLM"}, {"gen_ai.operation.name": "chat"}])
@pytest.mark.parametrize("early", [False, True], ids=["in the run's trace", "in another trace"])
def test_an_llm_span_in_the_run_reports_its_tokens_itself(
    watched: Watched, attributes: dict[str, str], early: bool
) -> None:
    """Also under a span that the source kept current since before the run: no usage span."""

    def source() -> Iterator[Any]:
        if not early:
            yield RUN
        with watched.tracer.start_as_current_span("kept"):
            if early:
                yield RUN
            watched.tracer.start_span("llm", attributes=attributes).end()
            yield USAGE

    list(trace_events(source(), **watched.keywords))
    assert early == (trace_id(watched.run) != trace_id(watched.named("llm")))
    assert ["invoke_agent"] == [span.name for span in watched.spans]


@pytest.mark.parametrize("attributes", [{}, {"openinference.span.kind": "CHAIN"}])
def test_other_spans_report_no_tokens(watched: Watched, attributes: dict[str, str]) -> None:
    """Neither do LLM spans outside of runs, or in another run that is open."""
    llm = {"openinference.span.kind": "LLM"}

    def source() -> Iterator[Any]:
        yield RUN
        watched.tracer.start_span("no llm", attributes=attributes).end()
        watched.tracer.start_span("outside", Context(), attributes=llm).end()
        yield USAGE

    other = trace_events([{**RUN, "runId": "other"}, {**DONE, "runId": "other"}], **watched.keywords)
    next(other)
    list(trace_events(source(), **watched.keywords))
    list(other)
    assert ["usage m", "invoke_agent", "invoke_agent"] == [span.name for span in watched.spans]


@pytest.mark.parametrize("disabled", [False, True])
def test_closing_closes_the_source_before_it_returns(disabled: bool) -> None:
    """Traced or not, what the source does in its cleanup is done, and what it raises is raised, by ``aclose``."""
    seen: list[str] = []

    async def source() -> AsyncIterator[Any]:
        try:
            yield {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
            yield {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}
        finally:
            await asyncio.sleep(0)
            seen.append("closed")
            raise ValueError("cleanup")

    async def main() -> None:
        stream = trace_events(source(), config=Settings(disabled=disabled))
        await anext(stream)
        with pytest.raises(ValueError, match="cleanup"):
            await stream.aclose()
        seen.append("returned")

    asyncio.run(main())
    assert ["closed", "returned"] == seen


@pytest.mark.parametrize("disabled", [False, True])
def test_a_loop_that_shuts_down_may_close_the_source_itself(disabled: bool) -> None:
    """It closes every generator that is left, ours and its source at once, in any order; neither complains."""
    complaints: list[str] = []
    kept: list[Any] = []

    async def source() -> AsyncIterator[Any]:
        try:
            while True:
                yield {"type": "CUSTOM", "name": "x", "value": 1}
        finally:
            await asyncio.sleep(0.0005)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: complaints.append(str(told)))
        for _ in range(3):
            kept.append(trace_events(source(), config=Settings(disabled=disabled)))
            async for _ in kept[-1]:
                break

    for _ in range(50):
        asyncio.run(main())
    assert [] == complaints
