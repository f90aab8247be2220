"""`agui-otel replay`: recordings as traces, on standard output and over OTLP."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from agui_otel.forest import forest
from agui_otel.testing import span_tree
from tests.support import recordings
from tests.support.command import Command
from tests.support.receivers import http_receiver

SINGLE = recordings.STREAMS / "single.jsonl"


def spans(text: str) -> list[dict[str, Any]]:
    """The spans of `--to json`."""
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", recordings.SSE_NAMES)
def test_json(command: Command, name: str) -> None:
    """Standard output has one span a line and nothing else; both forms of a recording make the same tree."""
    lines, sse = (command("replay", "--to", "json", recordings.STREAMS / f"{name}.{form}") for form in ("jsonl", "sse"))
    assert (0, "", 0, "") == (lines.status, lines.err, sse.status, sse.err)
    assert span_tree(spans(lines.out)) == span_tree(spans(sse.out))
    (root,) = forest(spans(lines.out))
    assert "AGENT" == root.kind


def test_content_is_captured(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording's content is shown, unless the settings say otherwise."""
    assert "single" in str(spans(command("replay", "--to", "json", SINGLE).out)[-1]["attributes"]["input.value"])
    monkeypatch.setenv("AGUI_OTEL_CAPTURE", "metadata")
    assert "input.value" not in command("replay", "--to", "json", SINGLE).out


def test_times(command: Command) -> None:
    """Receive times are laid end to end, a second apart, and the last recording ends now."""
    files = [recordings.STREAMS / f"{name}.jsonl" for name in ("approve_1", "approve_3_resume")]
    before = time.time_ns()
    first, second = forest(spans(command("replay", "--to", "json", *files).out))
    assert before <= second.end + 1_000 <= time.time_ns() + 1_000
    assert 318.84 == pytest.approx((first.end - first.start) / 1e6, abs=0.01)
    assert 177.55 == pytest.approx((second.end - second.start) / 1e6, abs=0.01)
    assert 1_000 == pytest.approx((second.start - first.end) / 1e6, abs=0.01)


def test_memory_is_shared_by_the_files_of_a_call(command: Command) -> None:
    """A resumed run continues the first where both are given, and stands alone where it is not."""
    first, second = (recordings.STREAMS / f"nested_approve_{name}.jsonl" for name in ("1", "3_resume"))
    together = spans(command("replay", "--to", "json", first, second).out)
    assert any(span["attributes"].get("agui.continues.run_id") == "run-nested_approve_1" for span in together)
    alone = spans(command("replay", "--to", "json", second).out)
    assert not any("agui.continued" in span["attributes"] for span in alone)


def test_cut_file(command: Command, tmp_path: Path) -> None:
    """A file that is cut is traced as far as it goes, and so is the next one; the status is 2."""
    file = tmp_path / "cut.jsonl"
    file.write_bytes(SINGLE.read_bytes()[:6_010])
    ran = command("replay", "--to", "json", file, SINGLE)
    cut, whole = forest(spans(ran.out))
    assert ["success", "unfinished"] == sorted(root.attributes["agui.outcome"] for root in (cut, whole))
    assert 2 == ran.status
    assert f"agui-otel: {file}:42: cut off in the middle of an event\n" == ran.err


def test_not_agui(command: Command, tmp_path: Path) -> None:
    """Of a file that is no recording nothing is traced, although an input stands beside it."""
    file = tmp_path / "run.jsonl"
    file.write_text('{"level": "info"}\n')
    (tmp_path / "run.input.json").write_text('{"threadId":"t","runId":"r","messages":[]}')
    ran = command("replay", "--to", "json", file)
    assert (2, "") == (ran.status, ran.out)


def test_several_runs_in_a_file(command: Command) -> None:
    """A replayed thread, several runs in one stream, makes a tree each."""
    data = SINGLE.read_bytes() + (recordings.STREAMS / "parallel.jsonl").read_bytes()
    ran = command("replay", "--to", "json", "-", stdin=data)
    assert ["run-single", "run-parallel"] == [root.attributes["agui.run.id"] for root in forest(spans(ran.out))]


