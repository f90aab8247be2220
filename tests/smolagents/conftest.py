"""Errors of the bridge are raised, smolagents prints nothing, and the reference client is at hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.oracle import Oracle
from tests.support.traced import strict


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """AG-UI's reference client, skipped or required as `tests.support.services` says."""
    with Oracle() as running:
        yield running


@pytest.fixture(autouse=True)
def raising() -> Iterator[None]:
    """What the boundary would swallow is a test's failure."""
    with strict():
        yield
