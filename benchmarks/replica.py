"""`make bench-replica`: a whole replica against the same Spark query with Spark's own Kafka source and sink.

The queries are the shipped ones, each by a conservative plan or both (`SIZES`), without `classified_bids`: what that
costs is its function, and bench-feedback measures it. A replica reads cuts and writes elements exactly once; the other
side is what a Spark user would write: Spark's connector, one stream per partition with a watermark each (its sound
form), the same plan, the same values made by `to_json`, Spark's Kafka sink (at least once). One broker, one Spark
session, the same rows in the same batches as fast as they can; the first ones of each query are not counted. Of the
rows of a join the bids are counted; there is an auction for every twenty of them.

A round is one run of each, in turns the replica first or Spark, and both must have written the same results. What is
judged is the round whose ratio is in the middle, of rounds that nobody disturbed (calm.py).

    python -m benchmarks.replica             everything, about twenty minutes; benchmarks/results/replica.jsonl
    python -m benchmarks.replica --quick     few batches; bars are shown, not judged, and nothing is kept

A part, by one round unless `--rounds` says more, is not judged and not kept either:

    python -m benchmarks.replica --only bids_with_auction --rows 20000
    python -m benchmarks.replica --only category_prices/by_auction     any conservative plan, instead of the listed ones
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from benchmarks import calm
from benchmarks.core import RESULTS, Bar
from benchmarks.spark_feed import PATIENCE, SMALL, WARM, Row, SparkFeed, start_session
from deploy.local import LocalStack
from lmerge.errors import UsageError
from lmerge.kafka import KafkaSettings, TailReader, TopicAdmin, TopicSpec
from replicas.job import Replica
from replicas.loader import load_query
from replicas.query import Query
from replicas.settings import ReplicaSettings

LANES = 2
ROUNDS = 3

Pair = tuple[Row, Row]
"""What a round has measured: the replica and Spark alone."""


class Size(NamedTuple):
    """The rows of a batch, how many batches of them are measured in a run, and by which queries and plans.

    Every batch has results to write. At 4,000 rows of a second of event time one of 20,000 closes 2.5 of the windows of
    `hot_items`, of 1,000 auctions each, and a small one closes one of 100 auctions. Where windows tumble, and for
    joins, a batch is 20 s or a little more: two windows, and as long as an auction takes bids. `bids_with_auction`
    gives a result for each bid.
    """

    rows: int
    batches: int
    plans: Sequence[str]
    keys: int = 1_000
    step_ms: int = 1
    bids_per_auction: int | None = None
    warm: int = WARM


_HOT = ("hot_items/direct", "hot_items/panes")
_BEST = ("highest_bid/direct", "highest_bid/by_auction", "top_bids/direct", "top_bids/panes")
_SMALL = Size(200, 8, _HOT, keys=100, step_ms=40)
_JOIN = Size(
    20_000, 3, ("bids_with_auction/bids_first", "category_prices/direct"), step_ms=4, bids_per_auction=20, warm=2
)
SIZES = (
    _SMALL,
    Size(20_000, 3, _HOT, warm=2),
    Size(20_000, 3, _BEST, step_ms=4, warm=2),
    _JOIN,
    # The JVM knows these plans: the first batch is for what is new to a query.
    Size(100_000, 2, _HOT, warm=1),
    Size(100_000, 2, ("bids_with_auction/bids_first",), bids_per_auction=20, warm=1),
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
        _require_same(written, f"{query.name}/{plan}")
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
            _as_records(query, query.plan(plan).build(sources, query.windows))
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


def _require_same(written: Mapping[str, Counter[bytes]], what: str) -> None:
    """Check that both sides have written the same results, and some."""
    replica, spark = written["replica"], written["spark"]
    beyond = [next(iter(more), None) for more in (replica - spark, spark - replica)]
    totals = f"{replica.total()} by the replica and {spark.total()} by Spark"
    assert replica == spark, f"{what}: results must be the same, not {totals}; the first that the other lacks: {beyond}"
    assert replica, f"{what}: there must be results"


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


def part_of(sizes: Sequence[Size], only: str | None, rows: int | None) -> list[Size]:
    """Return what is asked for of some sizes.

    Args:
        sizes: all of them.
        only: a query, or one with a conservative plan, which is then measured instead of those that are listed.
        rows: of a batch.

    Raises:
        UsageError: there is nothing of that kind.
    """
    found = [size for size in sizes if rows in (None, size.rows)]
    if only is not None:
        found = [size._replace(plans=_plans_of(size, only)) for size in found]
    found = [size for size in found if size.plans]
    if not found:
        known = ", ".join(f"{plan} at {size.rows}" for size in sizes for plan in size.plans)
        raise UsageError(f"nothing is measured of {only or 'any query'} at {rows or 'any'} rows a batch, only {known}")
    return found


def _plans_of(size: Size, only: str) -> Sequence[str]:
    """Return the plans of a query that are measured at a size: those that are listed, or the one that is named."""
    name, _, plan = only.partition("/")
    listed = [each for each in size.plans if each.startswith(f"{name}/")]
    if not plan or not listed:
        return listed
    if load_query(name).plan(plan).operator is not None:
        raise UsageError(f"plan {plan} answers early, which Spark has not by itself: choose a conservative one")
    return [only]


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
    parser.add_argument("--only", metavar="QUERY[/PLAN]", help="a part: this query alone")
    parser.add_argument("--rows", type=int, help="a part: batches of so many rows alone")
    parser.add_argument("--rounds", type=int, choices=range(1, 10), help=f"of each; {ROUNDS}, for less than all 1")
    options = parser.parse_args(arguments)
    is_whole = not (options.quick or options.only or options.rows or options.rounds)
    try:
        sizes = part_of(QUICK if options.quick else SIZES, options.only, options.rows)
    except UsageError as error:
        parser.error(str(error))
    rows, bars = run(sizes, options.rounds or (ROUNDS if is_whole else 1))
    if not is_whole:
        print("less than everything: bars are not judged, and nothing is kept", file=sys.stderr)
        return 0
    RESULTS.mkdir(exist_ok=True)
    lines = [*rows, *(bar.to_row() for bar in bars)]
    (RESULTS / "replica.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return 0 if all(bar.met for bar in bars) else 1


if __name__ == "__main__":
    if Path.cwd() != Path(__file__).parents[1]:
        os.chdir(Path(__file__).parents[1])
    sys.exit(main())
