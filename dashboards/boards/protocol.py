"""Protocol health: what breaks AG-UI's rules, and whether spans and figures arrive."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from dashboards.parts import (
    PER_SECOND,
    SERVICE,
    SHARE,
    AnyPanel,
    board,
    counted,
    graph,
    listing,
    per_second,
    to_phoenix,
)


def protocol() -> dashboard.Dashboard:
    """The board."""
    return board(
        "agui-protocol",
        "Protocol health",
        "What breaks AG-UI's rules, and whether spans and figures arrive.",
        [("Streams", _streams()), ("From the services", _services()), ("Through the collector", _collector())],
    )


def _streams() -> list[AnyPanel]:
    return [
        to_phoenix(
            graph(
                "Violations in the last 15 minutes",
                "By rule of the reference client.",
                (f"sum by (agui_rule) (agui:violations:new15m{{{SERVICE}}})", "{{agui_rule}}"),
            ),
            "Runs with violations in Phoenix",
            "agui.violations > 0",
        ),
        listing(
            "Violations by service",
            "In this time.",
            f"{counted('service_name, agui_rule', 'agui_violations_total', SERVICE)} > 0",
            {"service_name": "Service", "agui_rule": "Rule"},
            "Violations",
        ),
        graph(
            "Events",
            "By type.",
            (per_second("agui_event_type", "agui_events_total", SERVICE), "{{agui_event_type}}"),
            unit=PER_SECOND,
        ),
    ]


def _services() -> list[AnyPanel]:
    return [
        graph(
            "Spans by what became of them",
            "`dropped`: no room at the source. `refused`: not taken by the receiver.",
            (per_second("agui_result", "agui_export_spans_total", SERVICE), "{{agui_result}}"),
            unit=PER_SECOND,
        ),
        graph(
            "Errors that the observer kept to itself",
            "Faults of agui-otel, or of callables given to it; the runs are not affected.",
            (per_second("agui_where", "agui_observer_errors_total", SERVICE), "{{agui_where}}"),
            unit=PER_SECOND,
        ),
    ]


def _collector() -> list[AnyPanel]:
    full = "otelcol_exporter_queue_size / otelcol_exporter_queue_capacity"
    return [
        graph(
            "Spans",
            "What it took, and what it sent on.",
            (_own("otelcol_receiver_accepted_spans_total"), "taken"),
            (_own("otelcol_exporter_sent_spans_total"), "sent"),
            unit=PER_SECOND,
        ),
        graph(
            "Its queue",
            "How full it is: what is behind the collector is down or too slow.",
            (f"max by (instance, exporter) ({full})", "{{exporter}} {{instance}}"),
            unit=SHARE,
        ),
        graph(
            "What it lost or refused",
            "Refused is sent again by its sender; lost is lost.",
            (_own("otelcol_exporter_send_failed_spans_total"), "not taken by the store"),
            (_own("otelcol_exporter_enqueue_failed_spans_total"), "no room in the queue"),
            (_own("otelcol_receiver_refused_spans_total"), "refused"),
            unit=PER_SECOND,
        ),
    ]


def _own(metric: str) -> str:
    """The rate of a counter of the collectors' own."""
    return f"sum(rate({metric}[$__rate_interval]))"
