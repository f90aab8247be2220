"""Trace model, attributes: what every span carries, and what each kind of span says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agui_otel.tracing import semconv
from tests.support.traced import Thread, trace
from tests.support.wire import (
    answers,
    done,
    event,
    finished,
    given,
    interrupted,
    messages,
    patch,
    result,
    said,
    started,
    state,
    step,
    step_end,
    subagent,
    suspended,
    text,
    tool,
)

RUN = "invoke_agent supervisor"
SUB = "invoke_agent researcher"
CALL = "execute_tool search"
EVERYTHING = [
    started(protocolVersion="1.0.0", parentRunId="p", timestamp=1_767_225_600),
    step("plan"),
    text("m", "Hello"),
    event("REASONING_START", messageId="r"),
    event("REASONING_END", messageId="r"),
    tool("c", "search", '{"q":1}', parent="m"),
    subagent("sub", call="c", message="m", description="searches", timestamp=5),
    text("n", "sub", tag="sub"),
    tool("d", "fetch", tag="sub"),
    result("d", "x", tag="sub"),
    done("sub", result={"r": 1}),
    result("c", "found"),
    step_end("plan"),
    finished(usage=[{"provider": "p", "model": "m-1", "inputTokens": 1, "outputTokens": 2}]),
]


class TestEverySpan:
    """Session and conversation, thread, run, kind, owner, user, and what the host wants."""

    def test_identity(self) -> None:
        """On every span of a run."""
        traced = trace(
            EVERYTHING,
            given=given("run", "thread"),
            attributes=lambda asked: {"tenant": asked["runId"]},
            user_id="ann",
            steps="spans",
        )
        expected = {
            "session.id": "thread",
            "gen_ai.conversation.id": "thread",
            "agui.thread.id": "thread",
            "agui.run.id": "run",
            "user.id": "ann",
            "tenant": "run",
        }
        assert 9 == len(traced.spans)
        assert [expected] * 9 == [
            {key: value for key, value in (span.attributes or {}).items() if key in expected} for span in traced.spans
        ]

    def test_owner(self) -> None:
        """The subagent's id and name, on its own span and on what it owns; nothing on the run's own."""
        traced = trace(EVERYTHING, steps="spans")
        owned = {"invoke_agent researcher", "message assistant", "execute_tool fetch"}
        for span in traced.spans:
            expected = ("sub", "researcher") if span.name in owned and span.attributes else (None, None)
            if (span.attributes or {}).get("agui.message.id") == "m":
                expected = (None, None)
            assert expected == tuple((span.attributes or {}).get(f"agui.subagent.{key}") for key in ("run_id", "name"))

    def test_kinds(self) -> None:
        """OpenInference's span kind, on all."""
        kinds = [(span.attributes or {})["openinference.span.kind"] for span in trace(EVERYTHING).spans]
        assert {"AGENT": 2, "CHAIN": 3, "TOOL": 2, "LLM": 1} == {kind: kinds.count(kind) for kind in set(kinds)}

    def test_the_inputs_thread_wins(self) -> None:
        """A mismatch is a note."""
        traced = trace(started("run", "other"), finished(), given=given("run", "mine"))
        assert {"session.id": "mine", "agui.thread.id": "mine"} == traced.some(RUN, "session.id", "agui.thread.id")
        assert ["thread_id_mismatch"] == traced.rules()

    def test_anonymous_threads_are_no_session(self) -> None:
        """Thread ids that many users share."""
        traced = trace(started("run", "default"), text("m"), finished(), anonymous_threads=("default",))
        for name in (RUN, "message assistant"):
            assert {"agui.thread.id": "default"} == traced.some(
                name, "agui.thread.id", "session.id", "gen_ai.conversation.id"
            )

    def test_what_samplers_need_is_set_at_start(self) -> None:
        """Names, ids, kind and input are there when the span starts."""
        seen: dict[str, dict[str, Any]] = {}

        class Sampler:
            def on_start(self, span: Any, parent_context: Any = None) -> None:  # noqa: ARG002
                seen[span.name] = dict(span.attributes)

            def on_end(self, span: Any) -> None: ...

            def _on_ending(self, span: Any) -> None: ...

            def shutdown(self) -> None: ...

            def force_flush(self, _timeout_millis: int = 0) -> bool:
                return True

        thread = Thread()
        thread.captured.tracer_provider.add_span_processor(Sampler())  # type: ignore[arg-type]
        thread.run(EVERYTHING, given=given(messages=[said("u", "user", "Hi")]))
        common = {"openinference.span.kind", "session.id", "agui.thread.id", "agui.run.id"}
        assert common | {"gen_ai.agent.name", "gen_ai.operation.name", "graph.node.id", "input.value"} <= set(seen[RUN])
        assert common | {"gen_ai.agent.name", "agui.subagent.run_id", "input.value", "agui.parent_tool_call.id"} <= set(
            seen[SUB]
        )
        assert common | {"gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.agent.name"} <= set(seen[CALL])


