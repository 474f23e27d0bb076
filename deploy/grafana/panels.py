"""The kinds of panels that our dashboards are made of, all alike: a title, a description, a unit, limits in colour.

Sizes are in Grafana's grid: 24 columns, rows of 30 pixels.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from grafana_foundation_sdk.builders import common, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus as query
from grafana_foundation_sdk.models import common as options
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from deploy.grafana.limits import limit

DATASOURCE: Final = model.DataSourceRef(type_val="prometheus", uid="lmerge-prometheus")
"""As in `provisioning/datasources`."""

SCREEN: Final = 18
"""Rows that a laptop shows at once, more or less."""

Limits = Mapping[float, str]
"""From which value on which colour; the smallest key is the bottom."""

BOTTOM: Final = float("-inf")
NO_LIMITS: Final[Limits] = {BOTTOM: "green"}

BEHIND: Final[Limits] = {BOTTOM: "green", 60: "orange", limit("lag_seconds"): "red"}
"""Of how far something is behind, in seconds of application time."""

BLIND: Final = "#8e8e8e"
"""Grey: nothing is known. Without it Grafana shows the colour of the bottom, which is often the good one."""


class Q(NamedTuple):
    """A question to Prometheus, and what to call each answer."""

    expression: str
    legend: str


class Shown(NamedTuple):
    """How a value is shown in place of its number."""

    text: str
    colour: str


class Column(NamedTuple):
    """A column of a table: one value for each row."""

    name: str
    expression: str
    unit: str
    words: Mapping[int, Shown] = {}


def number(
    title: str,
    description: str,
    unit: str,
    question: Q,
    *,
    limits: Limits = NO_LIMITS,
    words: Mapping[int, Shown] | None = None,
    nothing: str = "no answer",
    name_only: bool = False,
    width: int = 3,
    height: int = 4,
) -> stat.Panel:
    """Return a panel with one large number, word or name, coloured by its limits.

    Args:
        title: what it is.
        description: what it means, and what to do when it looks bad.
        unit: Grafana's id of the unit.
        question: what to ask; the answer of now counts.
        limits: colours.
        words: what to write in place of some values.
        nothing: what to write, on grey, where there is no answer.
        name_only: write what the answer is called, not its value.
        width: columns.
        height: rows.
    """
    return (
        stat.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .thresholds(_thresholds(limits))
        .mappings([*_mappings(words or {}), _blind(nothing)])
        .no_value(nothing)
        .color_mode(options.BigValueColorMode.BACKGROUND)
        .graph_mode(options.BigValueGraphMode.NONE)
        .text_mode(options.BigValueTextMode.NAME if name_only else options.BigValueTextMode.VALUE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .with_target(_ask(question, "A").instant())  # of a range it would show who led a while ago too
        .span(width)
        .height(height)
    )


def lines(
    title: str,
    description: str,
    unit: str,
    *questions: Q,
    limits: Limits = NO_LIMITS,
    width: int = 12,
    height: int = 7,
    least: float | None = 0,
    steps: bool = False,
) -> timeseries.Panel:
    """Return a panel with lines over time, and a dashed line at each limit.

    Args:
        title: what it is.
        description: what it means, and what to do when it looks bad.
        unit: Grafana's id of the unit.
        questions: what to ask.
        limits: colours; more than one are drawn.
        width: columns.
        height: rows.
        least: where the axis begins; None: by itself.
        steps: whether a value holds until the next one.
    """
    drawn = options.GraphThresholdsStyleMode.DASHED if len(limits) > 1 else options.GraphThresholdsStyleMode.OFF
    panel = (
        timeseries.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .thresholds(_thresholds(limits))
        .thresholds_style(common.GraphThresholdsStyleConfig().mode(drawn))
        # The same input has the same colour in every panel.
        .color_scheme(build.FieldColor().mode(model.FieldColorModeId.PALETTE_CLASSIC_BY_NAME))
        .line_width(2)
        .fill_opacity(0)
        .show_points(options.VisibilityMode.NEVER)
        .legend(common.VizLegendOptions().show_legend(True).placement(options.LegendPlacement.BOTTOM))
        .tooltip(common.VizTooltipOptions().mode(options.TooltipDisplayMode.MULTI))
        .span(width)
        .height(height)
    )
    if least is not None:
        panel.axis_soft_min(least)
    if steps:
        panel.line_interpolation(options.LineInterpolation.STEP_AFTER)
    for place, question in enumerate(questions):
        panel.with_target(_ask(question, chr(ord("A") + place)))
    return panel


def states(
    title: str, description: str, question: Q, words: Mapping[int, Shown], *, width: int = 24, height: int = 6
) -> statetimeline.Panel:
    """Return a panel with a bar for each answer, whose colour and word tell the state over time."""
    return (
        statetimeline.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit("none")
        .mappings(_mappings(words))
        .thresholds(_thresholds(NO_LIMITS))
        .show_value(options.VisibilityMode.AUTO)
        .merge_values(True)
        .row_height(0.8)
        .legend(common.VizLegendOptions().show_legend(False).placement(options.LegendPlacement.BOTTOM))
        .with_target(_ask(question, "A"))
        .span(width)
        .height(height)
    )


def rows(
    title: str, description: str, by: Sequence[str], columns: Sequence[Column], *, width: int = 24, height: int = 6
) -> table.Panel:
    """Return a table with a row for each combination of labels, and a column for each question."""
    panel = (
        table.Panel()
        .title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit("none")
        .thresholds(_thresholds(NO_LIMITS))
        .no_value("none")
        .span(width)
        .height(height)
    )
    names = {}
    for place, column in enumerate(columns):
        letter = chr(ord("A") + place)
        asked = query.Dataquery().expr(column.expression).instant().format(PromQueryFormat.TABLE)
        panel.with_target(asked.ref_id(letter).datasource(DATASOURCE))
        # With one question Grafana calls the column Value, with several Value #A and so on.
        names["Value" if len(columns) == 1 else f"Value #{letter}"] = column.name
        panel.override_by_name(column.name, _column(column))
    order = dict(zip([*by, *names], range(len(by) + len(names)), strict=True))
    arrange = {"excludeByName": {"Time": True}, "renameByName": names, "indexByName": order}
    panel.with_transformation(model.DataTransformerConfig(id_val="merge", options={}))
    panel.with_transformation(model.DataTransformerConfig(id_val="organize", options=arrange))
    return panel


def _column(column: Column) -> list[model.DynamicConfigValue]:
    properties = [model.DynamicConfigValue(id_val="unit", value=column.unit)]
    if column.words:
        properties += [
            model.DynamicConfigValue(id_val="mappings", value=_mappings(column.words)),
            model.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-background"}),
        ]
    return properties


def _ask(question: Q, letter: str) -> query.Dataquery:
    asked = query.Dataquery().expr(question.expression).legend_format(question.legend).range()
    return asked.ref_id(letter).datasource(DATASOURCE)


def _thresholds(limits: Limits) -> build.ThresholdsConfig:
    steps = [
        model.Threshold(value=None if place == 0 else value, color=limits[value])
        for place, value in enumerate(sorted(limits))
    ]
    return build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)


def _mappings(words: Mapping[int, Shown]) -> list[model.ValueMapping]:
    if not words:
        return []
    shown = {
        str(value): model.ValueMappingResult(text=each.text, color=each.colour, index=place)
        for place, (value, each) in enumerate(words.items())
    }
    return [model.ValueMap(options=shown)]


def _blind(text: str) -> model.SpecialValueMap:
    result = model.ValueMappingResult(text=text, color=BLIND)
    match = model.SpecialValueMatch.NULL_AND_NAN  # a quantile of nothing is no number
    return model.SpecialValueMap(options=model.DashboardSpecialValueMapOptions(match=match, result=result))
