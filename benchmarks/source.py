"""`make bench-source`: the source whose offsets are cuts against Spark's own Kafka connector, on one broker.

Both read the same rows of the same topic, four partitions, JSON, and count and add up per key and window. Spark's
connector is used in its sound form, one stream per partition with a watermark each, and a batch has as many rows on
either side. Batches come as fast as they can; the first ones of each query are not counted. What is measured is the
whole batch, as Spark reports it; the rows go nowhere.

A round is one run of each, in turns cuts first or the connector. What is kept is the round whose ratio is in the
middle, of rounds that nobody disturbed (calm.py).

    python -m benchmarks.source             everything, six to nine minutes; benchmarks/results/source.jsonl
    python -m benchmarks.source --quick     few batches, and nothing is kept
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from benchmarks import calm
from benchmarks.core import RESULTS
from benchmarks.spark_feed import PATIENCE, SMALL, WARM, Row, SparkFeed, start_session
from deploy.local import LocalStack
from replicas.cuts import CutOffset, Located
from replicas.query import EVENT_TIME
from replicas.reader import SourceSpec
from replicas.source import load
from replicas.state import ReplicaDirectory, ReplicaFile

KEYS = 1_000

Pair = tuple[Row, Row]
"""What a round has measured: cuts and the connector."""


class Size(NamedTuple):
    """Rows of a batch, how many batches of them are measured in a round, and how many rounds there are.

    Short rounds and many of them: what else the machine does then meets both alike.
    """

    rows: int
    batches: int
    rounds: int


SIZES = (Size(200, 20, 5), Size(20_000, 10, 5), Size(200_000, 5, 3))
QUICK = (Size(200, 6, 1), Size(20_000, 3, 1))


class Bench:
    """A topic with rows for one size of batches, and the two ways to read it."""

    def __init__(self, spark: SparkSession, servers: str, size: Size, scratch: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._size = size
        self._scratch = scratch
        self._runs = 0
        self._feed = SparkFeed(
            servers, f"rows-{size.rows}", rows_per_batch=size.rows, batches=size.batches + WARM, keys=KEYS
        )

    def round(self) -> Pair:
        """Measure both, one right after the other; who is first changes from round to round."""
        ways = [("cuts", self._cuts), ("connector", self._connector)]
        measured = {}
        for source, rows in ways[:: -1 if self._runs % 4 else 1]:
            measured[source] = {"what": "source", "source": source, **self._measure(_query(rows()))}
        return measured["cuts"], measured["connector"]

    def _cuts(self) -> DataFrame:
        feed = self._feed
        directory = self._scratch / f"{feed.topic}-{self._runs}"
        directory.mkdir()
        start = CutOffset.of(Located(0, feed.beats[0]), feed.topic).to_json()
        ReplicaDirectory(directory).write(
            ReplicaFile(incarnation=1, plan_hash="", feed=feed.beats[0].feed, start={feed.topic: start})
        )
        spec = SourceSpec(
            bootstrap_servers=self._servers,
            heartbeats=feed.definition.heartbeats_topic,
            source=feed.source,
            schema={"auction": "int", "price": "int"},
            directory=str(directory),
            max_cuts=1,
            max_rows=self._size.rows,
        )
        return load(self._spark, spec)

    def _connector(self) -> DataFrame:
        return self._feed.connector(self._spark, "auction bigint, price bigint")

    def _measure(self, frame: DataFrame) -> Row:
        self._runs += 1
        query = (
            frame.writeStream.format("noop")
            .outputMode("append")
            .option("checkpointLocation", str(self._scratch / f"checkpoint-{self._feed.topic}-{self._runs}"))
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            return self._feed.measure(query)
        finally:
            query.stop()


def _query(rows: DataFrame) -> DataFrame:
    """Count and add up per key and window of 10 s."""
    window = F.window(EVENT_TIME, "10 seconds")
    return rows.groupBy(window, "auction").agg(F.count("*").alias("count"), F.sum("price").alias("sum"))


def _ratios(pair: Pair) -> Row:
    """Compare the two of a round: above 1 cuts are faster."""
    cuts, connector = pair
    return {
        "what": "ratio",
        "rows_per_batch": cuts["rows_per_batch"],
        "speed_by_batch_p50": round(connector["batch_p50_ms"] / cuts["batch_p50_ms"], 2),
        "rows_per_s_ratio": round(cuts["rows_per_s"] / connector["rows_per_s"], 2),
    }


def _ratio(pair: Pair) -> float:
    """Return the ratio that counts: by the time of small batches, else by rows per second."""
    ratios = _ratios(pair)
    return float(ratios["speed_by_batch_p50" if ratios["rows_per_batch"] < SMALL else "rows_per_s_ratio"])


def run(sizes: Sequence[Size]) -> list[Row]:
    """Measure all sizes; each line is printed as it is known."""
    rows: list[Row] = []
    with LocalStack() as stack, tempfile.TemporaryDirectory() as scratch:
        spark = start_session("bench-source")
        try:
            for size in sizes:
                bench = Bench(spark, stack.bootstrap_servers, size, Path(scratch))
                bench.round()  # for the JVM, which is faster with each query that it has run
                pair, figures = calm.middle(calm.rounds(bench.round, size.rounds, patience=PATIENCE), _ratio)
                rows += [*({"rounds": figures, **row} for row in pair), _ratios(pair)]
                for line in rows[-3:]:
                    print(json.dumps(line), flush=True)
        finally:
            spark.stop()
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few batches, and nothing is kept")
    options = parser.parse_args(arguments)
    rows = run(QUICK if options.quick else SIZES)
    if not options.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "source.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return 0


if __name__ == "__main__":
    if Path.cwd() != Path(__file__).parents[1]:
        os.chdir(Path(__file__).parents[1])
    sys.exit(main())
