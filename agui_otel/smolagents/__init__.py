"""smolagents as a producer of AG-UI: a hierarchy of agents (`managed_agents`) as an attributed stream, and its traces.

`run_agui` and `arun_agui` run an agent and yield its events; `agui_endpoint` serves them; `trace_smolagents` makes
traces of plain `agent.run(...)` calls. Needs the extra: `pip install 'agui-otel[smolagents]'`.
"""

try:
    import ag_ui.core as _ag_ui
    import smolagents as _smolagents
except ImportError as error:
    raise ImportError(
        f"agui_otel.smolagents needs what is not installed ({error}): pip install 'agui-otel[smolagents]'"
    ) from error

from agui_otel.smolagents.endpoint import agui_endpoint
from agui_otel.smolagents.streaming import arun_agui, run_agui
from agui_otel.smolagents.tracing import SmolagentsTracing, trace_smolagents
from agui_otel.smolagents.values import tool_failed

__all__ = ["SmolagentsTracing", "agui_endpoint", "arun_agui", "run_agui", "tool_failed", "trace_smolagents"]

del _ag_ui, _smolagents
