"""Run where the compose file's ports are: play the demonstration, and print what came of it, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from agui_otel.exporting import setup
from agui_otel.phoenix import PhoenixClient, PhoenixError
from tests.support import monitoring
from tests.support.pipeline import demonstrate

SERVICE = "demonstration"


def main() -> None:
    """Be the agents, and the person who is paged."""
    with monitoring.webhook("0.0.0.0", 9095) as webhook:
        with setup(endpoint="http://localhost:4318", service_name=SERVICE, set_global=False) as handle:
            demonstrate(handle)
        pages = monitoring.wait_for("the page", lambda: webhook.alerts("/page", "firing"), 180)
        phoenix = PhoenixClient("http://localhost:6006")
        monitoring.wait_for("Phoenix", lambda: _is_up(phoenix), 180)
        spans = phoenix.wait_for_spans("default", 20)
        json.dump({"pages": pages, "spans": [span["attributes"].get("service.name") for span in spans]}, sys.stdout)


def _is_up(phoenix: PhoenixClient) -> bool:
    try:
        phoenix.ping()
    except PhoenixError:  # it is only starting
        return False
    return True


if __name__ == "__main__":
    main()
