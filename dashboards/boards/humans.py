"""Humans in the loop: what waits for a person, for how long, and what people decide."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard

from dashboards.parts import (
    ENDED,
    RUNS,
    SECONDS,
    SERVICE,
    SUBAGENTS,
    AnyPanel,
    board,
    counted,
    figure,
    graph,
    listing,
    quantile,
    to_phoenix,
)

_REASON = "agui_interrupt_reason"
_LEGEND = "{{agui_interrupt_reason}}"
_WAIT = "agui_interrupt_wait_seconds"
_SUSPENDED = SUBAGENTS + ',agui_outcome="suspended"'
_INTERRUPTED = RUNS + ',agui_outcome="interrupt"'


def humans() -> dashboard.Dashboard:
    """The board."""
    return board(
        "agui-humans",
        "Humans in the loop",
        "What waits for a person, for how long, and what people decide.",
        [("Now, and in this time", _figures()), ("Waiting", _waiting()), ("Answers", _answers())],
    )


def _open() -> str:
    """Open interrupts by service and reason: processes' own are summed, of a shared store one report is enough."""
    by = f"service_name, {_REASON}"
    own = f'sum by ({by}) (agui_interrupts_open{{{SERVICE},agui_store="process"}})'
    shared = f'max by ({by}) (agui_interrupts_open{{{SERVICE},agui_store="shared"}})'
    return f"({own} or {shared})"


def _figures() -> list[AnyPanel]:
    return [
        to_phoenix(
            figure("Open interrupts", "What waits for an answer.", f"sum({_open()})"),
            "Interrupted runs in Phoenix",
            "agui.outcome == 'interrupt'",
        ),
        figure(
            "Longest wait",
            "The age of the oldest interrupt without an answer.",
            f"max(agui_interrupts_oldest_age_seconds{{{SERVICE}}})",
            unit=SECONDS,
            bad_from=14400,
        ),
        figure("Interrupted runs", "Runs that ended to wait.", counted("", ENDED, _INTERRUPTED)),
        figure("Suspended subagents", "Subagents that ended to wait.", counted("", ENDED, _SUSPENDED)),
        figure("Answers", "Interrupts that had an answer.", counted("", f"{_WAIT}_count", SERVICE)),
    ]


def _waiting() -> list[AnyPanel]:
    return [
        graph("Open interrupts", "By reason.", (f"sum by ({_REASON}) ({_open()})", _LEGEND)),
        graph(
            "Oldest interrupt",
            "By reason.",
            (f"max by ({_REASON}) (agui_interrupts_oldest_age_seconds{{{SERVICE}}})", _LEGEND),
            unit=SECONDS,
        ),
    ]


def _answers() -> list[AnyPanel]:
    decided = counted(f"{_REASON}, agui_interrupt_decision", f"{_WAIT}_count", SERVICE)
    return [
        graph(
            "How long people take",
            "From an interrupt to its first answer.",
            (quantile(0.5, _REASON, _WAIT, SERVICE), _LEGEND + " median"),
            (quantile(0.95, _REASON, _WAIT, SERVICE), _LEGEND + " 95 %"),
            unit=SECONDS,
            exemplars=True,
        ),
        listing(
            "Decisions",
            "What was answered.",
            f"{decided} > 0",
            {"agui_interrupt_reason": "Reason", "agui_interrupt_decision": "Decision"},
            "Answers",
        ),
        to_phoenix(
            listing(
                "Who waits",
                "Subagents that were suspended.",
                f"{counted('service_name, gen_ai_agent_name', ENDED, _SUSPENDED)} > 0",
                {"service_name": "Service", "gen_ai_agent_name": "Subagent"},
                "Suspended",
            ),
            "Suspended ${__data.fields.Subagent} in Phoenix",
            "agui.outcome == 'suspended' and gen_ai.agent.name == \"${__data.fields.Subagent:percentencode}\"",
        ),
    ]
