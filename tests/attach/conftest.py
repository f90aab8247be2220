"""Every test of a way in has providers of its own, reads its own environment, and hears what is logged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.context import get_current

from agui_otel.attach.observe import environment_settings
from agui_otel.tracing import boundary
from agui_otel.tracing.boundary import Boundary
from agui_otel.tracing.memory import open_memory
from tests.support.watched import Alarm, Watched, alarm

NOWHERE = "agui-otel: spans and metrics go nowhere"


@pytest.fixture(autouse=True)
def fresh_process(quiet_environment: None) -> Iterator[None]:  # noqa: ARG001 (it comes first)
    """What is kept once a process is as in a new one; this package's own errors are raised; nothing stays attached."""
    environment_settings.cache_clear()
    open_memory("memory://").close()
    boundary._told.clear()
    Boundary.strict = True
    yield
    Boundary.strict = False
    assert {} == get_current()


@pytest.fixture
def harmless() -> Iterator[None]:
    """This package's own errors are swallowed, as in a host."""
    Boundary.strict = False
    yield
    Boundary.strict = True


@pytest.fixture
def heard() -> Iterator[Alarm]:
    """What is logged; the test says what it expects."""
    with alarm() as sounding:
        yield sounding
        sounding.messages.clear()


@pytest.fixture(autouse=True)
def nothing_is_logged(request: pytest.FixtureRequest) -> Iterator[None]:
    """A warning is an error, but in a test that listens; that a test has no providers is said once a process."""
    if "heard" in request.fixturenames:
        yield
        return
    with alarm() as sounding:
        yield
    assert [] == [message for message in sounding.messages if not message.startswith(NOWHERE)]


@pytest.fixture
def watched() -> Watched:
    """Providers for one test."""
    return Watched()
