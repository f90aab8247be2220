"""HAR files (HTTP Archive 1.2, as browsers save them): the AG-UI responses in them, as recordings.

An entry is one if its response holds at least one AG-UI event, or if its request posted a RunAgentInput; then
`problem` says why there are no events. A HAR says when a response began and ended, but not when each event came: the
first has the time at which the response began, the last that at which it ended, and the others lie evenly between.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agui_otel.errors import InputError
from agui_otel.protocol.lines import MAX_EVENT_BYTES
from agui_otel.protocol.recording import Payload, read, read_json, read_run_input

_BOM = b"\xef\xbb\xbf"
_LONGEST = 1e12
"""Milliseconds that a response takes at most: more is no duration."""
_EARLIEST = 1e12
"""2001-09-09 in milliseconds: before HAR, so what is earlier is a clock that was not set."""
_STREAMS = ("text/event-stream", "application/vnd.ag-ui.event+proto", "application/x-ndjson", "application/jsonl")


@dataclass(frozen=True)
class Exchange:
    """One request of a run and the response to it."""

    url: str
    given: dict[str, Any] | None
    """The RunAgentInput that was posted."""
    body: bytes
    times: list[float] | None
    """When each event was received, in milliseconds since the request."""
    began: float | None
    """When the request was made, in milliseconds since the epoch."""
    problem: str | None
    """Why there are no events."""


def is_har(head: bytes) -> bool | None:
    """Whether `head` begins a HAR file: an object whose first key is `log`. None where it is too short to say."""
    text = head.removeprefix(_BOM)
    for token in (b"{", b'"log"', b":"):
        text = text.lstrip()
        if not text.startswith(token):
            return None if token.startswith(text) else False
        text = text.removeprefix(token)
    return True


def read_har(data: bytes, *, path: str, max_event_bytes: int = MAX_EVENT_BYTES) -> list[Exchange]:
    """The AG-UI responses of a HAR file, in its order. Raises `InputError` for what is none, or has none of them."""
    archive = read_json(data, path=path, what="not a HAR file: ")
    entries = _dict(_dict(archive).get("log")).get("entries")
    if not isinstance(entries, list):
        raise InputError("not a HAR file: no log.entries", path=path)
    found = [exchange for entry in entries if (exchange := _exchange(_dict(entry), path, max_event_bytes)) is not None]
    if not found:
        raise InputError(f"no AG-UI response in it ({len(entries)} entries)", path=path)
    return found


def _exchange(entry: dict[str, Any], path: str, max_event_bytes: int) -> Exchange | None:
    request, response = _dict(entry.get("request")), _dict(entry.get("response"))
    content = _dict(response.get("content"))
    given = _run_input(request, path)
    kind = str(content.get("mimeType", "")).partition(";")[0].strip().lower()
    if given is None and kind not in _STREAMS:
        return None
    body = _body(content)
    count = sum(1 for _ in _readable(body, path, max_event_bytes))
    if given is None and not count:
        return None
    return Exchange(
        url=str(request.get("url", "")),
        given=given,
        body=body,
        times=_times(entry, count),
        began=_began(entry),
        problem=None if count else _problem(response, body),
    )


def _run_input(request: dict[str, Any], path: str) -> dict[str, Any] | None:
    text = _dict(request.get("postData")).get("text")
    if not isinstance(text, str):
        return None
    try:
        return read_run_input(text.encode("utf-8", "replace"), path=path)
    except InputError:
        return None


def _body(content: dict[str, Any]) -> bytes:
    text = content.get("text")
    if not isinstance(text, str):
        return b""
    if content.get("encoding") != "base64":
        return text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(text)
    except binascii.Error:
        return b""


def _readable(body: bytes, path: str, max_event_bytes: int) -> Iterator[Payload]:
    try:
        yield from read([body], path=path, max_event_bytes=max_event_bytes)
    except InputError:
        return


def _times(entry: dict[str, Any], count: int) -> list[float] | None:
    total, receive = _duration(entry.get("time")), _duration(_dict(entry.get("timings")).get("receive"))
    if not count or total is None or receive is None:
        return None
    receive = min(receive, total)
    steps = max(count - 1, 1)
    return [total - receive * (steps - number) / steps for number in range(count)]


def _duration(value: Any) -> float | None:
    """Milliseconds; a negative number stands for what did not take place. None where it is no such number."""
    if not isinstance(value, (int, float)) or not value < _LONGEST:
        return None
    return float(max(value, 0))


def _began(entry: dict[str, Any]) -> float | None:
    text = str(entry.get("startedDateTime"))
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000
    except (ValueError, OverflowError, OSError):
        return None
    return moment if moment >= _EARLIEST else None


def _problem(response: dict[str, Any], body: bytes) -> str | None:
    """Why a run's response has no events, where reading its body would not say it better."""
    status = response.get("status")
    if isinstance(status, int) and status >= 400:
        return f"the server answered {status}"
    if isinstance(status, int) and status <= 0:
        return "the request failed"
    return None if body else "the file has no body of this response"


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
