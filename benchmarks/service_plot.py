"""The picture of `make bench-service`: what the merge costs beside a copier, and what it adds to latency."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def draw(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """Draw processor time per element by algorithm, and latency by lanes."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    cost, latency = figure.subplots(1, 2)
    merges = [row for row in rows if row["what"] == "merge"]
    copiers = [row for row in rows if row["what"] == "copier"]
    places = range(len(merges))
    used = "thread_seconds_per_million"
    cost.bar([x - 0.2 for x in places], [row[used] for row in copiers], 0.4, label="plain copier", color="0.75")
    cost.bar([x + 0.2 for x in places], [row[used] for row in merges], 0.4, label="merge service")
    cost.set_xticks(list(places), [row["algorithm"] for row in merges])
    cost.set_ylabel("thread CPU, µs per input element")
    cost.set_title("What a merged element costs")
    cost.legend()
    runs = [row for row in rows if row["what"] == "latency" and row["load"] == "half load"]
    lanes = [f"{row['lanes']}\n{row['rate']:,}/s" for row in runs]
    for which, label in (("direct", "input topic"), ("merged", "merged topic")):
        for quantile, style in (("p50", "-o"), ("p99", "--o")):
            latency.plot(lanes, [row[f"{which}_{quantile}_ms"] for row in runs], style, label=f"{label}, {quantile}")
    latency.set_yscale("log")
    latency.set_xlabel("lanes, and elements a second to each of three inputs")
    latency.set_ylabel("ms from produce to seen")
    latency.set_title("Latency at half of the most that comes through")
    latency.legend()
    figure.savefig(file, dpi=120)
