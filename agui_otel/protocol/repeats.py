"""Pieces of a response that repeat a delta with another text: most of a stream.

An encoder writes the deltas of a message alike, but for their text. So where one of them was read, and continues
something (`Deltas.continuing`), the next ones need no reading: their texts are cut out, still in JSON's form, and told
together (`Deltas.take_texts`). That is what a decoder and a tracker would make of each of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pydantic_core import from_json

from agui_otel.protocol.deltas import Continued

MAX_BYTES = 65_536
"""A larger piece is for a decoder."""
MAX_FORMS = 16
MAX_FORM_BYTES = 1024
"""Forms of deltas that are known at a time (as many things stream their texts at once), and the size of each."""

_KEYS = (b'"delta":"', b'"delta": "')
_PLAIN = rb"[ !#-\[\]-~]*"
_OTHER = (
    rb'\\["\\/bfnrt]',
    rb"\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}",
    rb"[\xc2-\xdf][\x80-\xbf]",
    rb"\xe0[\xa0-\xbf][\x80-\xbf]",
    rb"[\xe1-\xec\xee\xef][\x80-\xbf]{2}",
    rb"\xed[\x80-\x9f][\x80-\xbf]",
    rb"\xf0[\x90-\xbf][\x80-\xbf]{2}",
    rb"[\xf1-\xf3][\x80-\xbf]{3}",
    rb"\xf4[\x80-\x8f][\x80-\xbf]{2}",
)
_TEXT = re.compile(rb"(?!\n|\Z)" + _PLAIN + rb"(?:(?:" + rb"|".join(_OTHER) + rb")" + _PLAIN + rb")*")
"""What may stand in a JSON string (RFC 8259, section 7, in UTF-8), complete in itself, and not empty."""
_is_text = _TEXT.fullmatch
_BREAK = b"\n"  # stands in no text
_are_texts = re.compile(_TEXT.pattern + rb"(?:\n" + _TEXT.pattern + rb")*").fullmatch


class _Form:
    """How the deltas of one thing are written, before and after their text, and those of them that are to be told."""

    __slots__ = ("begin", "continued", "end", "start", "stop", "texts", "times")

    def __init__(self, begin: bytes, end: bytes) -> None:
        self.begin = begin
        self.end = end
        self.start = len(begin)
        self.stop = -len(end)
        self.continued: Continued | None = None  # not known, or not any more
        self.texts: list[bytes] = []
        self.times: list[int] = []


class Repeats:
    """The deltas of one response. `limit`: of an event's bytes; a larger one is for the decoder to refuse."""

    __slots__ = ("_forms", "_key", "_last", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = min(limit, MAX_BYTES)
        self._forms: dict[bytes, _Form] = {}
        self._last: _Form | None = None
        self._key = _KEYS[0]

    def take_all(self, chunks: Sequence[bytes], times: Sequence[int]) -> bool:
        """Whether all of these pieces repeat one delta: then they are to be told. If not, none of them was looked at.

        They are looked at as one: neither before nor behind a text stands what may stand in it.
        """
        form = self._last
        if form is None:
            return False
        joined = b"".join(chunks)
        if len(joined) > self._limit or not joined.startswith(form.begin) or not joined.endswith(form.end):
            return False
        texts = joined[form.start : form.stop].replace(form.end + form.begin, _BREAK)
        if texts.count(_BREAK) != len(chunks) - 1 or not _are_texts(texts):
            return False
        form.texts.append(texts.replace(_BREAK, b""))
        form.times += times
        return True

    def take(self, chunk: bytes, at: int) -> bool:
        """Whether a piece that was there at `at` (ns) repeats a delta: then it is to be told."""
        form = self._last
        if form is None:
            return False
        if not chunk.startswith(form.begin):
            key = self._key
            form = self._forms.get(chunk[: chunk.find(key) + len(key)])
            if form is None or form.continued is None:
                return False
            self._last = form
        if not chunk.endswith(form.end) or len(chunk) > self._limit:
            return False
        text = chunk[form.start : form.stop]
        if not _is_text(text):
            return False
        form.texts.append(text)
        form.times.append(at)
        return True

    def tell(self) -> Iterator[tuple[Continued, str, list[int]]]:
        """What is to be told: of each thing the texts as one, and when each was there. What came last comes last."""
        for form in sorted((form for form in self._forms.values() if form.times), key=_came_last):
            if form.continued is not None:
                texts, times = form.texts, form.times
                form.texts, form.times = [], []
                yield form.continued, from_json(b'"' + b"".join(texts) + b'"', cache_strings="none"), times

    def learn(self, chunk: bytes, continued: Continued) -> None:
        """Know what is written like `chunk`, which is one whole event, and a plain delta that continues something."""
        if len(chunk) > self._limit:
            return
        for key in _KEYS:
            before, found, rest = chunk.partition(key)
            text = _TEXT.match(rest)
            if not found or text is None:
                continue
            begin, end = before + key, rest[text.end() :]
            form = self._forms.get(begin)
            if form is None or form.end != end:
                if not _is_form(begin, end):
                    return
                if key != self._key or len(self._forms) >= MAX_FORMS:
                    self._forms = {}
                self._key = key
                form = self._forms[begin] = _Form(begin, end)
            for other in self._forms.values():  # one form a thing: the order of its texts is that of its form's
                if other.continued is not None and other.continued[1] is continued[1]:
                    other.continued = None
            form.continued = continued
            self._last = form
            return

    def forget(self) -> None:
        """Something else came: what the next deltas continue is not known. Nothing may be left to be told."""
        if self._last is not None:
            self._last = None
            for form in self._forms.values():
                form.continued = None


def _came_last(form: _Form) -> int:
    return form.times[-1]


def _is_form(begin: bytes, end: bytes) -> bool:
    """Whether any text between these makes the same event, but for that, of what was a plain delta with some text.

    Its values are strings, so this one is the event's own, unless there is another of that name; and the event is one
    line.
    """
    line = begin + end.rstrip(b"\r\n")
    return (
        len(line) <= MAX_FORM_BYTES
        and b"\n" not in line
        and b"\r" not in line
        and b"\\" not in line
        and line.count(b'"delta"') == 1
        and line.count(b"{") == 1
    )
