"""`make bench-operators`: how fast the replicas' operators are, and what answering early costs in output.

Prints one JSON line per measurement and leaves them in `benchmarks/results/operators.jsonl`.

    speed         elements of the input per second of processor time, per operator and mode, in batches of a thousand;
                  a fifth of the events is late
    speculation   elements put out relative to mode final, over many small streams whose events overlap, element by
                  element and in batches: the table of seed-001, section 4

    python -m benchmarks.operators             everything, about a minute
    python -m benchmarks.operators --quick     small sizes, some seconds, and nothing is kept

The modes of an operator take turns, and the best of some rounds counts: what else the machine does meets all alike.
"""

import argparse
import gc
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from random import Random
from time import process_time
from typing import Any, NamedTuple

from benchmarks.core import RESULTS
from benchmarks.generator import Workload, integer_of, presentation
from lmerge import INFINITY, Adjust, Element, Insert, Stable
from replicas.operators import (
    Aggregate,
    Filter,
    Function,
    Grid,
    Join,
    Map,
    Mode,
    Operator,
    Window,
    WindowAggregate,
    count,
    top,
    total,
)

Row = dict[str, Any]
Make = Callable[[], Operator]

GROUP, VALUE = itemgetter(0), itemgetter(1)
GROUPS = 100
GAP_MS = 10
"""Mean time between two events; with 100 groups each has one a second."""
WINDOW_MS = 10_000
SLIDE_MS = 2_000


class Sizes(NamedTuple):
    """How much is measured."""

    events: int
    batch: int
    rounds: int
    streams: int


FULL = Sizes(events=20_000, batch=1_000, rounds=3, streams=500)
QUICK = Sizes(events=5_000, batch=1_000, rounds=1, streams=200)


# -- speed


def rows(sizes: Sizes, *, lifetime: int, seed: int) -> list[Element]:
    """Return a disordered stream of rows ``(group, value)``."""
    workload = Workload(
        events=sizes.events, event_duration=lifetime, max_gap=2 * GAP_MS, payload_bytes=4, stable_freq=0.002
    )
    stream: list[Element] = []
    for element in presentation(workload, seed=seed, index=0):
        if isinstance(element, Insert):
            n = integer_of(element.payload)
            element = Insert((n % GROUPS, n), element.vs, element.ve)  # noqa: PLW2901
        stream.append(element)
    return [*stream, Stable(INFINITY)]


