"""The plots of `benchmarks.core`: one picture per figure of the paper, from the rows of one run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter, StrMethodFormatter

from benchmarks.measure import Row

Ask: TypeAlias = Callable[..., list[Row]]
"""Returns the rows that have the given values."""

LABELS = {"R3-": "R3-, an index\nper input", "R3 paper": "R3, the\npaper's loop", "C+R1": "C+R1: Cleanse,\nthen R1"}

STYLES: dict[str, dict[str, Any]] = {
    "R0": {"color": "#999999", "marker": "o"},
    "R1": {"color": "#666666", "marker": "x", "linestyle": "--"},
    "R2": {"color": "#e69f00", "marker": "^"},
    "R3": {"color": "#0072b2", "marker": "s", "linewidth": 2.5},
    "R4": {"color": "#009e73", "marker": "D"},
    "R3-": {"color": "#cc79a7", "marker": "v"},
    "R3 paper": {"color": "#d55e00", "marker": "P"},
    "C+R1": {"color": "#000000", "marker": "*"},
}
"""One look per algorithm in all pictures; the colours can be told apart by everybody (Okabe and Ito)."""


def draw(ask: Ask, directory: Path) -> None:
    """Draw all pictures into a directory."""
    plt.rcParams.update({"font.size": 10, "axes.grid": True, "grid.alpha": 0.3, "figure.constrained_layout.use": True})
    for name, picture in PICTURES.items():
        figure = picture(ask)
        figure.savefig(directory / f"{name}.png", dpi=120)
        plt.close(figure)


def _canvas(title: str, *, panels: int = 1) -> tuple[Figure, list[Axes]]:
    figure, grid = plt.subplots(1, panels, figsize=(3 + 4.6 * panels, 4.4), squeeze=False)
    figure.suptitle(title)
    return figure, list(grid[0])


def _legend(figure: Figure, axes: Axes) -> None:
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")


def _lines(axes: Axes, rows: Sequence[Row], *, x: str, y: str) -> None:
    """Draw y over x, one line per algorithm."""
    for name in dict.fromkeys(row["algorithm"] for row in rows):
        points = [(row[x], row[y]) for row in rows if row["algorithm"] == name]
        axes.plot(*zip(*points, strict=True), label=LABELS.get(name, name), **STYLES[name])


def _in_units(axis: Axis, unit: str = "") -> None:
    """Label an axis with 2 k, 5 M and the like."""
    axis.set_major_formatter(EngFormatter(unit, sep="" if not unit else " "))
    axis.set_minor_formatter(NullFormatter())


def _logarithmic(axes: Axes, unit: str = "") -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    _in_units(axes.yaxis, unit)


def _memory(axes: Axes, rows: Sequence[Row], x: str, *, logarithmic: bool) -> None:
    _lines(axes, rows, x=x, y="bytes")
    axes.set(ylabel="held by the merge")
    if logarithmic:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, None)
    _in_units(axes.yaxis, "B")


def _throughput(axes: Axes, rows: Sequence[Row], x: str) -> None:
    _lines(axes, rows, x=x, y="elements_per_s")
    axes.set(ylabel="input elements per second")
    _logarithmic(axes)


def _over_inputs(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set(xlabel="inputs", xticks=sorted({row["inputs"] for row in rows}))


def _figure_2(ask: Ask) -> Figure:
    figure, (axes,) = _canvas("Figure 2: memory, in-order streams")
    _memory(axes, ask(figure=2), "inputs", logarithmic=True)
    _over_inputs(axes, ask(figure=2))
    _legend(figure, axes)
    return figure


def _figure_3(ask: Ask) -> Figure:
    figure, (axes,) = _canvas("Figure 3: throughput, in-order streams")
    _throughput(axes, ask(figure=3), "inputs")
    _over_inputs(axes, ask(figure=3))
    _legend(figure, axes)
    return figure


def _figure_4(ask: Ask) -> Figure:
    figure, (axes,) = _canvas("Figure 4: adjusts by disorder, a count over three inputs")
    rows = ask(figure=4, algorithm="R3")
    disorder = [row["disorder"] * 100 for row in rows]
    axes.plot(disorder, [row["adjusts_of_input"] for row in rows], "k--o", label="one input (no LMerge)")
    for name, line in (("R3", "-"), ("R4", ":")):
        numbers = [row["adjusts_of_output"] for row in ask(figure=4, algorithm=name)]
        axes.plot(disorder, numbers, label=f"output of {name}", **STYLES[name] | {"linestyle": line})
    axes.set(xlabel="disorder (% of events that arrive late)", ylabel="adjusts", ylim=(0, None))
    _legend(figure, axes)
    return figure


def _figure_5(ask: Ask) -> Figure:
    figure, (axes,) = _canvas("Figure 5: throughput of R3 by the lag of other inputs")
    for laggards, style in ((1, "--o"), (2, "-s")):
        rows = ask(figure=5, lagging_inputs=laggards)
        points = [(row["lag_elements"], row["elements_per_s"]) for row in rows]
        axes.plot(*zip(*points, strict=True), style, color="#0072b2", label=f"{laggards} of 3 inputs lag")
    axes.set(xlabel="lag (elements)", ylabel="input elements per second")
    axes.set_ylim(0, 1.1 * max(row["elements_per_s"] for row in ask(figure=5)))
    _in_units(axes.yaxis)
    _legend(figure, axes)
    return figure


def _figure_6(ask: Ask) -> Figure:
    figure, (left, right) = _canvas("Figure 6: memory and throughput by StableFreq, two in-order inputs", panels=2)
    rows = [{**row, "percent": row["stable_freq"] * 100} for row in ask(figure=6)]
    _memory(left, rows, "percent", logarithmic=True)
    _throughput(right, rows, "percent")
    for axes in (left, right):
        axes.set(xlabel="StableFreq (% of elements)", xscale="log")
        axes.set_xticks(sorted({row["percent"] for row in rows}))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    _legend(figure, left)
    return figure


def _figure_7(ask: Ask) -> Figure:
    figure, (left, right) = _canvas("Figure 7: R3 on the raw streams against enforcing order first", panels=2)
    _memory(left, ask(figure=7), "inputs", logarithmic=False)
    _throughput(right, ask(figure=7), "inputs")
    for axes in (left, right):
        _over_inputs(axes, ask(figure=7))
    _legend(figure, left)
    return figure


def _live(ask: Ask) -> Figure:
    figure, (axes,) = _canvas("Throughput by live events: StableFreq 1 %, three inputs")
    _throughput(axes, ask(figure="live"), "live")
    axes.set(xlabel="live events", xscale="log")
    _in_units(axes.xaxis)
    _legend(figure, axes)
    return figure


def _latency(ask: Ask) -> Figure:
    figure, panels = _canvas("Latency: from an event's first arrival to its output (VI-D.3), median", panels=2)
    rows = ask(figure="latency")
    fields = {"application_s": "wait (s of application time)", "elements": "wait (elements of all inputs)"}
    for axes, (field, label) in zip(panels, fields.items(), strict=True):
        _lines(axes, rows, x="lifetime_s", y=f"median_{field}")
        axes.set(xlabel="lifetime of events (s of application time)", ylabel=label, xscale="log")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(-0.3, 3 * max(row[f"median_{field}"] for row in rows))
        _in_units(axes.xaxis)
        _in_units(axes.yaxis)
    _legend(figure, panels[0])
    return figure


def _algorithms(ask: Ask) -> Figure:
    figure, panels = _canvas("Throughput by algorithm and stream, three inputs", panels=2)
    sizes = sorted({row["payload_bytes"] for row in ask(figure="algorithms")})
    for axes, payload_bytes in zip(panels, (sizes[0], sizes[-1]), strict=True):
        rows = ask(figure="algorithms", payload_bytes=payload_bytes)
        streams = list(dict.fromkeys(row["stream"] for row in rows))
        for place, name in enumerate(STYLES):
            speeds = {streams.index(row["stream"]): row["elements_per_s"] for row in rows if row["algorithm"] == name}
            xs = [x + (place - len(STYLES) / 2 + 0.5) * 0.1 for x in speeds]
            style = {"color": STYLES[name]["color"], "label": LABELS.get(name, name)}
            axes.bar(xs, [*speeds.values()], width=0.09, **style)
        axes.set_xticks(range(len(streams)), streams)
        axes.set(title=f"strings of {payload_bytes} bytes", ylabel="input elements per second")
        axes.grid(visible=False, axis="x")
        _logarithmic(axes)
    _legend(figure, panels[0])
    return figure


PICTURES: dict[str, Callable[[Ask], Figure]] = {
    "figure-2": _figure_2,
    "figure-3": _figure_3,
    "figure-4": _figure_4,
    "figure-5": _figure_5,
    "figure-6": _figure_6,
    "figure-7": _figure_7,
    "live": _live,
    "latency": _latency,
    "algorithms": _algorithms,
}
"""All pictures, by file name."""
