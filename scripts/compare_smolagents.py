"""What smolagents' OpenInference instrumentor and this package show of the same runs, as Phoenix has it.

    python scripts/compare_smolagents.py            # run all, print the tables
    python scripts/compare_smolagents.py --write    # and write them into docs/smolagents.md

Each run is a process of its own, that exports to a Phoenix which this script starts; what is counted is what Phoenix
then has. The agents are real, their models are scripts (tests/support/agent_cases.py). Needs the test extra.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from agui_otel.phoenix import EmbeddedPhoenix, PhoenixClient  # noqa: E402

PAGE = ROOT / "docs" / "smolagents.md"
MARKS = ("<!-- measured -->\n", "<!-- end of what was measured -->\n")
OURS, THEIRS = "ours", "theirs"
BESIDE = ("ours, theirs", "theirs, ours")


@dataclass(frozen=True)
class Row:
    """A case. `failed`, `early`: how many of its agents fail, and end early (interrupted, out of steps).

    `known`: the instrumentor is told the script's model class, as if smolagents had shipped it.
    """

    title: str
    case: str
    failed: int = 0
    early: int = 0
    known: bool = False
    threads: bool = False


ROWS = (
    Row("a code manager calls an agent and a tool", "code_manager"),
    Row("the same, with a model class that smolagents ships", "code_manager", known=True),
    Row("two agents in parallel", "parallel"),
    Row("three levels", "three_levels"),
    Row("the same agent twice", "same_agent_twice"),
    Row("run summary", "run_summary"),
    Row("a managed agent raises, in parallel", "fails_in_parallel", failed=1),
    Row("a managed agent raises, from code", "fails_in_code", failed=1),
    Row("it raises, and the code catches it", "caught_in_code", failed=1),
    Row("out of steps, managed", "managed_max_steps", early=1),
    Row("out of steps, top", "top_max_steps", early=1),
    Row("the top agent fails", "top_fails", failed=1),
    Row("interrupted", "interrupted", early=2),
    Row("steps streamed, each taken in another thread", "code_manager", threads=True),
    Row("a shipped model class that reports no usage", "no_usage", known=True),
    Row("a tool that runs an agent", "tool_runs_agent"),
)


def run_case(row: Row, way: str, url: str, project: str) -> dict[str, Any]:
    """In a process of its own: run the case, and say what is true of the run."""
    import smolagents
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.trace import get_current_span

    from tests.support.agent_cases import CASES
    from tests.support.agents import Scripted, Witness

    if row.known:
        smolagents.Scripted = Scripted
    untraced = CASES[row.case]()
    Witness(untraced)
    bare = outcome(untraced, threads=False)
    exporter = OTLPSpanExporter(f"{url}/v1/traces")
    provider = TracerProvider(resource=Resource({"openinference.project.name": project}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    agent = CASES[row.case]()
    witness = Witness(agent)
    with counting_exports(exporter) as exported, logged() as messages:
        for one in way.split(", "):
            install(one, provider)
        found = outcome(agent, threads=row.threads)
    return {
        "exported": exported[0],
        "ran": len(witness.ran),
        "tokens": 15 * len(witness.markers) if row.case != "no_usage" else 0,
        "left": bool(get_current_span().get_span_context().is_valid),
        "logged": sum("detach" in message for message in messages),
        "same": bare == found,
    }


def install(way: str, provider: Any) -> None:
    """Trace in this way."""
    if way == OURS:
        from agui_otel import Settings
        from agui_otel.smolagents import trace_smolagents

        trace_smolagents(tracer_provider=provider, config=Settings(capture="full"))
    else:
        from openinference.instrumentation.smolagents import SmolagentsInstrumentor

        SmolagentsInstrumentor().instrument(tracer_provider=provider)


def outcome(agent: Any, *, threads: bool) -> str:
    """What the run returned, or the class of what it raised."""
    with redirect_stdout(StringIO()):
        try:
            return str(_in_threads(agent.run("the task", stream=True)) if threads else agent.run("the task"))
        except Exception as error:  # noqa: BLE001 - it is compared
            return type(error).__name__


def _in_threads(steps: Iterator[Any]) -> Any:
    taken: list[Any] = []
    more = True

    def pull() -> None:
        nonlocal more
        step = next(steps, None)
        more = step is not None
        taken.append(step)

    while more:
        thread = threading.Thread(target=pull)
        thread.start()
        thread.join()
    return taken[-2].output


@contextmanager
def counting_exports(exporter: Any) -> Iterator[list[int]]:
    """How many spans were exported."""
    count, export = [0], exporter.export

    def counted(spans: Any) -> Any:
        count[0] += len(spans)
        return export(spans)

    exporter.export = counted
    yield count


@contextmanager
def logged() -> Iterator[list[str]]:
    """What OpenTelemetry logs."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage().lower())  # type: ignore[method-assign]
    logging.getLogger("opentelemetry").addHandler(handler)
    yield messages


