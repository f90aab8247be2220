"""`agui-otel doctor`: each thing that can be wrong has its sentence and its remedy."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from agui_otel.cli.doctor import SPAN
from agui_otel.phoenix import EmbeddedPhoenix, PhoenixClient
from tests.support import recorded_server, services
from tests.support.command import Command, Ran
from tests.support.processes import listening
from tests.support.receivers import grpc_receiver, http_receiver

NOBODY = (
    "ok     providers: nobody has set any in this process; agui_otel.setup() or opentelemetry-instrument would, "
    "and the middleware by itself does not"
)


MEMORY = (
    "ok     thread memory: in each process; a run that is resumed in another process is not joined to the one before"
)


def wrong(found: str, fix: str) -> list[str]:
    """The last two lines of an examination that finds something."""
    return [f"wrong  {found}", f"fix    {fix}"]


def verdict(ran: Ran) -> list[str]:
    """The last two lines of an examination that found something."""
    assert (1, "") == (ran.status, ran.err)
    return ran.out.splitlines()[-2:]


@contextmanager
def silent() -> Iterator[str]:
    """An address where connections are taken and nothing is ever answered."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def saying(answer: bytes) -> Iterator[str]:
    """An address where each connection is told the same."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(0.5)
                    try:
                        connection.recv(65536)
                        connection.sendall(answer)
                    except OSError:
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_all_is_well(command: Command) -> None:
    """Over HTTP: what is examined, in order, and a span arrives."""
    with http_receiver() as received:
        ran = command("doctor", "--endpoint", received.url)
        place = received.url.removeprefix("http://")
        assert (0, "") == (ran.status, ran.err)
        taken = ran.out.splitlines()[3]
        assert [
            "ok     traces go to an OTLP receiver, by OTLP over HTTP",
            f"ok     {place} takes connections",
            f"ok     {received.url}/v1/traces speaks OTLP over HTTP, without credentials",
            taken,
            NOBODY,
            MEMORY,
        ] == ran.out.splitlines()
        (span,) = received.traces[-1].resource_spans[0].scope_spans[0].spans
        assert (SPAN, f"trace {span.trace_id.hex()}") == (span.name, taken[-38:])


def test_grpc(command: Command) -> None:
    """Over gRPC the same, with credentials."""
    with grpc_receiver() as received, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        patch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20key")
        ran = command("doctor")
        assert (0, "") == (ran.status, ran.err)
        place = received.url.removeprefix("http://")
        assert f"ok     {place} speaks OTLP over gRPC and takes the credentials" in ran.out.splitlines()
        assert [SPAN] == received.span_names()
        assert {"Bearer key"} == {headers["authorization"] for headers in received.headers}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"AGUI_OTEL_DISABLED": "true"}, wrong("tracing is switched off", "unset AGUI_OTEL_DISABLED")),
        ({"OTEL_SDK_DISABLED": "true"}, wrong("tracing is switched off", "unset OTEL_SDK_DISABLED")),
        (
            {"OTEL_TRACES_EXPORTER": "none"},
            wrong("traces are not exported", "unset OTEL_TRACES_EXPORTER, or set it to otlp"),
        ),
        (
            {"PHOENIX_COLLECTOR_ENDPOINT": "phoenix"},
            wrong(
                "the configuration cannot be used",
                "PHOENIX_COLLECTOR_ENDPOINT='phoenix': it should be a URL such as http://localhost:4318",
            ),
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://phoenix.invalid:4318"},
            wrong(
                "there is no host called phoenix.invalid", "correct the address http://phoenix.invalid:4318/v1/traces"
            ),
        ),
        (
            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/x"},
            wrong(
                "nobody listens at 127.0.0.1:1: Connection refused",
                "start the receiver there, or correct http://127.0.0.1:1/x",
            ),
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            wrong(
                "nobody listens at 127.0.0.1:1: Connection refused",
                "start the receiver there, or correct //127.0.0.1:1",
            ),
        ),
    ],
)
def test_the_environment(
    command: Command, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: list[str]
) -> None:
    """What the environment has wrong is said before anything is sent."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert expected == verdict(command("doctor"))


@pytest.mark.parametrize(
    ("status", "key", "found", "fix"),
    [
        (
            401,
            None,
            "wants credentials (401)",
            "set PHOENIX_API_KEY, or OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20… for another receiver",
        ),
        (403, "wrong", "refuses the credentials (403)", "correct PHOENIX_API_KEY or the header that is sent"),
        (404, None, "is no OTLP receiver (404)", "correct the address; give the base URL, /v1/traces is added to it"),
        (503, None, "is not able to take traces (503)", "see what the receiver logs"),
        (
            415,
            None,
            "does not take OTLP (415)",
            "correct the address, or set OTEL_EXPORTER_OTLP_PROTOCOL=grpc",
        ),
    ],
)
def test_refusals(
    command: Command, monkeypatch: pytest.MonkeyPatch, status: int, key: str | None, found: str, fix: str
) -> None:
    """What a receiver answers says what is wrong."""
    if key is not None:
        monkeypatch.setenv("PHOENIX_API_KEY", key)
    with http_receiver(status=status) as received:
        ran = command("doctor", "--phoenix", received.url)
        assert wrong(f"{received.url}/v1/traces {found}", fix) == verdict(ran)
        assert ({f"Bearer {key}"} if key else {None}) == {head.get("authorization") for head in received.headers}


