"""One HTTP exchange that may carry a run: what is read of its request and of its response, and the session they feed.

Transport-agnostic and without I/O: a middleware and a proxy tell it what they see, in order, and pass the bytes on
themselves. A run begins with the request where its body is a RunAgentInput; else with the response, if that turns out
to be an AG-UI stream, by its content type and its first event. No method raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from opentelemetry.context import Context
from opentelemetry.trace import get_current_span

from agui_otel.attach.encodings import Decompressor, decompressor
from agui_otel.attach.headers import JSON_LINES, PROTOBUF, Headers, header, is_stream, media_type, propagated
from agui_otel.attach.observe import Inner, start, swallow, with_inner
from agui_otel.protocol.events import EVENT_TYPES, Unreadable
from agui_otel.protocol.inputs import input_in
from agui_otel.protocol.jsonlines import JSONLinesDecoder
from agui_otel.protocol.repeats import Repeats
from agui_otel.protocol.sse import SSEDecoder
from agui_otel.tracing.ending import Reason
from agui_otel.tracing.host import Attributes
from agui_otel.tracing.observer import Observer
from agui_otel.tracing.session import Session

Payload = dict[str, Any] | Unreadable

TRACE_RESPONSE = b"traceresponse"
_EXPOSED = b"access-control-expose-headers"

MAX_UNDECIDED = 16
"""Payloads of a response that are looked at before it is taken to be no AG-UI stream."""


MAX_WAITING = 256
MAX_WAIT_NS = 4_000_000_000
MAX_WAITING_BYTES = 512
"""Deltas that wait to be read together, how much older than the newest the first may be, and how large each is."""


class Decoder(Protocol):
    """Bytes to payloads, incrementally."""

    @property
    def between(self) -> bool:
        """Whether the next byte begins an event, whatever came before."""

    def feed(self, chunk: bytes) -> list[Payload]:
        """Take the next bytes."""

    def close(self) -> list[Payload]:
        """Say that there are no more."""


class Exchange:
    """One request and its response.

    `context` is the one in which the request is handled, `headers` the request's. A local span that is current there is
    the run's surrounding; where there is none, it is what the headers say (trace model: ambient context).
    """

    __slots__ = (
        "_agent_name", "_answered_at", "_attributes", "_context", "_decoder", "_decompressor", "_deltas", "_headers",
        "_held", "_how", "_inner", "_placed", "_repeats", "_until", "_waiting", "clock", "ended", "session",
    )  # fmt: skip

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
        """What follows the run, once there is one to follow."""
        self.clock = how.clock
        self._how = how
        self._context = context
        self._headers = headers
        self._placed: Context | None = None
        self._agent_name = agent_name
        self._attributes = attributes
        self._inner = Inner()
        self._decoder: Decoder | None = None
        self._decompressor: Decompressor | None = None
        self._held: list[Payload] | None = []
        self._waiting: list[Any] = []  # chunk, time, chunk, time: pairs were more for the garbage collector
        self._until = 0
        self._deltas: tuple[bytes, ...] = ()  # how they begin, once it is known that what is read are events
        self._repeats = Repeats(how.settings.max_event_bytes)
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

    def take(self, chunk: bytes, at_ns: int) -> bool:
        """Take the next bytes of the response's body, which were there at `at_ns`.

        Returns whether it is time to `listen`, once they have been passed on. A delta waits for others, as it only adds
        to what is open: nothing is in a processor's caches any more when the next event of one of many streams comes,
        and to read them together costs a fraction.
        """
        if self._decoder is None:
            return False
        waiting = self._waiting
        if not waiting:
            self._until = at_ns + MAX_WAIT_NS
        waiting.append(chunk)
        waiting.append(at_ns)
        return (
            not chunk.startswith(self._deltas)
            or len(waiting) >= 2 * MAX_WAITING
            or at_ns > self._until
            or len(chunk) > MAX_WAITING_BYTES
        )

    def end(self, reason: Reason, error: BaseException | None = None, at_ns: int | None = None) -> None:
        """The exchange ended; only the first call counts. `exhausted`: with the response's last byte."""
        if not self.ended:
            self.listen()
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

    def listen(self) -> None:
        """Read what was taken."""
        decoder = self._decoder
        if decoder is None:
            return
        waiting, self._waiting = self._waiting, []
        repeats = self._repeats
        taken = False
        try:
            if len(waiting) > 4:
                end = len(waiting) if waiting[-2].startswith(self._deltas) else -2
                taken = repeats.take_all(waiting[:end:2], waiting[1:end:2])
                if taken:
                    del waiting[:end]
            parts = iter(waiting)
            for chunk in parts:
                at = next(parts)
                if repeats.take(chunk, at):
                    taken = True
                    continue
                if taken:
                    self._tell()
                    taken = False
                if self.ended:
                    return
                if self._decompressor is None:
                    self._read(decoder, chunk, at)
                else:
                    for part in self._decompressor.feed(chunk):
                        self._hear([part] if isinstance(part, Unreadable) else decoder.feed(part), at)
            if taken:
                self._tell()
        except Exception as error:  # noqa: BLE001 - the boundary
            self._give_up("response", error)

    def _tell(self) -> None:
        if self.session is not None:
            for continued, text, times in self._repeats.tell():
                self.session.feed_texts(continued, text, times)

    def _read(self, decoder: Decoder, chunk: bytes, at: int) -> None:
        """What is read may be a delta that others repeat; if not, it may have ended what they continue."""
        whole = chunk.startswith(self._deltas) and decoder.between
        payloads = decoder.feed(chunk)
        self._hear(payloads, at)
        if whole and len(payloads) == 1 and self.session is not None:
            continued = self.session.continuing(payloads[0])
            if continued is not None and decoder.between:
                self._repeats.learn(chunk, continued)
                return
        if payloads or not decoder.between:
            self._repeats.forget()

    def _start(self, given: Any) -> None:
        self.session = start(self._how, self._ambient(), given, self._agent_name, self._attributes)
        if self.session is not None:
            self.session.begin()

    def _ambient(self) -> Context:
        """The context of the request: with what its headers say, where no span is current."""
        if self._placed is None:
            self._placed = self._context
            if not get_current_span(self._context).get_span_context().is_valid:
                try:
                    self._placed = propagated(self._headers, self._context)
                except Exception as error:  # noqa: BLE001 - a propagator of the host's
                    swallow(self._how, "propagator", error)
        return self._placed

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
        if self._decompressor is None:
            self._deltas = _DELTAS.get(type(self._decoder), ())
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


_DELTAS: dict[type, tuple[bytes, ...]] = {
    decoder: tuple(
        f'{begin}{{"type":{space}"{kind}"'.encode()
        for kind in ("TEXT_MESSAGE_CONTENT", "TOOL_CALL_ARGS", "REASONING_MESSAGE_CONTENT")
        for space in ("", " ")
    )
    for decoder, begin in ((SSEDecoder, "data: "), (JSONLinesDecoder, ""))
}
"""How encoders begin a delta of a text, a call or a reasoning."""


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