def subjects() -> Iterator[tuple[str, int, dict[str, Make]]]:
    """Yield the operators: name, lifetime of the rows that they get, and how to make each mode."""
    tumbling, sliding = Grid(WINDOW_MS, WINDOW_MS), Grid(WINDOW_MS, SLIDE_MS)
    functions = {"count": count(), "sum": total(), "top 3": top(3)}
    yield "filter", 1, {"-": lambda: Filter(lambda row: row[0] < GROUPS // 2)}
    yield "map", 1, {"-": lambda: Map(GROUP)}
    yield "window, sliding, 5 a row", 1, {"-": lambda: Window.sliding(WINDOW_MS, SLIDE_MS)}
    for name, function in functions.items():
        yield f"aggregate, {name}, by group", WINDOW_MS, _snapshots(function)
    for name, function in functions.items():
        yield f"window aggregate, {name}, by group, tumbling", 1, _windows(tumbling, function)
    yield "window aggregate, count, by group, sliding, 5 a row", 1, _windows(sliding, count())
    yield "join", 1_000, {"-": lambda: Join(GROUP, GROUP, lambda one, other: (*one, other[1]))}


def _snapshots(function: Function) -> dict[str, Make]:
    return {mode.value: partial(Aggregate, function, mode, key=GROUP, value=VALUE) for mode in Mode}


def _windows(grid: Grid, function: Function) -> dict[str, Make]:
    return {mode.value: partial(WindowAggregate, grid, function, mode, key=GROUP, value=VALUE) for mode in Mode}


def cut(streams: Sequence[Sequence[Element]], size: int) -> Iterator[tuple[int, list[Element]]]:
    """Yield batches of all streams in turn, each with the number of its stream."""
    left = [iter(stream) for stream in streams]
    while left:
        found = [(source, batch) for source, stream in enumerate(left) if (batch := list(islice(stream, size)))]
        yield from found
        left = left if found else []


def timed(operator: Operator, batches: Sequence[tuple[int, list[Element]]]) -> tuple[float, int, int]:
    """Return the seconds of processor time that batches take, the elements that come out, and the largest state."""
    gc.collect()
    out = kept = 0
    seconds = 0.0
    for source, batch in batches:
        begun = process_time()
        out += len(operator.process(batch, source))
        seconds += process_time() - begun
        kept = max(kept, len(operator))
    return seconds, out, kept


def speed(sizes: Sizes) -> Iterator[Row]:
    """Measure every operator in every mode."""
    for name, lifetime, modes in subjects():
        inputs = next(iter(modes.values()))().inputs
        batches = list(cut([rows(sizes, lifetime=lifetime, seed=seed) for seed in range(inputs)], sizes.batch))
        elements = sum(len(batch) for _, batch in batches)
        best: dict[str, tuple[float, int, int]] = {}
        for _ in range(sizes.rounds):
            for mode, make in modes.items():
                measured = timed(make(), batches)
                best[mode] = min(measured, best.get(mode, measured))
        for mode, (seconds, out, kept) in best.items():
            yield {
                "what": "speed",
                "operator": name,
                "mode": mode,
                "elements": elements,
                "elements_per_s": round(elements / seconds),
                "out_of_final": round(out / best[Mode.FINAL.value][1], 2) if Mode.FINAL.value in best else None,
                "out": out,
                "state_entries": kept,
            }


# -- speculation


def small_stream(rng: Random, *, perfect: bool) -> list[Element]:
    """Return a small stream of values whose lifetimes overlap; perfect, or disordered with revisions and removals."""
    keyed: list[tuple[float, Insert | Adjust]] = []
    for _ in range(12):
        vs, value = rng.randrange(40), rng.randint(1, 9)
        ve = vs + rng.randint(1, 15)
        if perfect:
            keyed.append((vs, Insert(value, vs, ve)))
            continue
        came = vs + rng.uniform(0, 15)
        if rng.random() < 0.3:
            longer = ve + rng.randint(1, 10)
            keyed.append((came, Insert(value, vs, longer)))
            keyed.append((came + rng.uniform(0, 15), Adjust(value, vs, longer, vs if rng.random() < 0.4 else ve)))
        else:
            keyed.append((came, Insert(value, vs, ve)))
    return with_stables(rng, [element for _, element in sorted(keyed, key=itemgetter(0))])


def with_stables(rng: Random, elements: Sequence[Insert | Adjust]) -> list[Element]:
    """Strew in stables that no later element breaks."""
    stream: list[Element] = [Stable(INFINITY)]
    bound = INFINITY - 1
    for element in reversed(elements):
        stream.append(element)
        bound = min(bound, element.vs if isinstance(element, Insert) else min(element.vold, element.ve))
        if rng.random() < 0.25:
            stream.append(Stable(bound))
    return stream[::-1]


def speculation(sizes: Sizes) -> Iterator[Row]:
    """Count what modes put out, over many small streams."""
    functions = (total(), count(), top(2))
    for kind, perfect in (("perfect", True), ("disordered", False)):
        streams = [small_stream(Random(seed), perfect=perfect) for seed in range(sizes.streams)]
        for size in (1, 3):
            out = dict.fromkeys(Mode, 0)
            adjusts = dict.fromkeys(Mode, 0)
            for mode in Mode:
                for stream in streams:
                    for function in functions:
                        operator = Aggregate(function, mode)
                        elements = [e for _, batch in cut([stream], size) for e in operator.process(batch)]
                        out[mode] += len(elements)
                        adjusts[mode] += sum(isinstance(element, Adjust) for element in elements)
            for mode in Mode:
                yield {
                    "what": "speculation",
                    "input": kind,
                    "batch": size,
                    "mode": mode.value,
                    "elements_per_run": round(out[mode] / sizes.streams / len(functions), 2),
                    "adjusts_per_run": round(adjusts[mode] / sizes.streams / len(functions), 2),
                    "out_of_final": round(out[mode] / out[Mode.FINAL], 2),
                }


def run(sizes: Sizes, results: Path | None) -> list[Row]:
    """Measure everything, print lines, and leave them in `results`, if given."""
    lines = []
    for part in (speed, speculation):
        for row in part(sizes):
            lines.append({"benchmark": "operators", **row})
            print(json.dumps(lines[-1]), flush=True)
    if results is not None:
        results.mkdir(parents=True, exist_ok=True)
        (results / "operators.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operators", description="Measure the operators.")
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is kept")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the lines go")
    options = parser.parse_args(arguments)
    run(QUICK if options.quick else FULL, None if options.quick else options.results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
