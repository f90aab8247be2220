"""Faults that other tracers of agent runs have had, each by its name; none is one here."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

from opentelemetry.context import attach, detach
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from agui_otel import trace_events
from tests.support.sources import (
    DONE,
    HALF,
    INPUT,
    RUN,
    Event,
    finished,
    message,
    produced,
    result,
    subagent,
    tool_call,
)
from tests.support.watched import Watched, exceptions, parent_id, span_id, trace_id, values


def test_a_generator_closed_in_another_task_detaches_nothing_there(watched: Watched) -> None:
    """What was attached for a pull was detached with it: nothing is logged, and the run has ended."""

    async def source() -> AsyncIterator[Any]:
        for event in HALF:
            with watched.tracer.start_as_current_span("step"):
                await asyncio.sleep(0)
            yield event

    async def main() -> None:
        stream = trace_events(source(), **watched.keywords)

        async def consume() -> None:
            await anext(stream)
            await anext(stream)

        await asyncio.create_task(consume())
        await contextvars.Context().run(asyncio.ensure_future, stream.aclose())

    asyncio.run(main())
    watched.check()
    assert "disconnected" == values(watched.run)["agui.outcome"]


def test_an_early_break_leaks_no_span(watched: Watched) -> None:
    """Every span has ended when the loop is left."""
    for event in trace_events(iter(HALF), **watched.keywords):
        if event["type"] == "TOOL_CALL_START":
            break
    watched.check()
    assert 3 == len(watched.spans)


def test_a_cancellation_drops_no_trace_and_is_no_error(watched: Watched) -> None:
    """It is no `Exception`: the run ends `cancelled`, without an error status."""

    async def source() -> AsyncIterator[Any]:
        for event in HALF:
            yield event
        await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.create_task(anext_all(trace_events(source(), **watched.keywords)))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    watched.check()
    assert [
        "invoke_agent [AGENT] cancelled",
        "  invoke_agent scout [AGENT] aborted",
        "    execute_tool search [TOOL] aborted",
        "  message assistant [CHAIN]",
    ] == watched.tree()
    assert {"UNSET"} == {span.status.status_code.name for span in watched.spans}
    assert [] == exceptions(watched.run)


async def anext_all(stream: AsyncIterator[Any]) -> None:
    """Read a stream to its end."""
    async for _ in stream:
        pass


INTERRUPTED: Event = {
    **DONE, "outcome": {"type": "interrupt", "interrupts": [{"id": "i", "reason": "approval", "subagentRunId": "s"}]},
}  # fmt: skip
SUSPENDED = [
    RUN,
    *tool_call("task", "task"),
    subagent("s", "scout", parentToolCallId="task"),
    finished("s", outcome={"type": "suspended", "interruptIds": ["i"]}),
    INTERRUPTED,
]
RESUMED = [
    {**RUN, "runId": "second"},
    subagent("s", "scout", parentToolCallId="task"),
    finished("s"),
    result("task"),
    {**DONE, "runId": "second"},
]
ANSWER = {**INPUT, "runId": "second", "resume": [{"interruptId": "i", "status": "resolved", "payload": True}]}


def test_an_interrupt_is_no_error_and_its_resumption_is_linked(watched: Watched) -> None:
    """The resumed run is a trace of its own in the same session, of the same shape, and says what it resumes."""
    watched.trace(SUSPENDED)
    watched.trace(RESUMED, input=ANSWER)
    assert [
        "invoke_agent [AGENT] interrupt",
        "  execute_tool task [TOOL] pending",
        "    invoke_agent scout [AGENT] suspended",
        "invoke_agent [AGENT] success",
        "  execute_tool task [TOOL] success",
        "    invoke_agent scout [AGENT] success",
    ] == watched.tree()
    first, second = watched.runs
    assert {("UNSET", "thread")} == {(s.status.status_code.name, values(s)["session.id"]) for s in watched.spans}
    assert trace_id(first) != trace_id(second)
    assert (trace_id(first), span_id(first)) in [(li.context.trace_id, li.context.span_id) for li in second.links]
    assert ((f"{span_id(first):016x}",), ("run",)) == (
        values(second)["agui.resumes.span_id"], values(second)["agui.resumes.run_id"],
    )  # fmt: skip


def test_a_subagent_s_tools_are_the_subagent_s(watched: Watched) -> None:
    """Not the root's."""
    watched.trace([RUN, subagent("s", "scout"), *tool_call("c", "search", subagentRunId="s"), result("c"),
                      finished("s"), DONE])  # fmt: skip
    assert [
        "invoke_agent [AGENT] success",
        "  invoke_agent scout [AGENT] success",
        "    execute_tool search [TOOL] success",
    ] == watched.tree()


