"""What the host brings: its providers, its callables, its input, whatever they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest
from opentelemetry import trace as api
from opentelemetry.metrics import MeterProvider, NoOpMeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NoOpTracerProvider, ProxyTracerProvider, Span, SpanContext, Tracer

from agui_otel import ConfigurationError, TracingSubscriber, trace_events
from agui_otel.tracing.boundary import Boundary
from agui_otel.tracing.host import MAX_ATTRIBUTES, exportable
from agui_otel.tracing.processor import InsideProcessor
from tests.support.sources import DONE, HALF, INPUT, RUN, WHOLE, result, tool_call
from tests.support.watched import FULL, Alarm, Watched, values


def refuse(*_: Any, **__: Any) -> NoReturn:
    """Raise, whatever is asked."""
    raise RuntimeError("no")


class RaisingSpan(Span):
    """A span of which every method raises."""

    end = set_attributes = set_attribute = add_event = update_name = set_status = refuse
    is_recording = record_exception = add_link = refuse

    def get_span_context(self) -> SpanContext:
        """Raise."""
        refuse()


class Provider(api.TracerProvider):
    """A provider whose tracer starts spans by a function."""

    def __init__(self, start_span: Callable[..., Span]) -> None:
        self._start = start_span

    def get_tracer(self, *_: Any, **__: Any) -> Tracer:
        """The tracer."""
        start = self._start

        class It(Tracer):
            def start_span(self, *args: Any, **keywords: Any) -> Span:
                return start(*args, **keywords)

            start_as_current_span = refuse

        return It()


class RaisingProvider(api.TracerProvider):
    """A provider without a tracer."""

    get_tracer = add_span_processor = refuse


class Slotted(api.TracerProvider):
    """A provider that can be no key of a weak dictionary; its SDK provider does the work."""

    __slots__ = ("inner",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, inner: TracerProvider) -> None:
        self.inner = inner

    def get_tracer(self, *args: Any, **keywords: Any) -> Tracer:
        """The tracer of the SDK."""
        return self.inner.get_tracer(*args, **keywords)


class RaisingMeterProvider(MeterProvider):
    """A meter provider without a meter."""

    get_meter = refuse


@pytest.mark.parametrize(
    "provider",
    [
        NoOpTracerProvider(),
        ProxyTracerProvider(),
        Provider(lambda *_, **__: RaisingSpan()),
        Provider(refuse),
        RaisingProvider(),
    ],
    ids=["no-op", "proxy", "raising spans", "raising tracer", "no tracer"],
)
@pytest.mark.parametrize("meter_provider", [NoOpMeterProvider(), RaisingMeterProvider()], ids=["no-op", "raising"])
@pytest.mark.usefixtures("harmless")
def test_a_stream_comes_through_any_provider(
    provider: api.TracerProvider, meter_provider: MeterProvider, heard: Alarm
) -> None:
    """As it is, to its end and when it is left."""
    keywords: dict[str, Any] = {"tracer_provider": provider, "meter_provider": meter_provider, "config": FULL}
    assert list(WHOLE) == list(trace_events(iter(WHOLE), input=INPUT, agent_name="a", attributes={"k": 1}, **keywords))
    partly = trace_events(iter(WHOLE), **keywords)
    next(partly)
    partly.close()
    subscriber = TracingSubscriber(input=INPUT, **keywords)
    for event in WHOLE:
        subscriber.on_event(event)
    subscriber.on_run_failed(ValueError("no"))
    assert subscriber.trace_url is None
    assert all(message.startswith("agui-otel") for message in heard.messages)


def test_the_proxy_provider_becomes_the_real_one(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made before the process had a provider traces with the one that it has when the stream starts."""
    monkeypatch.setattr(api, "_TRACER_PROVIDER", None)
    subscriber = TracingSubscriber(config=FULL)
    stream = trace_events(WHOLE, config=FULL)
    monkeypatch.setattr(api, "_TRACER_PROVIDER", watched.provider)
    list(stream)
    for event in WHOLE:
        subscriber.on_event(event)
    subscriber.on_run_finalized()
    assert 2 == len(watched.runs)
    watched.check()


def test_a_provider_that_is_no_weak_key_traces(watched: Watched) -> None:
    """Only what is inside of its runs has no session from us."""
    list(trace_events(WHOLE, **{**watched.keywords, "tracer_provider": Slotted(watched.provider)}))
    assert 1 == len(watched.runs)
    watched.check()