def test_not_a_receiver(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """A web page, another protocol, and silence are told apart."""
    page = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 0\r\n\r\n"
    with saying(page) as url:
        expected = wrong(f"{url}/v1/traces answers with a web page", "correct the address: this is no OTLP receiver")
        assert expected == verdict(command("doctor", "--endpoint", url))
        secure = url.replace("http:", "https:")
        expected = wrong(f"{secure}/v1/traces speaks no TLS", "give its address with http://")
        assert expected == verdict(command("doctor", "--endpoint", secure))
    with saying(b"SSH-2.0-OpenSSH_9.2\r\n") as url:
        found, fix = verdict(command("doctor", "--endpoint", url))
        assert found.startswith(f"wrong  {url}/v1/traces speaks no HTTP: ")
        assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc" in fix
    monkeypatch.setattr("agui_otel.cli.probes._SECONDS", 0.5)
    with silent() as url:
        expected = wrong(
            f"{url}/v1/traces takes connections and answers nothing in 0.5 s", "see whether the receiver is at work"
        )
        assert expected == verdict(command("doctor", "--endpoint", url))


def test_the_other_protocol(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP to a gRPC port, and gRPC to an HTTP port, name the variable that mends it."""
    with grpc_receiver() as received:
        found, fix = verdict(command("doctor", "--endpoint", received.url))
        assert found.startswith(f"wrong  {received.url}/v1/traces speaks no HTTP: ")
        assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc" in fix
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with http_receiver() as other:
        found, fix = verdict(command("doctor", "--endpoint", other.url))
        assert found.startswith(f"wrong  {other.url.removeprefix('http://')} speaks no gRPC (")
        assert "fix    for OTLP over HTTP set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" == fix


def test_no_phoenix(command: Command) -> None:
    """A receiver that takes the span and is no Phoenix is said to be none."""
    with http_receiver() as received:
        found, fix = verdict(command("doctor", "--phoenix", received.url))
    assert found.startswith(f"wrong  the test span was taken, but not by a Phoenix: {received.url} answered 501")
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in fix


def test_an_agent_is_no_receiver(command: Command) -> None:
    """An agent's own address, given by mistake, is no receiver."""
    with recorded_server.agent() as url:
        found, _ = verdict(command("doctor", "--endpoint", url))
    assert f"wrong  {url}/v1/traces is no OTLP receiver (404)" == found


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import agui_otel; agui_otel.setup(metrics=False)", "providers: agui_otel.setup() has made this process's"),
        (
            "from opentelemetry import trace\nfrom opentelemetry.sdk.trace import TracerProvider\n"
            "trace.set_tracer_provider(TracerProvider())",
            "providers: the host's own, opentelemetry.sdk.trace.TracerProvider; runs are traced with them, and go "
            "where the host sends its spans, without agui_otel.setup()",
        ),
        ("", NOBODY.removeprefix("ok     ")),
    ],
)
def test_who_owns_the_providers(tmp_path: Path, code: str, said: str) -> None:
    """With the server's module imported, it says whose providers its runs are traced with."""
    (tmp_path / "server.py").write_text(code)
    with http_receiver() as received:
        ran = subprocess.run(
            [sys.executable, "-m", "agui_otel.cli.main", "doctor", "--endpoint", received.url, "--app", "server:app"],
            cwd=tmp_path,
            env={**quiet(), "OTEL_EXPORTER_OTLP_ENDPOINT": received.url},
            capture_output=True,
            text=True,
            check=False,
        )
    assert (0, "") == (ran.returncode, ran.stderr)
    assert ("ok     server is imported", f"ok     {said}") == (ran.stdout.splitlines()[0], ran.stdout.splitlines()[-2])


def quiet() -> dict[str, str]:
    """The environment of a process that finds this package."""
    return {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""}


def test_an_application_that_cannot_be_imported(command: Command) -> None:
    """A module that is not there, or raises, is what is wrong."""
    expected = wrong(
        "no_such_server cannot be imported: ModuleNotFoundError: No module named 'no_such_server'",
        "run this where the server is run, with the same Python",
    )
    assert expected == verdict(command("doctor", "--app", "no_such_server:app"))


