"""Run where the compose file's ports are: play the demonstration, and print what came of it, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from agui_otel.cli.script import START, Conversation
from agui_otel.exporting import setup
from agui_otel.phoenix import PhoenixClient
from tests.support import monitoring
from tests.support.pipeline import play

SERVICE = "demonstration"


async def _all(events: AsyncIterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event async for event in events]


def main() -> None:
    """Be the agents, and the person who is paged."""
    with monitoring.webhook("0.0.0.0", 9095) as webhook:
        with setup(endpoint="http://localhost:4318", service_name=SERVICE, set_global=False) as handle:
            conversation = Conversation("offsite")
            given = conversation.input(1, state=START)
            play(handle, asyncio.run(_all(conversation.first_run(given))), input=given)
        pages = monitoring.wait_for("the page", lambda: webhook.alerts("/page", "firing"), 180)
        phoenix = PhoenixClient("http://localhost:6006")
        monitoring.wait_for("Phoenix", lambda: _is_up(phoenix), 180)
        spans = phoenix.wait_for_spans("default", 20)
        json.dump({"pages": pages, "spans": [span["attributes"].get("service.name") for span in spans]}, sys.stdout)


def _is_up(phoenix: PhoenixClient) -> bool:
    try:
        phoenix.ping()
    except Exception:  # noqa: BLE001 - it is only starting
        return False
    return True


if __name__ == "__main__":
    main()
