"""What exporters say of spans that were not taken: they log it, and raise nothing."""

from __future__ import annotations

import logging


class Refusals(logging.Handler):
    """Takes note of the first such message, as long as its `with` block lasts."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.first: str | None = None
        self._logger = logging.getLogger("opentelemetry.exporter")

    def emit(self, record: logging.LogRecord) -> None:
        """Take note of a message."""
        message = record.getMessage()
        if self.first is None and "metric" not in record.name + message:
            self.first = message

    def __enter__(self) -> None:
        self._logger.addHandler(self)

    def __exit__(self, *error: object) -> None:
        self._logger.removeHandler(self)
