"""What is shipped, and which part may know which."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "agui_otel"
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

LAYERS = ("protocol", "tracing", "exporting", "attach", "tools", "cli")
"""Each may import itself and what stands left of it. The tools are the modules beside the layers."""
FOUNDATION = {"agui_otel.config": {"pydantic", "agui_otel.errors"}, "agui_otel.errors": set[str]()}
"""Imported by all; beside the standard library they may import only these."""
HEAVY = {
    "ag_ui",
    "fastapi",
    "grpc",
    "opentelemetry.sdk",
    "httpcore2",
    "httpx",
    "phoenix",
    "requests",
    "rich",
    "smolagents",
    "sqlalchemy",
    "starlette",
    "uvicorn",
}


def layer(module: str) -> str:
    """The layer of a module of this package."""
    part = module.split(".")[1]
    return part if part in LAYERS else "tools"


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


def layered() -> list[str]:
    """The modules that stand in a layer."""
    return [name for name in MODULES if name != "agui_otel" and name not in FOUNDATION]


@pytest.mark.parametrize("module", layered())
def test_imports_point_left(module: str) -> None:
    """A module imports its own layer and the ones left of it, and not the package's public face."""
    allowed = LAYERS[: LAYERS.index(layer(module)) + 1]
    for imported in imports(MODULES[module]):
        if imported == "agui_otel":
            assert layer(module) in ("tools", "cli"), f"{module} imports the package's public names"
        elif imported.startswith("agui_otel.") and imported not in FOUNDATION:
            assert layer(imported) in allowed, f"{module} imports {imported}"


@pytest.mark.parametrize("module", FOUNDATION)
def test_the_foundation_stands_alone(module: str) -> None:
    """Settings and errors import the standard library and pydantic."""
    for imported in imports(MODULES[module]):
        top = imported.split(".")[0]
        assert top in sys.stdlib_module_names or {top, imported} & FOUNDATION[module], imported


@pytest.mark.parametrize("module", [name for name in layered() if layer(name) == "protocol"])
def test_the_protocol_is_pure(module: str) -> None:
    """`protocol/` knows no OpenTelemetry, no network, no thread and no clock."""
    forbidden = {
        "opentelemetry",
        "asyncio",
        "http",
        "socket",
        "ssl",
        "subprocess",
        "threading",
        "time",
        "urllib",
    }
    assert {imported.split(".")[0] for imported in imports(MODULES[module])} & forbidden == set()


def test_importing_is_light() -> None:
    """`import agui_otel` brings in no Phoenix, no server, no HTTP client, no gRPC and no terminal library."""
    code = "import sys, agui_otel; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & HEAVY == set()


def test_the_wheel(tmp_path: Path) -> None:
    """The wheel is built from the repository: the whole package, marked as typed, with its command."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (entry_points,) = (name for name in names if name.endswith("entry_points.txt"))
        commands = archive.read(entry_points).decode()
    sources = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*") if path.is_file()}
    shipped = {name for name in names if name.startswith("agui_otel/")}
    assert {name for name in sources if "__pycache__" not in name} == shipped
    assert "agui_otel/py.typed" in shipped
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert "agui-otel = agui_otel.cli.main:main" in commands


@pytest.mark.parametrize("path", MODULES.values(), ids=MODULES)
def test_files_and_functions_are_short(path: Path) -> None:
    """No file has more than 400 lines, and no function more than 60 beside its docstring."""
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            start = node.body[0].lineno if ast.get_docstring(node) is None else node.body[0].end_lineno
            assert node.end_lineno is not None
            assert start is not None
            assert node.end_lineno - start < 60, node.name
