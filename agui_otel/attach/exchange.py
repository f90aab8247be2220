"""One HTTP exchange that may carry a run: what is read of its request and of its response, and the session they feed.

Transport-agnostic and without I/O: a middleware and a proxy tell it what they see, in order, and pass the bytes on
themselves. A run begins with the request where its body is a RunAgentInput; else with the response, if that turns out
to be an AG-UI stream, by its content type and its first event. No method raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from opentelemetry.context import Context
from opentelemetry.propagators.textmap import Getter
from opentelemetry.trace import get_current_span

from agui_otel.attach.encodings import Decompressor, decompressor
from agui_otel.attach.observe import Inner, start, swallow, with_inner
from agui_otel.protocol.events import EVENT_TYPES, Unreadable
from agui_otel.protocol.inputs import input_in
from agui_otel.protocol.jsonlines import JSONLinesDecoder
from agui_otel.protocol.sse import SSEDecoder
from agui_otel.tracing.ending import Reason
from agui_otel.tracing.host import Attributes
from agui_otel.tracing.session import Observer, Session

Headers = Sequence[tuple[bytes, bytes]]
"""Names and values as they were sent; names in any case."""
Payload = dict[str, Any] | Unreadable

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

TRACE_RESPONSE = b"traceresponse"
_EXPOSED = b"access-control-expose-headers"

MAX_UNDECIDED = 16
"""Payloads of a response that are looked at before it is taken to be no AG-UI stream."""


MAX_WAITING = 32
MAX_WAIT_NS = 500_000_000
"""Deltas that wait to be read together, and how much older than the newest the first may be."""


class Decoder(Protocol):
    """Bytes to payloads, incrementally."""

    def feed(self, chunk: bytes) -> list[Payload]:
        """Take the next bytes."""

    def close(self) -> list[Payload]:
        """Say that there are no more."""


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


class Exchange:
    """One request and its response.

    `context` is the one in which the request is handled, `headers` the request's. A local span that is current there is
    the run's surrounding; where there is none, it is what the headers say (trace model: ambient context).
    """

    def __init__(
        self,
        how: Observer,
        context: Context,
        headers: Headers,
        *,
        agent_name: str | None = None,
        attributes: Attributes | None = None,
    ) -> None:
        self.session: Session | None = None
        self.clock = how.clock
        self._how = how
        self._context = context
        self._headers = headers
        self._agent_name = agent_name
        self._attributes = attributes
        self._inner = Inner()
        self._decoder: Decoder | None = None
        self._decompressor: Decompressor | None = None
        self._held: list[Payload] | None = []
        self._waiting: list[bytes] = []
        self._times: list[int] = []  # beside it: pairs would be objects that the garbage collector looks after
        self._answered_at = 0
        self.ended = False
        """Whether nothing more is wanted: the run has ended, or there is none to be observed."""

    def ask(self, body: bytes) -> None:
        """Take the request's whole body: where it is a RunAgentInput, its run begins."""
        try:
            given = input_in(body)
            if given is not None:
                self._start(given)
                if self.session is None:
                    self.ended = True  # somebody around here observes this run
        except Exception as error:  # noqa: BLE001 - the boundary
            swallow(self._how, "request", error)

    def surround(self) -> Context:
        """Where the application is to run: in the run, if it has begun. Sessions that start inside are known here."""
        try:
            context = self._context
            if self.session is not None:
                context = self.session.surround(self._ambient())
            return with_inner(context, self._inner)
        except Exception as error:  # noqa: BLE001 - the boundary
            swallow(self._how, "surround", error)
            return self._context

    def adopt(self, agent_name: str | None, attributes: Attributes | None) -> None:
        """Take from an observer inside, which passes through, what this one lacks."""
        if self.session is not None:
            self.session.adopt(agent_name, attributes, None)
            return
        self._agent_name = self._agent_name if self._agent_name is not None else agent_name
        self._attributes = self._attributes if self._attributes is not None else attributes

    def trace_response(self, status: int, headers: Headers) -> list[tuple[bytes, bytes]] | None:
        """The response's headers with W3C's `traceresponse`, exposed to browsers; None where no run answers here."""
        context = self.session.span_context if self.session is not None and not self.ended else None
        if context is None or not context.is_valid or (status < 400 and not is_stream(media_type(headers))):
            return None
        flags = int(context.trace_flags)
        told = f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}".encode()
        exposed = [value for key, value in headers if key.lower() == _EXPOSED]
        kept = [(key, value) for key, value in headers if key.lower() != _EXPOSED]
        return [*kept, (TRACE_RESPONSE, told), (_EXPOSED, b", ".join([*exposed, TRACE_RESPONSE]))]

    def answer(self, status: int, headers: Headers) -> None:
        """Take the response's status and headers."""
        if self.ended:
            return
        try:
            self._answered_at = at = self.clock()
            if status >= 400:
                if self.session is not None:
                    self.session.refuse(status, at)
                self.ended = True
                return
            self._decoder = _decoder_for(media_type(headers), self._how.settings.max_event_bytes)
            if self._decoder is None:
                self._dismiss()
                return
            self._decompressor = decompressor(header(headers, b"content-encoding"))
        except Exception as error:  # noqa: BLE001 - the boundary
            self._give_up("response", error)

    def take(self, chunk: bytes, at_ns: int) -> None:
        """Take the next bytes of the response's body, which were there at `at_ns`; `listen` reads them, or the end."""
        if self._decoder is not None:
            self._waiting.append(chunk)
            self._times.append(at_ns)

    def listen(self) -> None:
        """Read what was taken, once it has been passed on.

        A delta waits for others: it only adds to what is open, and to read several at once costs half.
        """
        waiting = self._waiting
        if waiting and (
            self._held is not None
            or len(waiting) >= MAX_WAITING
            or self._times[-1] - self._times[0] > MAX_WAIT_NS
            or not _is_one_delta(waiting[-1])
        ):
            self._catch_up()

    def end(self, reason: Reason, error: BaseException | None = None, at_ns: int | None = None) -> None:
        """The exchange ended; only the first call counts. `exhausted`: with the response's last byte."""
        if not self.ended:
            self._catch_up()
        if self.ended:
            return
        try:
            if self._decoder is not None and reason == "exhausted":
                self._hear(self._decoder.close(), self.clock() if at_ns is None else at_ns)
            if self._held and self.session is not None and not self.ended:
                self._release(at_ns)
        except Exception as caught:  # noqa: BLE001 - the boundary
            swallow(self._how, "response", caught)
        self.ended = True
        if self.session is not None:
            self.session.finish(reason, error, at_ns)

    def _catch_up(self) -> None:
        decoder = self._decoder
        if decoder is None:
            return
        waiting, times = self._waiting, self._times
        self._waiting, self._times = [], []
        try:
            if len(waiting) > 2:
                self._hear_deltas(decoder, waiting[:-1], times)
                del waiting[:-1], times[:-1]
            for chunk, at in zip(waiting, times, strict=True):
                if self.ended:
                    return
                if self._decompressor is None:
                    self._hear(decoder.feed(chunk), at)
                else:
                    for part in self._decompressor.feed(chunk):
                        self._hear([part] if isinstance(part, Unreadable) else decoder.feed(part), at)
        except Exception as error:  # noqa: BLE001 - the boundary
            self._give_up("response", error)

    def _hear_deltas(self, decoder: Decoder, deltas: Sequence[bytes], times: Sequence[int]) -> None:
        """Read what waited, each a delta with its own time. Where one was none after all, they have the latest."""
        payloads = decoder.feed(b"".join(deltas))
        if self.session is None or len(payloads) != len(deltas):
            self._hear(payloads, times[len(deltas) - 1])
            return
        for payload, at in zip(payloads, times, strict=False):
            self.session.feed(payload, at)

    def _start(self, given: Any) -> None:
        self.session = start(self._how, self._ambient(), given, self._agent_name, self._attributes)
        if self.session is not None:
            self.session.begin()

    def _ambient(self) -> Context:
        """The context of the request: with what its headers say, where no span is current."""
        if get_current_span(self._context).get_span_context().is_valid:
            return self._context
        try:
            from opentelemetry.propagate import extract  # reads the environment, and raises where that is wrong

            return extract(self._headers, self._context, _GETTER)
        except Exception as error:  # noqa: BLE001 - a propagator of the host's
            swallow(self._how, "propagator", error)
            return self._context

    def _hear(self, payloads: Iterable[Payload], at: int) -> None:
        if self._held is None:
            if self.session is not None:
                feed = self.session.feed
                for payload in payloads:
                    feed(payload, at)
            return
        for payload in payloads:
            self._held.append(payload)
        verdict = _is_agui(self._held, asked=self.session is not None)
        if verdict is None and len(self._held) <= MAX_UNDECIDED:
            return
        if not verdict:
            self._dismiss()
        elif self.session is None:
            self._recognise(at)
        else:
            self._release(at)

    def _recognise(self, at: int) -> None:
        """An AG-UI stream whose request announced no run: it is observed from here on, unless somebody does already."""
        first = next((payload for payload in self._held or () if isinstance(payload, dict)), {})
        if not self._inner.follows(first):
            self._start(None)
        if self.session is None:
            self.ended = True
        else:
            self._release(at)

    def _release(self, at: int | None) -> None:
        held, self._held = self._held, None
        if self.session is not None:
            for payload in held or ():
                self.session.feed(payload, at)

    def _dismiss(self) -> None:
        """The response is no AG-UI stream."""
        self.ended = True
        self._held = None
        if self.session is not None:
            self.session.dismiss(self._answered_at)

    def _give_up(self, where: str, error: Exception) -> None:
        self.ended = True
        if self.session is not None:
            self.session.finish("exhausted")
        swallow(self._how, where, error)


