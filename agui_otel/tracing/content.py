"""The one door for captured strings: what an exporter may see of what a user or a model said.

A captured string is hidden, or redacted once, cleaned, and cut, in that order; nothing else in the package
puts content on a span (trace model: content and privacy). With capture off no value is serialised, copied
or looked at.

Inputs are inputs, arguments and descriptions; outputs are texts, results, state values, metadata, custom
values and messages of errors and interrupts. Lengths are counted in characters.
"""

from __future__ import annotations

import json
from collections.abc import Callable, MutableMapping
from typing import Any, Literal, NamedTuple

from pydantic_core import from_json, to_json

from agui_otel.config import Settings
from agui_otel.tracing.semconv import (
    EXCEPTION_MESSAGE,
    GEN_AI_AGENT_DESCRIPTION,
    GEN_AI_INPUT_MESSAGES,
    GEN_AI_OUTPUT_MESSAGES,
    GEN_AI_TOOL_CALL_ARGUMENTS,
    GEN_AI_TOOL_CALL_RESULT,
    INPUT_MIME_TYPE,
    INPUT_VALUE,
    OUTPUT_MIME_TYPE,
    OUTPUT_VALUE,
    TOOL_PARAMETERS,
    TRUNCATED,
)
from agui_otel.tracing.stops import STOPS

Redact = Callable[[str], str]
Attributes = MutableMapping[str, Any]

SLACK = 1024
"""Characters kept beyond the cut where there is a redactor: what it looks for must not be cut in half."""

MAX_NAME = 1024
"""Characters of a name or an id: they are not content, so `max_value` is not theirs, but a producer's all the same."""

TEXT = "text/plain"
JSON = "application/json"


def clean(text: str) -> str:
    """The text without NUL characters, surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "")
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def short(text: str) -> str:
    """A name or an id as it may be exported: clean and, beyond `MAX_NAME` characters, cut with an ellipsis."""
    if text.isascii() and len(text) <= MAX_NAME and "\0" not in text:
        return text
    return clean(text) if len(text) <= MAX_NAME else clean(_cut(text, MAX_NAME)) + "…"


def dump(value: object) -> str:
    """Compact JSON of any value; what JSON cannot say is its type's name. Never raises."""
    try:
        return to_json(value, fallback=_type_name, inf_nan_mode="strings").decode()
    except Exception:  # noqa: BLE001 - lone surrogates, depth, bytes, a value whose own serialiser raises
        pass
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_type_name, skipkeys=True)
    except Exception:  # noqa: BLE001
        return json.dumps(_type_name(value))


