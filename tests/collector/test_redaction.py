"""collector.yaml: what must not leave, and where it was looked for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from agui_otel import Settings, trace_events
from agui_otel.exporting import Handle
from tests.support.canaries import ASKED, CANARY, first_run, second_run, third_run
from tests.support.collectors import CONFIGURATIONS, DEFAULT, Collector, collector, wait_for
from tests.support.load import attributes, span
from tests.support.pipeline import service
from tests.support.receivers import Received, http_receiver
from tests.support.redacted import through
from tests.support.servers import eventually
from tests.support.wire import flat

pytestmark = pytest.mark.slow

SHAPED = {
    "OpenAI": "sk-{}0123456789abcdef",
    "Stripe": "sk_live_{}0123456789abcdef",
    "JSON Web Token": "eyJhbGciOiJI.eyJ{}0123456789.SflKxwRJSMeKKF",
    "Authorization": "Bearer {}0123456789abcdef",
}
"""Secrets that are known by their shape, whatever they are called. `{}` is the canary."""


def planted(value: Any, shape: str) -> Any:
    """The same JSON with a secret of this shape in the place of every canary."""
    text = CANARY.sub(lambda found: shape.format("CANARY" + re.sub(r"\W", "", found[0])), json.dumps(value))
    return json.loads(text)


def leak(handle: Handle, shape: str) -> None:
    """Trace three runs of a thread with a secret in every field of their events and inputs."""
    name = shape.format("CANARYagent")

    def run(events: Any, given: Any = None, error: Exception | None = None) -> None:
        def source() -> Iterator[Any]:
            yield from planted(list(flat([events])), shape)
            if error is not None:
                raise error

        stream = trace_events(
            source(),
            input=planted(given, shape),
            agent_name=name,
            attributes={"team": name},
            config=Settings(capture="full", user_id=name),
            tracer_provider=handle.tracer_provider,
            meter_provider=handle.meter_provider,
        )
        try:
            list(stream)
        except RuntimeError:
            assert error is not None

    run(first_run())
    run(second_run(), given=ASKED)
    run(third_run(), error=RuntimeError(name))


def places(running: Collector, sink: Received, directory: Path) -> dict[str, str]:
    """Everything that left the collector, or that it wrote down."""
    return {
        "traces": "\n".join(map(str, sink.traces)),
        "headers of the requests": str(sink.headers),
        "metrics": running.page(),
        "metrics of its own": running.page("telemetry"),
        "log": running.log.read_text(),
        "queue on disk": "".join(
            file.read_bytes().decode("latin-1") for file in (directory / "queue").rglob("*") if file.is_file()
        ),
    }


@pytest.mark.parametrize("shape", SHAPED.values(), ids=SHAPED)
def test_canaries_in_every_field(shape: str, tmp_path: Path) -> None:
    """With content captured in full, no secret-like string is in anything that leaves."""
    looked = _leaked(tmp_path, shape)
    assert {} == {where: found for where, text in looked.items() if (found := _around("CANARY", text))}
    assert ["traces", "headers of the requests", "metrics", "metrics of its own", "log", "queue on disk"] == [*looked]
    assert "****" in looked["traces"]
    assert "****" in looked["metrics"]


def test_canaries_without_redaction(tmp_path: Path) -> None:
    """The test above can fail: without the redacting processors the secrets are everywhere but in the log."""
    bare = ("traces", "metrics")
    looked = _leaked(
        tmp_path, SHAPED["OpenAI"], *(f"yaml:service::pipelines::{name}::processors: [memory_limiter]" for name in bare)
    )
    assert ["traces", "metrics", "queue on disk"] == [where for where, text in looked.items() if "CANARY" in text]
    for field in ("name: ", "message: ", "string_value: "):
        assert re.search(f'{field}"[^"]*CANARY', looked["traces"])


def _leaked(directory: Path, shape: str, *overlays: str) -> dict[str, str]:
    """All places, after a service has sent three runs full of secrets."""
    with (
        http_receiver() as sink,
        collector(
            directory,
            (*DEFAULT, *overlays),
            PHOENIX_COLLECTOR_ENDPOINT=sink.url,
            AGUI_COLLECTOR_FLUSH_INTERVAL="200ms",
        ) as running,
    ):
        with service("leaky", running) as handle:
            leak(handle, shape)
        wait_for(1, running, "agui_spans_calls_total", agui_level="run", agui_outcome="error")
        wait_for(1, running, "agui_run_errors_total")
        accepted = running.total("otelcol_receiver_accepted_spans_total", "telemetry")
        eventually(lambda: len(sink.otlp_spans()) == accepted)
        return places(running, sink, directory)


def _around(canary: str, text: str) -> list[str]:
    return [text[max(0, found.start() - 80) : found.end() + 20] for found in re.finditer(canary, text)][:3]


BLOCKED = (
    *("password", "user_passwd", "API-Key", "apiKey", "client_secret", "Authorization", "Set-Cookie"),
    *("access_token", "token", "pwd", "privateKey", "credentials"),
)
HARMLESS = ("city", "max_tokens", "user", "content", "tokens", "key")


def document(random: Random, depth: int = 0) -> Any:
    """Random JSON: what a blocked key holds has canaries, what other keys hold has the word KEPT."""
    kind = random.choice(("object", "array", "string", "text", "number") if depth < 4 else ("text", "number"))
    if kind == "object":
        made = {random.choice(HARMLESS): document(random, depth + 1) for _ in range(random.randrange(4))}
        if random.random() < 0.7:
            made[random.choice(BLOCKED)] = secret(random, 2)
        return made
    if kind == "array":
        return [document(random, depth + 1) for _ in range(random.randrange(4))]
    if kind == "string":
        return json.dumps(document(random, depth + 2))
    return "KEPT" if kind == "text" else 7


def secret(random: Random, depth: int) -> Any:
    """What a blocked key holds: text with any characters, or a few levels of JSON of it."""
    kind = random.choice(("text", "text", "object", "array") if depth else ("text",))
    if kind == "object":
        return {"of": secret(random, depth - 1), "for": "CANARY"}
    if kind == "array":
        return [secret(random, depth - 1), "CANARY"]
    odd = "".join(random.choices("aé \\\"\n\t/:,'", k=random.randrange(8)))
    return f"{odd}CANARY{odd}"


def test_blocked_keys_inside_json(tmp_path: Path) -> None:
    """JSON text keeps its form, and loses what a blocked key holds: at any depth, and in JSON within JSON."""
    documents = [document(Random(seed)) for seed in range(2000)]
    texts = [json.dumps(item, ensure_ascii=seed % 2 == 0) for seed, item in enumerate(documents)]
    received = through(tmp_path, [span(None, {"output.value": text}) for text in texts])
    redacted = [item.attributes[0].value.string_value for item in received]
    assert [] == [(text, got) for text, got in zip(texts, redacted, strict=True) if "CANARY" in got][:3]
    assert [text.count("KEPT") for text in texts] == [text.count("KEPT") for text in redacted]
    for text in redacted:
        json.loads(text)


def test_json_beyond_what_is_understood(tmp_path: Path) -> None:
    """Where a secret lies deeper than patterns can count, the rest of the text goes with it."""
    nested: Any = "CANARY"
    for _ in range(9):
        nested = {"deeper": nested, "list": [[[[[[["CANARY"]]]]]]]}
    texts = [json.dumps({"before": "KEPT", "password": nested}), json.dumps({"before": "KEPT", "pwd": nested["list"]})]
    inside: Any = {"before": "KEPT", "token": 'quoted "CANARY"'}
    for _ in range(6):
        inside = json.dumps({"before": "KEPT", "within": inside})
        texts.append(inside)
    texts += [text[:end] for text in texts for end in range(0, len(text), 7)]
    received = through(tmp_path, [span(None, {"output.value": text}) for text in texts])
    redacted = [item.attributes[0].value.string_value for item in received]
    assert [] == [(text, got) for text, got in zip(texts, redacted, strict=True) if "CANARY" in got][:3]
    assert [text.count("KEPT") for text in texts] == [text.count("KEPT") for text in redacted]


def test_blocked_keys_everywhere_else(tmp_path: Path) -> None:
    """Attributes of that name, status messages, exceptions, `key=value` text; links go; other content stays."""
    sent = span(
        None, {"city": "KEPT", "password": "CANARY", "db.credentials": ["CANARY"], "max_tokens": 5}, failed=True
    )
    sent.status.message = 'KEPT: login failed (user=KEPT, password=CANARY, again) {"token": "CANARY"}'
    sent.links.add(trace_id=sent.trace_id, span_id=sent.span_id, attributes=attributes({"secret": "CANARY"}))
    thrown = attributes({"exception.message": "api_key: CANARY; KEPT", "exception.stacktrace": "pwd='CANARY'", "n": 1})
    sent.events.add(name="exception", attributes=thrown)
    sent.events.add(name="sk-CANARY0123456789abcdef")
    (got,) = through(tmp_path, [sent])
    assert "CANARY" not in str(got)
    assert {"city": "KEPT", "password": "****", "db.credentials": "****", "max_tokens": "", "service.name": "load"} == {
        item.key: item.value.string_value for item in got.attributes
    }
    assert 'KEPT: login failed (user=KEPT, password=****, again) {"token": "****"}' == got.status.message
    assert ["api_key: ****; KEPT", "pwd='****'", ""] == [item.value.string_value for item in got.events[0].attributes]
    assert ["exception", "****"] == [event.name for event in got.events]
    assert [] == list(got.links)


def test_patterns_of_a_person(tmp_path: Path) -> None:
    """AGUI_REDACT_KEYS and AGUI_REDACT_VALUES add to what is blocked."""
    sent = span(
        None, {"shoe_size": "CANARY", "text": '{"shoe_size": "CANARY", "phone": "555-0199"}'}, name="call 555-0199"
    )
    (got,) = through(tmp_path, [sent], AGUI_REDACT_KEYS="shoe_size|hat_size", AGUI_REDACT_VALUES="555-[0-9]{4}")
    text = '{"shoe_size": "****", "phone": "****"}'
    assert ("call ****", "****", text) == (got.name, *(item.value.string_value for item in got.attributes[:2]))


def test_patterns_are_the_same_everywhere() -> None:
    """What the redaction processor blocks and what the statements beside it replace is stated often, alike."""
    processors = yaml.safe_load((CONFIGURATIONS / "collector.yaml").read_text())["processors"]
    keys = processors["redaction"]["blocked_key_patterns"][0].removeprefix("(?i)(?:").removesuffix(")")
    values = "|".join(processors["redaction"]["blocked_values"])
    statements = [
        item
        for signal in ("trace_statements", "metric_statements")
        for group in processors["transform/redaction"][signal]
        for item in group["statements"]
    ]
    by_value = [item for item in statements if "{8,}" in item]
    by_key = [item for item in statements if "passwd" in item]
    scope = ["scope.name", "scope.version"]
    names = [*scope, "span.name", "span.status.message", "spanevent.name", *scope]
    assert names == _fields(by_value)
    assert [] == [item for item in by_value if f'"(?:{values})"' not in item]
    assert [] == [item for item in by_key if keys not in item]
    of_resource, of_scope = ["resource.attributes"], [*scope, "scope.attributes"]
    of_span = ["span.name", "span.status.message", "span.attributes", "spanevent.name", "spanevent.attributes"]
    kept = [*of_resource, *of_scope, *of_span, *of_resource, *of_scope, "datapoint.attributes"]
    assert [field for field in kept for _ in ("JSON", "text")] == _fields(by_key)
    assert 2 == len({re.sub(r"^[^(]*\([\w.]+,(?: \"value\",)? ", "", item) for item in by_key})


def _fields(statements: list[str]) -> list[str]:
    """What each statement looks into."""
    return [item.partition("(")[2].partition(",")[0] for item in statements]
