"""The extra: what `agui_otel.smolagents` needs, and who does not need it."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("missing", ["smolagents", "ag_ui"])
def test_without_the_extra(missing: str) -> None:
    """What is missing is named, and how to install it; the package itself needs none of it."""
    done = run(f"import sys; sys.modules[{missing!r}] = None; import agui_otel; import agui_otel.smolagents")
    assert 1 == done.returncode
    assert "pip install 'agui-otel[smolagents]'" in done.stderr.splitlines()[-1]
    assert missing in done.stderr.splitlines()[-1]


def test_importing_hooks_nothing() -> None:
    """smolagents is as it was until somebody runs or traces an agent."""
    code = (
        "import smolagents; before = smolagents.MultiStepAgent.run; import agui_otel.smolagents;"
        "print(before is smolagents.MultiStepAgent.run)"
    )
    assert "True" == run(code).stdout.strip()