def test_parallel_subagents_are_each_under_their_own_call(watched: Watched) -> None:
    """Not under the last spawner: the ids say whose they are, also where everything overlaps."""
    names = ("a", "b", "c")
    events = [
        RUN,
        *(event for name in names for event in tool_call(f"task {name}", f"task {name}")),
        *(subagent(name, name, parentToolCallId=f"task {name}") for name in names),
        *(event for name in names for event in tool_call(f"search {name}", f"search {name}", subagentRunId=name)),
        *(result(f"search {name}") for name in reversed(names)),
        *(finished(name) for name in names),
        *(result(f"task {name}") for name in reversed(names)),
        DONE,
    ]
    below = [
        line
        for name in names
        for line in (
            f"  execute_tool task {name} [TOOL] success",
            f"    invoke_agent {name} [AGENT] success",
            f"      execute_tool search {name} [TOOL] success",
        )
    ]
    watched.trace(events)
    assert ["invoke_agent [AGENT] success", *below] == watched.tree()


def test_nested_subagents_share_the_trace(watched: Watched) -> None:
    """However deep: one trace, one session, one user."""
    depth = 20
    events = [
        RUN,
        *(subagent(str(n), f"level {n}", **({"parentSubagentRunId": str(n - 1)} if n else {})) for n in range(depth)),
        *(event for n in range(depth) for event in message(f"m{n}", "text", subagentRunId=str(n))),
        *(finished(str(n)) for n in reversed(range(depth))),
        DONE,
    ]
    watched.trace(events, attributes={"user.id": "ada"})
    assert (2 * depth + 1, 1) == (len(watched.spans), len({trace_id(span) for span in watched.spans}))
    assert {("thread", "ada")} == {(values(s)["session.id"], values(s)["user.id"]) for s in watched.spans}


def test_tools_on_a_thread_pool_are_no_roots(watched: Watched) -> None:
    """Their events come from other threads without any context; the ids say where they belong."""
    found: queue.Queue[Event | None] = queue.Queue()

    def work(name: str) -> None:
        for event in (*tool_call(name, name, subagentRunId="s"), result(name)):
            found.put(event)

    def source() -> Iterator[Event]:
        yield RUN
        yield subagent("s", "scout")
        workers = [threading.Thread(target=work, args=(name,)) for name in ("a", "b", "c")]
        for worker in workers:
            worker.start()
        for _ in range(9):
            event = found.get(timeout=10)
            assert event is not None
            yield event
        for worker in workers:
            worker.join()
        yield finished("s")
        yield DONE

    list(trace_events(source(), **watched.keywords))
    watched.check()
    scout = watched.named("invoke_agent scout")
    assert [span_id(scout)] * 3 == [parent_id(watched.named(f"execute_tool {name}")) for name in ("a", "b", "c")]


def test_streaming_flattens_nothing(watched: Watched) -> None:
    """Spans that the source nests stay nested across its yields, under the run; our own follow the ids."""

    async def source() -> AsyncIterator[Any]:
        yield RUN
        with watched.tracer.start_as_current_span("outer"):
            yield subagent("s", "scout")
            with watched.tracer.start_as_current_span("inner"):
                for event in tool_call("c", subagentRunId="s"):
                    yield event
                watched.tracer.start_span("innermost").end()
        yield finished("s")
        yield DONE

    asyncio.run(anext_all(trace_events(source(), **watched.keywords)))
    watched.check()
    assert [
        "invoke_agent [AGENT] success",
        "  outer",
        "    inner",
        "      innermost",
        "  invoke_agent scout [AGENT] success",
        "    execute_tool f [TOOL] pending",
    ] == watched.tree()


def test_a_subagent_overwrites_neither_input_nor_output_of_the_run(watched: Watched) -> None:
    """Each has its own: the run's are the user's question and its own agent's answer."""
    watched.trace(
        [
            RUN,
            *tool_call("task", "task"),
            subagent("s", "scout", parentToolCallId="task", description="look"),
            *message("m", "run says"),
            *message("n", "scout says", subagentRunId="s"),
            finished("s"),
            result("task"),
            DONE,
        ],
        input={**INPUT, "messages": [{"id": "u", "role": "user", "content": "user asks"}]},
    )
    scout = watched.named("invoke_agent scout")
    assert [("user asks", "run says"), ("look", "scout says")] == [
        (values(span)["input.value"], values(span)["output.value"]) for span in (watched.run, scout)
    ]


