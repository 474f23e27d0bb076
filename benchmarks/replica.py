"""`make bench-replica`: a whole replica against the same Spark query with Spark's own Kafka source and sink.

The query is `hot_items`. A replica reads cuts and writes elements exactly once; the other side is what a Spark user
would write: Spark's connector, one stream per partition with a watermark each (its sound form), the same plan, the same
values made by `to_json`, Spark's Kafka sink (at least once). One broker, one Spark session, the same rows in the same
batches as fast as they can; the first ones of each query are not counted. The two take turns, every ratio is of the
medians of one run, and both must have written the same results.

    python -m benchmarks.replica             everything, under six minutes; benchmarks/results/replica.jsonl
    python -m benchmarks.replica --quick     few batches; bars are shown, not judged, and nothing is kept
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from benchmarks.core import RESULTS, Bar
from benchmarks.spark_feed import WARM, Row, SparkFeed, start_session
from deploy.local import LocalStack
from lmerge.kafka import KafkaSettings, TailReader, TopicAdmin, TopicSpec
from replicas.build import build
from replicas.job import Replica
from replicas.queries.hot_items import QUERY
from replicas.settings import ReplicaSettings

LANES = 2
SMALL = 1_000
"""Below so many rows a batch what counts is its time, from there on rows per second."""


class Size(NamedTuple):
    """The rows of a batch, and how much is measured: batches in a round, and rounds.

    At 4,000 rows of a second of event time a batch of 20,000 closes 2.5 windows of 1,000 auctions. A small batch closes
    one of 100 auctions: it, too, has results to write.
    """

    rows: int
    batches: int
    rounds: int
    plans: Sequence[str] = ("direct",)
    keys: int = 1_000
    step_ms: int = 1


SIZES = (Size(200, 12, 3, keys=100, step_ms=40), Size(20_000, 6, 3, ("direct", "panes")), Size(100_000, 4, 3))
QUICK = (Size(200, 4, 1, keys=100, step_ms=40), Size(20_000, 3, 1))


class Bench:
    """A feed for one size of batches, and the two ways to run a plan over it."""

    def __init__(self, spark: SparkSession, servers: str, size: Size, scratch: Path) -> None:
        self._spark = spark
        self._kafka = KafkaSettings(servers)
        self._size = size
        self._scratch = scratch
        self._runs = 0
        self._feed = SparkFeed(
            servers,
            f"bids-{size.rows}",
            rows_per_batch=size.rows,
            batches=size.batches + WARM,
            keys=size.keys,
            step_ms=size.step_ms,
        )

    def rounds(self, plan: str, *, cold: bool) -> Iterator[Row]:
        """Measure both, in turns; if the JVM has run no query yet, after a round that is not counted."""
        ways: dict[str, Callable[[str, Path], tuple[Row, str]]] = {"replica": self._replica, "spark": self._spark_alone}
        for number in range(0 if cold else 1, self._size.rounds + 1):
            written = {}
            for side, run in ways.items():
                self._runs += 1
                directory = self._scratch / f"run-{self._size.rows}-{self._runs}"
                measured, topic = run(plan, directory)
                written[side] = self._results(topic)
                if number:
                    results = written[side].total()
                    yield {"plan": plan, "side": side, "round": number, **measured, "results": results}
            assert written["replica"] == written["spark"], "the two must give the same results"

    def _replica(self, plan: str, directory: Path) -> tuple[Row, str]:
        settings = ReplicaSettings(
            bootstrap_servers=self._kafka.bootstrap_servers,
            merge="bench",
            replica=directory.name,
            feed=self._feed.definition,
            query=QUERY,
            plan_name=plan,
            windows=QUERY.windows,
            topics={"bids": self._feed.topic},
            directory=directory,
            lanes=LANES,
            max_cuts=1,
            max_rows=self._size.rows,
            trigger_ms=0,
        )
        with Replica(settings, self._spark) as replica:
            query = replica.start()
            try:
                return self._feed.measure(query), settings.topic
            finally:
                replica.stop()

    def _spark_alone(self, plan: str, directory: Path) -> tuple[Row, str]:
        topic = f"spark.{directory.name}"
        TopicAdmin(self._kafka).ensure(TopicSpec(topic, LANES))
        bids = self._feed.connector(self._spark, "auction bigint")
        query = (
            _as_records(build(QUERY, plan, {"bids": bids}, QUERY.windows).frame)
            .writeStream.format("kafka")
            .outputMode("append")
            .option("kafka.bootstrap.servers", self._kafka.bootstrap_servers)
            .option("topic", topic)
            .option("checkpointLocation", str(directory))
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            return self._feed.measure(query), topic
        finally:
            query.stop()

    def _results(self, topic: str) -> Counter[bytes]:
        """Read the inserts of a topic."""
        found: Counter[bytes] = Counter()
        with TailReader(self._kafka) as reader:
            for lane in range(LANES):
                reader.require_decided(topic, lane)
                for records in reader.read_range(topic, lane, start=0):
                    values = (record.value or b"" for record in records)
                    found.update(value for value in values if value.startswith(b'{"kind":"insert"'))
        return found


def _as_records(results: DataFrame) -> DataFrame:
    """Return key and value of the records that a replica would write."""
    payload = F.struct("auction", "count").alias("payload")
    value = F.to_json(F.struct(F.lit("insert").alias("kind"), payload, "vs", "ve"))
    return results.select(F.to_json(F.struct("auction")).alias("key"), value.alias("value"))


def _bar(rows: Sequence[Row], size: Size, plan: str) -> Bar:
    """Compare the medians of the rounds."""

    def middle(side: str, field: str) -> float:
        return float(median(row[field] for row in rows if row["side"] == side))

    what = f"hot_items/{plan} in batches of {size.rows:,} rows: "
    if size.rows < SMALL:
        ratio = middle("replica", "batch_p50_ms") / middle("spark", "batch_p50_ms")
        return Bar(f"{what}batch p50 against Spark's own", round(ratio, 2), at_most=1.5)
    ratio = middle("replica", "rows_per_s") / middle("spark", "rows_per_s")
    return Bar(f"{what}rows per second against Spark's own", round(ratio, 2), at_least=0.8)


def run(sizes: Sequence[Size]) -> tuple[list[Row], list[Bar]]:
    """Measure all sizes; each line is printed as it is known."""
    rows: list[Row] = []
    bars: list[Bar] = []
    with LocalStack() as stack, tempfile.TemporaryDirectory() as scratch:
        spark = start_session("bench-replica")
        try:
            for size in sizes:
                bench = Bench(spark, stack.bootstrap_servers, size, Path(scratch))
                for plan in size.plans:
                    measured = []
                    for row in bench.rounds(plan, cold=not rows):
                        print(json.dumps(row), flush=True)
                        measured.append(row)
                    rows += measured
                    bars.append(_bar(measured, size, plan))
                    print(json.dumps(bars[-1].to_row()), flush=True)
        finally:
            spark.stop()
    return rows, bars


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few batches; bars are shown, not judged")
    options = parser.parse_args(arguments)
    rows, bars = run(QUICK if options.quick else SIZES)
    if options.quick:
        return 0
    RESULTS.mkdir(exist_ok=True)
    lines = [*rows, *(bar.to_row() for bar in bars)]
    (RESULTS / "replica.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return 0 if all(bar.met for bar in bars) else 1


if __name__ == "__main__":
    if Path.cwd() != Path(__file__).parents[1]:
        os.chdir(Path(__file__).parents[1])
    sys.exit(main())
