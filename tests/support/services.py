"""What a test needs from its machine (a browser, Node, Phoenix): skipped where missing, required in CI."""

from __future__ import annotations

import os

import pytest

REQUIRED = os.environ.get("TESTS_REQUIRE_SERVICES") == "1"


def require(available: bool, what: str) -> None:
    """Skip the test when `what` is missing; fail it where TESTS_REQUIRE_SERVICES=1 (as CI sets it)."""
    if available:
        return
    if REQUIRED:
        pytest.fail(f"{what} is missing, and TESTS_REQUIRE_SERVICES=1 requires it")
    pytest.skip(f"{what} is missing")
