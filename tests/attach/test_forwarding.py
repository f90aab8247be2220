"""What a proxy passes on: whatever a request says, it goes to the one upstream, with the headers that are its own."""

from __future__ import annotations

import posixpath
from traceback import format_exception
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agui_otel.attach.forwarding import (
    HOP_BY_HOP,
    Upstream,
    has_passed,
    request_headers,
    response_headers,
    traced,
    unsendable,
)
from agui_otel.errors import ConfigurationError

SIMPLE = Upstream.parse("http://localhost:8000")


def asked(target: str = "/agent", *headers: tuple[bytes, bytes], client: Any = ("10.0.0.7", 5000)) -> dict[str, Any]:
    """An ASGI request for a target."""
    path, _, query = target.partition("?")
    return {
        "method": "POST", "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": query.encode(),
        "client": client, "headers": [(b"host", b"public.example"), *headers],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://localhost:8000", Upstream("http", "localhost", 8000, "")),
        ("https://agents.example/", Upstream("https", "agents.example", None, "")),
        ("http://[::1]:8000/a/b/", Upstream("http", "::1", 8000, "/a/b")),
        ("http://bücher.example/ü", Upstream("http", "xn--bcher-kva.example", None, "/%C3%BC")),
    ],
)
def test_an_upstream_is_a_url(url: str, expected: Upstream) -> None:
    """Scheme, host, port and a path that stands before every path."""
    assert expected == Upstream.parse(url)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("localhost:8000", "upstream 'localhost:8000': it should be a URL such as http://localhost:8000"),
        ("ftp://host", "upstream 'ftp://host': it should be a URL such as http://localhost:8000"),
        ("http://", "upstream 'http://': it should be a URL such as http://localhost:8000"),
        ("http://[::1", "upstream 'http://[::1': it should be a URL such as http://localhost:8000"),
        ("http://a..b", "upstream 'http://a..b': it should be a URL such as http://localhost:8000"),
        ("http://host:port", "upstream 'http://host:port': its port should be a number up to 65535"),
        ("http://host:99999/a", "upstream 'http://host:99999/a': its port should be a number up to 65535"),
        ("http://host/?key=1", "upstream 'http://host/': it should end with its path"),
        ("http://host/a#key", "upstream 'http://host/a': it should end with its path"),
        ("http://me:secret@host", "upstream: it should name no user: credentials are the clients', and passed on"),
    ],
)
def test_what_is_no_upstream_is_refused(url: str, message: str) -> None:
    """With what is wrong; a password is not repeated."""
    with pytest.raises(ConfigurationError) as caught:
        Upstream.parse(url)
    assert message == str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://me:hidden@host", "http://hidden@host", "me:hidden@host:8000", "ftp://me:hidden@host",
        "//me:hidden@host", "http://me:hidden@host:port", "http://me:hidden@", "http://me:hidden@[::1",
        "http://me:hidden@a..b/",
        "http://me:hidden/b@host", "http://me:a/hidden@host", "http://me:hidden?b@host", "http://me:a?hidden@host",
        "http://me:a#hidden@host", "http://me:hidden@host/?key=hidden", "http://host?key=hidden", "host?key=hidden",
        "http://host:port?key=hidden", "ftp://host?key=hidden", "http://host/#hidden", "http://me:hid\u2100den@host",
        "http://me:hidden@ho\u2100st", "http:me:hidden@host",
    ],
)  # fmt: skip
def test_no_secret_is_in_an_error(url: str) -> None:
    """Neither a password nor a query, however wrong the URL is, nor in what the error came from."""
    with pytest.raises(ConfigurationError) as caught:
        Upstream.parse(url)
    told = "".join(format_exception(caught.value.__class__, caught.value, None))
    assert "hid" not in told


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("/agent?a=1&b=%20", b"/agent?a=1&b=%20"),
        ("//evil.example/agent", b"//evil.example/agent"),
        ("/a/../b/%2e%2e/%2F?x", b"/a/../b/%2e%2e/%2F?x"),
        ("http://evil.example:81/agent?x", b"/agent?x"),
        ("http://evil.example", b"/"),
        ("@evil.example/agent", b"/"),
        ("*", b"*"),
    ],
)
def test_a_target_is_a_path_of_the_upstream(raw: str, expected: bytes) -> None:
    """As it came, behind the upstream's own; who else is named in it does not matter."""
    assert expected == SIMPLE.target(asked(raw))