SWITCH = 'Of the frameworks that docs/ways-in.md lists, ag-ui-langgraph does, with subagent_visibility="attributed"'
TURN = "a session will show the turn: the question and the answer"


@pytest.fixture(scope="module")
def agent() -> Iterator[str]:
    """The URL of a server that streams recordings."""
    with recorded_server.agent() as url:
        yield url


@pytest.mark.parametrize(
    ("name", "outcome", "attribution"),
    [
        ("single.sse", "success", "its stream is attributed: 1 of its subagents seen (researcher)"),
        ("approve_1.bin", "interrupt", "its stream is attributed: 2 of its subagents seen (mailer, researcher)"),
        (
            "inline_nested.jsonl",
            "success",
            f"no event names a subagent: it has none, called none, or does not name them. {SWITCH}",
        ),
    ],
)
def test_an_agent(command: Command, agent: str, name: str, outcome: str, attribution: str) -> None:
    """A running agent is asked: does it answer, are its subagents named, will a session show the turn."""
    with http_receiver() as received:
        ran = command("doctor", "--agent", f"{agent}/{name}", "--endpoint", received.url)
    assert (0, "") == (ran.status, ran.err)
    expected = [f"{agent}/{name} answers with AG-UI, the run's outcome is {outcome}", attribution, TURN]
    assert [f"ok     {line}" for line in expected] == ran.out.splitlines()[:3]


def test_a_turn_that_will_not_show(command: Command, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without texts, or without a session, the turn is not seen, and it says what is missing."""
    monkeypatch.setenv("AGUI_OTEL_CAPTURE", "metadata")
    with http_receiver() as received:
        ran = command("doctor", "--agent", f"{agent}/single.sse", "--endpoint", received.url)
    assert 0 == ran.status
    assert "the run's span has no input.value, output.value: " in ran.out.splitlines()[2]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("error_tool.sse", "answers with AG-UI, but the run's outcome is error: search backend exploded for 'boom'"),
        ("disconnect.sse", "answers with AG-UI, but the run's outcome is unfinished"),
        ("refused", "answers 500"),
        ("nowhere", "answers 404"),
    ],
)
def test_an_agent_in_trouble(command: Command, agent: str, path: str, found: str) -> None:
    """An agent whose run fails, or that does not answer one, is what is wrong."""
    assert f"wrong  {agent}/{path} {found}" == verdict(command("doctor", "--agent", f"{agent}/{path}"))[0]


def test_no_agent(command: Command) -> None:
    """What is no agent at all is told apart."""
    ran = command("doctor", "--agent", "http://127.0.0.1:1/run")
    assert verdict(ran)[0].startswith("wrong  http://127.0.0.1:1/run does not answer: ")
    assert verdict(command("doctor", "--agent", "run"))[0].startswith("wrong  run is no address: ")
    with saying(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello") as url:
        assert wrong(
            f"the answer of {url} cannot be read: not AG-UI: neither JSON lines, nor server-sent events, nor a JSON "
            "array of events",
            "give the address of an AG-UI agent",
        ) == verdict(command("doctor", "--agent", url))


def test_a_wrong_setting(command: Command, agent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting that cannot be used is a finding like any other."""
    monkeypatch.setenv("AGUI_OTEL_STEPS", "nonsense")
    found, fix = verdict(command("doctor", "--agent", f"{agent}/single.sse"))
    assert "wrong  the configuration cannot be used" == found
    assert "AGUI_OTEL_STEPS" in fix


@pytest.mark.slow
def test_phoenix(command: Command, tmp_path: Path) -> None:
    """A Phoenix on this machine only is reached over HTTP and gRPC, and the test span is found in the project meant."""
    try:
        version("arize-phoenix")
    except PackageNotFoundError:
        services.require(False, "arize-phoenix")
    with EmbeddedPhoenix(tmp_path) as server:
        assert server._process is not None
        assert {server.url[7:], server.grpc_endpoint[7:]} == listening(server._process.pid)
        for url in (server.url, server.grpc_endpoint):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PHOENIX_GRPC_PORT", server.grpc_endpoint.rpartition(":")[2])
                patch.setenv("PHOENIX_PORT", server.url.rpartition(":")[2])
                ran = command("doctor", "--phoenix", url, "--project", "clinic")
            assert (0, "") == (ran.status, ran.err)
            lines = ran.out.splitlines()
            assert lines[0].startswith(f"ok     traces go to Phoenix at {server.url}, project clinic, by OTLP over ")
            assert lines[3].startswith(f"ok     a test span arrived in project clinic: {server.url}/redirects/traces/")
        assert [SPAN, SPAN] == [span["name"] for span in PhoenixClient(server.url).spans("clinic")]
        found, _ = verdict(command("doctor", "--phoenix", f"{server.url}/nowhere"))
        assert found.startswith(f"wrong  {server.url}/nowhere/v1/traces is no OTLP receiver (")
