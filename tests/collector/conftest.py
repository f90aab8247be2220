"""One Phoenix for the tests that need a real one: its start takes longer than most of them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from agui_otel.phoenix import EmbeddedPhoenix
from tests.support import services
from tests.support.servers import free_port


@pytest.fixture(scope="session")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPhoenix]:
    """A Phoenix on SQLite that a test may stop and start again: it keeps its ports and its database."""
    services.require(find_spec("phoenix") is not None, "arize-phoenix")
    directory = tmp_path_factory.mktemp("phoenix")
    with EmbeddedPhoenix(directory, port=free_port(), grpc_port=free_port()) as running:
        yield running