def test_tokens_are_counted_once(watched: Watched) -> None:
    """On one usage span, not on agents; and not at all where an LLM span of another instrumentation has them."""
    usage = {**DONE, "usage": [{"provider": "p", "model": "m", "inputTokens": 3, "outputTokens": 4}]}
    watched.trace([RUN, subagent("s", "scout"), finished("s"), usage])
    counted = [(span.name, values(span)["llm.token_count.prompt"]) for span in watched.spans
               if "llm.token_count.prompt" in values(span)]  # fmt: skip
    assert [("usage m", 3)] == counted
    assert [({"gen_ai.provider.name": "p", "gen_ai.request.model": "m", "gen_ai.token.type": kind}, count)
            for kind, count in (("input", 3), ("output", 4))] == watched.captured.metrics()["agui.tokens"]  # fmt: skip

    def source() -> Iterator[Event]:
        yield RUN
        watched.tracer.start_span("chat", attributes={"openinference.span.kind": "LLM"}).end()
        yield usage

    watched.captured.clear()
    watched.trace(source())
    assert ["chat", "invoke_agent"] == [span.name for span in watched.captured.spans]


def test_later_turns_hang_under_no_earlier_turn(watched: Watched) -> None:
    """In one stream, in one task after another, and in a task that an earlier turn started."""

    async def turn(number: int) -> None:
        events = [{**RUN, "runId": str(number)}, {**DONE, "runId": str(number)}]
        await anext_all(trace_events(produced(events), **watched.keywords))

    async def main() -> None:
        await turn(1)
        await turn(2)

        async def source() -> AsyncIterator[Event]:
            yield {**RUN, "runId": "3"}
            tasks.append(asyncio.create_task(turn(4)))
            yield {**DONE, "runId": "3"}

        tasks: list[asyncio.Task[None]] = []
        await anext_all(trace_events(source(), **watched.keywords))
        await tasks[0]

    asyncio.run(main())
    watched.check()
    assert ({None}, 4) == ({run.parent for run in watched.runs}, len({trace_id(run) for run in watched.runs}))
    assert {"thread"} == {values(run)["session.id"] for run in watched.runs}


def test_an_aborted_run_looks_like_no_success(watched: Watched) -> None:
    """A consumer that leaves, and a producer that just stops."""
    next(trace_events(iter(HALF), **watched.keywords))
    watched.trace(HALF)
    assert ["disconnected", "unfinished"] == [values(run)["agui.outcome"] for run in watched.runs]


def test_values_of_a_stream_are_no_other_stream_s(watched: Watched) -> None:
    """Streams that are read alternately keep their names, attributes, sessions and what their spans inherit."""

    def source(name: str) -> Iterator[Event]:
        ids = {"threadId": f"thread {name}", "runId": name}
        yield {**RUN, **ids}
        for event in message("m", name):
            watched.tracer.start_span(f"inside {name}").end()
            yield event
        yield {**DONE, **ids}

    names = [f"n{number}" for number in range(10)]
    streams = [
        trace_events(source(name), agent_name=name, attributes={"tenant": name}, **watched.keywords) for name in names
    ]
    for _ in range(6):
        for stream in streams:
            next(stream, None)
    watched.check()
    for name in names:
        mine = [s for s in watched.captured.spans if values(s)["agui.run.id"] == name]
        assert ({f"thread {name}"}, 5) == ({values(span)["session.id"] for span in mine}, len(mine))
        assert {name, None} == {values(span).get("tenant") for span in mine}
        assert 1 == len({trace_id(span) for span in mine})


def test_a_root_has_no_parent_that_nobody_exports(watched: Watched) -> None:
    """A traceparent header becomes a link."""
    remote = NonRecordingSpan(SpanContext(1 << 100, 1 << 50, is_remote=True, trace_flags=TraceFlags(1)))
    token = attach(set_span_in_context(remote))
    try:
        watched.trace([RUN, DONE])
    finally:
        detach(token)
    assert (None, [1 << 50]) == (watched.run.parent, [link.context.span_id for link in watched.run.links])


def test_two_runs_with_equal_ids_are_two_runs(watched: Watched) -> None:
    """One after another, and at once: each its own trace and its own spans."""
    for _ in range(2):
        list(trace_events([RUN, *message("m", "text"), DONE], input=INPUT, **watched.keywords))
    first, second = (trace_events([RUN, *message("m", "text"), DONE], **watched.keywords) for _ in range(2))
    for _ in range(6):
        next(first, None)
        next(second, None)
    watched.check()
    assert (4, 8) == (len({trace_id(run) for run in watched.runs}), len(watched.spans))
