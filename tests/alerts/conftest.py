"""One pipeline for all tests of alerts and boards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.pipeline import Pipeline, pipeline


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """The way of an alert, from the collector to the webhook."""
    with pipeline(tmp_path_factory.mktemp("pipeline")) as made:
        yield made
