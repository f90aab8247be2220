"""The settings: every option with its environment variable, its default and its sentence, in one place.

An option named `steps` is the environment variable `AGUI_OTEL_STEPS`. A keyword argument wins over the
environment, the environment over the default; an empty variable counts as unset. A few options are read from
variables that other tools share (`OTEL_SDK_DISABLED`, `OPENINFERENCE_HIDE_INPUTS`, …): see `ENVIRONMENT`. A
variable with our prefix that names no option is logged as a warning, once a process.

The rules of capture are the trace model's ("Content and privacy").
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from agui_otel.errors import ConfigurationError

_logger = logging.getLogger(__name__)

PREFIX = "AGUI_OTEL_"
GENAI_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
SDK_DISABLED = "OTEL_SDK_DISABLED"

_GENAI_CAPTURE_VALUES = {
    "true": True,
    "span_only": True,
    "span_and_event": True,
    "false": False,
    "no_content": False,
    "event_only": False,
}

Events = Annotated[int, Field(ge=0, le=128)]


class Settings(BaseModel):
    """How streams are traced: frozen, validated, read from the environment where no argument is given.

    Raises `ConfigurationError` for a value that is not allowed, wherever it came from. What cannot be written
    in an environment variable (`redact`, `attributes`, `tool_failed`, `decision`) is an argument of the
    function that uses it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=False)

    disabled: bool = Field(
        default=False, description="Observe nothing: every way in hands its stream through untouched."
    )
    capture: Literal["auto", "full", "metadata"] = Field(
        default="auto",
        description=(
            "What is exported: `full` with content (text, arguments, results, messages of errors), "
            "`metadata` with names, ids, counts, times and outcomes only. `auto` is `full` where `setup()` "
            "itself exports to Phoenix and on the command line, else `metadata`."
        ),
    )
    max_value: int = Field(
        default=16_384,
        ge=1,
        description="Characters that are kept of one captured value; its real length is noted.",
    )
    messages: Literal["spans", "off"] = Field(
        default="spans", description="Whether text messages and reasoning have spans of their own."
    )
    steps: Literal["events", "spans", "off"] = Field(
        default="events",
        description="Steps as span events of their owner (folded by name), as spans, or not at all.",
    )
    dialect: Literal["both", "openinference", "gen_ai"] = Field(
        default="both",
        description="The vocabulary in which content is written; names and counts are always in both.",
    )
    ambient: Literal["auto", "child", "link", "ignore"] = Field(
        default="auto", description="What a run does with the span that is current where it starts."
    )
    clock: Literal["receive", "event"] = Field(
        default="receive",
        description="Spans are timed by when an event was received, or by its own `timestamp`.",
    )
    usage_spans: Literal["auto", "on", "off"] = Field(
        default="auto",
        description=(
            "Spans for a run's token usage; `auto` makes none where another instrumentation's LLM spans "
            "ended in the run."
        ),
    )
    raw_usage: bool = Field(
        default=False,
        description=(
            "Whether token counts are taken from RAW events of LangChain's model calls (ag-ui-langgraph sends them): "
            "usage for each agent. Nothing else of a RAW event is looked at."
        ),
    )
    metrics: bool = Field(default=True, description="Whether metrics are recorded.")
    agent_name: str | None = Field(
        default=None, description="The name of a run's own agent where the caller gives none."
    )
    user_id: str | None = Field(default=None, description="Recorded as `user.id` on every span.")
    anonymous_threads: tuple[str, ...] = Field(
        default=(), description="Thread ids (comma-separated) that stand for no session, such as `default`."
    )
    max_names: int = Field(
        default=200,
        ge=1,
        description="Agent names, tool names and error types that metrics tell apart; more are `other`.",
    )
    max_state_events: Events = Field(default=64, description="State updates recorded as span events of one span.")
    max_step_events: Events = Field(default=32, description="Folded steps recorded as span events of one span.")
    max_custom_events: Events = Field(default=16, description="CUSTOM events recorded as span events of one span.")
    max_note_events: Events = Field(default=16, description="Notes and violations, together, recorded on one span.")
    max_activity_events: Events = Field(default=16, description="Activities recorded as span events of one span.")
    max_paths: int = Field(default=64, ge=1, description="State paths named on one span or span event.")
    max_event_bytes: int = Field(
        default=10 * 1024 * 1024,
        ge=1024,
        description="Bytes of one event; a larger one is a malformed event.",
    )
    thread_memory: str = Field(
        default="memory://",
        repr=False,  # it may hold a password
        description=(
            "Where interrupted threads are remembered between runs: `memory://` (in the process), "
            "`sqlite:///relative/path` or `sqlite:////absolute/path` (a file, for the workers of one machine), "
            "`redis://host:6379/0`, `rediss://…` or `unix://…` (a server, for several machines)."
        ),
    )
    thread_memory_timeout: float = Field(
        default=0.25,
        gt=0,
        le=60,
        allow_inf_nan=False,
        description=(
            "Seconds that a shared store has for an answer. The host never waits for it; without an answer a run "
            "is traced without links to the runs before it."
        ),
    )
    thread_memory_ttl: float = Field(
        default=7 * 24 * 3600.0,
        gt=0,
        le=10 * 365 * 24 * 3600.0,
        allow_inf_nan=False,
        description="Seconds after which a thread is forgotten.",
    )
    thread_memory_size: int = Field(default=10_000, ge=1, description="Threads that are remembered at once.")
    genai_capture: bool | None = Field(
        default=None,
        description=(
            "The switch that GenAI instrumentations share: `true` is `full` and `false` is `metadata`, "
            "where capture is `auto`."
        ),
    )
    hide_inputs: bool = Field(
        default=False, description="Takes inputs, arguments and descriptions away from what is captured."
    )
    hide_outputs: bool = Field(
        default=False,
        description="Takes texts, results, state values and error messages away from what is captured.",
    )

    @field_validator("thread_memory")
    @classmethod
    def _known_memory(cls, url: str) -> str:
        memory_kind(url)
        return url

    if not TYPE_CHECKING:  # the signature that type checkers see is the one made from the fields

        def __init__(self, **arguments: Any) -> None:
            _warn_of_unknown_variables(os.environ)
            found = _from_environment(os.environ, without=arguments)
            values = {name: value for name, (_, value) in found.items()}
            try:
                super().__init__(**values, **arguments)
            except ValidationError as error:
                sources = {name: source for name, (source, _) in found.items()}
                raise ConfigurationError(_explain(error, sources)) from None

    def capture_content(self, exports_to_phoenix: bool) -> bool:
        """Whether content is captured, given whether `setup()` itself exports to Phoenix."""
        if self.capture != "auto":
            return self.capture == "full"
        if self.genai_capture is not None:
            return self.genai_capture
        return exports_to_phoenix


