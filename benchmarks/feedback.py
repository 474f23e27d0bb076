"""`make bench-feedback`: figure 10 of the paper on real replicas (VI-E.3): what feedback saves.

The query selects bids by a function of their price that one plan, `udf0`, finds dear for low prices and the other,
`udf1`, for high ones. Prices come in runs of low and high ones. Alone either plan is slow half of the time. Merged
without feedback both still do all of the work. With feedback the one that lags skips what the other has settled, and is
there when the next run begins. The oracle plan takes the cheap way for every bid.

Every replica is `python -m replicas` with one core (`local[1]`), on a broker and with a merge service of this run. All
rows are in the topic; a replica is up and has done its first batches before the heartbeats of the rest are written,
which starts the clock. It stops when the output, the replica's own topic or the merged one, is complete. All outputs
must hold the same results.

    python -m benchmarks.feedback             all five, ten minutes; benchmarks/results/feedback.jsonl and .png
    python -m benchmarks.feedback --quick     a tenth of the rows; bars are shown, not judged, and nothing is kept
"""

import argparse
import itertools
import json
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

from benchmarks.core import RESULTS, Bar
from benchmarks.feedback_plot import draw
from benchmarks.spark_feed import PARTITIONS, START_MS, Row, SparkFeed
from deploy.demo.parts import Part
from deploy.local import LocalStack, ports
from lmerge import Stable
from lmerge.codec import decode
from lmerge.kafka import KafkaSettings, MissingTopic, TailReader
from lmerge.process.api import Api, Unreachable
from replicas.checkpoint import Skipped, last_batch, read_offsets
from replicas.queries.classified_bids import TOP_PRICE

ROOT: Final = Path(__file__).parents[1]
LANES: Final = 1

CUT_ROWS: Final = 40
STEP_MS: Final = 10
CUT_MS: Final = CUT_ROWS // PARTITIONS * STEP_MS
"""Event time of a cut: 100 ms, as the heartbeat service makes them."""

MAX_CUTS: Final = 3
"""Of a batch. It cannot be left once it is begun: 0.3 s where it is cheap, 3 s where it is dear."""

LAG_MS: Final = CUT_MS // 2
"""A replica that is a cut behind is told to skip: so it is told anew with every batch that the other has done."""

WARM_CUTS: Final = 3 * MAX_CUTS
CHEAP: Final = 0.0366
"""How far from its nearer end a price is, of the whole sequence, in the middle."""

_LOOK_SECONDS: Final = 0.2
_START_SECONDS: Final = 240
_RUN_SECONDS: Final = 600


class Size(NamedTuple):
    """How much is read: runs of low and high prices in turn, and how many cuts each has in the middle."""

    runs: int
    cuts: int


FULL: Final = Size(runs=4, cuts=75)
QUICK: Final = Size(runs=2, cuts=12)


class Way(NamedTuple):
    """One way to run the query: replicas with these plans, merged or alone."""

    name: str
    plans: tuple[str, ...]
    feedback: bool = False


WAYS: Final = (
    Way("oracle", ("oracle",)),
    Way("merged with feedback", ("udf0", "udf1"), feedback=True),
    Way("udf0", ("udf0",)),
    Way("udf1", ("udf1",)),
    Way("merged", ("udf0", "udf1")),
)
"""In this order: the two that the strictest bar compares run one right after the other, as a shared machine drifts."""


