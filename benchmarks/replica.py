"""`make bench-replica`: a whole replica against the same Spark query with Spark's own Kafka source and sink.

The queries are `hot_items`, and `category_prices` for joins. A replica reads cuts and writes elements exactly once; the
other side is what a Spark user would write: Spark's connector, one stream per partition with a watermark each (its
sound form), the same plan, the same values made by `to_json`, Spark's Kafka sink (at least once). One broker, one Spark
session, the same rows in the same batches as fast as they can; the first ones of each query are not counted.

A round is one run of each, in turns the replica first or Spark, and both must have written the same results. What is
judged is the round whose ratio is in the middle, of rounds that nobody disturbed (calm.py).

    python -m benchmarks.replica             everything, eight minutes; benchmarks/results/replica.jsonl
    python -m benchmarks.replica --quick     few batches; bars are shown, not judged, and nothing is kept
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from benchmarks import calm
from benchmarks.core import RESULTS, Bar
from benchmarks.spark_feed import WARM, Row, SparkFeed, start_session
from deploy.local import LocalStack
from lmerge.kafka import KafkaSettings, TailReader, TopicAdmin, TopicSpec
from replicas.build import build
from replicas.job import Replica
from replicas.loader import load_query
from replicas.query import Query
from replicas.settings import ReplicaSettings

LANES = 2
ROUNDS = 3
PATIENCE = 4 / 3
"""A round takes up to half a minute: after one more than wanted, the calmest have to do."""

SMALL = 1_000
"""Below so many rows a batch what counts is its time, from there on rows per second."""

Pair = tuple[Row, Row]
"""What a round has measured: the replica and Spark alone."""


class Size(NamedTuple):
    """The rows of a batch, how many batches of them are measured in a run, and by which queries and plans.

    At 4,000 rows of a second of event time a batch of 20,000 closes 2.5 windows of 1,000 auctions. A small batch closes
    one of 100 auctions: it, too, has results to write. For the join a batch is 20 s, as long as an auction takes bids.
    """

    rows: int
    batches: int
    plans: Sequence[str]
    keys: int = 1_000
    step_ms: int = 1
    bids_per_auction: int | None = None
    warm: int = WARM


_SMALL = Size(200, 8, ["hot_items/direct"], keys=100, step_ms=40)
_JOIN = Size(20_000, 3, ["category_prices/direct"], step_ms=4, bids_per_auction=20, warm=2)
SIZES = (
    _SMALL,
    Size(20_000, 3, ["hot_items/direct", "hot_items/panes"], warm=2),
    _JOIN,
    # The JVM knows these plans: the first batch is for what is new to a query.
    Size(100_000, 2, ["hot_items/direct", "hot_items/panes"], warm=1),
)
QUICK = (_SMALL._replace(batches=4), _JOIN._replace(batches=2))


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
            scratch.name,
            rows_per_batch=size.rows,
            batches=size.batches + size.warm,
            keys=size.keys,
            step_ms=size.step_ms,
            bids_per_auction=size.bids_per_auction,
            warm=size.warm,
        )

    def round(self, query: Query, plan: str) -> Pair:
        """Measure both, one right after the other; who is first changes from round to round."""
        ways = [("replica", self._replica), ("spark", self._spark_alone)]
        measured, written = {}, {}
        for side, run in ways[:: -1 if self._runs % 4 else 1]:
            self._runs += 1
            row, topic = run(query, plan, self._scratch / f"run-{self._runs}")
            written[side] = self._results(topic)
            measured[side] = {"query": query.name, "plan": plan, "side": side, **row, "results": written[side].total()}
        assert written["replica"] == written["spark"], "the two must give the same results"
        assert written["replica"], "there must be some"
        return measured["replica"], measured["spark"]

    def _replica(self, query: Query, plan: str, directory: Path) -> tuple[Row, str]:
        settings = ReplicaSettings(
            bootstrap_servers=self._kafka.bootstrap_servers,
            merge="bench",
            replica=f"{self._scratch.name}-{directory.name}",
            feed=self._feed.definition,
            query=query,
            plan_name=plan,
            windows=query.windows,
            topics={source: self._feed.topics[source] for source in query.sources},
            directory=directory,
            lanes=LANES,
            max_cuts=1,
            max_rows=self._size.rows,
            trigger_ms=0,
        )
        with Replica(settings, self._spark) as replica:
            running = replica.start()
            try:
                return self._feed.measure(running), settings.topic
            finally:
                replica.stop()

    def _spark_alone(self, query: Query, plan: str, directory: Path) -> tuple[Row, str]:
        topic = f"spark.{self._scratch.name}-{directory.name}"
        TopicAdmin(self._kafka).ensure(TopicSpec(topic, LANES))
        sources = {
            name: self._feed.connector(self._spark, _columns(query, name), source=name) for name in query.sources
        }
        running = (
            _as_records(query, build(query, plan, sources, query.windows).frame)
            .writeStream.format("kafka")
            .outputMode("append")
            .option("kafka.bootstrap.servers", self._kafka.bootstrap_servers)
            .option("topic", topic)
            .option("checkpointLocation", str(directory))
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            return self._feed.measure(running), topic
        finally:
            running.stop()

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


def _columns(query: Query, source: str) -> str:
    """Return the fields of a source as Spark SQL writes them."""
    kinds = {int: "bigint", str: "string", bool: "boolean", float: "double"}
    return ", ".join(f"{name} {kinds[kind]}" for name, kind in query.sources[source].items())


def _as_records(query: Query, results: DataFrame) -> DataFrame:
    """Return key and value of the records that a replica would write."""
    payload = F.struct(*sorted(set(results.columns) - {"vs", "ve"})).alias("payload")
    value = F.to_json(F.struct(F.lit("insert").alias("kind"), payload, "vs", "ve"))
    return results.select(F.to_json(F.struct(*query.key)).alias("key"), value.alias("value"))


def _ratio(pair: Pair) -> float:
    """Compare the two of a round: the time of small batches, else rows per second."""
    replica, spark = pair
    field = "batch_p50_ms" if replica["rows_per_batch"] < SMALL else "rows_per_s"
    return round(float(replica[field]) / float(spark[field]), 2)


def _bar(pair: Pair) -> Bar:
    replica, ratio = pair[0], _ratio(pair)
    what = f"{replica['query']}/{replica['plan']} in batches of {replica['rows_per_batch']:,} rows: "
    if replica["rows_per_batch"] < SMALL:
        return Bar(f"{what}batch p50 against Spark's own", ratio, at_most=1.5)
    return Bar(f"{what}rows per second against Spark's own", ratio, at_least=0.8)


def run(sizes: Sequence[Size], rounds: int) -> tuple[list[Row], list[Bar]]:
    """Measure all sizes; each line is printed as it is known."""
    rows: list[Row] = []
    bars: list[Bar] = []
    with LocalStack() as stack, tempfile.TemporaryDirectory() as scratch:
        spark = start_session("bench-replica")
        try:
            for number, size in enumerate(sizes):
                bench = Bench(spark, stack.bootstrap_servers, size, Path(scratch) / f"bids-{number}")
                for name, plan in (each.split("/") for each in size.plans):
                    one = partial(bench.round, load_query(name), plan)
                    if not rows:
                        one()  # for the JVM, which has run no query yet
                    pair, figures = calm.middle(calm.rounds(one, rounds, patience=PATIENCE), _ratio)
                    rows += [{"rounds": figures, **row} for row in pair]
                    bars.append(_bar(pair))
                    for line in (*rows[-2:], bars[-1].to_row()):
                        print(json.dumps(line), flush=True)
        finally:
            spark.stop()
    return rows, bars


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few batches; bars are shown, not judged")
    options = parser.parse_args(arguments)
    rows, bars = run(QUICK, 1) if options.quick else run(SIZES, ROUNDS)
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
