"""The hooks are there while somebody wants them, do nothing outside a bridged run, and leave nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any

import pytest
import wrapt
from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from smolagents import CodeAgent, MultiStepAgent, Tool, ToolCallingAgent, local_python_executor

from agui_otel.smolagents import run_agui, trace_smolagents
from agui_otel.smolagents.hooks import hooks
from agui_otel.smolagents.patching import Hook, Hooks
from agui_otel.testing import capture
from tests.support.agent_cases import CASES, code_manager
from tests.support.agent_trees import TASK, events_of, quiet, streamed, tree

OWNERS: tuple[Any, ...] = (MultiStepAgent, CodeAgent, ToolCallingAgent, Tool, local_python_executor)


def found() -> list[dict[str, Any]]:
    """Everything that the hooked classes and the hooked module have of their own."""
    return [dict(vars(owner)) for owner in OWNERS]


@pytest.fixture(autouse=True)
def exactly_restored() -> Iterator[None]:
    """After each test everything is the very object that it was before."""
    before = found()
    yield
    for owner, was, now in zip(OWNERS, before, found(), strict=True):
        assert [] == [name for name in was.keys() | now.keys() if was.get(name) is not now.get(name)], owner


class TestRestored:
    """Nothing is left of us."""

    def test_after_a_run(self) -> None:
        """As soon as its stream has ended."""
        before = found()
        for _ in run_agui(code_manager(), TASK):
            pass
        assert all(was[key] is now[key] for was, now in zip(before, found(), strict=True) for key in was)

    def test_after_a_run_that_failed(self) -> None:
        """Likewise."""
        events_of(CASES["top_fails"]())

    def test_after_the_last_of_several(self) -> None:
        """Runs that overlap share the hooks."""
        first, second = run_agui(code_manager(), TASK), run_agui(code_manager(), TASK)
        next(first)
        next(second)
        list(first)
        list(second)

    def test_after_uninstall(self) -> None:
        """Also when it is called twice."""
        before = MultiStepAgent.run
        tracing = trace_smolagents()
        assert MultiStepAgent.run is not before
        tracing.uninstall()
        tracing.uninstall()
        assert MultiStepAgent.run is before

    def test_a_run_inside_traced_ones(self) -> None:
        """The hooks stay for whoever still wants them."""
        with trace_smolagents():
            put = MultiStepAgent.run
            events_of(code_manager())
            assert MultiStepAgent.run is put

    def test_threads_that_come_and_go(self) -> None:
        """Acquired and released from many threads at once."""

        def come_and_go(_: int) -> None:
            for _ in range(50):
                with hooks.held():
                    assert hasattr(MultiStepAgent.run, "__wrapped__")

        with ThreadPoolExecutor(16) as pool:
            list(pool.map(come_and_go, range(16)))


class TestInert:
    """Outside a bridged run."""

    def test_a_plain_run_beside_a_bridged_one(self) -> None:
        """An agent that runs in another thread, of no bridge, says nothing in the bridged one's stream."""
        alone = [event["type"] for event in events_of(code_manager())]
        events = run_agui(code_manager(), TASK)
        said = [next(events)]
        other = threading.Thread(target=lambda: CASES["three_levels"]().run(TASK))
        other.start()
        other.join()
        said += events
        assert alone == [event.type.value for event in said]

    def test_what_a_plain_run_returns(self) -> None:
        """The same, hooked or not."""
        bare = code_manager().run(TASK)
        hooks.acquire()
        try:
            assert bare == code_manager().run(TASK)
        finally:
            hooks.release()


class TestOthersAround:
    """Somebody else hooks the same things, in any order."""

    @pytest.fixture
    def target(self) -> Any:
        """A class with something to hook."""

        class Target:
            def greet(self) -> str:
                return "hello"

        return Target

    def ours(self, target: Any) -> Hooks:
        """Hooks around `target.greet`."""
        return Hooks([Hook(target, "greet", self.wrapper("<", ">"))])

    def wrapper(self, left: str, right: str) -> Any:
        """A hook, ours or another's."""

        def make(original: Any) -> Any:
            @wraps(original)
            def hooked(this: Any) -> str:
                return f"{left}{original(this)}{right}"

            return hooked

        return make

    def around(self, original: Any) -> Any:
        """Another's hook."""
        return self.wrapper("(", ")")(original)

    def test_what_is_not_there(self, target: Any) -> None:
        """Another version of smolagents, perhaps: it is said when the hooks are made, before anything runs."""
        with pytest.raises(ImportError, match="Target has no part of its own: this version of it is not known here"):
            Hook(target, "part", self.around)

    def test_inside_another(self, target: Any) -> None:
        """Ours stays where another stands around it, and is not put twice."""
        ours = self.ours(target)
        ours.acquire()
        target.greet = self.around(target.greet)
        ours.release()
        ours.acquire()
        assert "(<hello>)" == target().greet()

    def test_around_another(self, target: Any) -> None:
        """Ours is taken away, theirs stays."""
        target.greet = self.around(target.greet)
        ours = self.ours(target)
        ours.acquire()
        assert "<(hello)>" == target().greet()
        ours.release()
        assert "(hello)" == target().greet()

    def test_around_a_descriptor(self, target: Any) -> None:
        """wrapt's hooks are objects that have to be bound, not functions."""
        target.greet = wrapt.FunctionWrapper(
            target.greet, lambda wrapped, instance, *_: f"({type(instance).__name__} {wrapped()})"
        )
        ours = self.ours(target)
        ours.acquire()
        assert "<(Target hello)>" == target().greet()

    def test_another_that_takes_ours_away(self, target: Any) -> None:
        """Who restores what was there before us takes ours away: it is put again when the next one wants it."""
        original = target.greet
        ours = self.ours(target)
        ours.acquire()
        target.greet = original
        ours.acquire()
        assert "<hello>" == target().greet()
        ours.release()
        ours.release()
        assert target.greet is original


