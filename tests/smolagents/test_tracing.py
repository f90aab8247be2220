"""`trace_smolagents`: agents that are run as before are traced, and notice nothing."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.context import get_current
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode, get_current_span, get_tracer
from smolagents import AgentError, MultiStepAgent

from agui_otel import Settings, trace_events
from agui_otel.errors import ConfigurationError
from agui_otel.smolagents import SmolagentsTracing, run_agui, trace_smolagents
from agui_otel.smolagents.frames import FRAME
from agui_otel.testing import Captured, capture, span_tree
from tests.support.agent_cases import CASES, RAISES, code_manager, search, web
from tests.support.agent_trees import ATTRIBUTES, EVENT_ATTRIBUTES, SETTINGS, TASK, quiet, tree
from tests.support.agents import answer, tool_caller

GOLDEN = Path(__file__).parents[1] / "fixtures" / "smolagents"


@pytest.fixture
def captured() -> Captured:
    """What is exported."""
    return capture()


@pytest.fixture
def tracing(captured: Captured) -> Iterator[SmolagentsTracing]:
    """Agents are traced."""
    with trace_smolagents(config=SETTINGS, tracer_provider=captured.tracer_provider) as active:
        yield active


def outcome(agent: MultiStepAgent, **keywords: Any) -> tuple[Any, ...]:
    """What a run returned or raised. Which parallel call ends first differs from run to run."""
    with quiet():
        try:
            found = agent.run(TASK, **keywords)
            if not keywords.get("stream"):
                return type(found), found
            return type(found), *(name for step in found if (name := type(step).__name__) != "ToolOutput")
        except Exception as error:  # noqa: BLE001 - they are compared
            return (type(error), str(error), type(error.__cause__))


def roots(captured: Captured) -> list[Any]:
    """The spans without a parent."""
    return [span for span in captured.spans if span.parent is None]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", [name for name in CASES if name != "times_out"])
def test_what_a_run_gives_is_what_it_gives_untraced(name: str, stream: bool) -> None:
    """Returned values, the steps that are streamed, and exceptions."""
    bare = outcome(CASES[name](), stream=stream)
    with trace_smolagents(tracer_provider=TracerProvider()):
        assert bare == outcome(CASES[name](), stream=stream)


@pytest.mark.usefixtures("tracing")
@pytest.mark.parametrize("name", RAISES)
def test_nothing_is_left_current(name: str) -> None:
    """After a run that failed the caller's context is what it was."""
    before = get_current()
    for stream in (False, True):
        outcome(CASES[name](), stream=stream)
        assert get_current() is before
        assert None is FRAME.get()


@pytest.mark.usefixtures("tracing")
class TestStreamed:
    """`agent.run(stream=True)`."""

    def test_nothing_is_current_for_the_consumer(self) -> None:
        """Between two steps the consumer's context is its own."""
        before = get_current()
        for _ in code_manager().run(TASK, stream=True):
            assert get_current() is before
            assert None is FRAME.get()

    def test_consumed_from_other_threads(self, captured: Captured, caplog: pytest.LogCaptureFixture) -> None:
        """Each step in a thread of its own: one run, one trace, nothing logged."""
        steps = code_manager().run(TASK, stream=True)
        left = threading.Event()

        def pull() -> None:
            if next(steps, None) is None:
                left.set()

        while not left.is_set():
            thread = threading.Thread(target=pull)
            thread.start()
            thread.join()
        assert (GOLDEN / "code_manager.tree").read_text(encoding="utf-8") == tree(captured)
        assert [] == caplog.records

    def test_the_caller_goes_on_inside_its_own_span(self, captured: Captured) -> None:
        """A span that the consumer opens around the steps stays current for it."""
        with get_tracer("host", tracer_provider=captured.tracer_provider).start_as_current_span("host") as host:
            for _ in code_manager().run(TASK, stream=True):
                assert get_current_span() is host

    def test_closed_between_steps(self, captured: Captured) -> None:
        """The consumer left: the run is `disconnected`, what was open is ended."""
        steps = web().run(TASK, stream=True)
        for step in steps:
            if type(step).__name__ == "ActionStep":
                break
        steps.close()
        (run,) = roots(captured)
        assert "disconnected" == run.attributes["agui.outcome"]

    def test_never_pulled(self, captured: Captured) -> None:
        """A generator that is dropped at once has a run that ends there."""
        steps = web().run(TASK, stream=True)
        del steps
        gc.collect()
        assert ["disconnected"] == [span.attributes["agui.outcome"] for span in roots(captured)]

    def test_what_is_thrown_in(self, captured: Captured) -> None:
        """An exception of the consumer's reaches the agent's generator."""
        steps = web().run(TASK, stream=True)
        next(steps)
        assert "ActionStep" == type(steps.throw(ValueError("mine"))).__name__
        with pytest.raises(ValueError, match="mine"):
            next(steps)
        (run,) = roots(captured)
        assert ("error", "ValueError") == (run.attributes["agui.outcome"], run.attributes["error.type"])


