"""The plots of `benchmarks.core`: one picture per figure of the paper, from the rows of one run."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.measure import Row

Ask: TypeAlias = Callable[..., list[Row]]
"""Returns the rows that have the given values."""

LABELS = {"R3-": "R3- (an index per input)", "R3 paper": "R3, the paper's loop", "C+R1": "C+R1 (Cleanse, then R1)"}

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

MIB = 2**20


def draw(ask: Ask, directory: Path) -> None:
    """Draw all pictures into a directory."""
    plt.rcParams.update({"font.size": 10, "axes.grid": True, "grid.alpha": 0.3, "figure.constrained_layout.use": True})
    for name, picture in PICTURES.items():
        figure = picture(ask)
        figure.savefig(directory / f"{name}.png", dpi=120)
        plt.close(figure)


def _lines(axes: Axes, rows: Sequence[Row], *, x: str, y: str, scale: float = 1.0) -> None:
    """Draw y over x, one line per algorithm."""
    for name in dict.fromkeys(row["algorithm"] for row in rows):
        points = [(row[x], row[y] / scale) for row in rows if row["algorithm"] == name]
        axes.plot(*zip(*points, strict=True), label=LABELS.get(name, name), **STYLES[name])


def _one(title: str) -> tuple[Figure, Axes]:
    figure, axes = plt.subplots(figsize=(6.4, 4.4))
    axes.set_title(title)
    return figure, axes


def _two(title: str) -> tuple[Figure, tuple[Axes, Axes]]:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.4))
    figure.suptitle(title)
    return figure, (left, right)


def _figure_2(ask: Ask) -> Figure:
    figure, axes = _one("Figure 2: memory, in-order streams")
    _lines(axes, ask(figure=2), x="inputs", y="bytes", scale=MIB)
    axes.set(xlabel="inputs", ylabel="held by the merge (MiB)", yscale="log")
    axes.legend(loc="center right")
    return figure


def _throughput(axes: Axes, rows: Sequence[Row], x: str) -> None:
    _lines(axes, rows, x=x, y="elements_per_s", scale=1000)
    axes.set(ylabel="thousand input elements per second", yscale="log")


def _figure_3(ask: Ask) -> Figure:
    figure, axes = _one("Figure 3: throughput, in-order streams")
    _throughput(axes, ask(figure=3), "inputs")
    axes.set(xlabel="inputs")
    axes.legend()
    return figure


def _figure_4(ask: Ask) -> Figure:
    figure, axes = _one("Figure 4: adjusts, by disorder (a count over three inputs)")
    rows = ask(figure=4, algorithm="R3")
    disorder = [row["disorder"] * 100 for row in rows]
    axes.plot(disorder, [row["adjusts_of_input"] for row in rows], "k--o", label="one input (no LMerge)")
    for name in ("R3", "R4"):
        numbers = [row["adjusts_of_output"] for row in ask(figure=4, algorithm=name)]
        axes.plot(disorder, numbers, label=f"output of {name}", **STYLES[name])
    axes.set(xlabel="disorder (% of events that arrive late)", ylabel="adjusts", ylim=(0, None))
    axes.legend()
    return figure


def _figure_5(ask: Ask) -> Figure:
    figure, axes = _one("Figure 5: throughput of R3, by the lag of other inputs")
    for laggards, style in ((1, "--o"), (2, "-s")):
        rows = ask(figure=5, lagging_inputs=laggards)
        points = [(row["lag_elements"], row["elements_per_s"] / 1000) for row in rows]
        axes.plot(*zip(*points, strict=True), style, color="#0072b2", label=f"{laggards} of 3 inputs lag")
    axes.set(xlabel="lag (elements)", ylabel="thousand input elements per second", ylim=(0, None))
    axes.legend()
    return figure


def _figure_6(ask: Ask) -> Figure:
    figure, (left, right) = _two("Figure 6: memory and throughput, by StableFreq (two in-order inputs)")
    rows = [{**row, "percent": row["stable_freq"] * 100} for row in ask(figure=6)]
    _lines(left, rows, x="percent", y="bytes", scale=MIB)
    left.set(ylabel="held by the merge (MiB)", yscale="log")
    _throughput(right, rows, "percent")
    for axes in (left, right):
        axes.set(xlabel="StableFreq (%)", xscale="log")
    right.legend()
    return figure


def _figure_7(ask: Ask) -> Figure:
    figure, (left, right) = _two("Figure 7: memory and throughput, R3 against enforcing order first")
    _lines(left, ask(figure=7), x="inputs", y="bytes", scale=MIB)
    left.set(ylabel="held by the merge (MiB)", ylim=(0, None))
    _throughput(right, ask(figure=7), "inputs")
    for axes in (left, right):
        axes.set(xlabel="inputs")
    left.legend()
    return figure


def _live(ask: Ask) -> Figure:
    figure, axes = _one("Throughput by live events, StableFreq 1 %, three inputs")
    _throughput(axes, ask(figure="live"), "live")
    axes.set(xlabel="live events", xscale="log")
    axes.legend()
    return figure


def _latency(ask: Ask) -> Figure:
    figure, (left, right) = _two("Latency: how long an event waits in the merge (VI-D.3)")
    rows = ask(figure="latency")
    for axes, field, unit in (
        (left, "application_s", "application time (s)"),
        (right, "elements", "elements of all inputs"),
    ):
        _lines(axes, rows, x="lifetime_s", y=f"median_{field}")
        axes.set(xlabel="lifetime of events (s of application time)", ylabel=f"median wait, in {unit}", xscale="log")
        axes.set_yscale("symlog", linthresh=1)
        axes.set_ylim(-0.2, None)
    left.legend()
    return figure


def _algorithms(ask: Ask) -> Figure:
    figure, (left, right) = _two("Throughput by algorithm and stream (three inputs)")
    sizes = sorted({row["payload_bytes"] for row in ask(figure="algorithms")})
    for axes, payload_bytes in zip((left, right), (sizes[0], sizes[-1]), strict=True):
        rows = ask(figure="algorithms", payload_bytes=payload_bytes)
        streams = list(dict.fromkeys(row["stream"] for row in rows))
        for place, name in enumerate(STYLES):
            bars = [(streams.index(row["stream"]), row["elements_per_s"]) for row in rows if row["algorithm"] == name]
            xs = [x + (place - len(STYLES) / 2 + 0.5) * 0.1 for x, _ in bars]
            axes.bar(
                xs, [y / 1000 for _, y in bars], width=0.09, color=STYLES[name]["color"], label=LABELS.get(name, name)
            )
        axes.set_xticks(range(len(streams)), streams)
        axes.set(title=f"payloads of {payload_bytes} bytes", ylabel="thousand input elements per second", yscale="log")
    right.legend(fontsize=8)
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