class Content:
    """Puts captured strings on spans and span events, as far as they may be seen.

    `capture` is the resolved capture level, `dialect` the vocabulary. `redact` sees each captured string
    once, whole, or, where the stream was longer than `text_limit`, its beginning. When it
    raises, or returns no string, the value is dropped and `on_error` is called. What is cut leaves
    `key=LENGTH`, its real length, in the list `agui.truncated` of the same attributes.
    """

    __slots__ = ("_gen_ai", "_inputs", "_max", "_on_error", "_openinference", "_outputs", "_redact")

    def __init__(
        self,
        *,
        capture: bool,
        hide_inputs: bool = False,
        hide_outputs: bool = False,
        max_value: int = 16_384,
        redact: Redact | None = None,
        dialect: Literal["both", "openinference", "gen_ai"] = "both",
        on_error: Callable[[], None] | None = None,
    ) -> None:
        self._inputs = capture and not hide_inputs
        self._outputs = capture and not hide_outputs
        self._max = max_value
        self._redact = redact
        self._openinference = dialect != "gen_ai"
        self._gen_ai = dialect != "openinference"
        self._on_error = on_error

    @property
    def text_limit(self) -> int:
        """How many characters of a streamed text are worth keeping: 0 where none is exported."""
        if not self._inputs and not self._outputs:
            return 0
        return self._max if self._redact is None else self._max + SLACK

    def input(self, key: str, value: object, into: Attributes, length: int | None = None) -> None:
        """Put an input, a string or any JSON value, under `key`.

        `length` is its real length, where `value` is only its beginning.
        """
        seen = self._seen(value, length) if self._inputs else None
        if seen is not None:
            _put(key, seen, into)

    def output(self, key: str, value: object, into: Attributes, length: int | None = None) -> None:
        """Put an output, a string or any JSON value, under `key`; `length` as for `input`."""
        seen = self._seen(value, length) if self._outputs else None
        if seen is not None:
            _put(key, seen, into)

    def agent_input(self, value: object, into: Attributes, length: int | None = None) -> None:
        """What a run or subagent was asked."""
        seen = self._seen(value, length) if self._inputs else None
        if seen is None:
            return
        if self._openinference:
            _put_typed(INPUT_VALUE, INPUT_MIME_TYPE, seen, into)
        if self._gen_ai:
            _put_message(GEN_AI_INPUT_MESSAGES, "user", "text", seen, into)

    def agent_output(self, value: object, into: Attributes, length: int | None = None) -> None:
        """What a run or subagent answered."""
        seen = self._seen(value, length) if self._outputs else None
        if seen is None:
            return
        if self._openinference:
            _put_typed(OUTPUT_VALUE, OUTPUT_MIME_TYPE, seen, into)
        if self._gen_ai:
            _put_message(GEN_AI_OUTPUT_MESSAGES, "assistant", "text", seen, into)

    def message_output(self, text: str, role: str, into: Attributes, length: int | None = None) -> None:
        """The text of a message; as a GenAI message only where that is the only vocabulary."""
        self._streamed(text, role, "text", into, length)

    def reasoning_output(self, text: str, into: Attributes, length: int | None = None) -> None:
        """The text of reasoning, likewise."""
        self._streamed(text, "assistant", "reasoning", into, length)

    def tool_arguments(self, value: object, into: Attributes, length: int | None = None) -> None:
        """The arguments of a tool call, as they were streamed."""
        seen = self._seen(value, length) if self._inputs else None
        if seen is None:
            return
        if self._openinference:
            _put_typed(INPUT_VALUE, INPUT_MIME_TYPE, seen, into)
            _put(TOOL_PARAMETERS, seen, into)
        if self._gen_ai:
            _put(GEN_AI_TOOL_CALL_ARGUMENTS, seen, into)

    def tool_result(self, value: object, into: Attributes, length: int | None = None) -> None:
        """The result of a tool call."""
        seen = self._seen(value, length) if self._outputs else None
        if seen is None:
            return
        if self._openinference:
            _put_typed(OUTPUT_VALUE, OUTPUT_MIME_TYPE, seen, into)
        if self._gen_ai:
            _put(GEN_AI_TOOL_CALL_RESULT, seen, into)

    def description(self, text: str, into: Attributes) -> None:
        """The description of an agent."""
        self.input(GEN_AI_AGENT_DESCRIPTION, text, into)

    def error_message(self, text: str, into: Attributes, key: str = EXCEPTION_MESSAGE) -> str | None:
        """Put an error's message under `key`; returns it for the status description, None when hidden."""
        seen = self._seen(text, None) if self._outputs else None
        if seen is None:
            return None
        _put(key, seen, into)
        return seen.text

    def state_path(self, path: str) -> str:
        """A JSON Pointer into the state: whole where outputs are captured, else its first segment.

        One that had to be cut ends in an ellipsis.
        """
        seen = self._seen(path, None) if self._outputs else None
        if seen is None:
            end = path.find("/", 1)
            first = path if end < 0 else path[:end]
            seen = Seen(clean(_cut(first, self._max)), None if len(first) <= self._max else len(first))
        return seen.text if seen.cut_from is None else seen.text + "…"

    def _streamed(self, text: str, role: str, part: str, into: Attributes, length: int | None) -> None:
        seen = self._seen(text, length) if self._outputs else None
        if seen is None:
            return
        if self._openinference:
            _put_typed(OUTPUT_VALUE, OUTPUT_MIME_TYPE, seen, into)
        else:
            _put_message(GEN_AI_OUTPUT_MESSAGES, role, part, seen, into)

    def _seen(self, value: object, length: int | None) -> Seen | None:
        """What may be exported of a value whose real length is `length` (None: the value is whole)."""
        text = value if isinstance(value, str) else dump(value)
        real = len(text) if length is None else max(length, len(text))
        whole = real == len(text)
        room = self._max
        if self._redact is not None:
            redacted = self._redacted(clean(text))
            if redacted is None:
                return None
            text = redacted
            if not whole:
                room = max(0, min(room, len(text) - SLACK))
        if whole and len(text) <= room:
            return Seen(clean(text), None)
        return Seen(clean(_cut(text, room)), real)

    def _redacted(self, text: str) -> str | None:
        assert self._redact is not None
        try:
            redacted = self._redact(text)
            if isinstance(redacted, str):
                return redacted
        except STOPS:
            raise
        except BaseException:  # noqa: BLE001 - the host's redactor, counted below
            pass
        if self._on_error is not None:
            self._on_error()
        return None


class Seen(NamedTuple):
    """A string as it may be exported, and the real length of what it was cut from (None: it is whole)."""

    text: str
    cut_from: int | None


def _put(key: str, seen: Seen, into: Attributes) -> None:
    into[key] = seen.text
    if seen.cut_from is not None:
        into.setdefault(TRUNCATED, []).append(f"{key}={seen.cut_from}")


def _put_typed(value_key: str, mime_key: str, seen: Seen, into: Attributes) -> None:
    """OpenInference's value with its MIME type; JSON that was cut is text."""
    _put(value_key, seen, into)
    into[mime_key] = JSON if seen.cut_from is None and _is_json(seen.text) else TEXT


def _put_message(key: str, role: str, part: str, seen: Seen, into: Attributes) -> None:
    """One message of one part, in the schema of the GenAI conventions."""
    message: dict[str, Any] = {"role": role, "parts": [{"type": part, "content": seen.text}]}
    if key == GEN_AI_OUTPUT_MESSAGES:
        message["finish_reason"] = "stop"
    _put(key, Seen(dump([message]), seen.cut_from), into)


def _type_name(value: object) -> str:
    return type(value).__name__


def _cut(text: str, room: int) -> str:
    """The first `room` characters, and no half of a surrogate pair at the end."""
    if len(text) <= room:
        return text
    return text[: room - 1] if room and "\ud800" <= text[room - 1] <= "\udbff" else text[:room]


def _is_json(text: str) -> bool:
    """Whether the text is a JSON object or array."""
    if not text or text[0] not in "{[" or text[-1] not in "}]":
        return False
    try:
        from_json(text)
    except ValueError:
        return False
    return True


def content_of(
    settings: Settings, exports_to_phoenix: bool, redact: Redact | None, *, on_error: Callable[[], None]
) -> Content:
    """What may be seen with these settings, given whether `setup()` itself exports to Phoenix."""
    return Content(
        capture=settings.capture_content(exports_to_phoenix),
        hide_inputs=settings.hide_inputs,
        hide_outputs=settings.hide_outputs,
        max_value=settings.max_value,
        redact=redact,
        dialect=settings.dialect,
        on_error=on_error,
    )
