"""The transactional writer on a real broker."""

import time
import uuid
from collections.abc import Iterator

import pytest

from lmerge.errors import UsageError
from lmerge.kafka import (
    Fenced,
    KafkaSettings,
    MissingTopic,
    Refused,
    State,
    TailReader,
    TopicAdmin,
    TopicSpec,
    TransactionalWriter,
)
from tests.support.kafka import committed, numbered, values, wait_for_log_end, wait_until


@pytest.fixture
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture
def topic(settings: KafkaSettings) -> str:
    name = f"writer-{uuid.uuid4().hex}"
    TopicAdmin(settings).ensure(TopicSpec(name, partitions=2, config={"max.message.bytes": "100000"}))
    return name


@pytest.fixture
def writer(settings: KafkaSettings, topic: str) -> Iterator[TransactionalWriter]:
    with TransactionalWriter(settings, topic) as writer:
        writer.fence()
        yield writer


@pytest.fixture
def reader(settings: KafkaSettings) -> Iterator[TailReader]:
    with TailReader(settings) as reader:
        yield reader


def test_exactly_the_committed_transactions_come_out(
    settings: KafkaSettings, writer: TransactionalWriter, reader: TailReader, topic: str
) -> None:
    expected: dict[int, list[bytes | None]] = {0: [], 1: []}
    ends = {0: 0, 1: 0}
    for number in range(24):
        aborts = number % 3 == 1 or number == 23  # the last one too
        writer.begin()
        for partition in (0, 1) if number % 4 else (number // 4 % 2,):
            records = numbered(1 + number % 7, first=1000 * number)
            writer.write(topic, partition, records)
            ends[partition] += len(records)
            wait_for_log_end(settings, topic, partition, ends[partition])  # else the abort may overtake the records
            ends[partition] += 1  # the marker
            if not aborts:
                expected[partition] += [value for _, value in records]
        if aborts:
            writer.abort()
        else:
            writer.commit()
    for partition in (0, 1):
        assert values(settings, topic, partition) == expected[partition]
        assert reader.watermarks(topic, partition).end == ends[partition]
        tail = reader.read_tail(topic, partition)
        assert tail is not None
        assert tail.value == expected[partition][-1]


def test_headers_are_on_the_last_record_of_each_write_only(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str
) -> None:
    headers = (("lmerge-batch", b"1:7"), ("empty", None))
    with writer.transaction():
        writer.write(topic, 0, numbered(3), last_headers=headers)
        writer.write(topic, 1, [(None, b"single")], last_headers=headers)
    assert [record.headers for record in committed(settings, topic)] == [(), (), headers]
    (single,) = committed(settings, topic, 1)
    assert (single.key, single.value, single.headers) == (None, b"single", headers)
    assert abs(single.timestamp / 1000 - time.time()) < 60


def test_a_write_larger_than_the_local_queue_arrives_whole_and_in_order(settings: KafkaSettings, topic: str) -> None:
    small = KafkaSettings(settings.bootstrap_servers, client={"queue.buffering.max.messages": 100})
    with TransactionalWriter(small, topic) as writer:
        writer.fence()
        with writer.transaction():
            writer.write(topic, 0, numbered(5_000), last_headers=(("end", b""),))
    read = committed(settings, topic)
    assert [record.value for record in read] == [value for _, value in numbered(5_000)]
    assert [record.headers for record in read if record.headers] == [(("end", b""),)]


def test_a_tombstone_is_a_record_without_a_value(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str
) -> None:
    with writer.transaction():
        writer.write(topic, 0, [(b"gone", None)])
    assert [(record.key, record.value) for record in committed(settings, topic)] == [(b"gone", None)]


def test_a_value_too_large_for_the_client_is_refused_and_nothing_of_its_batch_can_be_committed(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str
) -> None:
    writer.begin()
    with pytest.raises(Refused, match=f"{topic}/0.*too large"):
        writer.write(topic, 0, [(None, b"a"), (None, bytes(17_000_000)), (None, b"b")])
    with pytest.raises(UsageError, match="abort it"):
        writer.commit()
    writer.abort()
    with pytest.raises(Refused, match=f"{topic}/0.*too large"), writer.transaction():
        writer.write(topic, 0, [(None, b"a"), (None, bytes(17_000_000))], last_headers=(("h", b""),))
    assert writer.state is State.READY
    with writer.transaction():
        writer.write(topic, 0, [(None, b"c")])
    assert values(settings, topic) == [b"c"]


def test_a_value_too_large_for_the_topic_is_refused_by_the_commit(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str
) -> None:
    writer.begin()
    writer.write(topic, 0, [(None, b"a")])
    writer.write(topic, 1, [(None, bytes(200_000))])
    with pytest.raises(Refused, match=f"'{topic}' cannot commit.*too large"):
        writer.commit()
    writer.abort()
    assert writer.state is State.BROKEN  # a record that was refused may leave a gap in the sequence: not this one again
    with TransactionalWriter(settings, topic) as rebuilt:
        rebuilt.fence()
        with rebuilt.transaction():
            rebuilt.write(topic, 0, [(None, b"b")])
    assert values(settings, topic) == [b"b"]
    assert values(settings, topic, 1) == []


def test_a_missing_topic_is_named(settings: KafkaSettings, writer: TransactionalWriter, topic: str) -> None:
    begun = time.monotonic()
    writer.begin()
    writer.write(topic, 0, [(None, b"a")])
    writer.write("nonesuch", 0, [(None, b"b")])
    with pytest.raises(MissingTopic, match="nonesuch/0"):
        writer.commit()
    assert time.monotonic() - begun < 60  # bounded
    writer.abort()
    assert values(settings, topic) == []


def test_a_missing_partition_is_named(settings: KafkaSettings, writer: TransactionalWriter, topic: str) -> None:
    with writer.transaction():
        writer.write(topic, 0, [(None, b"b")])
    with pytest.raises(MissingTopic, match=f"{topic}/7"), writer.transaction():
        writer.write(topic, 7, [(None, b"a")])
    with TransactionalWriter(settings, topic) as other:
        other.fence()
        # This client does not know the topic yet, so that only the commit notices.
        with pytest.raises(MissingTopic, match=f"{topic}/7"), other.transaction():
            other.write(topic, 7, [(None, b"a")])
    assert values(settings, topic) == [b"b"]


def test_a_fenced_writer_stops_at_its_commit_and_nothing_of_it_is_visible(
    settings: KafkaSettings, writer: TransactionalWriter, reader: TailReader, topic: str
) -> None:
    with writer.transaction():
        writer.write(topic, 0, [(None, b"before")])
    writer.begin()
    writer.write(topic, 0, numbered(500))
    wait_for_log_end(settings, topic, 0, 502)
    with TransactionalWriter(settings, topic) as successor:
        successor.fence()
        tail = reader.read_tail(topic, 0)
        assert tail is not None
        assert tail.value == b"before"
        writer.write(topic, 1, numbered(500))
        with pytest.raises(Fenced, match=f"'{topic}' cannot commit.*another owner"):
            writer.commit()
        assert writer.state is State.BROKEN
        with pytest.raises(UsageError, match="make a new one"):
            writer.begin()
        with successor.transaction():
            successor.write(topic, 0, [(None, b"after")])
    assert values(settings, topic) == [b"before", b"after"]
    assert values(settings, topic, 1) == []


def test_a_fenced_writer_that_goes_on_writing_is_told(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str
) -> None:
    with TransactionalWriter(settings, topic) as successor:
        successor.fence()
        writer.begin()

        def is_told() -> bool:
            try:
                writer.write(topic, 0, numbered(100), last_headers=(("h", b""),))
            except Fenced as error:
                return "another owner" in str(error)
            return False

        wait_until(is_told, "a write of the old owner fails")
    assert values(settings, topic) == []


def test_an_empty_commit_of_a_fenced_writer_proves_nothing(
    settings: KafkaSettings, writer: TransactionalWriter
) -> None:
    with TransactionalWriter(settings, writer.transactional_id) as successor:
        successor.fence()
        with writer.transaction():
            pass


def test_a_transaction_that_outlives_its_timeout_is_fenced(
    settings: KafkaSettings, reader: TailReader, topic: str
) -> None:
    hasty = KafkaSettings(settings.bootstrap_servers, transaction_timeout_ms=1_000)
    with TransactionalWriter(hasty, topic) as writer:
        writer.fence()
        writer.begin()
        writer.write(topic, 0, [(None, b"a")])
        wait_for_log_end(settings, topic, 0, 1)
        wait_until(lambda: reader.watermarks(topic, 0).end == 2, "the broker has not aborted the transaction")
        with pytest.raises(Fenced, match="outlived its timeout"):
            writer.commit()
    assert values(settings, topic) == []


def test_what_raises_inside_a_transaction_aborts_it(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str
) -> None:
    def fail_after_a_write() -> None:
        with writer.transaction():
            writer.write(topic, 0, [(None, b"a")])
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail_after_a_write()
    with writer.transaction():
        writer.write(topic, 0, [(None, b"b")])
    assert values(settings, topic) == [b"b"]


def test_closing_aborts_what_is_open_so_that_readers_need_not_wait(settings: KafkaSettings, topic: str) -> None:
    writer = TransactionalWriter(settings, topic)
    writer.fence()
    writer.begin()
    writer.write(topic, 0, [(None, b"a")])
    wait_for_log_end(settings, topic, 0, 1)
    writer.close()
    assert writer.state is State.CLOSED
    begun = time.monotonic()
    assert values(settings, topic) == []
    assert time.monotonic() - begun < settings.transaction_timeout_ms / 1000 / 2


def test_a_writer_fences_once(writer: TransactionalWriter) -> None:
    with pytest.raises(UsageError, match="cannot fence"):
        writer.fence()


def test_a_writer_goes_on_after_it_has_aborted_what_was_not_sent_yet(
    settings: KafkaSettings, writer: TransactionalWriter
) -> None:
    """Records that the client library purges would leave a gap in its sequence, and break the next transaction."""
    topic = f"aborts-{uuid.uuid4().hex}"
    TopicAdmin(settings).ensure(TopicSpec(topic, partitions=1))
    for number in range(6):
        writer.begin()
        writer.write(topic, 0, [(None, b"x" * 200)] * 20_000)
        writer.abort()
        with writer.transaction():
            writer.write(topic, 0, numbered(50, first=50 * number))
    wait_until(lambda: len(committed(settings, topic)) == 300, "all that was committed is visible")
    assert values(settings, topic) == [value for _, value in numbered(300)]