def test_closed_in_a_step(captured: Captured) -> None:
    """smolagents makes a RuntimeError of it, traced or not; the consumer left, nothing failed."""

    def close() -> str:
        steps = web().run(TASK, stream=True)
        next(steps)
        with pytest.raises(RuntimeError) as raised:
            steps.close()
        return str(raised.value)

    bare = close()
    with trace_smolagents(tracer_provider=captured.tracer_provider):
        assert bare == close()
    assert "disconnected" == roots(captured)[0].attributes["agui.outcome"]


class TestConversations:
    """Which runs belong together (`session.id`)."""

    def sessions(self, captured: Captured) -> list[Any]:
        """Of each run, in order."""
        return [span.attributes["session.id"] for span in roots(captured)]

    @pytest.mark.usefixtures("tracing")
    def test_a_run_that_keeps_the_memory(self, captured: Captured) -> None:
        """`reset=False` goes on with the agent's conversation, any other run begins one."""
        agent = tool_caller("a", answer("1"), answer("2"), answer("3"))
        agent.run(TASK)
        agent.run(TASK, reset=False)
        agent.run(TASK)
        first, second, third = self.sessions(captured)
        assert first == second
        assert first != third

    def test_named_by_the_caller(self, captured: Captured) -> None:
        """`thread_id` says so, and `attributes` what else is on every span."""
        with trace_smolagents(
            thread_id=lambda agent: f"thread of {agent.name}",
            attributes={"team": "red"},
            tracer_provider=captured.tracer_provider,
        ):
            code_manager().run(TASK)
        assert {("thread of manager", "red")} == {
            (span.attributes["session.id"], span.attributes["team"]) for span in captured.spans if span.attributes
        }


class TestSettings:
    """How it is switched on and off."""

    def test_twice_is_refused(self) -> None:
        """Two would trace each run twice."""
        with trace_smolagents(tracer_provider=TracerProvider()), pytest.raises(ConfigurationError) as raised:
            trace_smolagents()
        assert "agents of smolagents are traced already: call uninstall() of that tracing first" == str(raised.value)

    def test_disabled(self, captured: Captured) -> None:
        """Runs pass through."""
        with trace_smolagents(config=Settings(disabled=True), tracer_provider=captured.tracer_provider):
            assert "sunny" == code_manager().run(TASK)
        assert () == captured.spans

    @pytest.mark.usefixtures("tracing")
    def test_a_stream_beside_it_is_not_traced_by_it(self, captured: Captured) -> None:
        """`run_agui` runs are their consumer's to trace."""
        list(run_agui(code_manager(), TASK))
        assert () == captured.spans

    def test_metadata_only(self, captured: Captured) -> None:
        """Without content there is none of it on any span."""
        with trace_smolagents(config=Settings(capture="metadata"), tracer_provider=captured.tracer_provider):
            code_manager().run("a secret task")
        text = captured.tree(attributes=("*",), event_attributes=("*",))
        assert [] == [word for word in ("secret", "weather", "sunny", "found") if word in text]

    @pytest.mark.usefixtures("tracing")
    def test_an_agents_interruption(self, captured: Captured) -> None:
        """`interrupt()` raises as ever, and the run is cancelled, not failed."""
        with pytest.raises(AgentError, match=r"Agent interrupted\."):
            CASES["interrupted"]().run(TASK)
        (run,) = roots(captured)
        assert ("cancelled", "UNSET") == (run.attributes["agui.outcome"], run.status.status_code.name)

    @pytest.mark.usefixtures("tracing")
    def test_ctrl_c(self, captured: Captured) -> None:
        """What is no Exception passes, and the run is cancelled."""

        def stop() -> Any:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            tool_caller("a", [("search", {"query": "x"})], stop, tools=[search]).run(TASK)
        assert ["cancelled"] == [span.attributes["agui.outcome"] for span in roots(captured)]


