"""Kafka, for everything in this project: transactions with fencing, committed tails and ranges, topics.

The only package that imports confluent_kafka. It starts no threads of its own and logs nothing; what a broker answers
becomes an exception that says what to do (`lmerge.kafka.errors`).

    settings = KafkaSettings("localhost:9092")
    TopicAdmin(settings).ensure(TopicSpec("numbers", partitions=2))
    with TransactionalWriter(settings, "counter") as writer, TailReader(settings) as reader:
        writer.fence()                                    # first fence,
        reader.require_decided("numbers", 0)              # then see that nothing hangs,
        last = reader.read_tail("numbers", 0)             # then read,
        with writer.transaction():                        # then go on
            writer.write("numbers", 0, [(b"key", b"1"), (b"key", b"2")], last_headers=(("batch", b"7"),))
"""

from lmerge.final_events import Gap, Position
from lmerge.kafka.closing import Closing
from lmerge.kafka.consumer import MergedElement, MergedReader
from lmerge.kafka.errors import (
    BrokerError,
    Fenced,
    MissingTopic,
    RebuildError,
    RecordsGone,
    Refused,
    RetryError,
    StopError,
    Undecided,
    WrongPartitions,
)
from lmerge.kafka.group import GroupMember, Protocol
from lmerge.kafka.reader import Partition, PartitionReader
from lmerge.kafka.record import Headers, Record
from lmerge.kafka.settings import KafkaSettings
from lmerge.kafka.tail import TailReader, Watermarks
from lmerge.kafka.topics import TopicAdmin, TopicDescription, TopicSpec
from lmerge.kafka.writer import KeyValue, State, TransactionalWriter

__all__ = [
    "BrokerError",
    "Closing",
    "Fenced",
    "Gap",
    "GroupMember",
    "Headers",
    "KafkaSettings",
    "KeyValue",
    "MergedElement",
    "MergedReader",
    "MissingTopic",
    "Partition",
    "PartitionReader",
    "Position",
    "Protocol",
    "RebuildError",
    "Record",
    "RecordsGone",
    "Refused",
    "RetryError",
    "State",
    "StopError",
    "TailReader",
    "TopicAdmin",
    "TopicDescription",
    "TopicSpec",
    "TransactionalWriter",
    "Undecided",
    "Watermarks",
    "WrongPartitions",
]
