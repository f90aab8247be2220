"""collector.yaml: the forms in which credentials come, and the places where they are found."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

from tests.support.collectors import BALANCER, DEFAULT, SAMPLER, Collector, collector
from tests.support.load import attributes, span
from tests.support.receivers import http_receiver
from tests.support.redacted import through
from tests.support.servers import eventually

pytestmark = pytest.mark.slow

CREDENTIALS = {
    "Authorization: Bearer CANARY": "Authorization: ****",
    "Authorization: Basic CANARY\nKEPT": "Authorization: ****\nKEPT",
    "authorization=Token CANARY": "authorization=****",
    "> Authorization: ApiKey CANARY\r\n> KEPT": "> Authorization: ****\r\n> KEPT",
    "Authorization: AWS4-HMAC-SHA256 Credential=A/x, Signature=CANARY": "Authorization: ****",
    "[(b'authorization', b'Token CANARY'), (b'KEPT', b'')]": "[(b'authorization', b'****'), (b'KEPT', b'')]",
    '{"headers": [["authorization", "Token CANARY"]]}': '{"headers": [["authorization", "****"]]}',
    '{"curl": "-H Authorization: Basic CANARY\\nKEPT"}': '{"curl": "-H Authorization: ****\\nKEPT"}',
    "Cookie: theme=dark; sid=CANARY": "Cookie: ****",
    "Set-Cookie: a=b; Path=/, sid=CANARY": "Set-Cookie: ****",
    "{'Cookie': 'theme=dark; sid=CANARY', 'a': 'KEPT'}": "{'Cookie': '****', 'a': 'KEPT'}",
    "Bearer\nCANARY0123456789abcdef": "****",
    "Bearer\tCANARY0123456789abcdef": "****",
    "{'password': 'correct CANARY', 'city': 'KEPT'}": "{'password': '****', 'city': 'KEPT'}",
    """{'password': "it's CANARY", 'city': 'KEPT'}""": """{'password': "****", 'city': 'KEPT'}""",
    "{'password': ['a', 'CANARY'], 'city': 'KEPT'}": "{'password': ****, 'city': 'KEPT'}",
    "{'secret': {'a': {'b': 'CANARY'}, 'c': 'CANARY'}, 'city': 'KEPT'}": "{'secret': ****, 'city': 'KEPT'}",
    'login(password="correct CANARY", city="KEPT")': 'login(password="****", city="KEPT")',
    'login(password="a\\"CANARY", city="KEPT")': 'login(password="****", city="KEPT")',
    "login(password=b'a\\'CANARY', city='KEPT')": "login(password=b'****', city='KEPT')",
    '{"code": "login(password=\\"correct CANARY\\")", "city": "KEPT"}': (
        '{"code": "login(password=\\"****\\")", "city": "KEPT"}'
    ),
    "login(password='cut off CANARY": "login(password='****",
    "{password: 'a CANARY', city: 'KEPT'}": "{password: '****', city: 'KEPT'}",
    '{password: "a CANARY", city: "KEPT"}': '{password: "****", city: "KEPT"}',
    "client_secret=a{CANARY} KEPT": "client_secret=****} KEPT",
    ":password => 'a CANARY'": ":password => '****'",
    "redis://:CANARY@localhost:6379/0": "redis****localhost:6379/0",
    "postgres://u:a@CANARY@KEPT/db": "postgres****KEPT/db",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 1\n\nCANARY\n"
    "-----END PGP PRIVATE KEY BLOCK-----\nKEPT": "****\nKEPT",
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,AB\n\nCANARY\n"
    "-----END RSA PRIVATE KEY-----\nKEPT": "****\nKEPT",
    '{"pem": "-----BEGIN EC PRIVATE KEY-----\\nX-Y: A-B\\nCANARY", "city": "KEPT"}': '{"pem": "****", "city": "KEPT"}',
    "xapp-1-A0CANARY0123456789": "****",
    "GITHUB_TOKEN=CANARY KEPT": "GITHUB_TOKEN=**** KEPT",
    '{"api_token": "CANARY", "auth.token": "CANARY", "city": "KEPT"}': (
        '{"api_token": "****", "auth.token": "****", "city": "KEPT"}'
    ),
    '{"max_tokens": 5, "token_count": 7, "gen_ai.usage.input_tokens": 9}': (
        '{"max_tokens": 5, "token_count": 7, "gen_ai.usage.input_tokens": 9}'
    ),
    "max_tokens=5, tokens: 7, llm.token_count.total=9": "max_tokens=5, tokens: 7, llm.token_count.total=9",
    '{"url":"http://KEPT:80","mail":"KEPT@home"}': '{"url":"http://KEPT:80","mail":"KEPT@home"}',
}
"""Text, and what is left of it."""


def test_credentials_in_text(tmp_path: Path) -> None:
    """Headers, `repr`s, calls, JavaScript, URLs and private keys lose what they hold, and nothing around it."""
    received = through(tmp_path, [span(None, {"output.value": text}) for text in CREDENTIALS])
    left = [item.attributes[0].value.string_value for item in received]
    assert CREDENTIALS == dict(zip(CREDENTIALS, left, strict=True))


TOKENS = (
    *("api_token", "GITHUB_TOKEN", "auth.token", "x-csrf-token", "apiToken", "db.pwd", "http.request.header.cookie"),
    *("signing_key", "encryption_key", "passcode", "token"),
)
COUNTS = (
    *("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.request.max_tokens", "llm.token_count.total"),
    *("llm.token_count.prompt_details.cache_read", "gen_ai.token.type", "max_tokens", "tokens", "session.id"),
)


def test_names_of_attributes(tmp_path: Path) -> None:
    """What is named as a token or a key goes; what counts tokens stays as it is."""
    gone = dict.fromkeys(TOKENS, "CANARY")
    (got, counted) = through(tmp_path, [span(None, gone), span(None, dict.fromkeys(COUNTS, 5))])
    assert dict.fromkeys(TOKENS, "****") | {"service.name": "load"} == {
        item.key: item.value.string_value for item in got.attributes
    }
    assert dict.fromkeys(COUNTS, 5) | {"service.name": 0} == {
        item.key: item.value.int_value for item in counted.attributes
    }


NAMES = {
    "password=CANARY KEPT": "password=**** KEPT",
    '{"token": "CANARY", "a": "KEPT"}': '{"token": "****", "a": "KEPT"}',
}


@pytest.mark.parametrize("text", NAMES)
def test_names_of_spans_events_and_scopes(text: str, tmp_path: Path) -> None:
    """A blocked key is found in names as it is in attributes."""
    sent = span(None, {}, name=text)
    sent.events.add(name=text)
    scope = InstrumentationScope(name=text, version=text, attributes=attributes({"of": text}))
    with http_receiver() as sink, collector(tmp_path, PHOENIX_COLLECTOR_ENDPOINT=sink.url) as running:
        scoped = ScopeSpans(spans=[sent], scope=scope)
        resource = Resource(attributes=attributes({"of": text}))
        traces = ResourceSpans(resource=resource, scope_spans=[scoped])
        _post(running, "traces", ExportTraceServiceRequest(resource_spans=[traces]))
        eventually(lambda: len(sink.otlp_spans()) == 1)
        (group,) = (group for request in sink.traces for group in request.resource_spans)
    got, named = group.scope_spans[0].spans[0], group.scope_spans[0].scope
    held = [item.value.string_value for item in (*group.resource.attributes, *named.attributes)]
    assert [NAMES[text]] * 6 == [got.name, got.events[0].name, named.name, named.version, *held]


@pytest.mark.parametrize("configurations", [DEFAULT, BALANCER], ids=" ".join)
def test_labels_of_metrics(configurations: tuple[str, ...], tmp_path: Path) -> None:
    """A blocked key is found in labels, too, behind a balancer as well: it is the one that redacts."""
    labels = attributes({str(place): text for place, text in enumerate(NAMES)})
    point = NumberDataPoint(as_int=3, attributes=labels, time_unix_nano=time.time_ns())
    counter = Metric(
        name="odd",
        sum=Sum(
            is_monotonic=True,
            aggregation_temporality=AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE,
            data_points=[point],
        ),
    )
    scoped = ScopeMetrics(metrics=[counter])
    resource = Resource(attributes=[*attributes({"service.name": "password=CANARY"}), *labels])
    request = ExportMetricsServiceRequest(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scoped])])
    with ExitStack() as stack:
        here: dict[str, str] = {}
        if configurations == BALANCER:
            last = stack.enter_context(collector(tmp_path / "sampler", SAMPLER))
            traces, measured = (last.address(name) for name in ("traces", "measured"))
            here = {"AGUI_SAMPLERS": f"[{traces}]", "AGUI_SAMPLERS_MEASURED": f"[{measured}]"}
        first = stack.enter_context(collector(tmp_path / "first", configurations, **here))
        _post(first, "metrics", request)
        shown = last if here else first
        eventually(lambda: "odd_total" in shown.page())
        page = shown.page()
    assert "CANARY" not in page
    assert 'service_name="password=****"' in page
    assert "password=**** KEPT" in page


def _post(running: Collector, signal: str, message: ExportTraceServiceRequest | ExportMetricsServiceRequest) -> None:
    headers = {"content-type": "application/x-protobuf"}
    request = Request(f"{running.endpoint}/v1/{signal}", message.SerializeToString(), headers)
    urlopen(request).close()
