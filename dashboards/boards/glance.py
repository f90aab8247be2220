"""Agents at a glance: whether runs succeed, how long they take, what they cost, and what is open."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from dashboards.parts import (
    DURATION,
    ENDED,
    NAME,
    PER_SECOND,
    RUNS,
    SECONDS,
    SERVICE,
    AnyPanel,
    board,
    counted,
    figure,
    graph,
    listing,
    per_second,
    quantile,
    to_phoenix,
)

_OWN = SERVICE + ',agui_cause="own"'


def glance() -> dashboard.Dashboard:
    """The board."""
    return board(
        "agui-glance",
        "Agents at a glance",
        "Whether runs succeed, how long they take, what they cost, and what is open.",
        [("Now, and in this time", _figures()), ("Runs", _runs()), ("Costs, and what is wrong", _costs())],
    )


def _figures() -> list[AnyPanel]:
    failures = figure(
        "Failures",
        "Runs and subagents that failed by themselves, each failure once.",
        f"{counted('', 'agui_run_errors_total', _OWN)} + {counted('', 'agui_subagent_errors_total', _OWN)}",
        bad_from=1,
    )
    return [
        figure("Open runs", "Runs that have begun and not ended.", f"sum(agui_active{{{RUNS}}})"),
        figure("Runs", "Runs that ended.", counted("", ENDED, RUNS)),
        to_phoenix(failures, "Failures in Phoenix", "agui.cause == 'own'"),
        figure(
            "Longest open run",
            "The age of the oldest run that is open.",
            f"max(agui_active_oldest_age_seconds{{{RUNS}}})",
            unit=SECONDS,
            bad_from=3600,
        ),
        figure(
            "Longest silence",
            "The time since the last event of the most silent open run.",
            f"max(agui_active_idle_seconds{{{SERVICE}}})",
            unit=SECONDS,
            bad_from=300,
        ),
        figure("Tokens", "Tokens that runs reported.", counted("", "agui_tokens_total", SERVICE)),
    ]


def _runs() -> list[AnyPanel]:
    return [
        graph(
            "Runs by outcome",
            "Only `error` is a failure; `interrupt` waits for a person.",
            (per_second("agui_outcome", ENDED, RUNS), "{{agui_outcome}}"),
            unit=PER_SECOND,
        ),
        graph(
            "How long runs take",
            "The dots are runs: click one to open its trace in Phoenix.",
            (quantile(0.5, NAME, DURATION, RUNS), "{{gen_ai_agent_name}} median"),
            (quantile(0.95, NAME, DURATION, RUNS), "{{gen_ai_agent_name}} 95 %"),
            unit=SECONDS,
            exemplars=True,
        ),
        graph(
            "Time to the first chunk",
            "From a run's start to its first text, reasoning or argument; 95 % are faster.",
            (quantile(0.95, NAME, "agui_time_to_first_chunk_seconds", RUNS), "{{gen_ai_agent_name}}"),
            unit=SECONDS,
            exemplars=True,
        ),
    ]


def _costs() -> list[AnyPanel]:
    firing = 'ALERTS{alertname=~"AGUI.*",alertstate="firing",service=~"$service|collector"}'
    return [
        graph(
            "Tokens by model",
            "As runs report them.",
            (
                per_second("gen_ai_request_model, gen_ai_token_type", "agui_tokens_total", SERVICE),
                "{{gen_ai_request_model}} {{gen_ai_token_type}}",
            ),
            unit=PER_SECOND,
        ),
        listing(
            "Alerts",
            "What fires now.",
            f"sum by (alertname, service, agent, severity) ({firing})",
            {"alertname": "Alert", "service": "Service", "agent": "Agent", "severity": "Severity"},
            "Alerts",
        ),
    ]