SQLITE = "sqlite:///"
_REDIS = ("redis://", "rediss://", "unix://")


def memory_kind(url: str) -> Literal["memory", "sqlite", "redis"]:
    """Which store `url` names. Raises `ConfigurationError` where it is none, or what it needs is not installed."""
    if url == "memory://":
        return "memory"
    if url.startswith(SQLITE) and url != SQLITE:
        return "sqlite"
    if url.startswith(_REDIS) and url not in _REDIS:
        if find_spec("redis") is None:
            raise ConfigurationError("redis-py is needed for this: pip install 'agui-otel[redis]'")
        return "redis"
    raise ConfigurationError(
        "it should be memory://, sqlite:///path (sqlite:////path where it is absolute), "
        "or redis://host, rediss://host or unix:///socket"
    )


def without_password(url: object) -> str:
    """A URL as it may be shown: without its user, password and query.

    Of what may be meant otherwise than it is read only the scheme is shown: a text without ``://``, and a password with
    a ``?``.
    """
    scheme, separator, rest = str(url).partition("://")
    if not separator:
        name, colon, more = scheme.partition(":")
        return f"{name}:…" if colon and more else "…" if "@" in name else scheme
    if "?" in rest.rpartition("@")[0]:
        return f"{scheme}://…"
    rest = rest.partition("?")[0]
    return f"{scheme}{separator}{'…@' if '@' in rest else ''}{rest.rpartition('@')[2]}"


