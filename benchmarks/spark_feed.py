"""What the benchmarks of replicas share: a feed of JSON rows, Spark's own connector over it, the time of batches.

Four partitions of bids in order, and a heartbeat after as many rows as a batch shall have; for joins, auctions in a
topic of their own, and bids for those that were opened shortly before. Spark's connector is used in its sound form, one
stream per partition with a watermark each, and takes as many rows of each: then the batches of both hold the same rows
and have the same watermark.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows
from pyspark.sql.streaming.query import StreamingQuery

from deploy.local.artifacts import SPARK_CONNECTOR, ensure
from lmerge.feed import FeedDefinition, Heartbeat, Source
from lmerge.kafka import KafkaSettings, TailReader, TopicAdmin, TopicSpec
from replicas.query import EVENT_TIME
from replicas.session import make_session

Row = dict[str, Any]

PARTITIONS = 4
START_MS = 1_767_225_600_000
WARM = 3
"""Batches of each query that are not counted: plans are made, code is generated, consumers connect."""

SMALL = 1_000
"""Below so many rows a batch what counts is its time, from there on rows per second."""

PATIENCE = 4 / 3
"""A round takes up to a minute: after so many times the wanted ones the calmest have to do (calm.py)."""

_CHUNK = 10_000


def start_session(name: str) -> SparkSession:
    """Start Spark with the settings of a replica, and its Kafka connector."""
    jars = ",".join(str(jar) for jar in sorted(ensure(SPARK_CONNECTOR).glob("*.jar")))
    overrides = {
        "spark.jars": jars,
        "spark.driver.memory": "1g",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
    return make_session(name, master="local[2]", overrides=overrides)


RECENT = 50
"""How many auctions, the last ones of its partition, a bid may be for."""

BIDS, AUCTIONS = "bids", "auctions"


def bid_row(own: int, *, auction: int, price: int, ts: int) -> bytes:
    """Return a bid, with every field that a shipped query reads."""
    bidder = 1_000 + own % 499
    return b'{"id":%d,"auction":%d,"bidder":%d,"price":%d,"date_time":%d}' % (own, auction, bidder, price, ts)


def auction_row(own: int, *, ts: int) -> bytes:
    """Return an auction, the same."""
    return b'{"id":%d,"item_name":"item %d","category":%d,"date_time":%d}' % (own, own, own % 10, ts)


class SparkFeed:
    """Bids, if asked for auctions too, and their heartbeats.

    Args:
        servers: the cluster.
        name: the topic of the bids.
        rows_per_batch: how many rows a heartbeat adds, and Spark's connector takes.
        batches: how many there are.
        keys: how many auctions are bid for, in turn.
        step_ms: event time from one row of a partition to the next.
        price: the price of the n-th row of each partition.
        held: how many heartbeats, the last ones, wait for `release`.
        bids_per_auction: how many bids there are for one auction; None: there are no auctions, but `keys`.
        warm: how many batches are not counted.
    """

    def __init__(
        self,
        servers: str,
        name: str,
        *,
        rows_per_batch: int,
        batches: int,
        keys: int,
        step_ms: int = 1,
        price: Callable[[int], int] = lambda number: number % 977,
        held: int = 0,
        bids_per_auction: int | None = None,
        warm: int = WARM,
    ) -> None:
        self.topic = name
        self.topics = {BIDS: name}
        self.rows_per_batch = rows_per_batch
        self._bids_per_row = {BIDS: 1}
        if bids_per_auction is not None:
            self.topics[AUCTIONS] = f"{name}-auctions"
            self._bids_per_row[AUCTIONS] = bids_per_auction
        sources = tuple(Source(topic=topic, time="$.date_time", disorder_ms=0) for topic in self.topics.values())
        self.definition = FeedDefinition(name=f"{name}-feed", sources=sources, max_ahead_ms=None)
        self._warm = warm
        self._servers = servers
        self._keys = keys
        self._step_ms = step_ms
        self._price = price
        # Idempotent: a request that is sent again must not repeat a row, and all that follow would be one too far.
        self._producer = Producer(
            {"bootstrap.servers": servers, "enable.idempotence": True, "queue.buffering.max.messages": 1_000_000}
        )
        self._written: Counter[tuple[str, int]] = Counter()
        heartbeats = self.definition.heartbeats_topic
        specs = [TopicSpec(topic, PARTITIONS) for topic in self.topics.values()]
        described = TopicAdmin(KafkaSettings(servers)).ensure(*specs, TopicSpec(heartbeats, 1))
        self._id = self.definition.feed_id({topic: each.topic_id for topic, each in described.items()})
        self.beats = [self._beat(n) for n in range(batches + 1)]
        for source in self.topics:
            self._fill(source, self._rows(source, batches))
        self._held = self.beats[len(self.beats) - held :]
        self._write_beats(self.beats[: len(self.beats) - held])

    @property
    def source(self) -> Source:
        """The bids."""
        return self.definition.sources[0]

    def connector(self, spark: SparkSession, fields: str, source: str = BIDS) -> DataFrame:
        """Return the rows by Spark's own connector: these fields, and `event_time` with the watermark."""
        streams = [self._stream(spark, fields, source, partition) for partition in range(PARTITIONS)]
        united = streams[0]
        for stream in streams[1:]:
            united = united.unionAll(stream)
        return united

    def release(self) -> None:
        """Write the heartbeats that were held back: the rows that they speak of can be read from now on."""
        self._write_beats(self._held)

    def measure(self, query: StreamingQuery) -> Row:
        """Wait until a query has read everything, and return how long its batches took."""
        query.processAllAvailable()
        batches = [each for each in query.recentProgress if each["numInputRows"] >= self.rows_per_batch][self._warm :]
        times = [each["batchDuration"] for each in batches]
        return {
            "rows_per_batch": self.rows_per_batch,
            "batches": len(times),
            "batch_p50_ms": median(times),
            "rows_per_s": round(self.rows_per_batch * len(times) / sum(times) * 1000),
        }

    def _stream(self, spark: SparkSession, fields: str, source: str, partition: int) -> DataFrame:
        topic = self.topics[source]
        rows = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self._servers)
            .option("assign", json.dumps({topic: [partition]}))
            .option("startingOffsets", json.dumps({topic: {str(partition): 0}}))
            .option("maxOffsetsPerTrigger", self._rows(source, 1))
            .option("kafka.isolation.level", "read_committed")
            .option("kafka.fetch.max.wait.ms", 5)
            .load()
        )
        parsed = F.from_json(F.col("value").cast("string"), f"{fields}, date_time bigint")
        return (
            rows.select(parsed.alias("row"))
            .select("row.*")
            .withColumn(EVENT_TIME, F.timestamp_millis("date_time"))
            .withWatermark(EVENT_TIME, "1 millisecond")
        )

    def _rows(self, source: str, batches: int) -> int:
        """Return how many rows a partition has after so many batches."""
        return batches * self.rows_per_batch // PARTITIONS // self._bids_per_row[source]

    def _beat(self, n: int) -> Heartbeat:
        ts = None if n == 0 else START_MS + (self._rows(BIDS, n) - 1) * self._step_ms
        ends = {topic: (self._rows(source, n),) * PARTITIONS for source, topic in self.topics.items()}
        return Heartbeat(feed=self._id, n=n, tau=None if ts is None else ts - 1, ceiling=None, max_ts=ts, ends=ends)

    def _fill(self, source: str, rows_per_partition: int) -> None:
        row = self._bid if source == BIDS else self._auction
        for first in range(0, rows_per_partition, _CHUNK):
            numbers = range(first, min(first + _CHUNK, rows_per_partition))
            for partition in range(PARTITIONS):
                self._write(self.topics[source], partition, [row(number, partition) for number in numbers])
            self._producer.flush()
        self._require_delivered()

    def _write_beats(self, beats: Sequence[Heartbeat]) -> None:
        self._write(self.definition.heartbeats_topic, 0, [beat.encode() for beat in beats])
        self._producer.flush()
        self._require_delivered()

    def _write(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        batch: list[Any] = [{"value": value} for value in values]
        self._producer.produce_batch(topic, batch, partition=partition)
        self._written[topic, partition] += len(batch)

    def _require_delivered(self) -> None:
        """Check that each partition holds what was written: a heartbeat tells offsets that nobody has looked at."""
        with TailReader(KafkaSettings(self._servers)) as reader:
            held = {(topic, number): reader.watermarks(topic, number).end for topic, number in self._written}
        assert held == self._written, f"written {dict(self._written)}, held {held}"

    def _bid(self, number: int, partition: int) -> bytes:
        own = number * PARTITIONS + partition
        auction = 1_000 + own % self._keys
        if AUCTIONS in self.topics:  # the last one before it, or one of those before that
            last = number // self._bids_per_row[AUCTIONS] - 1
            auction = max(0, last - own % RECENT) * PARTITIONS + partition
        return bid_row(own, auction=auction, price=self._price(number), ts=START_MS + number * self._step_ms)

    def _auction(self, number: int, partition: int) -> bytes:
        """Return the row that comes with the last of so many bids: Spark's watermark is then that of the heartbeats."""
        opened = (number + 1) * self._bids_per_row[AUCTIONS] - 1
        return auction_row(number * PARTITIONS + partition, ts=START_MS + opened * self._step_ms)