class TestBesideOpenInference:
    """openinference-instrumentation-smolagents hooks the same classes."""

    @pytest.fixture
    def theirs(self) -> Iterator[SmolagentsInstrumentor]:
        """Their instrumentor, not yet installed. It leaves its inherited hooks on model classes, so those are reset."""
        import smolagents
        from smolagents import models

        kinds = {
            kind for kind in vars(smolagents).values() if isinstance(kind, type) and issubclass(kind, models.Model)
        }
        before = {kind: dict(vars(kind)) for kind in kinds}
        instrumentor = SmolagentsInstrumentor()
        yield instrumentor
        if instrumentor.is_instrumented_by_opentelemetry:
            instrumentor.uninstrument()
        for kind, was in before.items():
            for name in ("generate", "generate_stream"):
                if name in was:
                    setattr(kind, name, was[name])
                elif name in vars(kind):
                    delattr(kind, name)

    def names(self, captured: Any, *scopes: str) -> list[str]:
        """The names of the spans of an instrumentation."""
        return sorted(span.name for span in captured.spans if span.instrumentation_scope.name.startswith(scopes))

    @pytest.mark.parametrize("first", ["ours", "theirs"])
    def test_both_trace(self, first: str, theirs: SmolagentsInstrumentor) -> None:
        """In either order of installing, and of uninstalling, each has the spans that it has alone."""
        alone, both = capture(), capture()
        streamed(code_manager(), alone)
        if first == "theirs":
            theirs.instrument(tracer_provider=both.tracer_provider, skip_dep_check=True)
        tracing = trace_smolagents(tracer_provider=both.tracer_provider)
        if first == "ours":
            theirs.instrument(tracer_provider=both.tracer_provider, skip_dep_check=True)
        with quiet():
            assert "sunny" == code_manager().run(TASK)
        assert [name for name in self.names(alone, "agui_otel") if not name.startswith("usage")] == [
            name for name in self.names(both, "agui_otel") if not name.startswith("usage")
        ]
        assert {"manager.run", "web.run", "Step 1", "Step 2"} <= set(self.names(both, "openinference"))
        if first == "ours":
            theirs.uninstrument()
            tracing.uninstall()
        else:
            tracing.uninstall()
            theirs.uninstrument()

    def test_their_spans_hang_under_ours(self, theirs: SmolagentsInstrumentor) -> None:
        """Their span of a managed agent's run is a child of our span of it, in a plain run and in a stream."""
        for run in ("plain", "stream"):
            both = capture()
            theirs.instrument(tracer_provider=both.tracer_provider, skip_dep_check=True)
            if run == "stream":
                streamed(CASES["three_levels"](), both)
            else:
                with trace_smolagents(tracer_provider=both.tracer_provider), quiet():
                    CASES["three_levels"]().run(TASK)
            theirs.uninstrument()
            by_id = {span.context.span_id: span for span in both.spans if span.context is not None}
            parents = {
                span.name: by_id[span.parent.span_id].name
                for span in both.spans
                if span.name.endswith(".run") and span.parent is not None
            }
            assert {
                "manager.run": "invoke_agent manager",
                "lead.run": "invoke_agent lead",
                "worker.run": "invoke_agent worker",
            } == parents, run
            assert 1 == len({span.context.trace_id for span in both.spans if span.context is not None})

    def test_the_same_tree_beside_them(self, theirs: SmolagentsInstrumentor) -> None:
        """Our spans are what they are without them."""
        theirs.instrument(tracer_provider=TracerProvider(), skip_dep_check=True)
        beside = tree(streamed(CASES["fails_in_parallel"]()))
        theirs.uninstrument()
        assert tree(streamed(CASES["fails_in_parallel"]())) == beside
