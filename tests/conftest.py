"""Every test starts with an environment that says nothing about telemetry, whatever the shell's says.

And no test fails because the machine is slow: how long an example takes is no property of the package.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.support import services  # noqa: F401  (reads its variable before the tests' environment is cleaned)

_PREFIXES = ("AGUI_OTEL_", "OTEL_", "OPENINFERENCE_", "PHOENIX_")

settings.register_profile("any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away the variables that would configure this package, the SDK or Phoenix."""
    for name in list(os.environ):
        if name.startswith(_PREFIXES):
            monkeypatch.delenv(name)
