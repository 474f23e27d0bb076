"""`make bench-source`: the source whose offsets are cuts against Spark's own Kafka connector, on one broker.

Both read the same rows of the same topic, four partitions, JSON, and count and add up per key and window. Spark's
connector is used in its sound form, one stream per partition with a watermark each, and a batch has as many rows on
either side. Batches come as fast as they can; the first ones of each query are not counted. The two take turns, and
every ratio is from one run. What is measured is the whole batch, as Spark reports it; the rows go nowhere.

    python -m benchmarks.source             everything, some minutes; benchmarks/results/source.jsonl
    python -m benchmarks.source --quick     few batches, and nothing is kept
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from benchmarks.core import RESULTS
from deploy.local import LocalStack
from deploy.local.artifacts import SPARK_CONNECTOR, ensure
from lmerge.feed import Heartbeat, Source
from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec
from replicas.cuts import CutOffset, Located
from replicas.reader import SourceSpec
from replicas.session import make_session
from replicas.source import load
from replicas.state import ReplicaDirectory, ReplicaFile

Row = dict[str, Any]

PARTITIONS = 4
KEYS = 1_000
START_MS = 1_767_225_600_000
WARM = 3
"""Batches of each query that are not counted: plans are made, code is generated, consumers connect."""


class Size(NamedTuple):
    """Rows of a batch, how many batches of them are measured in a round, and how many rounds there are.

    Short rounds and many of them: what else the machine does then meets both alike.
    """

    rows: int
    batches: int
    rounds: int


SIZES = (Size(200, 20, 4), Size(20_000, 10, 4), Size(200_000, 5, 3))
QUICK = (Size(200, 6, 1), Size(20_000, 3, 1))


class Bench:
    """A topic with rows for one size of batches, and the two ways to read it."""

    def __init__(self, spark: SparkSession, servers: str, size: Size, scratch: Path) -> None:
        self._spark = spark
        self._servers = servers
        self._size = size
        self._scratch = scratch
        self._topic = f"rows-{size.rows}"
        self._runs = 0
        self._fill()

    def rounds(self) -> Iterator[Row]:
        """Measure both, in turns."""
        for number in range(self._size.rounds + 1):
            for name, frame in (("cuts", self._cuts()), ("connector", self._connector())):
                measured = self._measure(frame)
                if number:  # the first is for the JVM, which is faster with each query that it has run
                    yield {"what": "source", "source": name, "round": number, **measured}

    def _fill(self) -> None:
        """Write the rows, and a heartbeat after as many as a batch shall have."""
        total = self._size.rows * (self._size.batches + WARM)
        feed = f"{self._topic}.heartbeats"
        TopicAdmin(KafkaSettings(self._servers)).ensure(TopicSpec(self._topic, PARTITIONS), TopicSpec(feed, 1))
        producer = Producer({"bootstrap.servers": self._servers, "queue.buffering.max.messages": 1_000_000})
        for first in range(0, total // PARTITIONS, 10_000):
            numbers = range(first, min(first + 10_000, total // PARTITIONS))
            for partition in range(PARTITIONS):
                batch: list[Any] = [{"value": _row(number, partition)} for number in numbers]
                producer.produce_batch(self._topic, batch, partition=partition)
            producer.flush()
        self._beats = [self._beat(n) for n in range(total // self._size.rows + 1)]
        producer.produce_batch(feed, [{"value": beat.encode()} for beat in self._beats], partition=0)
        producer.flush()

    def _beat(self, n: int) -> Heartbeat:
        end = n * self._size.rows // PARTITIONS
        ts = None if n == 0 else START_MS + end - 1
        ends = {self._topic: (end,) * PARTITIONS}
        return Heartbeat(feed="bench", n=n, tau=None if ts is None else ts - 1, ceiling=None, max_ts=ts, ends=ends)

    def _cuts(self) -> DataFrame:
        directory = self._scratch / f"{self._topic}-{self._runs}"
        directory.mkdir()
        start = CutOffset.of(Located(0, self._beats[0]), self._topic).to_json()
        ReplicaDirectory(directory).write(
            ReplicaFile(incarnation=1, plan_hash="", feed="bench", start={self._topic: start})
        )
        spec = SourceSpec(
            bootstrap_servers=self._servers,
            heartbeats=f"{self._topic}.heartbeats",
            source=Source(topic=self._topic, time="$.date_time", disorder_ms=0),
            schema={"auction": "int", "price": "int"},
            directory=str(directory),
            max_cuts=1,
            max_rows=self._size.rows,
        )
        return _query(load(self._spark, spec))

    def _connector(self) -> DataFrame:
        streams = [self._stream(partition) for partition in range(PARTITIONS)]
        united = streams[0]
        for stream in streams[1:]:
            united = united.unionAll(stream)
        return _query(united)

    def _stream(self, partition: int) -> DataFrame:
        rows = (
            self._spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._servers)
            .option("assign", json.dumps({self._topic: [partition]}))
            .option("startingOffsets", json.dumps({self._topic: {str(partition): 0}}))
            .option("maxOffsetsPerTrigger", self._size.rows // PARTITIONS)
            .option("kafka.isolation.level", "read_committed")
            .option("kafka.fetch.max.wait.ms", 5)
            .load()
        )
        parsed = F.from_json(F.col("value").cast("string"), "auction bigint, price bigint, date_time bigint")
        return (
            rows.select(parsed.alias("row"))
            .select("row.*")
            .withColumn("event_time", F.timestamp_millis("date_time"))
            .withWatermark("event_time", "1 millisecond")
        )

    def _measure(self, frame: DataFrame) -> Row:
        self._runs += 1
        query = (
            frame.writeStream.format("noop")
            .outputMode("append")
            .option("checkpointLocation", str(self._scratch / f"checkpoint-{self._topic}-{self._runs}"))
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            query.processAllAvailable()
            batches = [each for each in query.recentProgress if each["numInputRows"] >= self._size.rows][WARM:]
        finally:
            query.stop()
        times = [each["batchDuration"] for each in batches]
        return {
            "rows_per_batch": self._size.rows,
            "batches": len(times),
            "batch_p50_ms": median(times),
            "rows_per_s": round(self._size.rows * len(times) / sum(times) * 1000),
        }


def _row(number: int, partition: int) -> bytes:
    auction = 1_000 + (number * PARTITIONS + partition) % KEYS
    return b'{"auction":%d,"bidder":%d,"price":%d,"date_time":%d}' % (auction, number, number % 977, START_MS + number)


def _query(rows: DataFrame) -> DataFrame:
    """Count and add up per key and window of 10 s."""
    window = F.window("event_time", "10 seconds")
    return rows.groupBy(window, "auction").agg(F.count("*").alias("count"), F.sum("price").alias("sum"))


def _ratios(rows: Sequence[Row], size: Size) -> Row:
    """Compare the medians of the rounds."""
    found = {}
    for field in ("batch_p50_ms", "rows_per_s"):
        for source in ("cuts", "connector"):
            each = [row[field] for row in rows if row["source"] == source and row["rows_per_batch"] == size.rows]
            found[field, source] = median(each)
    return {
        "what": "ratio",
        "rows_per_batch": size.rows,
        "speed_by_batch_p50": round(found["batch_p50_ms", "connector"] / found["batch_p50_ms", "cuts"], 2),
        "rows_per_s_ratio": round(found["rows_per_s", "cuts"] / found["rows_per_s", "connector"], 2),
    }


def run(sizes: Sequence[Size]) -> list[Row]:
    """Measure all sizes; each line is printed as it is known."""
    jars = ",".join(str(jar) for jar in sorted(ensure(SPARK_CONNECTOR).glob("*.jar")))
    rows: list[Row] = []
    with LocalStack() as stack, tempfile.TemporaryDirectory() as scratch:
        overrides = {
            "spark.jars": jars,
            "spark.driver.memory": "1g",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
        }
        spark = make_session("bench-source", master="local[2]", overrides=overrides)
        try:
            for size in sizes:
                bench = Bench(spark, stack.bootstrap_servers, size, Path(scratch))
                measured = []
                for row in bench.rounds():
                    print(json.dumps(row), flush=True)
                    measured.append(row)
                rows += [*measured, _ratios(measured, size)]
                print(json.dumps(rows[-1]), flush=True)
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
