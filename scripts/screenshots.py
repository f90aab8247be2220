"""Make the pictures of the documentation: the demonstration, the alert of its failure, and smolagents, in Phoenix.

    python scripts/screenshots.py [demonstration] [alert] [smolagents]     # all where none is named

Needs the test extra, Chromium, Prometheus, Alertmanager and the collector; look at what it made before committing it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from agui_otel.cli.demo import PROJECT  # noqa: E402
from agui_otel.phoenix import EmbeddedPhoenix, PhoenixClient, session_url, trace_url  # noqa: E402
from scripts.compare_smolagents import OURS, ROWS, THEIRS  # noqa: E402
from tests.support import monitoring  # noqa: E402
from tests.support.browser import browser_page  # noqa: E402
from tests.support.pipeline import Pipeline, demonstrate, pipeline, service  # noqa: E402

IMAGES = ROOT / "docs" / "images"


def main(wanted: list[str]) -> None:
    """Make the pictures that are wanted."""
    IMAGES.mkdir(exist_ok=True)
    for name, make in PICTURES.items():
        if not wanted or name in wanted:
            make()


def picture_smolagents() -> None:
    """Run two parallel agents, one of which fails, and take a picture of what each tracer has of it."""
    number = next(str(number) for number, row in enumerate(ROWS) if row.case == "fails_in_parallel")
    with tempfile.TemporaryDirectory() as directory, EmbeddedPhoenix(Path(directory)) as server:
        for way, picture, first in (
            (OURS, "smolagents-agui-otel.png", "invoke_agent web"),
            (THEIRS, "smolagents-openinference.png", "other.run"),
        ):
            command = [sys.executable, "scripts/compare_smolagents.py", "--one", number, way, server.url, way]
            subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            spans = PhoenixClient(server.url).wait_for_spans(way, 10)
            with browser_page(height=760) as page:
                page.goto(trace_url(server.url, spans[0]["context"]["trace_id"]))
                page.get_by_text(first).last.click(timeout=60_000)
                page.wait_for_timeout(2500)
                page.screenshot(path=IMAGES / picture)


def picture_demonstration() -> None:
    """Run the demonstration once, and take a picture of its first trace and of its session."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "agui_otel.cli.main", "demo", "--once", "--dir", directory]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with EmbeddedPhoenix(Path(directory)) as server, browser_page(height=1380) as page:
            (session,) = PhoenixClient(server.url).sessions(PROJECT)
            page.goto(trace_url(server.url, session["traces"][0]["trace_id"]))
            page.get_by_text("invoke_agent restaurant-scout").first.click()
            page.get_by_text("tables.example did not answer").first.wait_for()
            page.wait_for_timeout(1500)
            page.screenshot(path=IMAGES / "phoenix-trace.png")
            page.set_viewport_size({"width": 1500, "height": 900})
            page.goto(session_url(server.url, session["session_id"]))
            page.get_by_text("All set").last.wait_for()
            page.wait_for_timeout(1500)
            page.screenshot(path=IMAGES / "phoenix-session.png")


def picture_alert() -> None:
    """Let the demonstration's subagent fail behind a collector; where the page's link leads."""
    with tempfile.TemporaryDirectory() as directory, pipeline(Path(directory)) as running:
        with service("travel", running.collector) as handle:
            demonstrate(handle)
        alert = monitoring.wait_for("the page", lambda: _page(running))
        with browser_page(height=700) as page:
            page.goto(alert["annotations"]["phoenix_url"])
            page.locator("table a").first.wait_for()
            page.wait_for_timeout(1500)
            page.screenshot(path=IMAGES / "alert-phoenix.png")


def _page(running: Pipeline) -> dict[str, Any] | None:
    found = [alert for alert in running.webhook.alerts("/page", "firing") if alert["labels"]["service"] == "travel"]
    return found[0] if found else None


PICTURES = {"demonstration": picture_demonstration, "alert": picture_alert, "smolagents": picture_smolagents}

if __name__ == "__main__":
    main(sys.argv[1:])