def test_tool_call_attributes() -> None:
    """Names and ids in both vocabularies, arguments and result, and its owner's name."""
    traced = trace(EVERYTHING)
    assert {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "search",
        "gen_ai.tool.call.id": "c",
        "gen_ai.tool.call.arguments": '{"q":1}',
        "gen_ai.tool.call.result": "found",
        "gen_ai.agent.name": "supervisor",
        "tool.name": "search",
        "tool.id": "c",
        "tool.parameters": '{"q":1}',
        "input.value": '{"q":1}',
        "input.mime_type": "application/json",
        "output.value": "found",
        "output.mime_type": "text/plain",
        "agui.tool_call.args_ms": 2000.0,
        "agui.outcome": "success",
        "agui.step.name": "plan",
    } == {
        key: value
        for key, value in traced.attributes(CALL).items()
        if key.startswith(("gen_ai.", "tool.", "input.", "output.", "agui."))
        and not key.endswith(("conversation.id", "run.id", "thread.id"))
    }
    assert ["researcher"] == traced.each("execute_tool fetch", "gen_ai.agent.name")
    unnamed = trace(started(), tool("c", "search"), finished(), agent_name=None)
    assert {} == unnamed.some(CALL, "gen_ai.agent.name")


def test_message_attributes() -> None:
    """Its id and role, its text, its numbers, and what metadata its events had: the last write wins."""
    opener, content, end = text("m", "Hello", role="assistant")
    traced = trace(
        started(),
        {**opener, "metadata": {"a": 1, "b": 1}},
        {**content, "metadata": {"b": 2}},
        {**end, "metadata": {"c": {"d": [3]}, "usage": [{"inputTokens": 1}]}},
        finished(),
    )
    attributes = traced.attributes("message assistant")
    assert {"a": 1, "b": 2, "c": {"d": [3]}} == json.loads(attributes["metadata"])
    assert ("m", "assistant", "Hello", 1, 5) == tuple(
        attributes[key] for key in ("agui.message.id", "agui.message.role", "output.value", "agui.chunks", "agui.chars")
    )
    assert {} == trace(started(), text("m"), finished()).some("message assistant", "metadata")


class TestDialect:
    """`dialect` says in which vocabulary content is written."""

    def test_both(self) -> None:
        """The default."""
        traced = trace(EVERYTHING, given=given(messages=[said("u", "user", "Hi")]))
        assert ("Hi", "Hello") == tuple(traced.attributes(RUN)[key] for key in ("input.value", "output.value"))
        assert [{"role": "user", "parts": [{"type": "text", "content": "Hi"}]}] == json.loads(
            traced.attributes(RUN)["gen_ai.input.messages"]
        )

    @pytest.mark.parametrize(
        ("dialect", "absent"),
        [
            (
                "openinference",
                (
                    "gen_ai.input.messages",
                    "gen_ai.output.messages",
                    "gen_ai.tool.call.arguments",
                    "gen_ai.tool.call.result",
                ),
            ),
            ("gen_ai", ("input.value", "output.value", "input.mime_type", "output.mime_type", "tool.parameters")),
        ],
    )
    def test_one(self, dialect: str, absent: tuple[str, ...]) -> None:
        """The other's content is not there; names are."""
        traced = trace(EVERYTHING, given=given(messages=[said("u", "user", "Hi")]), dialect=dialect)
        assert set() == {key for span in traced.spans for key in span.attributes or {} if key in absent}
        assert ["search"] == traced.each(CALL, "tool.name") == traced.each(CALL, "gen_ai.tool.name")