def _decoder_for(media: str, limit: int) -> Decoder | None:
    if media == "text/event-stream":
        return SSEDecoder(max_event_bytes=limit)
    if media in JSON_LINES:
        return JSONLinesDecoder(max_event_bytes=limit)
    if media == PROTOBUF:
        from agui_otel.protocol.protobuf import ProtobufDecoder

        return ProtobufDecoder(max_event_bytes=limit)
    return None


def _is_one_delta(chunk: bytes) -> bool:
    """Whether a piece of a body is one small delta of a text, a reasoning or a call, as encoders write it."""
    return len(chunk) < 1024 and chunk.startswith(_DELTAS) and chunk.find(b"\n") >= len(chunk) - 2


_DELTAS = tuple(
    f'{frame}{{"type":{space}"{kind}"'.encode()
    for kind in ("TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS", "REASONING_MESSAGE_CONTENT")
    for frame in ("data: ", "")
    for space in ("", " ")
)


def _is_agui(payloads: Sequence[Payload], *, asked: bool) -> bool | None:
    """Whether a stream that begins so is AG-UI's; None: not known yet.

    The first object decides, if its type does. What cannot be read says nothing, but that after a RunAgentInput it is
    a defect of an AG-UI stream (`asked`).
    """
    for payload in payloads:
        if isinstance(payload, Unreadable):
            if asked:
                return True
            continue
        kind = payload.get("type")
        if not isinstance(kind, str):
            return False
        if kind in EVENT_TYPES or kind.startswith("THINKING_"):
            return True
        if not (kind.isupper() and kind.isascii()):
            return False
    return None
