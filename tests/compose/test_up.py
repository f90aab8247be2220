"""The compose file, brought up by a real engine: a subagent of the demonstration fails, and the webhook hears of it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import monitoring
from tests.support.composed import SECRETS, compose, model
from tests.support.engine import Engine, engine, import_images, written

pytestmark = pytest.mark.slow

SERVICES = ["postgres", "phoenix", "collector", "collector-health", "prometheus", "alertmanager"]
"""All of the default profile but Grafana, of which there is no program here."""


@pytest.fixture(scope="module")
def up() -> Iterator[Engine]:
    """The services, from `docker compose up`. The folder has a short name, because a socket's path is bounded."""
    monitoring.require(monitoring.PROMETHEUS, monitoring.ALERTMANAGER)
    with tempfile.TemporaryDirectory(prefix="up-") as name, engine(Path(name)) as made:
        images = [service["image"] for service in model("default").values()]
        import_images(made, images)
        given = {**SECRETS, "DOCKER_HOST": made.environment["DOCKER_HOST"]}
        more = (written(Path(name)),)
        try:
            status, _, err = compose(
                "up", "-d", "--pull", "never", *SERVICES, profile="default", given=given, more=more
            )
            assert 0 == status, err
            yield made
        finally:
            compose("down", "-v", "-t", "1", profile="default", given=given, more=more)


def test_a_failure_reaches_the_webhook(up: Engine) -> None:
    """Through the published ports and the services' names, with the file's own intervals; Phoenix has the trace."""
    script = Path(__file__).parent / "demonstration.py"
    ran = up.inside(sys.executable, str(script))
    assert 0 == ran.returncode, ran.stderr
    told = json.loads(ran.stdout)
    (page,) = told["pages"]
    assert ("AGUISubagentFailed", "demonstration", "restaurant-scout") == (
        page["labels"]["alertname"],
        page["labels"]["service"],
        page["labels"]["agent"],
    )
    assert page["annotations"]["phoenix_url"].startswith("http://localhost:6006/projects/UHJvamVjdDox/spans?")
    assert "http://localhost:9090/user/runbooks/subagent-failed.md" == page["annotations"]["runbook_url"]
    assert {"demonstration"} == set(told["spans"])


def test_doctor_knows_its_way(up: Engine) -> None:
    """`agui-otel doctor --compose` finds each service that is there, and says which one is not."""
    ran = up.inside(sys.executable, "-m", "agui_otel.cli.main", "doctor", "--compose")
    assert "ok     the test span went through the collector to Phoenix" in ran.stdout
    assert "put your receivers in their place" in ran.stdout
    assert "wrong  grafana does not answer at http://localhost:3000/api/health: " in ran.stdout
    assert 1 == ran.returncode
