"""The picture of `make bench-feedback`: how long each way takes, and how far each is when (figure 10 of the paper)."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.spark_feed import Row

COLOURS: Final = {
    "oracle": "#999999",
    "udf0": "#e69f00",
    "udf1": "#cc79a7",
    "merged": "#d55e00",
    "merged with feedback": "#0072b2",
}


def draw(rows: Sequence[Row], bounds: Sequence[float], file: Path) -> None:
    """Draw all ways; `bounds` has the event times, in seconds, at which runs of low and high prices begin and end."""
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    figure.suptitle("Figure 10: two plans that are dear in turn, merged with and without feedback")
    times, progress = figure.subplots(1, 2, width_ratios=(2, 3))
    _draw_times(times, rows)
    _draw_progress(progress, rows, bounds)
    figure.savefig(file, dpi=120)


def _draw_times(axes: Axes, rows: Sequence[Row]) -> None:
    names = [row["way"] for row in rows]
    bars = axes.barh(names, [row["seconds"] for row in rows], color=[COLOURS[name] for name in names])
    axes.bar_label(
        bars, [f"{row['seconds']:.0f} s, {row['seconds'] / rows[0]['seconds']:.1f} x" for row in rows], padding=3
    )
    axes.invert_yaxis()
    axes.margins(x=0.4)
    axes.set_xlabel("seconds until the output is complete")
    axes.grid(visible=True, axis="x", alpha=0.3)
    axes.set_axisbelow(True)


def _draw_progress(axes: Axes, rows: Sequence[Row], bounds: Sequence[float]) -> None:
    for number, (low, high) in enumerate(pairwise(bounds)):
        if number % 2:
            label = "high prices" if number == 1 else ""
            axes.axhspan(low, high, color="0.92", label=label)
    for row in rows:
        seconds, stables = zip(*row["progress"], strict=True)
        axes.step(seconds, stables, where="post", color=COLOURS[row["way"]], label=row["way"], linewidth=1.6)
    axes.set_xlabel("seconds")
    axes.set_ylabel("stable of the output (s of event time)")
    axes.set_ylim(bounds[0], bounds[-1] * 1.02)
    axes.set_xlim(0, None)
    axes.legend(loc="lower right")
