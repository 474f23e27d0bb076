"""`make bench-core`: the algorithms against each other and against the paper's figures.

Prints one JSON line per measured point, then one per bar with the ratio that it is about, and fails if a bar is missed.
Lines and plots are left under `benchmarks/results/`. What is measured is in figures.py, how in measure.py.

    python -m benchmarks.core              everything, some minutes
    python -m benchmarks.core --quick      small sizes, under a minute; bars are shown, not judged
    python -m benchmarks.core --profile    profiles of R3 and R4 as well
"""

import argparse
import cProfile
import gc
import io
import json
import pstats
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks import figures, measure, plots
from benchmarks.figures import FULL, QUICK, Sizes
from benchmarks.measure import Row

RESULTS = Path(__file__).parent / "results"


class Bar(msgspec.Struct, frozen=True):
    """What a ratio must be: at least, or at most, a number."""

    claim: str
    value: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool:
        """Whether it is."""
        return (self.at_least is None or self.value >= self.at_least) and (
            self.at_most is None or self.value <= self.at_most
        )

    def to_row(self) -> Row:
        """Return it as a line of a benchmark's output."""
        return {
            "bar": self.claim,
            "value": self.value,
            "at_least": self.at_least,
            "at_most": self.at_most,
            "met": self.met,
        }


class Results:
    """All rows of a run, to be asked for single numbers."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows

    def get(self, field: str, **where: object) -> float:
        """Return a field of the one row that has these values."""
        (row,) = self.all(**where)
        value = row[field]
        assert isinstance(value, int | float)
        return value

    def all(self, **where: object) -> list[Row]:
        """Return the rows that have these values."""
        return [row for row in self.rows if all(row.get(name) == value for name, value in where.items())]


def bars(results: Results, sizes: Sizes) -> Iterator[Bar]:
    """Yield the acceptance ratios of the library's figures."""

    def speed(algorithm: str, live: int) -> float:
        return results.get("elements_per_s", figure="live", algorithm=algorithm, live=live)

    def held(figure: int, algorithm: str, inputs: int) -> float:
        return results.get("bytes", figure=figure, algorithm=algorithm, inputs=inputs)

    few, many = min(sizes.live), max(sizes.live)
    yield Bar(f"R3 with {many} live events against {few}", speed("R3", many) / speed("R3", few), at_least=0.5)
    yield Bar(f"R3 against the paper's loop, {many} live", speed("R3", many) / speed("R3 paper", many), at_least=10)
    two, ten = min(sizes.inputs), max(sizes.inputs)
    for figure in (2, 7):
        growth = held(figure, "R3", ten) / held(figure, "R3", two)
        yield Bar(f"memory of R3, {ten} inputs against {two}, figure {figure}", growth, at_most=1.3)
    for algorithm in ("R3-", "C+R1"):
        growth = held(7, algorithm, ten) / held(7, algorithm, two) / (ten / two)
        yield Bar(f"memory of {algorithm} grows with the inputs, figure 7", growth, at_least=0.8, at_most=1.25)
    yield Bar(f"memory of C+R1 against R3, {ten} inputs", held(7, "C+R1", ten) / held(7, "R3", ten), at_least=5)
    for algorithm in ("R0", "R1"):
        yield Bar(f"bytes per live event of {algorithm}", held(2, algorithm, ten) / sizes.active, at_most=2)
    revised = [row for row in results.all(figure=4, algorithm="R3") if row["disorder"]]
    worst = max(row["adjusts_of_output"] / row["adjusts_of_input"] for row in revised)
    yield Bar("adjusts of the output against an input's, worst disorder", worst, at_most=1)
    lags = [
        results.get("elements_per_s", figure=5, lagging_inputs=2, lag_elements=lag)
        for lag in (min(sizes.lags), max(sizes.lags))
    ]
    yield Bar("throughput with the longest lag of two inputs against none", lags[1] / lags[0], at_least=1.05)


def profile(sizes: Sizes, results: Path) -> None:
    """Write where the time of R3 and R4 goes, over a stream with disorder and one with adjusts."""
    for stream in ("disordered", "until next"):
        tape = figures.stream(stream, sizes, payload_bytes=40)
        for name in ("R3", "R4"):
            profiler = cProfile.Profile()
            measure.profiled(name, tape, profiler)
            text = io.StringIO()
            text.write(f"{name}, {stream} stream, three inputs, {measure.elements_in(tape)} elements\n")
            pstats.Stats(profiler, stream=text).strip_dirs().sort_stats("tottime").print_stats(25)
            path = results / f"profile-{name}-{stream.replace(' ', '-')}.txt"
            path.write_text("\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n")


@contextmanager
def _only_our_garbage() -> Iterator[None]:
    """Keep the collector away from all that is there already (modules, above all): the merges should pay for theirs."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def run(sizes: Sizes, results: Path, say: Callable[[str], object] = print) -> list[Bar]:
    """Measure everything, leave lines and plots in `results`, and return the bars."""
    results.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with _only_our_garbage(), (results / "core.jsonl").open("w") as lines:

        def put(row: Row) -> None:
            line = json.dumps({"benchmark": "core", "sizes": sizes.name, **row})
            say(line)
            lines.write(line + "\n")
            lines.flush()

        for figure in figures.FIGURES:
            for row in figure(sizes):
                rows.append(row)
                put(row)
        outcome = list(bars(Results(rows), sizes))
        for bar in outcome:
            limits = {name: limit for name in ("at_least", "at_most") if (limit := getattr(bar, name)) is not None}
            judged = {"met": bar.met} if sizes is FULL else {"met": bar.met, "judged": False}
            put({"bar": bar.claim, "value": round(bar.value, 3), **limits, **judged})
    plots.draw(Results(rows).all, results)
    return outcome


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; 1 if a bar is missed at full size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.core", description="Measure the algorithms.")
    parser.add_argument("--quick", action="store_true", help="small sizes; bars are shown, not judged")
    parser.add_argument("--profile", action="store_true", help="write profiles of R3 and R4")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where lines and plots go")
    options = parser.parse_args(arguments)
    sizes = QUICK if options.quick else FULL
    outcome = run(sizes, options.results)
    if options.profile:
        profile(sizes, options.results)
    return 1 if sizes is FULL and not all(bar.met for bar in outcome) else 0


if __name__ == "__main__":
    sys.exit(main())
