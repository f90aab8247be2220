"""Trace model, attributes: token usage, as spans and as a metric."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

from agui_otel import Settings, trace_events
from agui_otel.protocol.usage import Usage, read_usage, summed
from agui_otel.testing import capture
from tests.support.golden import spans
from tests.support.traced import Thread, Traced, trace
from tests.support.wire import custom, done, event, failed, finished, started, subagent, text

RUN = "invoke_agent supervisor"
ENTRY = {
    "provider": "openai", "model": "big", "inputTokens": 100, "outputTokens": 50, "totalTokens": 150,
    "reasoningTokens": 10, "cachedInputTokens": 20, "cacheWriteInputTokens": 5,
}  # fmt: skip


def spent(traced: Any) -> list[Any]:
    """The usage spans: model, prompt and completion tokens, and the parent's name."""
    return sorted(
        (
            span.name,
            (span.attributes or {}).get("llm.token_count.prompt"),
            (span.attributes or {}).get("llm.token_count.completion"),
            traced.above(span),
        )
        for span in traced.spans
        if span.name.startswith("usage")
    )


def test_each_entry_is_a_span() -> None:
    """In both vocabularies; the parts are parts of the totals, never added."""
    traced = trace(started(), finished(usage=[ENTRY]))
    ours = ("session.id", "agui.run.id", "agui.thread.id", "gen_ai.conversation.id")
    assert {
        "openinference.span.kind": "LLM",
        "agui.synthesized": True,
        "llm.provider": "openai",
        "llm.model_name": "big",
        "llm.token_count.prompt": 100,
        "llm.token_count.completion": 50,
        "llm.token_count.total": 150,
        "llm.token_count.prompt_details.cache_read": 20,
        "llm.token_count.prompt_details.cache_write": 5,
        "llm.token_count.completion_details.reasoning": 10,
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "big",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 50,
        "gen_ai.usage.cache_read.input_tokens": 20,
        "gen_ai.usage.cache_creation.input_tokens": 5,
        "gen_ai.usage.reasoning.output_tokens": 10,
    } == {key: value for key, value in traced.attributes("usage big").items() if key not in ours}


def test_one_for_each_provider_and_model() -> None:
    """Entries of one are summed; what was not reported is not there."""
    traced = trace(
        started(),
        finished(
            usage=[
                {"provider": "a", "model": "m", "inputTokens": 1},
                {"provider": "a", "model": "m", "inputTokens": 2, "outputTokens": 4},
                {"provider": "b", "model": "m", "inputTokens": 8},
                {"inputTokens": 16},
            ]
        ),
    )
    assert [("usage", 16, None, RUN), ("usage m", 3, 4, RUN), ("usage m", 8, None, RUN)] == spent(traced)


def test_of_a_run_that_failed() -> None:
    """RUN_ERROR may report too."""
    assert [("usage big", 100, 50, RUN)] == spent(trace(started(), failed(usage=[ENTRY])))


def test_no_tokens_are_on_agents() -> None:
    """They would be counted twice."""
    traced = trace(started(), finished(usage=[ENTRY]))
    assert [] == [key for key in traced.attributes(RUN) if "token" in key or "usage" in key]


class TestWhoseTokens:
    """A producer that knows more puts `usage` into an event's metadata."""

    def test_they_are_the_owners_and_the_rest_is_the_runs(self) -> None:
        """The run's own entries include its subagents, so they stand for the remainder."""
        traced = trace(
            started(),
            subagent("s"),
            event("TEXT_MESSAGE_START", "s", messageId="m"),
            event(
                "TEXT_MESSAGE_END",
                "s",
                messageId="m",
                metadata={"usage": [{**ENTRY, "inputTokens": 30, "outputTokens": 20}]},
            ),
            done("s"),
            text("n"),
            finished(usage=[ENTRY, {"model": "small", "inputTokens": 7}]),
        )
        assert [
            ("usage big", 30, 20, "invoke_agent researcher"),
            ("usage big", 70, 30, RUN),
            ("usage small", 7, None, RUN),
        ] == spent(traced)
        assert ["s", None] == traced.each("usage big", "agui.subagent.run_id")

    def test_nothing_is_left_when_all_is_told(self) -> None:
        """No span for a remainder of nothing."""
        tagged = custom(tag="s") | {"metadata": {"usage": [ENTRY]}}
        traced = trace(started(), subagent("s"), tagged, done("s"), finished(usage=[ENTRY]))
        assert [("usage big", 100, 50, "invoke_agent researcher")] == spent(traced)

    def test_on_any_event(self) -> None:
        """Of a finished subagent it is still the subagent's; of a stranger the run's."""
        report = {"metadata": {"usage": [{"model": "m", "inputTokens": 1}]}}
        traced = trace(
            started() | report,
            subagent("s") | report,
            done("s") | report,
            custom(tag="s") | report,
            custom(tag="stranger") | report,
            {"type": "NEW", "subagentRunId": "s"} | report,
            finished() | report,
        )
        assert [("usage m", 3, None, RUN), ("usage m", 4, None, "invoke_agent researcher")] == spent(traced)

    def test_a_chunk_counts_once(self) -> None:
        """It is written out as several events, and closes others."""
        report = {"metadata": {"usage": [{"model": "m", "inputTokens": 1}]}}
        traced = trace(
            started(),
            event("TEXT_MESSAGE_CHUNK", "s", messageId="a", delta="x") | report,
            event("TEXT_MESSAGE_CHUNK", "s", delta="y") | report,
            event("TEXT_MESSAGE_CHUNK", "s", messageId="b", delta="z") | report,
            finished() | report,
        )
        assert [("usage m", 1, None, RUN), ("usage m", 3, None, "invoke_agent")] == spent(traced)

    def test_the_remainder_of_a_total(self) -> None:
        """Where the part has no total of its own, it is the sum of its input and output."""
        whole = Usage("p", "m", input=100, output=50, total=150, reasoning=5)
        assert Usage("p", "m", input=60, output=30, total=90, reasoning=5) == whole.minus(Usage("p", "m", 40, 20))
        assert None is whole.minus(Usage("p", "m", input=100, output=50, reasoning=5))
        assert whole == whole.minus(None)


