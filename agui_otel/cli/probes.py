"""Questions to an OTLP receiver: is anybody there, does it speak the protocol, does it take the credentials."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit
from urllib.request import ProxyHandler, Request, build_opener, getproxies, proxy_bypass

from agui_otel.config import variable
from agui_otel.exporting.destination import GRPC_PORT, Destination, address

_SECONDS = 5.0
LOCAL = ("localhost", "127.0.0.1", "::1")
"""Hosts that no proxy of the environment leads to."""


class Problem(Exception):  # noqa: N818 - it is the command's finding, not an error of it
    """What is wrong, and the one thing to do about it."""

    def __init__(self, found: str, fix: str) -> None:
        super().__init__(found)
        self.found = found
        self.fix = fix


def connect(destination: Destination, start: str | None = None) -> str:
    """Whether somebody listens there. Raises `Problem`, which advises `start`, the command that starts the receiver."""
    to = address(destination)
    host, port = to.hostname or "localhost", _port(to)
    place = f"{host}:{port}"
    if destination.protocol != "grpc" and host not in LOCAL and to.scheme in getproxies() and not proxy_bypass(host):
        return f"{place} is reached through the proxy {getproxies()[to.scheme]}"
    try:
        socket.create_connection((host, port), _SECONDS).close()
    except socket.gaierror:
        raise Problem(f"there is no host called {host}", f"correct the address {to.geturl()}") from None
    except TimeoutError:
        raise Problem(f"{place} does not answer", "open the way to it: a firewall may stand between") from None
    except OSError as error:
        raise Problem(
            f"nobody listens at {place}: {error.strerror or error}",
            start or f"start the receiver there, or correct {to.geturl()}",
        ) from None
    return f"{place} takes connections"


def probe(destination: Destination) -> str:
    """Whether it takes an export request without spans. Raises `Problem`."""
    return _probe_grpc(destination) if destination.protocol == "grpc" else _probe_http(destination)


def _probe_http(destination: Destination) -> str:
    url = address(destination).geturl()
    local = urlsplit(url).hostname in LOCAL
    opener = build_opener(ProxyHandler({})) if local else build_opener()
    headers = {**destination.headers, "content-type": "application/x-protobuf"}
    try:
        with opener.open(Request(url, b"", headers, method="POST"), timeout=_SECONDS) as answer:
            kind = answer.headers.get_content_type()
    except HTTPError as error:
        with error:
            raise _refused(url, error.code, has_credentials="authorization" in destination.headers) from None
    except (URLError, OSError, http.client.HTTPException) as error:
        raise _unanswered(url, getattr(error, "reason", error)) from None
    if kind == "text/html":
        raise Problem(f"{url} answers with a web page", "correct the address: this is no OTLP receiver")
    return f"{url} speaks OTLP over HTTP{_credentials(destination)}"


def _refused(url: str, status: int, *, has_credentials: bool) -> Problem:
    if status in (401, 403):
        if has_credentials:
            return Problem(
                f"{url} refuses the credentials ({status})", "correct PHOENIX_API_KEY or the header that is sent"
            )
        return Problem(
            f"{url} wants credentials ({status})",
            "set PHOENIX_API_KEY, or OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20… for another receiver",
        )
    if status in (404, 405):
        return Problem(
            f"{url} is no OTLP receiver ({status})", "correct the address; give the base URL, /v1/traces is added to it"
        )
    if status >= 500:
        return Problem(f"{url} is not able to take traces ({status})", "see what the receiver logs")
    return Problem(
        f"{url} does not take OTLP ({status})", "correct the address, or set OTEL_EXPORTER_OTLP_PROTOCOL=grpc"
    )


def _unanswered(url: str, reason: Any) -> Problem:
    if isinstance(reason, ssl.SSLError):
        if "WRONG_VERSION_NUMBER" in str(reason) or "RECORD_LAYER_FAILURE" in str(reason):
            return Problem(f"{url} speaks no TLS", "give its address with http://")
        return Problem(f"{url}: {reason}", "give the certificate's authority in SSL_CERT_FILE")
    if isinstance(reason, TimeoutError):
        return Problem(
            f"{url} takes connections and answers nothing in {_SECONDS:g} s", "see whether the receiver is at work"
        )
    return Problem(
        f"{url} speaks no HTTP: {reason}",
        "if it is a gRPC port, set OTEL_EXPORTER_OTLP_PROTOCOL=grpc; Phoenix's is 4317",
    )


def _probe_grpc(destination: Destination) -> str:
    try:
        import grpc
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub
    except ImportError:
        raise Problem("gRPC is not installed", "pip install 'agui-otel[grpc]', or use OTLP over HTTP") from None
    to = address(destination)
    place = f"{to.hostname or 'localhost'}:{_port(to)}"
    channel = (
        grpc.insecure_channel(place) if _is_plain(to) else grpc.secure_channel(place, grpc.ssl_channel_credentials())
    )
    with channel:
        try:
            export = TraceServiceStub(channel).Export  # type: ignore[no-untyped-call]
            export(ExportTraceServiceRequest(), metadata=tuple(destination.headers.items()), timeout=_SECONDS)
        except grpc.RpcError as error:
            raise _refused_grpc(place, error.code().name, str(error.details())) from None
    return f"{place} speaks OTLP over gRPC{_credentials(destination)}"


def _refused_grpc(place: str, code: str, details: str) -> Problem:
    if code in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
        return Problem(
            f"{place} does not take the credentials ({code})", "set PHOENIX_API_KEY, or OTEL_EXPORTER_OTLP_HEADERS"
        )
    if code == "UNIMPLEMENTED":
        return Problem(f"{place} is no OTLP receiver ({code})", "correct the address")
    return Problem(
        f"{place} speaks no gRPC ({code}: {details})",
        "for OTLP over HTTP set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
    )


def _is_plain(to: SplitResult) -> bool:
    """Whether the gRPC exporter would connect without TLS."""
    if to.scheme:
        return to.scheme == "http"
    insecure = variable("OTEL_EXPORTER_OTLP_TRACES_INSECURE", os.environ)
    return (insecure or variable("OTEL_EXPORTER_OTLP_INSECURE", os.environ) or "").lower() == "true"


def _port(to: SplitResult) -> int:
    return to.port or {"http": 80, "https": 443}.get(to.scheme, GRPC_PORT)


def _credentials(destination: Destination) -> str:
    return " and takes the credentials" if "authorization" in destination.headers else ", without credentials"