def runs_of(size: Size) -> list[int]:
    """Return how many cuts each run has, low prices first: of random length, and as many low ones as high ones."""
    rng = Random(10)
    low = [rng.randint(size.cuts // 2, size.cuts * 3 // 2) for _ in range(size.runs // 2)]
    high = [*low[1:], low[0]]
    return [cuts for pair in zip(low, high, strict=True) for cuts in pair]


def bounds_of(size: Size) -> list[float]:
    """Return the event times, in seconds, at which the runs begin, and where the last one ends."""
    cuts = itertools.accumulate(runs_of(size), initial=WARM_CUTS)
    return [number * CUT_MS / 1_000 for number in cuts]


def price_of(size: Size) -> Callable[[int], int]:
    """Return the price of the n-th row of a partition: those of the warm-up cost every plan the same."""
    rng = Random(11)
    rows_per_cut = CUT_ROWS // PARTITIONS
    prices = [TOP_PRICE // 2] * (WARM_CUTS * rows_per_cut)
    for number, cuts in enumerate(runs_of(size)):
        for _ in range(cuts * rows_per_cut):
            cheap = round(TOP_PRICE * CHEAP * rng.uniform(0.8, 1.2))
            prices.append(TOP_PRICE - cheap if number % 2 else cheap)
    return prices.__getitem__


class Output:
    """A topic that is being written: a replica's, or the merged one."""

    def __init__(self, reader: TailReader, topic: str) -> None:
        self._reader = reader
        self._topic = topic

    def stable(self) -> int:
        """Return the smallest stable over the lanes; 0 while one ends with something else, or is not there."""
        try:
            tails = [self._reader.read_tail(self._topic, lane) for lane in range(LANES)]
        except MissingTopic:
            return 0
        elements = [None if tail is None else decode(tail.value) for tail in tails]
        return min(element.vc if isinstance(element, Stable) else 0 for element in elements)

    def results(self) -> Counter[bytes]:
        """Read the inserts."""
        found: Counter[bytes] = Counter()
        for lane in range(LANES):
            for records in self._reader.read_range(self._topic, lane, start=0):
                values = (record.value or b"" for record in records)
                found.update(value for value in values if value.startswith(b'{"kind":"insert"'))
        return found


class Bench:
    """A broker and a merge service, on which the ways are run one after the other."""

    def __init__(self, stack: ExitStack, kafka: LocalStack, size: Size) -> None:
        self._stack = stack
        self._servers = kafka.bootstrap_servers
        self._reader = stack.enter_context(TailReader(KafkaSettings(self._servers)))
        self._directory = kafka.directory / "bench"
        (self._directory / "tmp").mkdir(parents=True)
        self._size = size
        (port,) = ports.choose(1)
        token = secrets.token_urlsafe(16)
        self._start("merge", "services.merge", "--port", str(port), LMERGE_ADMIN_TOKEN=token)
        self._api = stack.enter_context(Api(f"http://{ports.HOST}:{port}", token=token))

    def run(self, way: Way) -> tuple[Row, Counter[bytes]]:
        """Run the query in one way; return the figures, and the results."""
        name = way.name.replace(" ", "-")
        feed = self._feed(name)
        replicas = {plan: self._start_replica(name, plan, feed) for plan in way.plans}
        warm, end = (feed.beats[n].tau or 0 for n in (WARM_CUTS, -1))
        for plan, part in replicas.items():
            self._wait(Output(self._reader, f"{name}.replica.{plan}"), warm, part, seconds=_START_SECONDS)
        if len(way.plans) > 1:
            self._merge(name, way)
        output = Output(self._reader, f"{name}.merged" if len(way.plans) > 1 else f"{name}.replica.{way.plans[0]}")
        self._wait(output, warm, *replicas.values(), seconds=_START_SECONDS)
        feed.release()
        seconds, progress = self._wait(output, end, *replicas.values(), seconds=_RUN_SECONDS)
        for part in replicas.values():
            part.kill()
        skipped = {plan: self._skipped(name, plan) for plan in way.plans}
        row: Row = {
            "what": "way",
            "way": way.name,
            "seconds": round(seconds, 1),
            "rows": (len(feed.beats) - 1 - WARM_CUTS) * CUT_ROWS,
            "rows_not_read": {plan: each.rows for plan, each in skipped.items()},
            "progress": progress,
        }
        return row, output.results()

    def _feed(self, name: str) -> SparkFeed:
        cuts = WARM_CUTS + sum(runs_of(self._size))
        return SparkFeed(
            self._servers,
            f"bids-{name}",
            rows_per_batch=CUT_ROWS,
            batches=cuts,
            keys=1_000,
            step_ms=STEP_MS,
            price=price_of(self._size),
            held=cuts - WARM_CUTS,
        )

    def _merge(self, name: str, way: Way) -> None:
        feedback = {"lag_ms": LAG_MS, "interval_ms": 100} if way.feedback else {}
        self._call(lambda: self._api.put(f"/v1/merges/{name}", {"partitions": LANES, "feedback": feedback}))
        for plan in way.plans:
            topic = {"topic": f"{name}.replica.{plan}"}
            self._call(lambda plan=plan, topic=topic: self._api.put(f"/v1/merges/{name}/inputs/{plan}", topic))  # type: ignore[misc]

    def _call(self, call: Callable[[], object]) -> None:
        """Call the merge service, which may still be starting."""
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                call()
            except Unreachable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
            else:
                return

    def _wait(self, output: Output, tau: int, *parts: Part, seconds: float) -> tuple[float, list[tuple[float, float]]]:
        """Wait until an output is complete up to tau; return how long it took, and how far it was when."""
        began = time.monotonic()
        progress: list[tuple[float, float]] = []
        while True:
            stable, now = output.stable(), time.monotonic() - began
            if not progress or stable > progress[-1][1]:
                progress.append((now, stable))
            if stable > tau:
                return now, [(round(at, 1), round((stable - START_MS) / 1_000, 1)) for at, stable in progress if stable]
            for part in parts:
                if part.exit_code is not None:
                    raise RuntimeError(f"{part.name} ended by itself. {part.log_tail()}")
            if now > seconds:
                raise TimeoutError(f"stable {stable} and not {tau} after {seconds:g} s")
            time.sleep(_LOOK_SECONDS)

    def _start_replica(self, name: str, plan: str, feed: SparkFeed) -> Part:
        file = self._directory / f"{name}.toml"
        source = feed.source
        file.write_text(
            f'name = "{feed.definition.name}"\nmax_ahead_ms = "none"\n[[sources]]\ntopic = "{source.topic}"\n'
            f'time = "{source.time}"\ndisorder_ms = {source.disorder_ms}\n'
        )
        return self._start(
            f"{name}-{plan}",
            "replicas",
            *("--merge", name, "--replica", plan, "--feed", str(file), "--topic", f"bids={source.topic}"),
            *("--query", "benchmarks.feedback_query", "--plan", plan, "--partitions", str(LANES)),
            *("--checkpoint", str(self._checkpoint(name, plan)), "--master", "local[1]"),
            *("--max-cuts", str(MAX_CUTS), "--trigger-ms", "0"),
        )

    def _start(self, name: str, module: str, *arguments: str, **environment: str) -> Part:
        temporary = str(self._directory / "tmp")
        command = [sys.executable, "-m", module, "--bootstrap-servers", self._servers, *arguments]
        settings = {"PYTHONPATH": str(ROOT), "TMPDIR": temporary, "SPARK_LOCAL_DIRS": temporary, **environment}
        part = Part(name, command, directory=self._directory, environment=os.environ | settings)
        self._stack.callback(part.kill)
        return part

    def _checkpoint(self, name: str, plan: str) -> Path:
        return self._directory / f"{name}-{plan}"

    def _skipped(self, name: str, plan: str) -> Skipped:
        spark = self._checkpoint(name, plan) / "spark"
        return read_offsets(spark, last_batch(spark) or 0).skipped


def run(size: Size, ways: Sequence[Way] = WAYS) -> list[Row]:
    """Run the query in all ways; each line is printed as it is known."""
    rows: list[Row] = []
    right: Counter[bytes] | None = None
    with ExitStack() as stack:
        bench = Bench(stack, stack.enter_context(LocalStack()), size)
        for way in ways:
            row, results = bench.run(way)
            print(json.dumps({name: value for name, value in row.items() if name != "progress"}), flush=True)
            rows.append(row)
            right = right or results
            assert results == right, f"{way.name} must give the same results"
    return rows


def bars_of(rows: Sequence[Row]) -> list[Bar]:
    """Compare all ways with the oracle, the first one."""
    times = {row["way"]: row["seconds"] / rows[0]["seconds"] for row in rows}
    return [
        Bar("udf0 alone against the oracle: what the work was chosen for", round(times["udf0"], 2), 4.5, 5.5),
        Bar("merged without feedback against the oracle", round(times["merged"], 2), at_least=3.0),
        Bar("merged with feedback against the oracle", round(times["merged with feedback"], 2), at_most=1.6),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rows; bars are shown, not judged")
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else FULL
    rows = run(size)
    bars = bars_of(rows)
    for bar in bars:
        print(json.dumps(bar.to_row()))
    if options.quick:
        return 0
    RESULTS.mkdir(exist_ok=True)
    lines = [*rows, *(bar.to_row() for bar in bars)]
    (RESULTS / "feedback.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    draw(rows, bounds_of(size), RESULTS / "feedback.png")
    return 0 if all(bar.met for bar in bars) else 1


if __name__ == "__main__":
    if Path.cwd() != ROOT:
        os.chdir(ROOT)
    sys.exit(main())