@pytest.mark.parametrize(
    "raw",
    [
        "/..", "/a/../../b", "/%2e%2E/b", "/a/.%2e", "/..\\b", "/a\\..\\b", "http://x/../y", "/..%2fadmin",
        "/%2e%2e%2Fadmin", "/x%5c..%5cadmin", "/x%2f..", "http://x/..%5Cy", "/..;/admin", "/..%3Ba/admin",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_upstreams_own(raw: str) -> None:
    """Where it has one."""
    assert None is Upstream.parse("http://host/base").target(asked(raw))
    assert b"/base/a..b/..." == Upstream.parse("http://host/base").target(asked("/a..b/..."))


@given(st.lists(st.sampled_from([*"/\\.;ab", "%2f", "%2F", "%5c", "%5C", "%2e", "%2E", ".."]), max_size=8))
def test_no_spelling_of_a_path_leads_out(parts: list[str]) -> None:
    """What passes stays below the base for a server that decodes first, and resolves afterwards."""
    raw = "/" + "".join(parts)
    target = Upstream.parse("http://host/base").target(asked(raw))
    read = unquote("/base" + raw).replace("\\", "/")
    steps = [segment.partition(";")[0] for segment in read.split("/")]
    assert (target is None) == (".." in steps)
    assert target is None or posixpath.normpath(read).startswith("/base")


@given(st.binary(max_size=40), st.binary(max_size=10))
def test_whatever_a_target_says_it_is_a_path(raw: bytes, query: bytes) -> None:
    """Origin form, or the asterisk that asks about the server itself."""
    target = SIMPLE.target({"raw_path": raw, "path": "/", "query_string": query})
    assert target is not None
    assert target == b"*" or target.startswith(b"/")


def test_headers_keep_their_order_and_their_duplicates() -> None:
    """Those of the connection stay behind, also those that it names; but where the message ends is the message's."""
    scope = asked(
        "/agent",
        (b"x-a", b"1"), (b"connection", b"keep-alive, x-mine, Content-Length, host"), (b"te", b"trailers"),
        (b"x-mine", b"gone"), (b"x-a", b"2"), (b"content-length", b"2"), (b"keep-alive", b"timeout=5"),
        (b"proxy-authorization", b"secret"), (b"authorization", b"Bearer token"), (b"upgrade", b"h2c"),
        (b"expect", b"100-continue"), (b"x-a", b"3"),
    )  # fmt: skip
    assert [
        (b"host", b"localhost:8000"), (b"x-a", b"1"), (b"x-a", b"2"), (b"content-length", b"2"),
        (b"authorization", b"Bearer token"), (b"x-a", b"3"), (b"x-forwarded-for", b"10.0.0.7"),
        (b"x-forwarded-host", b"public.example"), (b"x-forwarded-proto", b"http"),
        (b"via", b"1.1 agui-otel-1"),
    ] == request_headers(scope, SIMPLE, "agui-otel-1")  # fmt: skip


def test_a_chunked_body_is_chunked_again() -> None:
    """Whatever length is told beside it."""
    made = dict(request_headers(asked("/", (b"transfer-encoding", b"chunked"), (b"content-length", b"7")), SIMPLE, "v"))
    assert (b"chunked", None) == (made[b"transfer-encoding"], made.get(b"content-length"))


def test_a_proxy_in_front_is_believed_and_told_on() -> None:
    """Its peer's address is added; what it said of host and scheme stays."""
    scope = asked(
        "/", (b"x-forwarded-for", b"1.1.1.1"), (b"x-forwarded-for", b"2.2.2.2"), (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-host", b"first.example"), (b"forwarded", b"for=1.1.1.1"),
    )  # fmt: skip
    made = dict(request_headers(scope, SIMPLE, "v"))
    assert (b"1.1.1.1, 2.2.2.2, 10.0.0.7", b"https", b"first.example", b"for=1.1.1.1") == (
        made[b"x-forwarded-for"], made[b"x-forwarded-proto"], made[b"x-forwarded-host"], made[b"forwarded"]
    )  # fmt: skip
    assert b"x-forwarded-for" not in dict(request_headers(asked(client=None), SIMPLE, "v"))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], False),
        ([b"1.1 v"], True),
        ([b"1.0 other (a, b)", b"HTTP/1.1 v (comment), 1.1 z"], True),
        ([b"1.1 x,1.1 v,1.1 z"], True),
        ([b"1.1 v2", b"1.1 vv, 1.1 w"], False),
    ],
)
def test_a_proxy_knows_what_it_has_passed(values: list[bytes], expected: bool) -> None:
    """By its own name among those of all that a request passed."""
    assert expected == has_passed([(b"Via", value) for value in values] + [(b"x", b"v")], "v")


