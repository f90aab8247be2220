"""What all boards are made of: expressions, panels, links to Phoenix. Built with Grafana's foundation SDK."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TypeAlias, TypeVar
from urllib.parse import quote

from grafana_foundation_sdk.builders import common as shared
from grafana_foundation_sdk.builders import dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common, units
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")
PHOENIX = "http://localhost:6006/projects/UHJvamVjdDox"
"""The page of Phoenix's default project where the compose file runs it; a text field of each board."""
TAG = "agui-otel"

SERVICE = 'service_name=~"$service"'
RUNS = f'{SERVICE},agui_level="run"'
SUBAGENTS = f'{SERVICE},agui_level="subagent"'

NAME = "gen_ai_agent_name"
DURATION = "gen_ai_invoke_agent_duration_seconds"
ENDED = "gen_ai_invoke_agent_duration_seconds_count"

SECONDS = units.Seconds
SHARE = units.PercentUnit
PER_SECOND = "cps"

AnyPanel: TypeAlias = timeseries.Panel | stat.Panel | table.Panel
_Panel = TypeVar("_Panel", timeseries.Panel, stat.Panel, table.Panel)


def per_second(by: str, metric: str, labels: str) -> str:
    """The rate of a counter."""
    return f"sum by ({by}) (rate({metric}{{{labels}}}[$__rate_interval]))"


def counted(by: str, metric: str, labels: str) -> str:
    """How much a counter grew in the board's range, with its first samples and what has ended since.

    `increase` would lose both: a process that lived for one scrape has a single sample.
    """
    highest = f"max_over_time({metric}{{{labels}}}[$__range])"
    before = f"last_over_time({metric}{{{labels}}}[5m] offset $__range)"
    return f"sum by ({by}) ({highest} - ({before} or {highest} * 0))"


def quantile(share: float, by: str, metric: str, labels: str) -> str:
    """A quantile of a histogram (`metric` without `_bucket`)."""
    return f"histogram_quantile({share}, {per_second(f'{by}, le', f'{metric}_bucket', labels)})"


def graph(
    title: str, about: str, *queries: tuple[str, str], unit: str = units.Short, exemplars: bool = False
) -> timeseries.Panel:
    """Lines over time. `queries` are expressions with the legends of their series."""
    panel = timeseries.Panel().fill_opacity(8).line_width(2).show_points(common.VisibilityMode.AUTO)
    panel.legend(
        shared.VizLegendOptions()
        .display_mode(common.LegendDisplayMode.LIST)
        .placement(common.LegendPlacement.BOTTOM)
        .show_legend(True)
    )
    panel.tooltip(shared.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI).sort(common.SortOrder.DESCENDING))
    _fill(panel, title, about, unit)
    for index, (expression, legend) in enumerate(queries):
        query = (
            prometheus.Dataquery()
            .datasource(DATASOURCE)
            .ref_id(chr(ord("A") + index))
            .expr(expression)
            .legend_format(legend)
            .range()
        )
        panel.with_target(query.exemplar(exemplars))
    return panel


def figure(
    title: str, about: str, expression: str, *, unit: str = units.Short, bad_from: float | None = None
) -> stat.Panel:
    """One number; red from `bad_from` on."""
    steps = [model.Threshold(value=None, color="text" if bad_from is None else "green")]
    if bad_from is not None:
        steps.append(model.Threshold(value=bad_from, color="red"))
    panel = stat.Panel().color_mode(common.BigValueColorMode.VALUE).graph_mode(common.BigValueGraphMode.NONE)
    panel.thresholds(dashboard.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)).no_value("0")
    panel.reduce_options(shared.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    _fill(panel, title, about, unit)
    return panel.with_target(prometheus.Dataquery().datasource(DATASOURCE).ref_id("A").expr(expression).instant())


def listing(
    title: str, about: str, expression: str, columns: dict[str, str], value: str, *, unit: str = units.Short
) -> table.Panel:
    """A table of an instant query: the labels in `columns` with their headings, and the value's heading."""
    panel = table.Panel()
    _fill(panel, title, about, unit)
    panel.with_target(
        prometheus.Dataquery()
        .datasource(DATASOURCE)
        .ref_id("A")
        .expr(expression)
        .instant()
        .format(PromQueryFormat.TABLE)
    )
    order = {name: index for index, name in enumerate([*columns, "Value"])}
    options = {"excludeByName": {"Time": True}, "indexByName": order, "renameByName": {**columns, "Value": value}}
    panel.with_transformation(model.DataTransformerConfig(id_val="organize", options=options))
    return panel.sort_by([shared.TableSortByFieldState().display_name(value).desc(True)])


def to_phoenix(panel: _Panel, title: str, condition: str) -> _Panel:
    """Let the panel's values open the spans in Phoenix for which `condition` holds, in the board's time range.

    A `${…}` in the condition is Grafana's: a label of the value that was clicked.
    """
    condition = quote(condition, safe="${}:._")
    url = (
        "${phoenix}/spans?timeRangeKey=custom&timeRangeStart=${__from:date:iso}&timeRangeEnd=${__to:date:iso}"
        f"&spanFilterCondition={condition}"
    )
    panel.data_links([dashboard.DashboardLink(title).url(url).target_blank(True)])
    return panel


def board(uid: str, title: str, about: str, rows: Sequence[tuple[str, Sequence[AnyPanel]]]) -> dashboard.Dashboard:
    """A board: rows of panels that share the width, with the choice of service and links to the other boards."""
    made = dashboard.Dashboard(title).uid(uid).description(about).tags([TAG]).refresh("30s").time("now-1h", "now")
    made.tooltip(model.DashboardCursorSync.CROSSHAIR).readonly()
    made.link(
        dashboard.DashboardLink("agui-otel")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .keep_time(True)
        .include_vars(True)
    )
    made.with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    made.with_variable(
        dashboard.QueryVariable("service")
        .label("Service")
        .datasource(DATASOURCE)
        .query("label_values(agui_active, service_name)")
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(model.VariableOption(text="All", value="$__all", selected=True))
    )
    made.with_variable(dashboard.TextBoxVariable("phoenix").label("Phoenix project").default_value(PHOENIX))
    ids = count(1)
    for heading, panels in rows:
        made.with_row(dashboard.Row(heading).id(next(ids)))
        for panel in panels:
            height = 5 if isinstance(panel, stat.Panel) else 9
            made.with_panel(panel.id(next(ids)).span(24 // len(panels)).height(height))
    return made


def _fill(panel: _Panel, title: str, about: str, unit: str) -> None:
    panel.title(title).description(about).datasource(DATASOURCE).unit(unit)
