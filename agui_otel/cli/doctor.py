"""`agui-otel doctor`: whether traces arrive, and the one thing to fix where they do not."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from opentelemetry import trace as trace_api

from agui_otel.cli.probes import Problem, connect, probe
from agui_otel.cli.questions import ask
from agui_otel.cli.refusals import Refusals
from agui_otel.cli.stack import START, addresses, examine
from agui_otel.config import Settings, memory_kind, variable, without_password
from agui_otel.errors import ConfigurationError
from agui_otel.exporting import Handle, current_handle, setup
from agui_otel.exporting.destination import Plan, resolve
from agui_otel.phoenix import PhoenixClient, PhoenixError, trace_url
from agui_otel.render import printable
from agui_otel.tracing.remembering import memory_of

SPAN = "agui-otel doctor"
"""The name of the test span."""

_ABOUT = """\
Examine what setup() would do in this environment, step by step: where traces go, whether somebody listens
there, whether it speaks the protocol and takes the credentials, whether a test span (called "agui-otel
doctor") arrives, and who owns the process's providers. It stops at the first thing that is wrong, says how
to mend it, and exits with status 1.

Run it as the server is run, with the same variables; under opentelemetry-instrument, if the server is. With
--app the server's module is imported first, so that its own set-up is seen. Of the test span's way to
Phoenix the end is seen, too; another receiver can only be asked whether it took it.

With --compose the services of docker-compose.yml are examined, too: whether the collector is ready, the test
span comes through it to Phoenix, Prometheus reads the collectors, evaluates the alerts and tells
Alertmanager, and Grafana is there. Ports are those of .env in the current folder.

With --agent a running agent is asked something first, which may cost what its model costs: does it answer
with AG-UI, are its subagents named, and will a session show the turn.
"""

_SEND_SECONDS = 20.0
_ARRIVE_SECONDS = 20.0


def register(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "doctor",
        help="say whether traces arrive, and what to fix where they do not",
        description=_ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--phoenix", metavar="URL", help="examine this Phoenix (default: as the environment says)")
    where.add_argument("--endpoint", metavar="URL", help="examine this OTLP receiver")
    where.add_argument("--compose", action="store_true", help="examine what docker-compose.yml runs on this machine")
    parser.add_argument(
        "--project", metavar="NAME", help="Phoenix project (else PHOENIX_PROJECT or PHOENIX_PROJECT_NAME)"
    )
    parser.add_argument("--app", metavar="MODULE", help="import this module first, as server or server:app")
    parser.add_argument("--agent", metavar="URL", help="post a run to this agent, and examine its stream")
    parser.add_argument("--message", metavar="TEXT", default="Hello", help="what it is asked (default: Hello)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Examine. Exit status 1 where something is wrong, else 0."""
    try:
        for finding in _examine(arguments):
            print(printable(f"ok     {finding}"), flush=True)
    except ConfigurationError as error:
        return _say(Problem("the configuration cannot be used", str(error)))
    except Problem as problem:
        return _say(problem)
    return 0


def _say(problem: Problem) -> int:
    for word, text in (("wrong", problem.found), ("fix  ", problem.fix)):
        print(printable(f"{word}  {' '.join(text.split())}"))
    return 1


def _examine(arguments: argparse.Namespace) -> Iterator[str]:
    """What is right, in order. Raises `Problem` or `ConfigurationError` at the first thing that is not."""
    if arguments.app is not None:
        yield _imported(arguments.app)
    if arguments.agent is not None:
        yield from ask(arguments.agent, arguments.message)
    where = {"phoenix": arguments.phoenix, "endpoint": arguments.endpoint, "project": arguments.project}
    stack = addresses(os.environ, Path.cwd()) if arguments.compose else None
    if stack is not None:
        where |= {"phoenix": False, "endpoint": stack["OTLP_HTTP_PORT"], "protocol": "http/protobuf"}
    plan = _plan(where)
    assert plan.traces is not None
    yield _said(plan)
    yield connect(plan.traces, START if stack is not None else None)
    yield probe(plan.traces)
    finding, trace_id = _test_span(where)
    yield finding
    if stack is not None:
        yield from examine(stack, plan.project or "default", trace_id)
    yield _owner()
    yield _memory()


def _imported(name: str) -> str:
    module = name.partition(":")[0]
    if os.getcwd() not in sys.path:  # noqa: PTH109 - an entry of sys.path is a string
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - the application's code may raise anything
        raise Problem(
            f"{module} cannot be imported: {type(error).__name__}: {error}",
            "run this where the server is run, with the same Python",
        ) from None
    return f"{module} is imported"


def _plan(where: dict[str, Any]) -> Plan:
    if Settings().disabled:
        name = next((n for n in ("AGUI_OTEL_DISABLED", "OTEL_SDK_DISABLED") if variable(n, os.environ)), "disabled")
        raise Problem("tracing is switched off", f"unset {name}")
    plan = resolve(os.environ, **where)
    if plan.traces is None:
        raise Problem("traces are not exported", "unset OTEL_TRACES_EXPORTER, or set it to otlp")
    return plan


def _said(plan: Plan) -> str:
    assert plan.traces is not None
    how = "gRPC" if plan.traces.protocol == "grpc" else "HTTP"
    if plan.phoenix_url is not None:
        return f"traces go to Phoenix at {plan.phoenix_url}, project {plan.project or 'default'}, by OTLP over {how}"
    return f"traces go to an OTLP receiver, by OTLP over {how}"


def _test_span(where: dict[str, Any]) -> tuple[str, str]:
    """Send a span as `setup` would, and look for it where it can be looked for; what was seen, and its trace id."""
    refusals = Refusals()
    with setup(**where, metrics=False, set_global=False, exit_timeout=1.0) as handle, refusals:
        span = handle.tracer_provider.get_tracer("agui_otel.cli.doctor").start_span(SPAN)
        span.set_attribute("openinference.span.kind", "CHAIN")
        span.end()
        sent = handle.force_flush(_SEND_SECONDS)
    if not sent or refusals.first is not None:
        raise Problem(
            f"the test span was not taken: {refusals.first or f'not within {_SEND_SECONDS:g} s'}",
            "see what the receiver logs",
        )
    trace_id = f"{span.get_span_context().trace_id:032x}"
    if handle.phoenix_url is None:
        return f"the receiver took a test span: look for {SPAN!r}, trace {trace_id}", trace_id
    return _arrived(handle, trace_id), trace_id


def _arrived(handle: Handle, trace_id: str) -> str:
    url, project = handle.phoenix_url, handle.project
    assert url is not None
    assert project is not None
    client = PhoenixClient(url, api_key=variable("PHOENIX_API_KEY", os.environ))
    try:
        client.ping()
    except PhoenixError as error:
        raise Problem(
            f"the test span was taken, but not by a Phoenix: {error}",
            "for another receiver set OTEL_EXPORTER_OTLP_ENDPOINT, or give --endpoint, in place of Phoenix's",
        ) from None
    try:
        client.wait_for_spans(project, 1, trace_ids=[trace_id], timeout=_ARRIVE_SECONDS)
    except PhoenixError as error:
        raise Problem(
            f"Phoenix took the test span, but does not show it: {error}", "see what Phoenix logs; its disk may be full"
        ) from None
    return f"a test span arrived in project {project}: {trace_url(url, trace_id)}"


def _memory() -> str:
    """The thread memory, and whether it answers."""
    settings = Settings()
    if memory_kind(settings.thread_memory) == "memory":
        return (
            "thread memory: in each process; a run that is resumed in another process is not joined to the one before"
        )
    shown = without_password(settings.thread_memory)
    memory = memory_of(settings)
    try:
        memory.read(SPAN)
        figure = memory.figure()
    except Exception as error:  # noqa: BLE001 - a store's own errors
        raise Problem(
            f"the thread memory {shown} does not answer: {type(error).__name__}: {error}",
            "resumed runs are traced without links until it does; AGUI_OTEL_THREAD_MEMORY says where it is",
        ) from None
    finally:
        memory.close()
    if figure is None:
        raise Problem(f"the thread memory {shown} can be read only", "give it a primary, or a file that can be written")
    waiting = sum(reason.open for reason in figure.reasons.values())
    return f"thread memory: {shown}, which answers; open interrupts: {waiting} (agui-otel waiting)"


def _owner() -> str:
    """Who made the providers that the ways in would use in this process."""
    if current_handle() is not None:
        return "providers: agui_otel.setup() has made this process's"
    provider = trace_api.get_tracer_provider()
    kind = type(provider)
    if kind.__module__.startswith("opentelemetry.trace"):
        return (
            "providers: nobody has set any in this process; agui_otel.setup() or opentelemetry-instrument would, "
            "and the middleware by itself does not"
        )
    return (
        f"providers: the host's own, {kind.__module__}.{kind.__qualname__}; runs are traced with them, and go where "
        "the host sends its spans, without agui_otel.setup()"
    )
