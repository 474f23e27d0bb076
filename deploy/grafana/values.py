"""What a dashboard asks for, laid out, and values in words and colours: what Grafana does before it draws."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from deploy.grafana.ask import Asker, Series, substitute
from deploy.grafana.panels import BLIND

COLOURS: Final = {
    "green": "#56a64b",
    "blue": "#3274d9",
    "orange": "#ff780a",
    "red": "#e02f44",
    "dark-red": "#8f0d1d",
    "yellow": "#e0b400",
    "purple": "#8f3bb8",
    "super-light-yellow": "#fff3b0",
    BLIND: BLIND,
}
"""Grafana's names of the colours that we use."""

_PER_SECOND: Final = {"eps": " evt/s", "ops": " ops/s", "rowsps": " rows/s"}
_SECOND: Final = {"s": 1.0, "ms": 0.001}
_TIMES: Final = ((600.0, "min", 60.0), (1.0, "s", 1.0), (-math.inf, "ms", 0.001))
"""From how many seconds at the top of an axis on it is written in which unit, and how long one of these is."""


class Placed(NamedTuple):
    """A panel where it is to be drawn, with the values of its variables."""

    panel: Any
    row: int
    values: Mapping[str, str]


class Mark(NamedTuple):
    """Something that happened: when, in which colour, and in words."""

    at: float
    colour: str
    text: str


class Scale(NamedTuple):
    """What an axis is written in: how much one of it is, and what it is called."""

    one: float
    name: str

    def write(self, value: float) -> str:
        """Write a value of the axis."""
        return f"{value / self.one:,.6g}{self.name}"


def placed(dashboard: Any, asker: Asker, at: float, values: Mapping[str, str]) -> Iterator[Placed]:
    """Give the panels of a dashboard from top to bottom; a row that is repeated comes once for each value of then."""
    panels = dashboard["panels"]
    for place, panel in enumerate(panels):
        if not panel.get("repeat"):
            yield Placed(panel, panel["gridPos"]["y"], values)
            continue
        body = panels[place:]  # ours are the last rows of their dashboards
        height = max(each["gridPos"]["y"] + each["gridPos"]["h"] for each in body) - panel["gridPos"]["y"]
        for turn, value in enumerate(options(dashboard, panel["repeat"], asker, at, values)):
            for each in body:
                yield Placed(each, each["gridPos"]["y"] + turn * height, {**values, panel["repeat"]: value})
        return


def options(dashboard: Any, name: str, asker: Asker, at: float, values: Mapping[str, str]) -> list[str]:
    """Return what a variable may be at a time: the values of a label."""
    (variable,) = [each for each in dashboard["templating"]["list"] if each["name"] == name]
    selector, label = variable["query"].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
    found = asker.now(f"count by ({label}) ({substitute(selector, **values)})", at)
    return sorted(series.labels[label] for series in found)


def marks(dashboard: Any, asker: Asker, span: tuple[float, float], values: Mapping[str, str]) -> list[Mark]:
    """Return what the annotations of a dashboard say; an answer that goes on for a while is one of them.

    One that is there at the beginning began before it, and is none.
    """
    found, step = set(), 1.0
    for each in dashboard["annotations"]["list"]:
        for series in asker.over(substitute(each["expr"], **values), *span, step):
            before = span[0] - step
            for when, _ in series.points:
                if when - before > 2 * step:
                    found.add(Mark(when, each["iconColor"], named(each["textFormat"], series)))
                before = when
    return sorted(found)


def named(legend: str, series: Series) -> str:
    """Return what an answer is called."""
    for label, value in series.labels.items():
        legend = legend.replace(f"{{{{{label}}}}}", value)
    return legend


def in_words(value: float, unit: str) -> str:
    """Write a value with its unit."""
    if unit == "s":
        return _seconds(value)
    if unit == "ms":
        return _seconds(value / 1_000)
    if unit == "percentunit":
        return f"{value:.2%}"
    if unit == "dateTimeAsIso":
        return _clock(value)
    if unit == "bytes":
        return f"{value / 1_048_576:.0f} MiB"
    return f"{value:.3g}{_PER_SECOND.get(unit, '')}" if abs(value) < 1_000 else f"{value:,.0f}"


def scale(unit: str, highest: float) -> Scale:
    """Return in what all values of an axis are written, by its highest one."""
    if unit in _SECOND:
        name, seconds = next((name, one) for least, name, one in _TIMES if highest * _SECOND[unit] >= least)
        return Scale(seconds / _SECOND[unit], f" {name}")
    if unit == "bytes":
        return Scale(1_048_576, " MiB")
    if unit == "percentunit":
        return Scale(0.01, " %")
    return Scale(1, _PER_SECOND.get(unit, ""))


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move places apart so that each has a gap to its left, and none is outside; they are in order, and stay so."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, (moved[-1] if moved else low) + gap))
    limit = high
    for index in reversed(range(len(moved))):
        moved[index] = min(moved[index], limit)
        limit = moved[index] - gap
    return moved


def _seconds(value: float) -> str:
    if abs(value) < 1:
        return f"{value * 1_000:.0f} ms"
    return f"{value:.3g} s" if abs(value) < 120 else f"{value / 60:.1f} min"


def _clock(milliseconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(milliseconds / 1_000))


def shown(value: float, defaults: Any) -> tuple[str, str]:
    """Return the text and the colour of a value, by the mappings and thresholds of a panel."""
    for mapping in defaults.get("mappings") or []:
        if mapping["type"] == "special":
            if math.isnan(value):
                return mapping["options"]["result"]["text"], COLOURS[mapping["options"]["result"]["color"]]
        elif (word := mapping["options"].get(f"{value:g}")) is not None:
            return word["text"], COLOURS[word["color"]]
    steps = defaults["thresholds"]["steps"]
    colour = [step["color"] for step in steps if step["value"] is None or value >= step["value"]][-1]
    return in_words(value, defaults["unit"]), COLOURS[colour]
