"""Drawing a dashboard with matplotlib: where Grafana would put each panel, with the same answers."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Bbox

from deploy.grafana.ask import Asker, Series, substitute
from deploy.grafana.panels import BLIND
from deploy.grafana.values import COLOURS, Placed, marks, named, placed, scale, shown, spread

_COLUMNS: Final = 24
_WIDTH: Final = 13.66
"""Inches, of 100 pixels each: a laptop."""

_ROW: Final = 0.38
"""Inches of one row of Grafana's grid."""

_TALL: Final = 8
"""Rows of a panel that has room for words beside its lines."""

_WORD: Final = 0.13
"""Inches that a word takes across a panel when it is written upwards."""

_EDGE: Final = 0.06
"""Inches around a panel."""

_WITH_AXIS: Final = frozenset({"timeseries", "state-timeline"})

_HEADROOM: Final = 0.6
"""How much higher than its lines a panel is in which words are written, by the height of the lines."""

_LINES: Final = (*mpl.color_sequences["tab10"], *mpl.color_sequences["Dark2"])


class Canvas:
    """Draws one dashboard.

    Args:
        asker: Prometheus.
        dashboard: as it is in its file.
        span: from when to when, in seconds since 1970.
        values: of the dashboard's variables.
    """

    def __init__(self, asker: Asker, dashboard: Any, span: tuple[float, float], values: Mapping[str, str]) -> None:
        self._asker = asker
        self._span = span
        self._step = max(1.0, (span[1] - span[0]) / 600)
        self._panels = list(placed(dashboard, asker, span[1], values))
        self._marks = marks(dashboard, asker, span, values)
        self._rows = max(each.row + each.panel["gridPos"]["h"] for each in self._panels)
        self._colours: dict[str, Any] = {}
        self.figure = Figure(figsize=(_WIDTH, self._rows * _ROW + 0.3))
        self.figure.suptitle(dashboard["title"], x=0.01, y=0.995, ha="left", va="top", fontsize=11, weight="bold")

    def draw(self) -> Figure:
        """Draw all panels."""
        kinds: dict[str, Callable[[Axes, Placed], None]] = {
            "row": self._row,
            "stat": self._number,
            "timeseries": self._lines,
            "state-timeline": self._states,
            "table": self._table,
        }
        for each in self._panels:
            axes = self._place(each)
            title = substitute(each.panel["title"], **each.values)
            start = -(_left(each) - _EDGE) / (axes.get_position().width * _WIDTH)  # where the panel begins
            axes.set_title(title, x=start, fontsize=8, loc="left", weight="bold", pad=3)
            kinds[each.panel["type"]](axes, each)
        return self.figure

    def _place(self, each: Placed) -> Axes:
        """Make the axes of a panel, with room for its title and labels."""
        grid = each.panel["gridPos"]
        whole = self._rows * _ROW + 0.3
        has_axis = each.panel["type"] in _WITH_AXIS
        left = _left(each)
        bottom = 0.5 if has_axis else _EDGE
        x = grid["x"] / _COLUMNS * _WIDTH + left
        y = whole - 0.3 - (each.row + grid["h"]) * _ROW + bottom
        width = grid["w"] / _COLUMNS * _WIDTH - left - 0.1
        height = grid["h"] * _ROW - bottom - 0.24
        return self.figure.add_axes((x / _WIDTH, y / whole, width / _WIDTH, max(height, 0.01) / whole))

    def _row(self, axes: Axes, _each: Placed) -> None:
        axes.set_axis_off()

    def _number(self, axes: Axes, each: Placed) -> None:
        panel = each.panel
        defaults = panel["fieldConfig"]["defaults"]
        (target,) = panel["targets"]
        found = self._asker.now(substitute(target["expr"], **each.values), self._span[1])
        text, colour = defaults["noValue"], BLIND
        if found:
            text, colour = shown(found[0].last, defaults)
            if panel["options"]["textMode"] == "name":
                text = ", ".join(sorted(named(target["legendFormat"], series) for series in found))
        axes.set(xticks=[], yticks=[], facecolor=colour)
        size = 15 if len(text) < 10 else 10
        axes.text(0.5, 0.5, text, ha="center", va="center", color="white", fontsize=size, weight="bold")

    def _lines(self, axes: Axes, each: Placed) -> None:
        defaults = each.panel["fieldConfig"]["defaults"]
        highest = float("-inf")
        for target in each.panel["targets"]:
            for series in self._ask(target, each.values):
                name = named(target["legendFormat"], series)
                highest = max(highest, *(value for _, value in series.points))
                style: dict[str, Any] = {"color": self._colour(name), "label": name}
                style |= {"lw": 2.6, "color": "black"} if name == "merged topic" else {"lw": 1.3}
                if defaults["custom"].get("lineInterpolation") == "stepAfter":
                    style["drawstyle"] = "steps-post"
                axes.plot([when for when, _ in series.points], [value for _, value in series.points], **style)
        least = defaults["custom"].get("axisSoftMin", 0)
        low, high = min(axes.get_ylim()[0], least), axes.get_ylim()[1]
        if highest <= least:  # nothing but the bottom: an axis of one step
            low, high = least, least + 1
        has_words = each.panel["gridPos"]["h"] >= _TALL
        axes.set_ylim(low, high + (high - low) * _HEADROOM if has_words else high)
        used = scale(defaults["unit"], high)
        round_ones = MaxNLocator(4, integer=defaults["unit"] == "none").tick_values(low / used.one, high / used.one)
        axes.set_yticks([tick * used.one for tick in round_ones if low <= tick * used.one <= high])
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: used.write(value)))
        for step in defaults["thresholds"]["steps"][1:]:
            if low < step["value"] < high:
                axes.axhline(step["value"], color=COLOURS[step["color"]], ls="--", lw=0.8)
        self._over_time(axes)
        axes.grid(visible=True, alpha=0.25)
        if drawn := axes.get_legend_handles_labels()[0]:  # a threshold alone has no name
            self._explain(axes, drawn)
        if has_words:
            self._say(axes)

    def _states(self, axes: Axes, each: Placed) -> None:
        defaults = each.panel["fieldConfig"]["defaults"]
        (target,) = each.panel["targets"]
        found = {named(target["legendFormat"], series): series for series in self._ask(target, each.values)}
        names = sorted(found, reverse=True)
        for place, name in enumerate(names):
            for start, end, value in _runs(found[name], self._step):
                text, colour = shown(value, defaults)
                axes.barh(place, end - start, left=start, color=colour, height=0.8)
                if end - start > (self._span[1] - self._span[0]) / 14:
                    dark = "black" if colour == COLOURS["super-light-yellow"] else "white"
                    axes.text(start, place, f" {text}", va="center", fontsize=7, color=dark)
        axes.set_yticks(range(len(names)), names)
        self._over_time(axes)
        words = [word for mapping in defaults["mappings"] for word in mapping["options"].values()]
        self._explain(axes, [Patch(color=COLOURS[word["color"]], label=word["text"]) for word in words])

    def _say(self, axes: Axes) -> None:
        """Write what happened along its line; Grafana shows it to who points at it."""
        low, high = axes.get_xlim()
        gap = _WORD / (axes.get_position().width * _WIDTH) * (high - low)
        for mark, place in zip(self._marks, spread([mark.at for mark in self._marks], gap, low, high), strict=True):
            style: dict[str, Any] = {"rotation": 90, "fontsize": 6.5, "va": "top", "ha": "right"}
            axes.text(place, axes.get_ylim()[1], f" {mark.text} ", color=COLOURS[mark.colour], **style)

    def _table(self, axes: Axes, each: Placed) -> None:
        axes.set_axis_off()
        names = each.panel["transformations"][1]["options"]["renameByName"]
        cells: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        units = _units(each.panel)
        for target, name in zip(each.panel["targets"], names.values(), strict=True):
            for series in self._asker.now(substitute(target["expr"], **each.values), self._span[1]):
                labels = {label: value for label, value in series.labels.items() if label != "__name__"}
                cells.setdefault(tuple(sorted(labels.items())), dict(labels))[name] = shown(series.last, units[name])[0]
        columns = list(dict.fromkeys(name for row in cells.values() for name in row))
        if not cells:
            axes.text(0.0, 0.9, "none", fontsize=8, va="top")
            return
        text = [[row.get(column, "") for column in columns] for row in cells.values()]
        height = min(1.0, 0.2 * (len(text) + 1) / self._inches(axes))
        box = Bbox.from_bounds(0, 1 - height, 1, height)
        made = axes.table(text, colLabels=columns, bbox=box, cellLoc="left", colLoc="left", edges="horizontal")
        made.auto_set_font_size(False)
        made.set_fontsize(7)

    def _ask(self, target: Any, values: Mapping[str, str]) -> list[Series]:
        return self._asker.over(substitute(target["expr"], **values), *self._span, self._step)

    def _over_time(self, axes: Axes) -> None:
        axes.set_xlim(self._span[0], self._span[1])
        axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: _clock(seconds)))
        width = axes.get_position().width * _WIDTH
        axes.xaxis.set_major_locator(MaxNLocator(max(2, min(6, int(width)))))
        axes.tick_params(labelsize=6, length=2, pad=1)
        for mark in self._marks:
            axes.axvline(mark.at, color=COLOURS[mark.colour], lw=0.9, ls="-", alpha=0.5)

    def _explain(self, axes: Axes, handles: Sequence[Artist]) -> None:
        """Write below a panel, under the times, what its colours mean."""
        longest = max(len(str(handle.get_label())) for handle in handles)
        columns = max(1, int(axes.get_position().width * _WIDTH / (0.25 + 0.045 * longest)))
        style: dict[str, Any] = {"fontsize": 6, "frameon": False, "borderpad": 0, "labelspacing": 0.2}
        style |= {"handlelength": 1.2, "columnspacing": 1.0}
        below = (0, -0.2 / self._inches(axes))
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=below, borderaxespad=0, ncols=columns, **style)

    def _inches(self, axes: Axes) -> float:
        """Return how high a panel is."""
        return axes.get_position().height * self.figure.get_figheight()

    def _colour(self, name: str) -> Any:
        """Return the colour of what is called so, the same in every panel."""
        return self._colours.setdefault(name, _LINES[len(self._colours) % len(_LINES)])


def _left(each: Placed) -> float:
    """Return how many inches a panel needs on its left."""
    return 0.66 if each.panel["type"] in _WITH_AXIS else _EDGE


def _clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(seconds))


def _runs(series: Series, step: float) -> list[tuple[float, float, float]]:
    """Return from when to when an answer had which value."""
    found: list[tuple[float, float, float]] = []
    for when, value in series.points:
        if found and found[-1][2] == value and when - found[-1][1] < 1.5 * step:
            found[-1] = (found[-1][0], when + step, value)
        else:
            found.append((when, when + step, value))
    return found


def _units(panel: Any) -> dict[str, Any]:
    """Return how the values of each column are shown."""
    found = {}
    for override in panel["fieldConfig"]["overrides"]:
        given = {each["id"]: each["value"] for each in override["properties"]}
        found[override["matcher"]["options"]] = {**panel["fieldConfig"]["defaults"], **given}
    return found