class TestBounds:
    """Each span stays under 100 attributes; what is cut is said, whenever it was set."""

    def test_every_kind_of_attribute_at_once(self) -> None:
        """With everything that a run can have, and the host's attributes."""
        thread = Thread(
            max_value=3,
            max_state_events=1,
            max_note_events=0,
            max_custom_events=0,
            max_activity_events=0,
            max_step_events=0,
        )
        thread.run(started("one"), subagent("sub"), suspended("sub", "i"), interrupted("i", run="one"))
        noise = [
            *(event("RAW", tag, event=1) for tag in (None, "sub")),
            *(
                event("REASONING_ENCRYPTED_VALUE", tag, subtype="message", entityId="?", encryptedValue="x")
                for tag in (None, "sub")
            ),
            *(event("CUSTOM", tag, name="n", value=1) for tag in (None, "sub")),
            *(event("NEW", tag) for tag in (None, "sub")),
            *(
                event("ACTIVITY_SNAPSHOT", tag, messageId=f"a{tag}", activityType="x", content={})
                for tag in (None, "sub")
            ),
            *(step("plan", tag) for tag in (None, "sub")),
            *(patch(*(("add", f"/p{n}", 1) for n in range(100)), tag="sub") for _ in range(3)),
            state({}, tag="sub"),
            [messages()] * 10,
        ]
        traced = thread.run(
            started("r", protocolVersion="1.0.0", parentRunId="p", timestamp=5),
            subagent("sub", call="c", above="a", message="m", description="describes", timestamp=5),
            text("x", "hello", tag="sub"),
            text("y", "hello"),
            noise,
            event("SUBAGENT_ERROR", "sub", message="broken", code="e"),
            event("RUN_ERROR", message="broken", code="e"),
            given=given("two", resume=answers("i"), messages=[said("u", "user", "asked")]),
            attributes={f"host.{n}": n for n in range(200)},
        )
        sizes = {span.name: len(span.attributes or {}) for span in traced.spans}
        assert max(sizes.values()) < 100, sizes
        assert {0} == {span.dropped_attributes for span in traced.spans}

    def test_what_was_cut_at_start_stays_said(self) -> None:
        """Input and output of one span are set at different times."""
        traced = trace(
            started(),
            text("m", "a long answer"),
            finished(),
            given=given(messages=[said("u", "user", "a long question")]),
            max_value=4,
            dialect="openinference",
        )
        assert {
            "input.value": "a lo",
            "output.value": "a lo",
            "agui.truncated": ("input.value=15", "output.value=13"),
        } == traced.some(RUN, "input.value", "output.value", "agui.truncated")

    def test_what_is_set_again_is_said_once(self) -> None:
        """A subagent's input that grows."""
        start, first, second, end = tool("c", "search", "12345", "6789")
        traced = trace(
            started(),
            start,
            first,
            subagent("sub", call="c"),
            second,
            end,
            done("sub"),
            finished(),
            max_value=4,
            dialect="openinference",
        )
        assert [("input.value=9",)] == traced.each(SUB, "agui.truncated")


def test_every_name_stands_in_one_module_once() -> None:
    """Attribute and event names: no two constants have the same value."""
    names = [
        name
        for key, value in vars(semconv).items()
        if key.isupper() and isinstance(value, str | dict)
        for name in ([value] if isinstance(value, str) else value.values())
    ]
    assert len(names) == len(set(names))
