"""What the commands read: binary frames, captured responses, HAR files; and how each is named."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agui_otel.testing import span_tree
from tests.support import recorded_server, recordings, services
from tests.support.browser import recording_page
from tests.support.command import Command, Ran

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
FETCH = """async ([url, given]) => {
    const response = await fetch(url, {
        method: "POST",
        headers: {"content-type": "application/json"},
        body: JSON.stringify(given),
    });
    const reader = response.body.getReader();
    while (!(await reader.read()).done) {}
    return response.status;
}"""


def encoded(name: str) -> bytes:
    """The head of a response with a content encoding."""
    return OK.removesuffix(b"\r\n") + f"Content-Encoding: {name}\r\n\r\n".encode()


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """The URL of a server that streams recordings."""
    with recorded_server.agent() as url:
        yield url


def data_of(name: str) -> bytes:
    """A recorded file."""
    return (recordings.STREAMS / name).read_bytes()


def input_of(name: str) -> Any:
    """The RunAgentInput of a recording."""
    return json.loads(data_of(f"{name}.input.json"))


def tree_of(ran: Ran) -> str:
    """The tree of the spans that `replay --to json` printed."""
    return span_tree([json.loads(line) for line in ran.out.splitlines()])


def curl(url: str, target: Path, *options: str) -> bytes:
    """What curl writes into `target` of a run that it starts at `url`."""
    services.require(shutil.which("curl") is not None, "curl")
    subprocess.run(["curl", "-sN", *options, url, "-d", "{}", "-o", str(target)], check=True, timeout=30)
    return target.read_bytes()


@pytest.mark.parametrize("name", recordings.SSE_NAMES)
def test_binary_recordings(command: Command, name: str) -> None:
    """A binary recording has the tree, the times and the input of the same run in JSON lines."""
    lines, binary = (
        command("replay", "--to", "json", recordings.STREAMS / f"{name}.{form}") for form in ("jsonl", "bin")
    )
    assert (0, "", 0, "") == (lines.status, lines.err, binary.status, binary.err)
    assert tree_of(lines) == tree_of(binary)
    assert (
        command("tree", recordings.STREAMS / f"{name}.jsonl").out
        == command("tree", recordings.STREAMS / f"{name}.bin").out
    )


def test_binary_on_standard_input(command: Command) -> None:
    """The content tells also on standard input."""
    ran = command("check", "-", stdin=data_of("error_model_recovered.bin"))
    assert (1, "") == (ran.status, ran.err)
    assert ran.out.startswith("-: event 82: unclosed_messages: ")


def test_binary_blame(command: Command) -> None:
    """Who wrote the state is the same in both transports, and so is the order of its paths."""
    lines, binary = (command("blame", recordings.STREAMS / f"nested.{form}") for form in ("jsonl", "bin"))
    assert lines == binary


def test_cut_binary(command: Command, tmp_path: Path) -> None:
    """A binary file that is cut is named with the frame."""
    file = tmp_path / "run.bin"
    file.write_bytes(data_of("single.bin")[:3_000])
    ran = command("check", file)
    assert 2 == ran.status
    assert f"agui-otel: {file}:32: cut off in the middle of an event\n" == ran.err


@pytest.mark.parametrize("form", ["sse", "bin", "jsonl"])
@pytest.mark.parametrize("options", [(), ("-i",), ("-i", "-H", "accept-encoding: gzip"), ("-i", "-L")], ids=" ".join)
def test_curl(command: Command, tmp_path: Path, agent: str, form: str, options: tuple[str, ...]) -> None:
    """What curl writes is read: the body alone, with its head, compressed, and behind a redirect."""
    url = f"{agent}/moved/single.{form}" if "-L" in options else f"{agent}/single.{form}"
    captured = curl(url, tmp_path / "run", *options)
    assert ("-i" in options) == captured.startswith(b"HTTP/1.1 ")
    assert ("-L" in options) == (b"307" in captured[:20])
    assert (b"content-encoding: gzip" in captured) == (len(options) == 3)
    expected = tree_of(command("replay", "--to", "json", "-", stdin=data_of(f"single.{form}")))
    for ran in (
        command("replay", "--to", "json", tmp_path / "run"),
        command("replay", "--to", "json", "-", stdin=captured),
    ):
        assert (0, "") == (ran.status, ran.err)
        assert expected == tree_of(ran)


def test_curl_of_a_refusal(command: Command, tmp_path: Path, agent: str) -> None:
    """A response that is no success is said with its status."""
    curl(f"{agent}/refused", tmp_path / "run", "-i")
    assert (2, "", f"agui-otel: {tmp_path}/run: the server answered 500\n") == command("tree", tmp_path / "run")
    curl(f"{agent}/moved/single.sse", tmp_path / "run", "-i")
    assert (2, "", f"agui-otel: {tmp_path}/run: the server answered 307\n") == command("tree", tmp_path / "run")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-type: text/ev", ":1: cut off in the head of the response"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n", ":3: cut off in the head of the response"),
        (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 100_000, ":1: cut off in the head of the response"),
        (b"HTTP/ hello\n\n", ":1: not the head of a response"),
        (OK, ": empty"),
        (OK.replace(b"200 OK", b"404 Not Found") + data_of("single.sse"), ": the server answered 404"),
        (OK + b"data: hello\n\n", ":4: not AG-UI: no event: not JSON (at character 0)"),
        (OK + data_of("single.sse")[:-20], ":164: cut off in the middle of an event"),
        (encoded("gzip") + b"hello", ": cut off: the body is not gzip"),
        (encoded("zstd") + b"hello", ": compressed with zstd, which is not read here"),
    ],
)
def test_wrong_captures(command: Command, tmp_path: Path, content: bytes, message: str) -> None:
    """A wrong capture is status 2; lines are those of the file, its head included."""
    file = tmp_path / "run.sse"
    file.write_bytes(content)
    ran = command("check", file)
    assert (2, f"agui-otel: {file}{message}\n") == (ran.status, ran.err)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_captures_in_pieces(size: int) -> None:
    """Heads and a compressed body may come in any pieces, while the server still sends."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 Connection established\n\n"
    data = interim + encoded("gzip") + gzip.compress(data_of("single.sse"))
    command = [sys.executable, "-m", "agui_otel.cli.main", "check", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for at in range(0, 400, size):
            process.stdin.write(data[at : min(at + size, 400)])
            process.stdin.flush()
        process.stdin.write(data[400:])
        process.stdin.close()
        assert b"no violations\n" == process.stdout.read()
    assert 0 == process.returncode


def test_a_pipe_is_read_once(command: Command, tmp_path: Path) -> None:
    """A named pipe is not looked into before it is read."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(data_of("single.sse"),))
    writer.start()
    assert (0, "no violations\n", "") == command("check", pipe)
    writer.join()


def har_entry(name: str, *, began: str, status: int = 200) -> dict[str, Any]:
    """An entry for a recorded run, whose response took as long as the run did."""
    took = float(data_of(f"{name}.times").split()[-1])
    return {
        "startedDateTime": began,
        "time": took,
        "timings": {"send": 0, "wait": 1, "receive": took - 1},
        "request": {
            "url": f"https://agent.example/{name}",
            "postData": {"text": data_of(f"{name}.input.json").decode()},
        },
        "response": {
            "status": status,
            "content": {
                "mimeType": "text/event-stream",
                "text": data_of(f"{name}.sse").decode() if status == 200 else "",
            },
        },
    }


@pytest.fixture
def har(tmp_path: Path) -> Path:
    """A HAR file of a run that waits for approval, a refused request, and the resumed run 32 seconds later."""
    entries = [
        har_entry("approve_1", began="2026-01-01T00:00:00.000Z"),
        har_entry("approve_3_resume", began="2026-01-01T00:00:20.000Z", status=503),
        har_entry("approve_3_resume", began="2026-01-01T00:00:32.000Z"),
    ]
    file = tmp_path / "session.har"
    file.write_text(json.dumps({"log": {"version": "1.2", "entries": entries}}))
    return file


def test_har(command: Command, har: Path) -> None:
    """Each AG-UI response is a recording; the waiting between them is the user's; a refused one is said."""
    ran = command("tree", har)
    assert (2, f"agui-otel: {har}#2: the server answered 503\n") == (ran.status, ran.err)
    first, _, rest = ran.out.partition(f"{har}#2:")
    assert first.startswith(f"{har}#1:\ninvoke_agent  interrupt  319 ms")
    _, _, resumed = rest.partition(f"{har}#3:\n")
    assert resumed.startswith("invoke_agent  success  178 ms")
    assert "answer: approved, after 31.7 s" in resumed
    assert "continues run run-approve_1" in resumed


def test_har_input(command: Command, har: Path) -> None:
    """The request's body is the run's input."""
    spans = [json.loads(line) for line in command("replay", "--to", "json", f"{har}#1").out.splitlines()]
    (root,) = (span for span in spans if span["parent_id"] is None)
    assert input_of("approve_1")["messages"][-1]["content"] in root["attributes"]["input.value"]


def test_one_of_a_har(command: Command, har: Path) -> None:
    """`FILE#3` is the third response; `blame` wants to know which."""
    assert (0, "no violations\n", "") == command("check", f"{har}#3")
    assert command("blame", recordings.STREAMS / "approve_3_resume.sse").out.count("\n") == command(
        "blame", f"{har}#3"
    ).out.count("\n")
    ran = command("blame", har)
    assert (2, "") == (ran.status, ran.out)
    assert f"agui-otel: {har}: 3 AG-UI responses in it: {har}#1 (https://agent.example/approve_1), " in ran.err
    assert (2, "", f"agui-otel: {har}: 3 AG-UI responses of a HAR file in it\n") == command("tree", f"{har}#4")
    single = recordings.STREAMS / "single.sse"
    assert (2, "", f"agui-otel: {single}: 0 AG-UI responses of a HAR file in it\n") == command("tree", f"{single}#1")
    assert (2, "", "agui-otel: nothing: No such file or directory\n") == command("tree", "nothing#1")


def test_a_file_may_be_called_like_a_number(command: Command, tmp_path: Path) -> None:
    """A file whose name ends like a response's number is that file."""
    file = tmp_path / "run#1"
    file.write_bytes(data_of("single.sse"))
    assert (0, "no violations\n", "") == command("check", file)


def test_har_on_standard_input(command: Command, har: Path) -> None:
    """A HAR file may come on standard input."""
    ran = command("tree", "-", stdin=har.read_bytes())
    assert "agui-otel: -#2: the server answered 503\n" == ran.err
    assert ran.out.startswith("-#1:\ninvoke_agent  interrupt")


def test_a_saved_har(command: Command) -> None:
    """The file that Chromium saved of an approval holds two runs beside its page."""
    file = recordings.STREAMS.parent / "approval.har"
    ran = command("replay", "--to", "json", file)
    assert (0, "") == (ran.status, ran.err)
    names = ("approve_1.sse", "approve_3_resume.bin")
    assert tree_of(command("replay", "--to", "json", *(recordings.STREAMS / name for name in names))) == tree_of(ran)


@pytest.mark.slow
def test_har_of_a_browser(command: Command, tmp_path: Path, agent: str) -> None:
    """What Chromium saves of two runs, one as text and one binary, has their trees and inputs."""
    file = tmp_path / "browser.har"
    runs = (("approve_1", "sse"), ("approve_3_resume", "bin"))
    with recording_page(file) as page:
        page.goto(agent)
        for name, form in runs:
            assert 200 == page.evaluate(FETCH, [f"{agent}/{name}.{form}", input_of(name)])
    ran = command("replay", "--to", "json", file)
    assert (0, "") == (ran.status, ran.err)
    expected = command("replay", "--to", "json", *(recordings.STREAMS / f"{name}.{form}" for name, form in runs))
    assert tree_of(expected) == tree_of(ran)
    times = [json.loads(line) for line in ran.out.splitlines()]
    assert all(span["start_time"] <= span["end_time"] for span in times)
