"""One reference client for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.oracle import Oracle


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    """AG-UI's reference client, skipped or required as `tests.support.services` says."""
    with Oracle() as running:
        yield running
