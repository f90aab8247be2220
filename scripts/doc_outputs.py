"""Run what the pages show, and write down what came out; with --check, say where a page differs.

python scripts/doc_outputs.py [--check]

In a page `<!-- run -->` stands above a block that is run. Python runs in a process of its own, in an empty directory;
what it prints is the block that follows, if `<!-- output -->` stands above that. Lines of the comment between
`<!-- run` and `-->` are Python that runs first and is not shown. In a console block each line after `$ ` is a command,
run in the repository's root, and its output follows.

Nothing is exported, and the environment says nothing about telemetry.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))

_RUN = re.compile(
    r"^<!-- run(?P<hidden>\n.*?)?\s*-->\n```(?P<language>python|console)\n(?P<code>.*?)^```\n"
    r"(?:\n(?:[^`<\n][^\n]*\n\n)?<!-- output -->\n```text\n(?P<output>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
_TELEMETRY = ("AGUI_OTEL_", "OTEL_", "OPENINFERENCE_", "PHOENIX_")


@dataclass(frozen=True)
class Example:
    """A block that is run: where its output stands in the page (`start`, `end`), and what stands there."""

    line: int
    language: str
    code: str
    start: int
    end: int
    shown: str

    def run(self) -> str:
        """Run it; return what should stand where its output is. Raises `CalledProcessError` where Python fails."""
        return _run_python(self.code) if self.language == "python" else _run_console(self.code)


def examples(page: str) -> Iterator[Example]:
    """The blocks of a page that are run."""
    for match in _RUN.finditer(page):
        line = page.count("\n", 0, match.start("code"))
        language, code = match["language"], match["code"]
        if language == "console":
            yield Example(line, language, code, match.start("code"), match.end("code"), code)
        else:
            start, end = match.span("output") if match["output"] is not None else (match.end(), match.end())
            yield Example(line, language, f"{match['hidden'] or ''}\n{code}", start, end, match["output"] or "")


def updated(page: str) -> str:
    """The page with what its blocks print now; where a block shows no output, none is put in."""
    for example in reversed(list(examples(page))):
        if example.shown:
            page = page[: example.start] + example.run() + page[example.end :]
    return page


def environment() -> dict[str, str]:
    """The environment of a block: this interpreter's commands first, and nothing exported."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_TELEMETRY)}
    commands = os.pathsep.join((str(Path(sys.executable).parent), kept.get("PATH", "")))
    return {**kept, "PATH": commands, "OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}


def _run_python(code: str) -> str:
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-c", code]
        ended = subprocess.run(
            command, cwd=directory, env=environment(), capture_output=True, text=True, check=False, timeout=60
        )
    if ended.returncode:
        sys.stderr.write(ended.stderr)
        ended.check_returncode()
    return ended.stdout


def _run_console(block: str) -> str:
    commands = [line for line in block.splitlines() if line.startswith("$ ")]
    return "".join(f"{line}\n{_output_of(line.removeprefix('$ '))}" for line in commands)


def _output_of(command: str) -> str:
    ended = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    if "Traceback" in ended.stdout:
        sys.stderr.write(ended.stdout)
        raise subprocess.CalledProcessError(ended.returncode, command)
    return "".join(f"{line.rstrip()}\n" for line in ended.stdout.splitlines())


def main(arguments: list[str]) -> int:
    """Write the pages' outputs, or with --check compare them; 1 when one is not current."""
    status = 0
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        current = updated(page)
        if current == page:
            continue
        if "--check" in arguments:
            print(f"{path}: an output is not current: run python scripts/doc_outputs.py", file=sys.stderr)
            status = 1
        else:
            path.write_text(current, encoding="utf-8")
            print(f"{path}: written")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