def test_a_provider_gets_one_processor(watched: Watched) -> None:
    """However many streams it traces."""
    for _ in range(3):
        list(trace_events(WHOLE, **watched.keywords))
    processors = watched.provider._active_span_processor._span_processors
    assert 1 == sum(isinstance(processor, InsideProcessor) for processor in processors)


@pytest.mark.usefixtures("harmless")
def test_attributes_that_raise_are_left_out(watched: Watched, heard: Alarm) -> None:
    """The run is traced without them; the error is counted, and told once, without content."""
    bad: list[Any] = [refuse, lambda _: 5, {"k": Unprintable()}]
    for attributes in bad:
        list(trace_events(WHOLE, attributes=attributes, **watched.keywords))
    watched.check()
    assert ["success"] * 3 == [values(run)["agui.outcome"] for run in watched.runs]
    errors = {labels["agui.where"]: count for labels, count in watched.captured.metrics()["agui.observer.errors"]}
    assert {"attributes": 3} == errors
    assert all("attributes failed with" in message and "no" not in message.split() for message in heard.messages)


class Unprintable:
    """An object whose text raises."""

    __str__ = __repr__ = refuse


class Text(str):
    """A string of a class of its own that lies about itself."""

    __slots__ = ()
    __str__ = __len__ = __hash__ = __eq__ = refuse


def test_attributes_are_what_otlp_can_carry() -> None:
    """Primitives and lists of one kind stay; everything else is text; what has no value or no name is left out."""
    given: dict[Any, Any] = {
        "text": "a\0b\ud800", "bool": True, "int": 1, "float": 0.5, "big": 10**30, "none": None, "": 1, 5: "five",
        "list": ["a", "b"], "ints": (1, 2), "mixed": [1, "a"], "nested": {"a": 1}, "own": Text("own"), "bytes": b"x",
    }  # fmt: skip
    assert {
        "text": "ab\ufffd", "bool": True, "int": 1, "float": 0.5, "big": str(10**30), "5": "five",
        "list": ["a", "b"], "ints": [1, 2], "mixed": ["1", "a"], "nested": "{'a': 1}", "own": "own", "bytes": "b'x'",
    } == exportable(given)  # fmt: skip
    assert str is type(exportable(given)["own"])


def test_attributes_are_on_every_span_of_the_first_run(watched: Watched) -> None:
    """And on no later one's; the callable is asked once, with the input as it was given."""
    asked: list[Any] = []

    def attributes(given: Any) -> dict[str, Any]:
        asked.append(given)
        return {"tenant": "t", "user.id": "u"}

    list(trace_events([*WHOLE, *WHOLE], input=INPUT, attributes=attributes, **watched.keywords))
    assert [INPUT] == asked
    half = len(watched.spans) // 2
    assert ["t"] * half + [None] * half == [values(span).get("tenant") for span in watched.spans]
    watched.check()


def test_attributes_beyond_the_limit_are_counted(watched: Watched) -> None:
    """A span keeps its own."""
    list(trace_events(WHOLE, attributes={f"k{n}": n for n in range(500)}, **watched.keywords))
    found = values(watched.run)
    assert (MAX_ATTRIBUTES - 1, 500 - MAX_ATTRIBUTES + 1) == (
        sum(key.startswith("k") for key in found), found["agui.omitted.attributes"],
    )  # fmt: skip
    watched.check()


@pytest.mark.usefixtures("harmless")
def test_a_redactor_that_raises_hides_everything(watched: Watched, heard: Alarm) -> None:
    """No content, and the trace is whole."""
    list(trace_events(WHOLE, redact=refuse, **watched.keywords))
    watched.check()
    assert ["success"] * 3 == [outcome for _, outcome in watched.outcomes()]
    assert not [key for span in watched.spans for key in values(span) if key.endswith(".value")]
    assert [] == heard.messages


@pytest.mark.usefixtures("harmless")
@pytest.mark.parametrize("tool_failed", [refuse, lambda *_: Truthless()], ids=["raises", "no truth"])
def test_a_judge_of_results_that_raises_says_nothing(watched: Watched, heard: Alarm, tool_failed: Any) -> None:
    """The call has its result."""
    list(trace_events(WHOLE, tool_failed=tool_failed, **watched.keywords))
    watched.check()
    assert ["success"] * 3 == [outcome for _, outcome in watched.outcomes()]
    assert "42" == values(watched.named("execute_tool search"))["output.value"]
    assert all("tool_failed failed" in message for message in heard.messages)


class Truthless:
    """An object without a truth value."""

    __bool__ = refuse