def _environment_names() -> dict[str, tuple[str, ...]]:
    names: dict[str, tuple[str, ...]] = {name: (PREFIX + name.upper(),) for name in Settings.model_fields}
    names["disabled"] += (SDK_DISABLED,)
    names["genai_capture"] = (GENAI_CAPTURE,)
    names["hide_inputs"] = ("OPENINFERENCE_HIDE_INPUTS",)
    names["hide_outputs"] = ("OPENINFERENCE_HIDE_OUTPUTS",)
    return names


ENVIRONMENT: Mapping[str, tuple[str, ...]] = _environment_names()
"""The environment variables of each option, the one that decides first."""


def checked(config: Settings | None) -> Settings | None:
    """`config` itself. Raises `ConfigurationError` for what is no `Settings`, such as a dict of them."""
    if config is not None and not isinstance(config, Settings):
        raise ConfigurationError(f"config should be a Settings, not {type(config).__name__}")
    return config


def switched_off(environ: Mapping[str, str] = os.environ) -> str | None:
    """The environment variable by which tracing is switched off; None where it is not."""
    found = _from_environment(environ, without={})
    return found["disabled"][0] if "disabled" in found and Settings().disabled else None


def variable(name: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """The environment variable's value without surrounding blanks, or None when unset or empty."""
    return environ.get(name, "").strip() or None


def _from_environment(environ: Mapping[str, str], without: Mapping[str, object]) -> dict[str, tuple[str, Any]]:
    """Option -> (variable, value that the option's type accepts), for what is set and is no argument."""
    found: dict[str, tuple[str, Any]] = {}
    for option, names in ENVIRONMENT.items():
        text = variable(names[0], environ)
        if text is not None and option not in without:
            found[option] = names[0], _read(option, text)
    if (variable(SDK_DISABLED, environ) or "").lower() == "true" and "disabled" not in without:
        found["disabled"] = SDK_DISABLED, True
    return found


def _read(option: str, text: str) -> Any:
    if option == "genai_capture":
        known = _GENAI_CAPTURE_VALUES.get(text.lower())
        if known is None:
            _warn_once(GENAI_CAPTURE, f"{GENAI_CAPTURE}={text!r} is not understood: no content is captured")
        return bool(known)
    annotation = Settings.model_fields[option].annotation
    if get_origin(annotation) is Literal:
        return text.lower()
    if get_origin(annotation) is tuple:
        return tuple(part for part in map(str.strip, text.split(",")) if part)
    return text


def _explain(error: ValidationError, sources: Mapping[str, str]) -> str:
    """One clause for each wrong value: its variable or argument, the value, and what is allowed."""
    clauses = []
    for detail in error.errors(include_url=False):
        option = str(detail["loc"][0])
        if detail["type"] == "extra_forbidden":
            clauses.append(f"{option}: there is no such setting{_suggest(option, Settings.model_fields)}")
        else:
            allowed = detail["msg"][:1].lower() + detail["msg"][1:]
            given = without_password(detail["input"]) if option == "thread_memory" else detail["input"]
            clauses.append(f"{sources.get(option, option)}={given!r}: {allowed.removeprefix('value error, ')}")
    return "; ".join(clauses)


def _suggest(name: str, known: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


_KNOWN_VARIABLES = frozenset(name for names in ENVIRONMENT.values() for name in names)
_warned: set[str] = set()


def _warn_of_unknown_variables(environ: Mapping[str, str]) -> None:
    """Log each variable with our prefix that names no option, once: it is most likely a slip."""
    for name in environ:
        if name.startswith(PREFIX) and name not in _KNOWN_VARIABLES:
            hint = _suggest(name, _KNOWN_VARIABLES)
            _warn_once(name, f"{name} is set but is no setting of agui-otel{hint}")


def _warn_once(name: str, sentence: str) -> None:
    if name not in _warned:
        _warned.add(name)
        _logger.warning("%s", sentence)
