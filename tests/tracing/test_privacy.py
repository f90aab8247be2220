"""Trace model, content and privacy: what may be exported, told by canaries in every field of a stream.

A canary's first letter says what it is: `I` an input, `O` an output, `N` a name or an id, `X` what never leaves.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.support.canaries import ASKED, CANARY, first_run, second_run, third_run
from tests.support.traced import Thread, Traced, trace
from tests.support.wire import event, failed, finished, given, patch, said, started, step, subagent, text, tool


def exported(*of: Traced) -> Iterator[tuple[str, str]]:
    """Every string that was exported, with where it stands."""
    for traced in of:
        for span in traced.spans:
            yield span.name, "span name"
            yield span.status.description or "", "status"
            yield from _strings(span.attributes, "attributes")
            for recorded in span.events:
                yield recorded.name, "event name"
                yield from _strings(recorded.attributes, recorded.name)
            for link in span.links:
                yield from _strings(link.attributes, "link")
        for name, points in traced.captured.metrics().items():
            for labels, _ in points:
                yield from _strings(labels, name)


def _strings(attributes: Any, where: str) -> Iterator[tuple[str, str]]:
    for key, value in (attributes or {}).items():
        yield key, where
        yield from ((str(item), f"{where} {key}") for item in (value if isinstance(value, tuple | list) else (value,)))


def canaries(**keywords: Any) -> set[str]:
    """The canaries that three runs of one thread let out, with these settings."""
    thread = Thread(agent_name="N-agent", user_id="N-user-id", **keywords)
    traced = [
        thread.run(first_run()),
        thread.run(second_run(), given=ASKED, attributes={"N-key": "N-value"}),
        thread.run(third_run(), end="error", error=RuntimeError("O-exception")),
    ]
    return {found for text_, _ in exported(*traced) for found in CANARY.findall(text_)}


def planted() -> set[str]:
    """All that the streams and their inputs hold."""
    everything = json.dumps([first_run(), second_run(), third_run(), ASKED, "N-agent", "N-user-id", "O-exception"])
    return set(CANARY.findall(everything))


def kind(letter: str, of: set[str]) -> set[str]:
    """Those that begin with this letter."""
    return {canary for canary in of if canary[0] == letter}


def test_full_exports_all_content_and_nothing_that_never_leaves() -> None:
    """Texts, arguments, results, descriptions, messages, custom values, whole state paths."""
    out = canaries()
    assert set() == kind("X", out)
    assert kind("I", planted()) - {"I-description-before"} == kind("I", out) - {"I-description-before"}
    assert kind("O", planted()) == kind("O", out)


def test_metadata_exports_none_of_it() -> None:
    """Names, ids, counts, times, outcomes, error types, the first segment of state paths."""
    out = canaries(capture_content=False)
    assert set() == out - kind("N", out)
    assert {
        *(
            "N-agent",
            "N-subagent",
            "N-child-name",
            "N-tool",
            "N-frontend-tool",
            "N-step",
            "N-custom",
            "N-activity-type",
        ),
        *(
            "N-code",
            "N-run-code",
            "N-reason",
            "N-model",
            "N-provider",
            "N-first",
            "N-new-type",
            "N-user-id",
            "N-version",
        ),
        *("N-run", "N-thread", "N-call", "N-message", "N-waits", "N-sub", "N-parent-run", "N-frontend"),
    } <= out


def test_hidden_inputs() -> None:
    """OPENINFERENCE_HIDE_INPUTS covers inputs, arguments and descriptions; outputs stay."""
    out = canaries(hide_inputs=True)
    assert (set(), kind("O", planted())) == (kind("I", out), kind("O", out))


def test_hidden_outputs() -> None:
    """OPENINFERENCE_HIDE_OUTPUTS covers texts, results, state values, error messages; inputs stay."""
    out = canaries(hide_outputs=True)
    assert set() == kind("O", out)
    assert {"I-question", "I-arguments", "I-description"} <= out


def test_hiding_takes_away_and_never_adds() -> None:
    """With both, nothing is left; with capture=metadata nothing comes back."""
    for settings in ({"hide_inputs": True, "hide_outputs": True}, {"hide_inputs": False, "capture_content": False}):
        out = canaries(**settings)
        assert out == kind("N", out)


@pytest.mark.parametrize("dialect", ["both", "openinference", "gen_ai"])
def test_redact_sees_every_captured_string(dialect: str) -> None:
    """Whatever is content is what it returned; names are not its business."""
    seen: list[str] = []

    def redact(value: str) -> str:
        seen.append(value)
        return "***"

    out = canaries(observer={"redact": redact}, dialect=dialect)
    assert out == kind("N", out)
    in_seen = {found for value in seen for found in CANARY.findall(value)}
    assert kind("O", planted()) | (kind("I", planted()) - {"I-description-before"}) <= in_seen
    assert set() == kind("X", in_seen)


def test_metrics_have_names_and_never_ids() -> None:
    """Labels are low-cardinality, whatever is captured."""
    thread = Thread(agent_name="N-agent")
    thread.run(first_run())
    traced = thread.run(second_run(), given=ASKED)
    labels = {found for text_, _ in exported(Traced(traced.captured, (), ())) for found in CANARY.findall(text_)}
    assert {
        *("N-agent", "N-subagent", "N-child-name", "N-tool", "N-frontend-tool"),
        *("N-code", "N-run-code", "N-reason", "N-model", "N-provider", "N-new-type"),
    } == labels


def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """No content and no ids in logs."""
    caplog.set_level(logging.DEBUG)
    canaries()
    assert set() == set(CANARY.findall(caplog.text))


def test_memory_keeps_no_content_where_none_is_captured() -> None:
    """Only names, ids and times."""
    thread = Thread(capture_content=False)
    thread.run(first_run())
    record = thread.memory.read("N-thread")
    assert record is not None
    found = set(CANARY.findall(record.model_dump_json()))
    assert found == kind("N", found)


@hypothesis_settings(max_examples=60)
@examples(
    st.recursive(
        st.sampled_from([None, True, 1.5, "secret", "/secret"]),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "secret", "type"]), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    st.sampled_from(["value", "snapshot", "result", "metadata", "content", "event"]),
)
def test_no_value_of_any_shape_leaks(value: Any, field: str) -> None:
    """Content fields may hold any JSON: with capture=metadata none of it is exported."""
    one: dict[str, Any] = {
        "value": {**event("CUSTOM", name="n"), "value": value},
        "snapshot": {**event("STATE_SNAPSHOT"), "snapshot": {"a": value}},
        "result": {**finished(), "result": value},
        "metadata": {**text("m")[0], "metadata": {"x": value}},
        "content": event("ACTIVITY_SNAPSHOT", messageId="m", activityType="t", content={"x": value}),
        "event": {**event("RAW"), "event": value},
    }[field]
    traced = trace(started(), one, finished(), capture_content=False)
    assert [] == [where for text_, where in exported(traced) if "secret" in text_]


@pytest.mark.parametrize("settings", [{}, {"capture_content": False}])
def test_no_nul_and_no_lone_surrogate_leaves(settings: Any) -> None:
    """In whatever is exported: names, ids and content. A backend may refuse the whole batch for one."""
    bad = "a\0\ud800b"
    fields = dict.fromkeys(("name", "description", "message", "code"), bad)
    traced = Thread(agent_name=bad, user_id="u", **settings).run(
        started(bad, bad),
        text(bad, bad),
        tool(bad, bad, bad),
        subagent(bad, bad, call=bad, description=bad),
        step(bad, tag=bad),
        {**event("CUSTOM", bad, name=bad), "value": {bad: [bad]}},
        patch(("add", f"/{bad}", bad), tag=bad),
        {**event("ACTIVITY_SNAPSHOT", messageId=bad, activityType=bad), "content": {}},
        {"type": f"NEW{bad}", "subagentRunId": bad},
        event("SUBAGENT_ERROR", bad, message=bad, code=bad),
        failed(bad, code=bad, usage=[{"provider": bad, "model": bad}]),
        given=given(bad, bad, messages=[said("u", "user", bad)], parentRunId=bad),
        attributes=fields,
    )
    strings = [text_ for text_, _ in exported(traced)]
    assert [] == [text_ for text_ in strings if "\0" in text_ or "\ud800" in text_]
    assert any("ab" in text_.replace("�", "") for text_ in strings)