def model_end(ident: str, tag: str | None = None, **counts: Any) -> Any:
    """A RAW event as ag-ui-langgraph sends it when a model call of LangChain's has ended."""
    output = {
        "id": ident,
        "content": "a secret",
        "usage_metadata": {"input_tokens": 400, "output_tokens": 60, "total_tokens": 460, **counts},
        "response_metadata": {"model_name": "big"},
    }
    raw = {"event": "on_chat_model_end", "data": {"output": output}, "metadata": {"ls_provider": "openai"}}
    return event("RAW", tag, event=raw)


class TestRawUsage:
    """`raw_usage`: the token counts of LangChain's model calls, out of RAW events, and nothing else of them."""

    def test_the_recording(self) -> None:
        """Each owner that the stream states has its counts, and the run's entries leave no remainder."""
        captured = spans("raw_single", raw_usage=True)
        traced = Traced(captured, (), captured.spans)
        assert [
            ("usage fake-big", 900, 95, RUN),
            ("usage fake-small", 460, 70, "invoke_agent researcher"),
        ] == spent(traced)
        assert (225, 115) == tuple(
            traced.attributes(f"usage fake-{size}")["llm.token_count.prompt_details.cache_read"]
            for size in ("big", "small")
        )

    def test_only_where_it_is_wanted(self) -> None:
        """By default RAW events are never looked at."""
        assert [] == spent(trace(started(), model_end("1"), finished()))

    def test_once_for_each_message(self) -> None:
        """The same message's counts come again in later events; a message without an id is none."""
        events = [model_end("1"), model_end("1"), model_end("2"), model_end("")]
        assert [("usage big", 800, 120, RUN)] == spent(trace(started(), *events, finished(), raw_usage=True))

    def test_the_run_has_the_remainder(self) -> None:
        """What its own entries count beyond that."""
        entry = {"provider": "openai", "model": "big", "inputTokens": 500, "outputTokens": 60, "totalTokens": 560}
        traced = trace(
            started(), subagent("s"), model_end("1", "s"), done("s"), finished(usage=[entry]), raw_usage=True
        )
        assert [("usage big", 100, 0, RUN), ("usage big", 400, 60, "invoke_agent researcher")] == spent(traced)

    def test_of_an_agent_that_no_span_stands_for(self) -> None:
        """It counts under the run."""
        assert [("usage big", 400, 60, RUN)] == spent(
            trace(started(), model_end("1", "stranger"), finished(), raw_usage=True)
        )

    def test_nothing_else_is_taken(self) -> None:
        """The message's content is nowhere."""
        traced = trace(started(), model_end("1"), finished(), raw_usage=True)
        assert "secret" not in traced.tree("*", events=("*",))

    @pytest.mark.parametrize(
        "raw",
        [
            None,
            "on_chat_model_end",
            {"event": "on_chat_model_stream", "data": {"output": {"id": "1", "usage_metadata": {"input_tokens": 1}}}},
            {"event": "on_chat_model_end"},
            {"event": "on_chat_model_end", "data": {"output": None}},
            {"event": "on_chat_model_end", "data": {"output": {"id": "1", "usage_metadata": None}}},
            {"event": "on_chat_model_end", "data": {"output": {"id": 1, "usage_metadata": {"input_tokens": 1}}}},
        ],
    )
    def test_other_raw_events(self, raw: Any) -> None:
        """They are not looked at any further."""
        assert [] == spent(trace(started(), event("RAW", event=raw), finished(), raw_usage=True))

    def test_a_count_that_is_none(self) -> None:
        """It is left out."""
        traced = trace(started(), model_end("1", input_tokens="many"), finished(), raw_usage=True)
        assert [("usage big", None, 60, RUN)] == spent(traced)


