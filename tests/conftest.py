"""Every test starts with an environment that says nothing about telemetry, whatever the shell's says."""

from __future__ import annotations

import os

import pytest

from tests.support import services  # noqa: F401  (reads its variable before the tests' environment is cleaned)

_PREFIXES = ("AGUI_OTEL_", "OTEL_", "OPENINFERENCE_", "PHOENIX_")


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away the variables that would configure this package, the SDK or Phoenix."""
    for name in list(os.environ):
        if name.startswith(_PREFIXES):
            monkeypatch.delenv(name)