def test_console(command: Command) -> None:
    """`--to console` prints spans as OpenTelemetry's console exporter does."""
    ran = command("replay", "--to", "console", SINGLE)
    assert (0, "") == (ran.status, ran.err)
    assert ran.out.startswith('{\n    "name": ')


def test_otlp(command: Command) -> None:
    """`--to otlp` sends the spans and metrics to the endpoint and names the traces."""
    with http_receiver() as received:
        ran = command("replay", "--to", "otlp", "--endpoint", received.url, SINGLE)
    assert (0, "") == (ran.status, ran.err)
    assert ran.out.startswith(f"{SINGLE}: invoke_agent: trace ")
    expected = [span["name"] for span in spans(command("replay", "--to", "json", SINGLE).out)]
    assert expected == received.span_names()
    assert received.metrics


def test_many_spans_are_all_sent(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """More spans than the export queue holds arrive all the same."""
    monkeypatch.setenv("AGUI_OTEL_ANONYMOUS_THREADS", "thread-nested")  # the same run, but nobody knows
    with http_receiver() as received:
        files = [recordings.STREAMS / "nested.jsonl"] * 100
        assert 0 == command("replay", "--to", "otlp", "--endpoint", received.url, *files).status
    assert 100 * 25 == len(received.span_names())


def test_refused(command: Command) -> None:
    """Traces that the receiver refuses are status 2."""
    with http_receiver(status=400) as received:
        ran = command("replay", "--to", "otlp", "--endpoint", received.url, SINGLE)
    assert 2 == ran.status
    assert "agui-otel: the traces were not taken: " in ran.err


def test_no_phoenix(command: Command) -> None:
    """A Phoenix that does not answer is status 2, at once."""
    ran = command("replay", "--endpoint", "http://127.0.0.1:1", SINGLE)
    assert (2, "") == (ran.status, ran.out)
    assert ran.err.startswith("agui-otel: http://127.0.0.1:1 does not answer: ")


def test_wrong_endpoint(command: Command) -> None:
    """An endpoint that is no URL is status 2."""
    ran = command("replay", "--endpoint", "nonsense", SINGLE)
    assert (2, "") == (ran.status, ran.out)
    assert "nonsense" in ran.err


@pytest.mark.parametrize("variable", ["AGUI_OTEL_DISABLED", "OTEL_SDK_DISABLED"])
@pytest.mark.parametrize(
    "call",
    [
        ["replay", "--to", "otlp"],
        ["replay", "--endpoint", "http://127.0.0.1:1"],
        ["replay", "--to", "json"],
        ["replay", "--to", "console"],
        ["tree"],
    ],
    ids=" ".join,
)
def test_switched_off(command: Command, monkeypatch: pytest.MonkeyPatch, variable: str, call: list[str]) -> None:
    """Where tracing is switched off a command that traces says by which variable, before anything else: status 2."""
    monkeypatch.setenv(variable, "true")
    expected = f"agui-otel: tracing is switched off by {variable}: unset it\n"
    assert (2, "", expected) == command(*call, SINGLE)


def test_sending_is_switched_off(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_TRACES_EXPORTER=none is said, and is no success; what is printed needs no exporter."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    expected = "agui-otel: the sending of traces is switched off by OTEL_TRACES_EXPORTER=none: unset it\n"
    for way in (["--to", "otlp"], []):
        assert (2, "", expected) == command("replay", *way, SINGLE)
    assert 0 == command("replay", "--to", "json", SINGLE).status


def test_the_sampler_drops_everything(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording of which the sampler leaves nothing is status 2, and named with the variables that did it."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    with http_receiver() as received:
        ran = command("replay", "--to", "otlp", "--endpoint", received.url, SINGLE)
    told = "OTEL_TRACES_SAMPLER=traceidratio with OTEL_TRACES_SAMPLER_ARG=0 dropped it: unset it"
    assert (2, "", f"agui-otel: {SINGLE}: nothing was sent: {told}\n") == ran
    assert [] == received.span_names()
    assert spans(command("replay", "--to", "json", SINGLE).out)