@pytest.mark.parametrize(("verdict", "expected"), [(True, "agui.tool_error"), ("timeout", "timeout"), (False, None)])
def test_a_judge_of_results_says_what_failed(watched: Watched, verdict: bool | str, expected: str | None) -> None:
    """AG-UI has no error flag on results."""
    asked: list[Any] = []

    def tool_failed(name: str, content: Any) -> bool | str:
        asked.append((name, content))
        return verdict

    list(trace_events([RUN, *tool_call("c"), result("c"), DONE], tool_failed=tool_failed, **watched.keywords))
    assert [("f", "done")] == asked
    assert expected == values(watched.named("execute_tool f")).get("error.type")


@pytest.mark.usefixtures("harmless")
@pytest.mark.parametrize("decision", [refuse, lambda _: 5, lambda _: "maybe"], ids=["raises", "no word", "no decision"])
def test_a_reader_of_decisions_that_fails_leaves_them_unknown(watched: Watched, heard: Alarm, decision: Any) -> None:
    """The interrupt is answered all the same."""
    resumed = {**INPUT, "resume": [{"interruptId": "i", "status": "resolved", "payload": True}]}
    list(trace_events(WHOLE, input=resumed, decision=decision, **watched.keywords))
    watched.check()
    (answer,) = [event for event in watched.run.events if event.name == "agui.interrupt.resolved"]
    assert "unknown" == (answer.attributes or {})["agui.interrupt.decision"]
    assert all("decision failed" in message for message in heard.messages)


class Hostile:
    """An input of which every attribute raises."""

    def __getattr__(self, name: str) -> NoReturn:
        raise ValueError(name)


@pytest.mark.usefixtures("harmless")
@pytest.mark.parametrize(
    "given",
    [Hostile(), {"messages": [Unprintable()]}, 5, [], {"threadId": 1, "runId": None}],
    ids=["raises", "no JSON", "number", "list", "wrong types"],
)
def test_any_input_lets_the_stream_be_traced(watched: Watched, heard: Alarm, given: Any) -> None:
    """As far as it can be read."""

    def source() -> Iterator[Any]:
        yield from trace_events(iter(WHOLE), input=given, **watched.keywords)

    list(trace_events(source(), input=given, **watched.keywords))
    watched.check()
    assert {"success"} == {values(run)["agui.outcome"] for run in watched.runs}
    assert all("input failed" in message for message in heard.messages)


def test_a_setting_that_is_not_allowed_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when the stream is read: that would raise into it."""
    monkeypatch.setenv("AGUI_OTEL_STEPS", "sometimes")
    with pytest.raises(ConfigurationError):
        trace_events(WHOLE)
    with pytest.raises(ConfigurationError):
        TracingSubscriber()


@pytest.mark.usefixtures("harmless")
def test_a_span_that_cannot_be_written_is_ended(
    watched: Watched, heard: Alarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should something of ours fail: every span that was opened ends, and the stream is as it was."""
    monkeypatch.setattr("agui_otel.tracing.content.Content.tool_result", refuse)
    monkeypatch.setattr("agui_otel.tracing.content.Content.message_output", refuse)
    assert list(WHOLE) == list(trace_events(iter(WHOLE), **watched.keywords))
    watched.check()
    assert 4 == len(watched.spans)
    assert ["agui-otel: Closed failed with RuntimeError"] == [m.partition(";")[0] for m in heard.messages]


@pytest.mark.usefixtures("harmless")
@pytest.mark.parametrize(
    ("where", "what"), [("finish", "lifecycle.end_stream"), ("feed", "quirks.translate"), ("feed", "read")]
)
def test_a_tracker_that_fails_loses_no_span(
    watched: Watched, heard: Alarm, monkeypatch: pytest.MonkeyPatch, where: str, what: str
) -> None:
    """Should the protocol's code fail in an event, or at the end: what was opened before it ends."""
    events = [*HALF, {"type": "FUTURE_EVENT"}]
    stream = trace_events(iter(events), input=INPUT, **watched.keywords)
    assert events[:-1] == [next(stream) for _ in HALF]
    monkeypatch.setattr(f"agui_otel.protocol.tracker.{what}", refuse)
    assert events[-1:] == list(stream)
    watched.check()
    assert len(HALF) - 2 == len(watched.spans)
    assert [f"agui-otel: {where} failed with RuntimeError"] == [m.partition(";")[0] for m in heard.messages]


def test_the_boundary_raises_under_test(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that errors are seen."""
    assert Boundary.strict
    monkeypatch.setattr("agui_otel.tracing.content.Content.tool_result", refuse)
    with pytest.raises(RuntimeError):
        list(trace_events(iter(WHOLE), **watched.keywords))
    assert [] == [span.name for span in watched.spans if span.end_time is None]
