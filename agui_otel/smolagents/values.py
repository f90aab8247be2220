"""What agents pass to each other, as text and JSON: whole where it is plain, by type and size where it is not."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from inspect import getattr_static
from typing import Any

from smolagents import AgentAudio, AgentImage, AgentText
from smolagents.agents import RunResult

MAX_ITEMS = 1000
"""Items of a container that is written out; one with more, at any depth together, is named by type and size."""

_SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset, range)

_FAILED = re.compile(r"(Agent\w*Error): ")


def clean(text: str) -> str:
    """`text` as UTF-8 can say it: what is half of a surrogate pair becomes a question mark."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="replace").decode()
    return text


def shown(value: Any) -> str:
    """`str(value)`, whatever that does: a host's object may raise there."""
    try:
        return clean(str.__str__(str(value)))
    except Exception:  # noqa: BLE001 - a host's object
        return described(value)


def text_of(content: Any) -> str:
    """The text of a chat message's content: a string, or parts of which only the text is taken."""
    if isinstance(content, str):
        return clean(content)
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, Mapping))
        return clean("\n".join(part for part in parts if isinstance(part, str)))
    return ""


def described(value: Any) -> str:
    """A value by its type and size: `DataFrame 1000 x 3`, `Image 640 x 480`, `str 12`. It is not copied or printed.

    Nor is it counted, unless it is a built-in container: a lazy object would fetch all that it stands for.
    """
    name = type(value).__name__
    try:
        sizes = (_attribute(value, "shape"), _attribute(value, "size"))
        size = next((found for found in sizes if _is(found, tuple)), None)
        if size is not None:
            return " x ".join((f"{name} {size[0]}", *map(str, size[1:]))) if size else name
    except Exception:  # noqa: BLE001 - a host's object
        return name
    kind = next((kind for kind in _SIZED if _is(value, kind)), None)
    return f"{name} {kind.__len__(value)}" if kind is not None else name


def _is(value: Any, *kinds: type) -> bool:
    """`isinstance` by what a value is: what it says of its class may be a lazy object's, or a lie."""
    return issubclass(type(value), kinds)


def _attribute(value: Any, name: str) -> Any:
    """An attribute that is there, without asking ``__getattr__`` for it: a lazy object would begin its work there."""
    return getattr(value, name) if getattr_static(value, name, None) is not None else None


def described_each(values: Any) -> dict[str, str] | str | None:
    """The additional arguments of a run, by name; None where there are none."""
    if not values:
        return None
    if not isinstance(values, Mapping):
        return described(values)
    return {shown(name): described(value) for name, value in values.items()}


def plain(value: Any) -> Any:
    """`value` as JSON: as it is where it is plain and small, else described."""
    room = [MAX_ITEMS]
    return _plain(value, room, 0)


def _plain(value: Any, room: list[int], depth: int) -> Any:
    if value is None or _is(value, bool):
        return value
    if _is(value, str):
        return clean(str.__str__(value))
    if _is(value, int):
        whole = int.__int__(value)
        return whole if abs(whole) < 2**53 else shown(whole)
    if _is(value, float):
        number = float.__float__(value)
        return number if math.isfinite(number) else shown(number)
    room[0] -= len(value) if type(value) in (dict, list, tuple) else 0
    if room[0] < 0 or depth > 20:
        return described(value)
    if type(value) is dict:
        return {shown(key): _plain(item, room, depth + 1) for key, item in value.items()}
    if type(value) in (list, tuple):
        return [_plain(item, room, depth + 1) for item in value]
    return described(value)


def arguments_text(arguments: Any) -> str:
    """Arguments of a tool call as JSON text; `additional_args` (images, dataframes) by type and size."""
    if isinstance(arguments, Mapping):
        written = {
            shown(name): described_each(value) if name == "additional_args" else plain(value)
            for name, value in arguments.items()
        }
        return json.dumps(written, ensure_ascii=False)
    return json.dumps(plain(arguments), ensure_ascii=False)


def answer_of(result: Any) -> Any:
    """What a run returned, as JSON: its output, where it was asked for the whole result."""
    output = result.output if _is(result, RunResult) else result
    if _is(output, AgentText):
        output = output.to_string()
    written = plain(output)
    if isinstance(written, str) and not _is(output, str) and not _has_size(output):
        return shown(output)
    return written


def _has_size(value: Any) -> bool:
    sized = any(getattr_static(value, name, None) is not None for name in ("shape", "size"))
    return sized or _is(value, AgentImage, AgentAudio)


def value_text(result: Any) -> str:
    """A tool's result as code holds it that called it: text as it is, else as JSON; nobody may ever print it."""
    written = plain(result)
    return written.strip() if isinstance(written, str) else json.dumps(written, ensure_ascii=False)


def result_text(result: Any) -> str:
    """A tool's result as the agent that called it reads it."""
    if type(result) is AgentImage:
        return "Stored 'image.png' in memory."
    if type(result) is AgentAudio:
        return "Stored 'audio.mp3' in memory."
    return shown(result).strip()


def failure_text(error: BaseException) -> str:
    """A failed call's result: the error's class and what the agent that called it reads.

    What is no Exception stops the call (Ctrl-C, a cancelled task): that is no failure of its.
    """
    text = f"{type(error).__name__}: {shown(error)}"
    if not isinstance(error, Exception):
        return f"This call was stopped. {text}"
    return clean(text if _FAILED.match(text) else f"AgentToolExecutionError: {text}")


def tool_failed(_name: str, result: Any) -> str | bool:
    """Whether a result of this bridge is a failure, and of which class: for `trace_events(tool_failed=...)`.

    AG-UI has no error flag on results. A call that failed because of a subagent is not one: that failure is counted
    where it happened.
    """
    if not isinstance(result, str):
        return False
    found = _FAILED.match(result)
    return found[1] if found is not None else False
