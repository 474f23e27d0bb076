"""Reading many partitions on and on, on a real broker."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from lmerge.errors import UsageError
from lmerge.kafka import KafkaSettings, PartitionReader, Record, RecordsGone, TopicAdmin, TopicSpec, TransactionalWriter
from tests.support.kafka import numbered, wait_until


@pytest.fixture
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture
def topic(settings: KafkaSettings) -> str:
    name = f"reader-{uuid.uuid4().hex}"
    TopicAdmin(settings).ensure(TopicSpec(name, partitions=3))
    return name


@pytest.fixture
def writer(settings: KafkaSettings, topic: str) -> Iterator[TransactionalWriter]:
    with TransactionalWriter(settings, topic) as writer:
        writer.fence()
        yield writer


@pytest.fixture
def reader(settings: KafkaSettings) -> Iterator[PartitionReader]:
    with PartitionReader(settings, batch_records=10) as reader:
        yield reader


def write(writer: TransactionalWriter, topic: str, partition: int, count: int, *, first: int = 0) -> None:
    with writer.transaction():
        writer.write(topic, partition, numbered(count, first=first))


def read(reader: PartitionReader, count: int) -> list[Record]:
    """Poll until there are so many records; each poll returns at most 10."""
    found: list[Record] = []

    def are_there() -> bool:
        batch = reader.poll(0.05)
        assert len(batch) <= 10
        found.extend(batch)
        return len(found) >= count

    wait_until(are_there, f"{count} records")
    return found


def values(records: list[Record], partition: int) -> list[int]:
    return [int(record.value or b"") for record in records if record.partition == partition]


def test_many_partitions_are_read_each_in_order_and_aborted_records_are_not(
    writer: TransactionalWriter, reader: PartitionReader, topic: str
) -> None:
    for partition in range(3):
        write(writer, topic, partition, 25)
    writer.begin()
    writer.write(topic, 0, numbered(5, first=100))
    writer.abort()
    write(writer, topic, 0, 5, first=25)
    reader.add({(topic, 0): 0, (topic, 1): 20})
    assert reader.partitions == {(topic, 0), (topic, 1)}
    records = read(reader, 35)
    assert values(records, 0) == list(range(30))
    assert values(records, 1) == list(range(20, 25))
    assert reader.poll(0.0) == []


def test_partitions_come_and_go_while_it_reads(
    writer: TransactionalWriter, reader: PartitionReader, topic: str
) -> None:
    for partition in range(2):
        write(writer, topic, partition, 50)
    reader.add({(topic, 0): 0})
    assert values(read(reader, 10), 0)[:10] == list(range(10))
    reader.add({(topic, 1): 0})
    reader.remove((topic, 0), (topic, 2))
    records = read(reader, 50)
    assert values(records, 0) == []
    assert values(records, 1) == list(range(50))
    reader.add({(topic, 0): 5})
    assert values(read(reader, 45), 0) == list(range(5, 50))
    with pytest.raises(UsageError, match=f"{topic}/0, {topic}/1 are being read already"):
        reader.add({(topic, 0): 0, (topic, 1): 0})


def test_a_partition_whose_records_are_gone_is_named_and_the_others_go_on(
    settings: KafkaSettings, writer: TransactionalWriter, reader: PartitionReader, topic: str
) -> None:
    for partition in range(2):
        write(writer, topic, partition, 20)
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers, "log_level": 2})
    for future in admin.delete_records([TopicPartition(topic, 1, 5)]).values():
        future.result(10)
    reader.add({(topic, 0): 0, (topic, 1): 0})
    found: list[Record] = []

    def is_gone() -> bool:
        try:
            found.extend(reader.poll(0.05))
        except RecordsGone as error:
            assert f"{topic}/1 at offset 0" in str(error)  # noqa: PT017 - the rest of the loop matters too
            return True
        return False

    wait_until(is_gone, "the lost records are reported")
    assert list(reader.failed) == [(topic, 1)]
    assert reader.partitions == {(topic, 0)}
    write(writer, topic, 0, 1, first=20)
    found += read(reader, 21 - len(found))
    assert values(found, 0) == list(range(21))
    reader.add({(topic, 1): 5})
    assert reader.failed == {}
    assert values(read(reader, 15), 1) == list(range(5, 20))


def test_records_that_came_before_the_error_of_their_partition_are_not_those_of_another(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str
) -> None:
    """One poll has both: the partition leaves, and the one that is left of its topic must not be given its records."""
    count = 60_000  # more than waits in the client: the rest can be deleted before it is asked for
    with writer.transaction():
        writer.write(topic, 1, [(None, b"x" * 100)] * count)
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers, "log_level": 2})
    taken = 0
    with PartitionReader(settings, batch_records=777) as reader:
        reader.add({(topic, 0): 0, (topic, 1): 0})

        def some_came() -> bool:
            nonlocal taken
            taken += sum(len(batch.values) for batch in reader.poll_batches(0.05).values())
            return taken > 0

        def came_with_the_error() -> bool:
            nonlocal taken
            for where, batch in reader.poll_batches(0.05).items():
                assert where == (topic, 1)
                assert list(batch.offsets) == list(range(taken, taken + len(batch.values)))
                taken += len(batch.values)
            return bool(reader.failed)

        wait_until(some_came, "the first records")
        for future in admin.delete_records([TopicPartition(topic, 1, count)]).values():
            future.result(10)
        wait_until(came_with_the_error, "the last records came together with the error")
        assert reader.partitions == {(topic, 0)}
        with pytest.raises(RecordsGone, match=f"{topic}/1"):
            reader.poll_batches(0.05)


def test_topics_with_a_backlog_are_read_in_turns(settings: KafkaSettings, writer: TransactionalWriter) -> None:
    """With one consumer for both, the first is read to its end before the second begins (ADR 7)."""
    topics = [f"turns-{uuid.uuid4().hex}" for _ in range(2)]
    TopicAdmin(settings).ensure(*(TopicSpec(topic, partitions=1) for topic in topics))
    for topic in topics:
        with writer.transaction():
            writer.write(topic, 0, [(None, b"x" * 100)] * 60_000)
    taken = dict.fromkeys(topics, 0)
    with PartitionReader(settings, batch_records=200) as reader:
        reader.add({(topic, 0): 0 for topic in topics})

        def one_is_done() -> bool:
            for (topic, _), batch in reader.poll_batches(0.05).items():
                assert list(batch.offsets) == list(range(taken[topic], taken[topic] + len(batch.values)))
                taken[topic] += len(batch.values)
            return max(taken.values()) == 60_000

        wait_until(one_is_done, "a topic is read to its end")
    assert min(taken.values()) > 30_000


def test_a_reader_that_cannot_be_is_refused(settings: KafkaSettings) -> None:
    with pytest.raises(UsageError, match="batch_records 0"):
        PartitionReader(settings, batch_records=0)
    reader = PartitionReader(settings)
    reader.close()
    reader.close()
    with pytest.raises(UsageError, match="closed"):
        reader.poll(0)


def test_failures_of_partitions_that_were_removed_are_not_told_again(
    settings: KafkaSettings, topic: str, reader: PartitionReader, writer: TransactionalWriter
) -> None:
    """Whoever deals with all that failed after the first error has dealt with the others too."""
    for partition in range(3):
        write(writer, topic, partition, 20)
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers, "log_level": 2})
    for future in admin.delete_records([TopicPartition(topic, number, 5) for number in (1, 2)]).values():
        future.result(10)
    reader.add({(topic, number): 0 for number in range(3)})
    found: list[Record] = []
    told = 0

    def are_gone() -> bool:
        nonlocal told
        try:
            found.extend(reader.poll(0.05))
        except RecordsGone:
            told += 1
            reader.remove(*reader.failed)
        return len(found) == 20 and reader.partitions == {(topic, 0)}

    wait_until(are_gone, "both are gone")
    assert reader.poll(0.05) == []
    assert told in (1, 2)  # one by one, or both in one fetch