@dataclass
class Shown:
    """What Phoenix has of one run, beside what is true of it."""

    row: Row
    truth: dict[str, Any]
    spans: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The spans of an OpenInference kind."""
        return [span for span in self.spans if span["span_kind"] == kind]

    def agents(self) -> str:
        """Agents exported, of those that ran."""
        return f"{len(self.of('AGENT'))}/{self.truth['ran']}"

    def ours(self) -> str:
        """Agents that this package exported, of those that ran."""
        return f"{len(self._agents_of_ours())}/{self.truth['ran']}"

    def theirs(self) -> str:
        """Agents that the instrumentor exported, of those that ran."""
        return f"{len(self.of('AGENT')) - len(self._agents_of_ours())}/{self.truth['ran']}"

    def _agents_of_ours(self) -> list[dict[str, Any]]:
        return [span for span in self.of("AGENT") if span["name"].startswith("invoke_agent")]

    def failed(self) -> str:
        """Failed agents that are ERROR, of those that failed."""
        errors = [span for span in self.of("AGENT") if span["status_code"] == "ERROR"]
        return f"{len(errors)}/{self.row.failed}" if errors or self.row.failed else "-"

    def early(self) -> str:
        """Agents that say that they were interrupted, or out of steps."""
        told = [span for span in self.of("AGENT") if "max_steps" in _events(span) or "cancelled" in _outcome(span)]
        return f"{len(told)}/{self.row.early}" if self.row.early else "-"

    def orphans(self) -> str:
        """Spans whose parent was never exported."""
        known = {span["context"]["span_id"] for span in self.spans}
        return str(sum(span["parent_id"] is not None and span["parent_id"] not in known for span in self.spans))

    def traces(self) -> str:
        """Traces that the run is in."""
        return str(len({span["context"]["trace_id"] for span in self.spans}))

    def calls(self) -> str:
        """Tool spans that have the id of their call, of all."""
        tools = self.of("TOOL")
        return f"{sum('gen_ai.tool.call.id' in span['attributes'] for span in tools)}/{len(tools)}"

    def named(self) -> str:
        """Tool spans that are named after their tool, of all."""
        tools = self.of("TOOL")
        return f"{sum(str(span['attributes'].get('tool.name')) in span['name'] for span in tools)}/{len(tools)}"

    def tokens(self) -> str:
        """Tokens on LLM spans, from which Phoenix makes its sums, of those that were used."""
        found = sum(span["attributes"].get("llm.token_count.total", 0) for span in self.of("LLM"))
        return f"{found}/{self.truth['tokens']}"

    def session(self) -> str:
        """Spans with a session, of all."""
        return f"{sum('session.id' in span['attributes'] for span in self.spans)}/{len(self.spans)}"

    def behind(self) -> str:
        """What is left when the run is over."""
        left = ["context"] if self.truth["left"] else []
        return ", ".join([*left, *(["errors in the log"] if self.truth["logged"] else [])]) or "-"

    def same(self) -> str:
        """Whether the run gave what it gives untraced."""
        return "yes" if self.truth["same"] else "**no**"


def _events(span: dict[str, Any]) -> str:
    return json.dumps([event.get("attributes") for event in span.get("events", ())])


def _outcome(span: dict[str, Any]) -> str:
    return str(span["attributes"].get("agui.outcome", ""))


Columns = dict[str, Callable[[Shown], str]]

COLUMNS: Columns = {
    "agents": Shown.agents,
    "failed are ERROR": Shown.failed,
    "ended early": Shown.early,
    "orphans": Shown.orphans,
    "traces": Shown.traces,
    "calls with id": Shown.calls,
    "named": Shown.named,
    "tokens": Shown.tokens,
    "with session": Shown.session,
    "left behind": Shown.behind,
    "result as ever": Shown.same,
}


TOGETHER = {
    "agents of agui-otel": Shown.ours,
    "agents of OpenInference": Shown.theirs,
    **{name: COLUMNS[name] for name in ("orphans", "traces", "tokens", "left behind", "result as ever")},
}


def measure(client: PhoenixClient, number: int, way: str) -> Shown:
    """Run one case in one way, and read what has arrived."""
    project = f"{number} {way}"
    command = [sys.executable, __file__, "--one", str(number), way, client.url, project]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    truth = json.loads(done.stdout.splitlines()[-1])
    return Shown(ROWS[number], truth, client.wait_for_spans(project, truth["exported"]) if truth["exported"] else [])


def table(results: dict[tuple[int, str], Shown], ways: tuple[str, ...], columns: Columns) -> str:
    """A table: a case a row, a measure a column, the ways beside each other in each cell."""
    lines = [f"| case | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for number, row in enumerate(ROWS):
        if (number, ways[0]) in results:
            cells = (" · ".join(read(results[number, way]) for way in ways) for read in columns.values())
            lines.append(f"| {row.title} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def tables(client: PhoenixClient) -> str:
    """Both tables: each alone, and both at once."""
    alone = {(number, way): measure(client, number, way) for number in range(len(ROWS)) for way in (OURS, THEIRS)}
    both = {(number, way): measure(client, number, way) for number in (0, 3, 6, 8, 11) for way in BESIDE}
    return (
        f"\nEach alone: agui-otel · OpenInference.\n\n{table(alone, (OURS, THEIRS), COLUMNS)}"
        "\nBoth at once, into one project: agui-otel installed first · OpenInference installed first.\n\n"
        f"{table(both, BESIDE, TOGETHER)}\n"
    )


def main(arguments: list[str]) -> None:
    """Run one case, where the arguments say so; else all of them."""
    if arguments[:1] == ["--one"]:
        number, way, url, project = arguments[1:]
        print(json.dumps(run_case(ROWS[int(number)], way, url, project)))
        return
    with tempfile.TemporaryDirectory() as directory, EmbeddedPhoenix(Path(directory)) as server:
        found = tables(PhoenixClient(server.url))
    print(found)
    if "--write" in arguments:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
        _, _, after = rest.partition(MARKS[1])
        PAGE.write_text(before + MARKS[0] + found + MARKS[1] + after, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