def test_a_response_without_a_body_has_no_length() -> None:
    """204 and 304; all others keep theirs."""
    headers = [(b"Content-Length", b"5"), (b"etag", b"a"), (b"Connection", b"close"), (b"Transfer-Encoding", b"gzip")]
    assert [[(b"etag", b"a")]] * 2 == [response_headers(status, headers) for status in (204, 304)]
    assert [(b"Content-Length", b"5"), (b"etag", b"a")] == response_headers(200, headers[:3])


def test_a_length_beside_an_encoding_does_not_count() -> None:
    """The body is framed by its chunks."""
    headers = [(b"Content-Length", b"5"), (b"Transfer-Encoding", b"chunked"), (b"etag", b"a")]
    assert [(b"etag", b"a")] == response_headers(200, headers)


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (200, [(b"X-A", b"a\tb \xe9"), (b"x-empty", b"")], None),
        (599, [], None),
        (101, [], "its status is 101"),
        (600, [], "its status is 600"),
        (999, [], "its status is 999"),
        (200, [(b"etag", b"a"), (b"x-a", b"a\x1bb")], "its header 'x-a' holds a control character"),
        (200, [(b"x-a", b"\x7f")], "its header 'x-a' holds a control character"),
        (200, [(b"x-a", b"a\r\nb: c")], "its header 'x-a' holds a control character"),
        (200, [(b"x(a)", b"a")], "a header has the name 'x(a)'"),
        (200, [(b"", b"a")], "a header has the name ''"),
    ],
)
def test_what_no_server_sends_is_said(status: int, headers: list[tuple[bytes, bytes]], expected: str | None) -> None:
    """A status that is none of a response, and what would break out of a header."""
    assert expected == unsendable(status, headers)


@given(
    st.lists(st.tuples(st.sampled_from([*sorted(HOP_BY_HOP), b"x-a", b"x-b", b"etag"]), st.just(b"x-b")), max_size=8)
)
def test_no_header_of_the_connection_passes(headers: list[tuple[bytes, bytes]]) -> None:
    """Whichever there are, and in any case; the others pass in their order."""
    named = {b"x-b"} if any(name == b"connection" for name, _ in headers) else set()
    shouted = [(name.title(), value) for name, value in headers]
    kept = [(name.title(), value) for name, value in headers if name not in HOP_BY_HOP | named]
    assert kept == response_headers(200, shouted)


def test_our_trace_takes_the_place_of_the_clients() -> None:
    """With its state; the client's baggage stays as it was sent, and a propagator's other headers are added."""
    headers = [(b"TraceParent", b"old"), (b"tracestate", b"a=1"), (b"baggage", b"k=v;p"), (b"x", b"y")]
    injected = {"traceparent": "new", "baggage": "k=v", "b3": "1"}
    assert [(b"baggage", b"k=v;p"), (b"x", b"y"), (b"traceparent", b"new"), (b"b3", b"1")] == traced(headers, injected)
    assert headers == traced(headers, {})
    assert [*headers[2:], (b"traceparent", b"n"), (b"tracestate", b"b=2")] == traced(
        headers, {"traceparent": "n", "tracestate": "b=2"}
    )
