"""What a reverse proxy passes on of a request and a response, and what stays behind (RFC 9110, section 7). No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote_to_bytes, urlsplit

from agui_otel.attach.headers import Headers, header
from agui_otel.errors import ConfigurationError

Pairs = list[tuple[bytes, bytes]]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
"""Headers of one connection, not of the message; those that `Connection` names are, too."""

_KEPT = frozenset({b"content-length", b"host"})
"""What no `Connection` header takes away: where a message ends, and whom it is for."""


_TOKEN = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True)
class Upstream:
    """The one server to which requests go: `port` None for the scheme's own, `base` the path before every path."""

    scheme: str
    host: str
    port: int | None
    base: str

    @classmethod
    def parse(cls, url: str) -> Upstream:
        """The upstream of a URL such as `http://localhost:8000`.

        Raises `ConfigurationError`, which repeats no credentials and no query, nor what the parser says of them.
        """
        shown = _without_secrets(url)
        try:
            parts = urlsplit(url)
            host = (parts.hostname or "").encode("idna").decode()
            named = parts.username is not None
        except ValueError:  # a UnicodeError is one
            raise ConfigurationError(f"upstream{shown}: it should be a URL such as http://localhost:8000") from None
        if named:
            raise ConfigurationError("upstream: it should name no user: credentials are the clients', and passed on")
        if parts.scheme not in ("http", "https") or not host:
            raise ConfigurationError(f"upstream{shown}: it should be a URL such as http://localhost:8000")
        try:
            port = parts.port
        except ValueError:
            raise ConfigurationError(f"upstream{shown}: its port should be a number up to 65535") from None
        if parts.query or parts.fragment:
            raise ConfigurationError(f"upstream{shown}: it should end with its path")
        return cls(parts.scheme, host, port, quote(parts.path.rstrip("/"), safe="/%:@!$&'()*+,;=~"))

    @property
    def authority(self) -> str:
        """Host and port, as `Host` says them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.base}"

    def target(self, scope: Mapping[str, Any]) -> bytes | None:
        """The request target for an ASGI request; None where it would leave `base`.

        It is the path and the query as they came, behind `base`. An authority that the client's target names is
        nobody's: only the path of an absolute target counts.
        """
        raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
        if raw == b"*" and not self.base:
            return raw
        if not raw.startswith(b"/"):
            raw = b"/" + raw.partition(b"://")[2].partition(b"/")[2]
        if self.base and _climbs(raw):
            return None
        query: bytes = scope.get("query_string", b"")
        return self.base.encode() + raw + (b"?" + query if query else b"")


def _without_secrets(url: str) -> str:
    """What an error shows of a URL that is wrong: none of one in which somebody may be named before an `@`."""
    return "" if "@" in url else f" {re.split('[?#]', url)[0]!r}"


def _climbs(path: bytes) -> bool:
    """Whether a server could read a step upwards in a path, with whatever of it is encoded.

    Some take a backslash for a slash, and some drop a segment's parameters (`..;a`) before they look at it.
    """
    return any(
        segment.partition(b";")[0] == b".." for segment in unquote_to_bytes(path).replace(b"\\", b"/").split(b"/")
    )


def request_headers(scope: Mapping[str, Any], upstream: Upstream, via: str) -> Pairs:
    """The headers of a request to the upstream, in their order, which know of it and of the client's address.

    `Host` is the upstream's; the client's is in `X-Forwarded-Host`, its scheme in `X-Forwarded-Proto`, and its address
    at the end of `X-Forwarded-For`. What a proxy in front has said of host and scheme stays. `via`, the proxy's own
    name, is at the end of `Via` (RFC 9110, section 7.6.3). `Expect` is answered by the server that the proxy runs on.
    """
    headers: Headers = scope["headers"]
    chunked = bool(header(headers, b"transfer-encoding"))
    rewritten = {b"host", b"expect", b"x-forwarded-for", *([b"content-length"] if chunked else [])}
    made = [(b"host", upstream.authority.encode()), *end_to_end(headers, without=rewritten)]
    if chunked:
        made.append((b"transfer-encoding", b"chunked"))
    client = scope.get("client")
    passed = [value for name, value in headers if name.lower() == b"x-forwarded-for"]
    hops = [*passed, client[0].encode()] if client else passed
    if hops:
        made.append((b"x-forwarded-for", b", ".join(hops)))
    for name, said in ((b"x-forwarded-host", header(headers, b"host")), (b"x-forwarded-proto", scope["scheme"])):
        if said and not header(headers, name):
            made.append((name, said.encode("latin-1")))
    return [*made, (b"via", b"1.1 " + via.encode())]


def has_passed(headers: Headers, via: str) -> bool:
    """Whether a request with these headers has passed the proxy of this name."""
    return any(via.encode() in value.replace(b",", b" ").split() for name, value in headers if name.lower() == b"via")


def has_body(headers: Headers) -> bool:
    """Whether a request with these headers has a body (RFC 9112, section 6.3)."""
    return bool(header(headers, b"transfer-encoding")) or header(headers, b"content-length") not in ("", "0")


def response_headers(status: int, headers: Headers) -> Pairs:
    """The headers of a response, in their order; its body is framed anew where its length is not known.

    A 204 and a 304 have no body, and are sent without the length of one. A length beside `Transfer-Encoding` does not
    count (RFC 9112, section 6.3).
    """
    unsized = status in (204, 304) or bool(header(headers, b"transfer-encoding"))
    return list(end_to_end(headers, without={b"content-length"} if unsized else ()))


def unsendable(status: int, headers: Headers) -> str | None:
    """What keeps a response from being sent to a client; None: nothing does.

    Its status should be one of a final response (RFC 9110, section 15), and its headers have names that are tokens,
    and values without control characters but tabs (section 5).
    """
    if not 200 <= status <= 599:
        return f"its status is {status}"
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            return f"a header has the name {name.decode('latin-1')!r}"
        if _CONTROL.search(value):
            return f"its header {name.decode('latin-1')!r} holds a control character"
    return None


def end_to_end(headers: Headers, without: Iterable[bytes] = ()) -> Iterable[tuple[bytes, bytes]]:
    """The headers that are the message's own, but for those named (in lower case)."""
    named = {
        option.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for option in value.split(b",")
    }
    dropped = HOP_BY_HOP | (named - _KEPT) | set(without)
    return ((name, value) for name, value in headers if name.lower() not in dropped)


def is_websocket(headers: Headers) -> bool:
    """Whether a request asks for a websocket."""
    return header(headers, b"upgrade").lower() == "websocket"


def traced(headers: Pairs, injected: Mapping[str, str]) -> Pairs:
    """`headers` with what a propagator wrote of the current span; a trace that the client named makes way for it.

    Baggage that the client sent stays as it was sent.
    """
    written = {name.lower(): value for name, value in injected.items()}
    if header(headers, b"baggage"):
        written.pop("baggage", None)
    replaced = {name.encode() for name in written}
    if b"traceparent" in replaced:
        replaced.add(b"tracestate")
    kept = [(name, value) for name, value in headers if name.lower() not in replaced]
    return [*kept, *((name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in written.items())]
