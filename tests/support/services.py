"""What a test needs from its machine (a browser, Node, Phoenix): skipped where missing, required in CI."""

from __future__ import annotations

import os

import pytest

REQUIRED = os.environ.get("AGUI_OTEL_REQUIRE_SERVICES") == "1"


def require(available: bool, what: str) -> None:
    """Skip the test when `what` is missing; fail it where AGUI_OTEL_REQUIRE_SERVICES=1 (as CI sets it)."""
    if available:
        return
    if REQUIRED:
        pytest.fail(f"{what} is missing, and AGUI_OTEL_REQUIRE_SERVICES=1 requires it")
    pytest.skip(f"{what} is missing")
