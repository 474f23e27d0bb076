"""What the tests on a real broker share: records to write, what is in the log, and waiting for a fact.

A commit is decided when it returns, and visible some milliseconds later, when its markers have reached the partitions.
So the readers here wait first until everything in the log is decided.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]  # its hints forget it

from lmerge.kafka import KafkaSettings, KeyValue, Record, TailReader


def numbered(count: int, *, first: int = 0) -> list[KeyValue]:
    """Make records whose values are consecutive numbers."""
    return [(b"key", b"%d" % number) for number in range(first, first + count)]


def wait_until(condition: Callable[[], bool], what: str, *, seconds: float = 30, every: float = 0.002) -> None:
    """Wait for a condition; `what` says in the failure what did not come true, `every` how often it is looked at."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(every)


def wait_for_log_end(settings: KafkaSettings, topic: str, partition: int, end: int) -> None:
    """Wait until the log is that long, undecided records included: a writer sends in the background."""
    with log_end(settings, topic, partition) as current:
        wait_until(lambda: current() >= end, f"{topic}/{partition} ends at {end}")


def wait_until_decided(settings: KafkaSettings, topic: str, partition: int) -> None:
    """Wait until no record of the log belongs to a transaction that is open or just ending."""
    with _log_ends(settings, topic) as end, TailReader(settings) as reader:
        _wait_until_decided(reader, end, topic, partition)


def _wait_until_decided(reader: TailReader, end: Callable[[int], int], topic: str, partition: int) -> None:
    wait_until(lambda: reader.watermarks(topic, partition).end == end(partition), f"{topic}/{partition} is decided")


def committed(settings: KafkaSettings, topic: str, partition: int = 0) -> list[Record]:
    """Read all that is committed, once everything is decided."""
    (records,) = committed_in(settings, topic, [partition])
    return records


def committed_in(settings: KafkaSettings, topic: str, partitions: Iterable[int]) -> list[list[Record]]:
    """Read all that is committed in each of these partitions: connections take longer than the records."""
    with _log_ends(settings, topic) as end, TailReader(settings) as reader:
        found = []
        for partition in partitions:
            _wait_until_decided(reader, end, topic, partition)
            found.append([record for batch in reader.read_range(topic, partition, start=0) for record in batch])
        return found


def values(settings: KafkaSettings, topic: str, partition: int = 0) -> list[bytes | None]:
    """Read the values of all that is committed, once everything is decided."""
    return [record.value for record in committed(settings, topic, partition)]


def delete_before(settings: KafkaSettings, topic: str, offset: int) -> None:
    """Delete records as retention would."""
    client = AdminClient({"bootstrap.servers": settings.bootstrap_servers})
    for future in client.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result()


def grow_topic(settings: KafkaSettings, topic: str, partitions: int) -> None:
    """Give a topic more partitions."""
    client = AdminClient({"bootstrap.servers": settings.bootstrap_servers, "log_level": 2})
    for future in client.create_partitions([NewPartitions(topic, partitions)]).values():
        future.result(10)


@contextmanager
def log_end(settings: KafkaSettings, topic: str, partition: int) -> Iterator[Callable[[], int]]:
    """Give what asks for the end of a log, undecided records included."""
    with _log_ends(settings, topic) as end:
        yield lambda: end(partition)


@contextmanager
def _log_ends(settings: KafkaSettings, topic: str) -> Iterator[Callable[[int], int]]:
    servers = {"bootstrap.servers": settings.bootstrap_servers}
    consumer = Consumer({**servers, "group.id": "test", "isolation.level": "read_uncommitted"})
    try:
        yield lambda partition: int(consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)[1])
    finally:
        consumer.close()
