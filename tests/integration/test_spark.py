"""Spark with this environment's own interpreter: a Python worker reads what was committed, through lmerge.kafka."""

import sys
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyspark.sql import SparkSession

from lmerge.feed import Source
from lmerge.kafka import KafkaSettings, TailReader, TopicAdmin, TopicSpec, TransactionalWriter
from replicas.reader import SourceSpec
from replicas.source import load
from tests.support.kafka import committed, numbered


def test_a_python_worker_reads_exactly_what_was_committed(spark: SparkSession, bootstrap_servers: str) -> None:
    settings = KafkaSettings(bootstrap_servers)
    topic = f"spark-{uuid.uuid4().hex}"
    TopicAdmin(settings).ensure(TopicSpec(topic, partitions=2))
    with TransactionalWriter(settings, topic) as writer:
        writer.fence()
        for partition in (0, 1):
            with writer.transaction():
                writer.write(topic, partition, numbered(1_000, first=10_000 * partition))
            writer.begin()
            writer.write(topic, partition, numbered(10, first=-100))
            writer.abort()
        expected = [
            (sys.executable, record.partition, record.offset, record.value)
            for partition in (0, 1)
            for record in committed(settings, topic, partition)
        ]

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with TailReader(settings) as reader:
            for batch in batches:
                for partition in batch.column("id").to_pylist():
                    for records in reader.read_range(topic, partition, start=0):
                        yield pa.RecordBatch.from_pylist(
                            [
                                {
                                    "worker": sys.executable,
                                    "partition": record.partition,
                                    "offset": record.offset,
                                    "value": record.value,
                                }
                                for record in records
                            ]
                        )

    schema = "worker string, partition long, offset long, value binary"
    rows = spark.range(2).mapInArrow(read, schema).collect()
    assert [(row.worker, row.partition, row.offset, bytes(row.value)) for row in rows] == expected
    assert len(rows) == 2_000


def test_loads_of_several_threads_share_no_map_in_the_driver(spark: SparkSession) -> None:
    """Each query adds to its source's environment variables when it starts, and nothing guards them in Spark."""
    spec = SourceSpec(
        bootstrap_servers="127.0.0.1:1",
        heartbeats="heartbeats",
        source=Source(topic="bids", time="$.ts", disorder_ms=0),
        schema={"price": "int"},
        directory="none",
        max_cuts=1,
        max_rows=1,
    )
    identity = spark._jvm.java.lang.System.identityHashCode  # type: ignore[union-attr]

    def environment(_number: int) -> int:
        relation = load(spark, spec)._jdf.queryExecution().analyzed().collectLeaves().apply(0)
        return int(identity(relation.source().get().source().dataSourceCls().envVars()))

    with ThreadPoolExecutor(4) as pool:
        assert len({*pool.map(environment, range(12))}) == 12