@pytest.mark.parametrize(
    "metadata", [None, 1, {"usage": None}, {"usage": 1}, {"usage": [1, None]}, {"usage": {"inputTokens": 1}}]
)
def test_other_metadata_is_no_usage(metadata: Any) -> None:
    """It is the producer's to put there what it likes."""
    assert [] == spent(trace(started(), custom() | {"metadata": metadata}, finished()))


@pytest.mark.parametrize("count", [True, -1, "1", None, 1 << 63, float("nan"), [1]])
def test_what_is_no_count_is_passed_over(count: Any) -> None:
    """An entry stays, without it."""
    assert [Usage(None, None, output=1)] == read_usage([{"inputTokens": count, "outputTokens": 1.0, "model": 5}])


def test_sums_change_no_entry() -> None:
    """Each is the producer's."""
    entries = [Usage("p", "m", 1), Usage("p", "m", 2, 3)]
    assert {("p", "m"): Usage("p", "m", 3, 3)} == summed(entries)
    assert [Usage("p", "m", 1), Usage("p", "m", 2, 3)] == entries


class TestUsageSpans:
    """`usage_spans=auto` makes none when a real LLM span ended in the run."""

    @pytest.mark.parametrize(
        ("attributes", "counted"),
        [
            ({"openinference.span.kind": "LLM"}, True),
            ({"gen_ai.operation.name": "chat"}, True),
            ({"openinference.span.kind": "CHAIN"}, False),
            ({}, False),
        ],
    )
    def test_auto(self, attributes: dict[str, str], counted: bool) -> None:
        """Another instrumentation's span of a model call, inside the run."""
        assert ([] if counted else [("usage big", 100, 50, RUN)]) == self.traced(attributes, "auto")

    @pytest.mark.parametrize(("wanted", "made"), [("on", True), ("off", False)])
    def test_on_and_off(self, wanted: str, made: bool) -> None:
        """Whatever ended in the run."""
        assert ([("usage big", 100, 50, RUN)] if made else []) == self.traced({"gen_ai.operation.name": "chat"}, wanted)

    def traced(self, attributes: dict[str, str], wanted: str) -> list[Any]:
        """The usage spans of a run in which a span with these attributes ended."""
        captured = capture()

        def source() -> Iterator[Any]:
            yield started()
            with captured.tracer_provider.get_tracer("another").start_as_current_span("model", attributes=attributes):
                pass
            yield finished(usage=[ENTRY])

        config = Settings(usage_spans=wanted, agent_name="supervisor")  # type: ignore[arg-type]
        list(
            trace_events(
                source(),
                config=config,
                tracer_provider=captured.tracer_provider,
                meter_provider=captured.meter_provider,
            )
        )
        return spent(Traced(captured, (), captured.spans))

    def test_another_runs_model_call_is_not_ours(self) -> None:
        """A span outside the run."""
        thread = Thread()
        tracer = thread.captured.tracer_provider.get_tracer("another")
        with tracer.start_as_current_span("model", attributes={"gen_ai.operation.name": "chat"}):
            pass
        assert [("usage big", 100, 50, RUN)] == spent(thread.run(started(), finished(usage=[ENTRY])))


def test_the_metric_counts_every_token_once() -> None:
    """`agui.tokens`: input and output by provider and model; parts are not recorded."""
    tagged = custom(tag="s") | {"metadata": {"usage": [{**ENTRY, "inputTokens": 30, "outputTokens": 20}]}}
    traced = trace(started(), subagent("s"), tagged, done("s"), finished(usage=[ENTRY]), usage_spans="off")
    model = {"gen_ai.provider.name": "openai", "gen_ai.request.model": "big"}
    assert [
        ({**model, "gen_ai.token.type": "input"}, 100),
        ({**model, "gen_ai.token.type": "output"}, 50),
    ] == sorted(traced.metric("agui.tokens"), key=str)


@pytest.mark.parametrize("count", [2**63 - 1, 9 * 10**18, 10**30, 1e300])
def test_counts_that_no_exporter_carries_are_none(count: float) -> None:
    """Neither alone nor summed do they reach a span or the metric: one would spoil every export of the process."""
    entry = {"model": "big", "inputTokens": count, "outputTokens": 10**12}
    traced = trace(started(), *[custom() | {"metadata": {"usage": [entry]}}] * 3, finished(usage=[entry]))
    encode_spans(traced.spans).SerializeToString()
    assert [({"gen_ai.request.model": "big", "gen_ai.token.type": "output"}, 10**12)] == traced.metric("agui.tokens")


def test_models_beyond_a_hundred_count_as_one() -> None:
    """So many are told apart in one run, and no token is lost."""
    events = [custom() | {"metadata": {"usage": [{"model": f"m{n}", "inputTokens": 1}]}} for n in range(150)]
    traced = trace(started(), *events, finished())
    assert (101, 150) == (len(spent(traced)), sum(tokens for _, tokens, _, _ in spent(traced)))
