"""Spark with this environment's own interpreter: a Python worker reads what was committed, through lmerge.kafka."""

import sys
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lmerge.kafka import KafkaSettings, TailReader, TopicAdmin, TopicSpec, TransactionalWriter
from tests.support.kafka import committed, numbered


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[1]").appName("lmerge-tests")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss64m",
        "spark.sql.shuffle.partitions": "1",
    }.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


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