class TestInside:
    """Spans of the host's own code land where they belong."""

    def test_under_the_call_that_made_them(self, captured: Captured) -> None:
        """What a tool does is under its call; what a model does is under its agent; in the same trace."""
        tracer = get_tracer("host", tracer_provider=captured.tracer_provider)

        def thinking() -> Any:
            with tracer.start_as_current_span("think"):
                return [("look", {"query": "x"})]

        class Look(type(search)):  # type: ignore[misc]
            name = "look"

            def forward(self, query: str) -> str:
                with tracer.start_as_current_span("look it up"):
                    return query

        worker = tool_caller("web", thinking, answer("ok"), tools=[Look()])
        manager = tool_caller("manager", [("web", {"task": "x"})], answer("ok"), managed_agents=[worker])
        with trace_smolagents(tracer_provider=captured.tracer_provider):
            manager.run(TASK)
        by_id = {span.context.span_id: span.name for span in captured.spans if span.context is not None}
        parents = {span.name: by_id.get(span.parent.span_id) for span in captured.spans if span.parent is not None}
        assert ("invoke_agent web", "execute_tool look") == (parents["think"], parents["look it up"])

    def test_in_a_streams_worker_too(self, captured: Captured) -> None:
        """`trace_events(run_agui(...))`: the thread that works is not the one that traces."""
        tracer = get_tracer("host", tracer_provider=captured.tracer_provider)

        def thinking(reply: Any) -> Any:
            def think() -> Any:
                with tracer.start_as_current_span("think"):
                    return reply

            return think

        worker = tool_caller("web", thinking(answer("ok")))
        manager = tool_caller("manager", [("web", {"task": "x"})], answer("ok"), managed_agents=[worker])
        list(trace_events(run_agui(manager, TASK), tracer_provider=captured.tracer_provider))
        by_id = {span.context.span_id: span.name for span in captured.spans if span.context is not None}
        (think,) = (span for span in captured.spans if span.name == "think")
        assert think.parent is not None
        assert "invoke_agent web" == by_id[think.parent.span_id]
        assert 1 == len({span.context.trace_id for span in captured.spans if span.context is not None})


class TestMany:
    """Runs at once."""

    @pytest.mark.usefixtures("tracing")
    def test_each_has_its_own_trace(self, captured: Captured) -> None:
        """Sixteen threads, six runs each: a tree for each, whole, and none with another's spans."""
        chosen = [name for name in ("code_manager", "three_levels", "fails_in_code") for _ in range(32)]
        gathered = threading.Barrier(16)

        def run(name: str) -> Any:
            gathered.wait(60)
            return CASES[name]().run(TASK)

        with ThreadPoolExecutor(16) as pool:
            found = list(pool.map(run, chosen))
        assert found == [{"code_manager": "sunny", "three_levels": "managed"}.get(name, "went on") for name in chosen]
        traces: dict[int, list[Any]] = {}
        for span in captured.spans:
            assert span.context is not None
            traces.setdefault(span.context.trace_id, []).append(span)
        expected = Counter((GOLDEN / f"{name}.tree").read_text(encoding="utf-8") for name in chosen)
        trees = (
            span_tree(spans, attributes=ATTRIBUTES, event_attributes=EVENT_ATTRIBUTES) for spans in traces.values()
        )
        assert expected == Counter(f"{text}\n" for text in trees)


class TestLate:
    """The stand-in for a span that the consumer of a stream has not made yet."""

    def test_a_consumer_that_does_not_pull(self, captured: Captured) -> None:
        """The agent goes on, and what another instrumentation does meanwhile hangs under the run that was current."""
        tracer, thought = get_tracer("host", tracer_provider=captured.tracer_provider), threading.Event()

        def thinking() -> Any:
            with tracer.start_as_current_span("think"):
                thought.set()
                return answer("ok")

        manager = tool_caller("manager", thinking)
        with tracer.start_as_current_span("host") as host:
            events = trace_events(run_agui(manager, TASK), tracer_provider=captured.tracer_provider)
            assert "RUN_STARTED" == next(events).type.value
            assert thought.wait(20)
            list(events)
        (think,) = (span for span in captured.spans if span.name == "think")
        assert think.parent is not None
        by_id = {span.context.span_id: span.name for span in captured.spans if span.context is not None}
        assert "invoke_agent manager" == by_id[think.parent.span_id]
        assert host.get_span_context().trace_id == think.parent.trace_id

    def test_what_it_passes_on(self, captured: Captured) -> None:
        """Attributes and events reach the real span; its name, its status and its end are not the host's."""

        class Marks(type(search)):  # type: ignore[misc]
            name = "mark"

            def forward(self, query: str) -> str:
                span = get_current_span()
                assert span.is_recording()
                span.set_attribute("mine", query)
                span.set_attributes({"also": 1})
                span.add_event("noted")
                span.update_name("another")
                span.set_status(StatusCode.ERROR)
                span.end()
                return query

        agent = tool_caller("manager", [("mark", {"query": "x"})], answer("ok"), tools=[Marks()])
        with trace_smolagents(tracer_provider=captured.tracer_provider):
            agent.run(TASK)
        (call,) = (span for span in captured.spans if span.name == "execute_tool mark")
        assert ("x", 1, ["noted"], "UNSET") == (
            (call.attributes or {})["mine"],
            (call.attributes or {})["also"],
            [event.name for event in call.events],
            call.status.status_code.name,
        )
