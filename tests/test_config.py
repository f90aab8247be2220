"""The settings: arguments over environment over defaults, and errors that say what to do."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pydantic import ValidationError

from agui_otel import config
from agui_otel.config import ENVIRONMENT, GENAI_CAPTURE, Settings, without_password
from agui_otel.errors import AguiOtelError, ConfigurationError

IN_THE_ENVIRONMENT = [
    ("disabled", "AGUI_OTEL_DISABLED", "true", True),
    ("disabled", "OTEL_SDK_DISABLED", "TRUE", True),
    ("disabled", "OTEL_SDK_DISABLED", "1", False),  # the specification knows "true" only
    ("capture", "AGUI_OTEL_CAPTURE", "metadata", "metadata"),
    ("steps", "AGUI_OTEL_STEPS", " Spans ", "spans"),
    ("max_value", "AGUI_OTEL_MAX_VALUE", "100", 100),
    ("metrics", "AGUI_OTEL_METRICS", "off", False),
    ("agent_name", "AGUI_OTEL_AGENT_NAME", "Planner", "Planner"),
    ("anonymous_threads", "AGUI_OTEL_ANONYMOUS_THREADS", "default, ,none", ("default", "none")),
    ("genai_capture", GENAI_CAPTURE, "SPAN_AND_EVENT", True),
    ("genai_capture", GENAI_CAPTURE, "no_content", False),
    ("hide_inputs", "OPENINFERENCE_HIDE_INPUTS", "true", True),
    ("hide_outputs", "OPENINFERENCE_HIDE_OUTPUTS", "true", True),
]


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is logged once a process is logged in each of these tests."""
    monkeypatch.setattr(config, "_warned", set())


@pytest.mark.parametrize(("option", "variable", "text", "expected"), IN_THE_ENVIRONMENT)
def test_environment(option: str, variable: str, text: str, expected: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each option is read from its variable, in the form that its type has there."""
    monkeypatch.setenv(variable, text)
    assert expected == getattr(Settings(), option)


def test_every_option_has_a_variable_of_its_own() -> None:
    """No two options share a variable, and ours are named after the option."""
    first = {option: names[0] for option, names in ENVIRONMENT.items()}
    assert len(first) == len(set(first.values()))
    ours = {option: name for option, name in first.items() if name.startswith("AGUI_OTEL_")}
    assert ours == {option: f"AGUI_OTEL_{option.upper()}" for option in ours}
    assert {"genai_capture", "hide_inputs", "hide_outputs"} == set(first) - set(ours)


def test_an_empty_variable_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty or blank variable is as if it were not there, as the OpenTelemetry specification asks."""
    monkeypatch.setenv("AGUI_OTEL_STEPS", "")
    monkeypatch.setenv("AGUI_OTEL_MAX_VALUE", "  ")
    assert Settings().model_dump() == Settings(steps="events", max_value=16_384).model_dump()


def test_an_argument_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keyword argument wins over the environment, even over a value there that is wrong."""
    monkeypatch.setenv("AGUI_OTEL_STEPS", "sometimes")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    settings = Settings(steps="off", disabled=False)
    assert (settings.steps, settings.disabled) == ("off", False)


def test_either_switch_disables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK's switch is not undone by ours."""
    monkeypatch.setenv("AGUI_OTEL_DISABLED", "false")
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert Settings().disabled is True


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("AGUI_OTEL_STEPS", "sometimes", "'events', 'spans' or 'off'"),
        ("AGUI_OTEL_MAX_VALUE", "0", "greater than or equal to 1"),
        ("AGUI_OTEL_MAX_VALUE", "16KiB", "integer"),
        ("AGUI_OTEL_MAX_STATE_EVENTS", "129", "less than or equal to 128"),
        ("AGUI_OTEL_THREAD_MEMORY_TTL", "inf", "finite"),
        ("AGUI_OTEL_DISABLED", "maybe", "boolean"),
        ("OPENINFERENCE_HIDE_INPUTS", "ture", "boolean"),
    ],
)
def test_a_wrong_variable(variable: str, text: str, allowed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of a wrong variable names the variable, its value and what is allowed."""
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigurationError) as caught:
        Settings()
    message = str(caught.value)
    assert message.startswith(f"{variable}={text!r}: ")
    assert allowed in message


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"ambient": "sibling"}, "ambient='sibling': input should be 'auto', 'child', 'link' or 'ignore'"),
        ({"step": "off"}, "step: there is no such setting; did you mean steps?"),
        ({"zzz": 1}, "zzz: there is no such setting"),
        (
            {"max_names": 0, "max_paths": 0},
            "max_names=0: input should be greater than or equal to 1; "
            "max_paths=0: input should be greater than or equal to 1",
        ),
    ],
)
def test_a_wrong_argument(arguments: dict[str, Any], expected: str) -> None:
    """The error of a wrong argument names it too; several are told at once."""
    with pytest.raises(ConfigurationError) as caught:
        Settings(**arguments)
    assert expected == str(caught.value)


def test_the_error_is_ours_and_a_value_error() -> None:
    """A wrong setting can be caught as this package's error or as Python's."""
    assert issubclass(ConfigurationError, AguiOtelError)
    assert issubclass(ConfigurationError, ValueError)


def test_frozen() -> None:
    """Settings cannot be changed once they are made."""
    settings = Settings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.steps = "off"


@pytest.mark.parametrize(
    ("capture", "genai", "to_phoenix", "expected"),
    [
        ("auto", None, True, True),
        ("auto", None, False, False),
        ("auto", True, False, True),
        ("auto", False, True, False),
        ("full", False, False, True),
        ("metadata", True, True, False),
    ],
)
def test_capture(capture: Any, genai: bool | None, to_phoenix: bool, expected: bool) -> None:
    """Trace model, content and privacy: our capture, then the GenAI variable, then where `setup` exports."""
    settings = Settings(capture=capture, genai_capture=genai)
    assert expected == settings.capture_content(to_phoenix)


def test_an_unknown_genai_value_captures_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A value that is not understood sets no content free; as another tool's variable it is no error."""
    monkeypatch.setenv(GENAI_CAPTURE, "everything")
    assert Settings().capture_content(exports_to_phoenix=True) is False
    assert [f"{GENAI_CAPTURE}='everything' is not understood: no content is captured"] == caplog.messages


def test_a_slip_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A variable with our prefix that names no option is a warning, once a process, with a suggestion."""
    monkeypatch.setenv("AGUI_OTEL_STEP", "spans")
    with caplog.at_level(logging.WARNING, "agui_otel"):
        Settings()
        Settings()
    assert ["AGUI_OTEL_STEP is set but is no setting of agui-otel; did you mean AGUI_OTEL_STEPS?"] == caplog.messages


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host/0?password=secret", "redis://…@host/0"),
        ("redis://:sec?ret@host/0", "redis://…"),
        ("redis://:s@cret@host", "redis://…@host"),
        ("redis:secret@host", "redis:…"),
        ("user-secret@host", "…"),
        ("redis://host/0", "redis://host/0"),
        ("sqlite:///a.db", "sqlite:///a.db"),
        ("nothing", "nothing"),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str) -> None:
    """However a URL is mistyped."""
    assert shown == without_password(url)


def test_a_time_that_no_store_can_keep() -> None:
    """Ten years are the most."""
    Settings(thread_memory_ttl=10 * 365 * 86400.0)
    with pytest.raises(ConfigurationError, match="thread_memory_ttl"):
        Settings(thread_memory_ttl=1e300)
