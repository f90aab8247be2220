"""Subagents: rate, errors and latency by name, who fails under whom, and their tools."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from dashboards.parts import (
    DURATION,
    ENDED,
    NAME,
    PER_SECOND,
    SECONDS,
    SERVICE,
    SHARE,
    SUBAGENTS,
    AnyPanel,
    board,
    counted,
    graph,
    listing,
    per_second,
    quantile,
    to_phoenix,
)

_LEGEND = "{{gen_ai_agent_name}}"


def subagents() -> dashboard.Dashboard:
    """The board."""
    return board(
        "agui-subagents",
        "Subagents",
        "Each subagent by name: how often, how well, how fast, and under whom it fails.",
        [
            ("By name", _rates()),
            ("How long they take", _latency()),
            ("Who fails under whom", _places()),
            ("Their tools", _tools()),
        ],
    )


def _rates() -> list[AnyPanel]:
    failures = f'agui:subagent_errors:new5m{{{SERVICE},agui_cause="own"}}'
    failed = f'sum by ({NAME}) (agui:subagent_errors:new30m{{{SERVICE},agui_cause="own"}})'
    ended = f"sum by ({NAME}) (agui:subagents_ended:new30m{{{SERVICE}}})"
    return [
        graph(
            "Invocations",
            "Subagents that ended.",
            (per_second(NAME, ENDED, SUBAGENTS), _LEGEND),
            unit=PER_SECOND,
        ),
        to_phoenix(
            graph(
                "Failures in the last 5 minutes",
                "Errors of their own: not those that came from a subagent below.",
                (f"sum by ({NAME}) ({failures})", _LEGEND),
            ),
            "Failures of ${__field.labels.gen_ai_agent_name} in Phoenix",
            "agui.cause == 'own' and gen_ai.agent.name == \"${__field.labels.gen_ai_agent_name:percentencode}\"",
        ),
        graph(
            "Share that fails",
            "Of the invocations that ended in the last 30 minutes.",
            (f"{failed} / {ended}", _LEGEND),
            unit=SHARE,
        ),
    ]


def _latency() -> list[AnyPanel]:
    return [
        graph(
            "Median",
            "Half are faster.",
            (quantile(0.5, NAME, DURATION, SUBAGENTS), _LEGEND),
            unit=SECONDS,
            exemplars=True,
        ),
        graph(
            "95 %",
            "One in twenty is slower. The dots are subagents: click one to open its trace in Phoenix.",
            (quantile(0.95, NAME, DURATION, SUBAGENTS), _LEGEND),
            unit=SECONDS,
            exemplars=True,
        ),
        graph(
            "Open now",
            "Subagents that have begun and not ended.",
            (f"sum by ({NAME}) (agui_active{{{SUBAGENTS}}})", _LEGEND),
        ),
    ]


def _places() -> list[AnyPanel]:
    by = "service_name, graph_node_parent_id, gen_ai_agent_name, error_type"
    failed = counted(by, "agui_spans_calls_total", f'{SUBAGENTS},agui_cause="own"')
    return [
        to_phoenix(
            listing(
                "Failures by place",
                "Subagents that failed by themselves, and the path of agents above them.",
                f"{failed} > 0",
                {
                    "service_name": "Service",
                    "graph_node_parent_id": "Under",
                    "gen_ai_agent_name": "Subagent",
                    "error_type": "Error",
                },
                "Failures",
            ),
            "Failures of ${__data.fields.Subagent} in Phoenix",
            "agui.cause == 'own' and gen_ai.agent.name == \"${__data.fields.Subagent:percentencode}\"",
        ),
        listing(
            "Outcomes",
            "How invocations ended. `aborted` and `cancelled` were cut off by something else's end.",
            f"{counted('gen_ai_agent_name, agui_outcome', ENDED, SUBAGENTS)} > 0",
            {"gen_ai_agent_name": "Subagent", "agui_outcome": "Outcome"},
            "Invocations",
        ),
    ]


def _tools() -> list[AnyPanel]:
    by = "gen_ai_tool_name, gen_ai_agent_name"
    return [
        to_phoenix(
            graph(
                "Tool errors in the last 15 minutes",
                "By tool, and the agent that called it.",
                (
                    f"sum by ({by}) (agui:tool_errors:new15m{{{SERVICE}}})",
                    "{{gen_ai_tool_name}} of {{gen_ai_agent_name}}",
                ),
            ),
            "Errors of ${__field.labels.gen_ai_tool_name} in Phoenix",
            "agui.outcome == 'error' and gen_ai.tool.name == \"${__field.labels.gen_ai_tool_name:percentencode}\"",
        ),
        graph(
            "How long tools take",
            "From the end of a call's arguments to its result; 95 % are faster.",
            (
                quantile(0.95, "gen_ai_tool_name", "gen_ai_execute_tool_duration_seconds", SERVICE),
                "{{gen_ai_tool_name}}",
            ),
            unit=SECONDS,
            exemplars=True,
        ),
    ]
