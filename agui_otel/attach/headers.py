"""What the headers of a request and of a response say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter

Headers = Sequence[tuple[bytes, bytes]]
"""Names and values as they were sent; names in any case."""

JSON_LINES = frozenset(
    {
        "application/x-ndjson",
        "application/ndjson",
        "application/jsonl",
        "application/x-jsonl",
        "application/jsonlines",
        "application/x-jsonlines",
        "application/json-lines",
    }
)
PROTOBUF = "application/vnd.ag-ui.event+proto"


def header(headers: Headers, name: bytes) -> str:
    """The first header of this (lower-case) name; empty where there is none."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), "")


def media_type(headers: Headers) -> str:
    """The content type, without its parameters, in lower case."""
    return header(headers, b"content-type").partition(";")[0].strip().lower()


def is_json(media: str) -> bool:
    """Whether a body of this content type is one JSON value."""
    return media == "application/json" or (media.startswith("application/") and media.endswith("+json"))


def is_stream(media: str) -> bool:
    """Whether a response of this content type may be an AG-UI stream."""
    return media in ("text/event-stream", PROTOBUF) or media in JSON_LINES


class _HeaderGetter(Getter[Headers]):
    def get(self, carrier: Headers, key: str) -> list[str] | None:
        wanted = key.lower().encode("latin-1", "replace")
        return [value.decode("latin-1") for name, value in carrier if name.lower() == wanted] or None

    def keys(self, carrier: Headers) -> list[str]:
        return [name.decode("latin-1") for name, _ in carrier]


_GETTER = _HeaderGetter()


@cache
def _extract() -> Callable[[Headers, Context, Getter[Headers]], Context]:
    from opentelemetry.propagate import extract  # reads the environment, and raises where that is wrong

    return extract


def propagated(headers: Headers, context: Context) -> Context:
    """`context` with what a request's headers say of the caller's trace. Raises what the host's propagators raise."""
    return _extract()(headers, context, _GETTER)
