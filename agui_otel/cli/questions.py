"""A question to a running agent, and what its stream will show as a trace."""

from __future__ import annotations

import json
import time
import uuid
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import ProxyHandler, Request, build_opener

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agui_otel.cli.probes import LOCAL, Problem
from agui_otel.cli.recordings import Recording
from agui_otel.cli.tracing import trace_recordings
from agui_otel.config import Settings
from agui_otel.protocol.har import Exchange
from agui_otel.tracing import semconv

_SECONDS = 120.0
_LARGEST = 64 * 1024 * 1024
_CHUNK = 64 * 1024
_SWITCH = 'Of the frameworks that docs/ways-in.md lists, ag-ui-langgraph does, with subagent_visibility="attributed"'


def ask(url: str, text: str) -> list[str]:
    """Post a run with one message to the agent at `url` and say what its trace will show. Raises `Problem`."""
    given = _run_input(text)
    body = _answer(url, given)
    spans = _traced(url, given, body)
    root = next(span for span in spans if span.parent is None)
    attributes = root.attributes or {}
    outcome = attributes.get(semconv.OUTCOME)
    if outcome not in ("success", "interrupt"):
        why = f": {root.status.description}" if root.status.description else ""
        raise Problem(
            f"{url} answers with AG-UI, but the run's outcome is {outcome}{why}",
            "see what the agent logs; `agui-otel check` judges a recorded stream",
        )
    return [
        f"{url} answers with AG-UI, the run's outcome is {outcome}",
        _attribution(spans, str(attributes.get(semconv.ATTRIBUTION))),
        _turn(attributes),
    ]


def _run_input(text: str) -> dict[str, Any]:
    ident = uuid.uuid4().hex[:8]
    return {
        "threadId": f"agui-otel-doctor-{ident}",
        "runId": f"run-{ident}",
        "state": {},
        "messages": [{"id": f"message-{ident}", "role": "user", "content": text}],
        "tools": [],
        "context": [],
        "forwardedProps": {},
    }


def _answer(url: str, given: dict[str, Any]) -> bytes:
    opener = build_opener(ProxyHandler({})) if urlsplit(url).hostname in LOCAL else build_opener()
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    due = time.monotonic() + _SECONDS
    body = b""
    try:
        request = Request(url, json.dumps(given).encode(), headers, method="POST")
        with opener.open(request, timeout=_SECONDS) as response:
            while chunk := response.read1(_CHUNK):
                body += chunk
                if time.monotonic() > due or len(body) > _LARGEST:
                    raise Problem(f"{url} does not come to an end", "ask it for something shorter, with --message")
    except HTTPError as error:
        with error:
            raise Problem(f"{url} answers {error.code}", "correct the agent's address, or see what it logs") from None
    except ValueError as error:
        raise Problem(f"{url} is no address: {error}", "give the URL to which a front end posts its runs") from None
    except (URLError, OSError) as error:
        raise Problem(f"{url} does not answer: {getattr(error, 'reason', error)}", "start the agent there") from None
    return body


def _traced(url: str, given: dict[str, Any], body: bytes) -> tuple[ReadableSpan, ...]:
    """The spans of the answer, as the settings of this environment would make them."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    exchange = Exchange(url, given, body, times=None, began=None, problem=None)
    recording = Recording(url, given, exchange=exchange)
    settings = Settings().model_copy(update={"metrics": False, "disabled": False})
    errors = trace_recordings([recording], settings=settings, tracer_provider=provider)
    if errors:
        raise Problem(f"the answer of {url} cannot be read: {errors[0].args[0]}", "give the address of an AG-UI agent")
    return exporter.get_finished_spans()


def _attribution(spans: tuple[ReadableSpan, ...], attribution: str) -> str:
    names = sorted({span.name.removeprefix("invoke_agent ") for span in spans if _is_subagent(span)})
    if names:
        return f"its stream is attributed: {len(names)} of its subagents seen ({', '.join(names)})"
    if attribution == "none":
        return f"no event names a subagent: it has none, called none, or does not name them. {_SWITCH}"
    return f"its stream is attributed ({attribution})"


def _is_subagent(span: ReadableSpan) -> bool:
    return span.parent is not None and span.name.startswith("invoke_agent")


def _turn(attributes: Any) -> str:
    missing = [
        name for name in (semconv.SESSION_ID, semconv.INPUT_VALUE, semconv.OUTPUT_VALUE) if name not in attributes
    ]
    if missing:
        return (
            f"a session will not show the whole turn, because the run's span has no {', '.join(missing)}: "
            "texts are captured with AGUI_OTEL_CAPTURE=full, and the answer is the run's own last message"
        )
    return "a session will show the turn: the question and the answer"
