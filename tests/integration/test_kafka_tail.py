"""Reading committed tails, ends and ranges on a real broker."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError

from lmerge.errors import UsageError
from lmerge.kafka import (
    KafkaSettings,
    MissingTopic,
    RecordsGone,
    State,
    TailReader,
    TopicAdmin,
    TopicSpec,
    TransactionalWriter,
    Undecided,
    Watermarks,
)
from tests.support.kafka import delete_before, numbered, wait_for_log_end, wait_until, wait_until_decided


@pytest.fixture(scope="module")
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture(scope="module")
def kept_writer(settings: KafkaSettings) -> Iterator[TransactionalWriter]:
    with TransactionalWriter(settings, f"tail-{uuid.uuid4().hex}") as writer:
        writer.fence()
        yield writer


@pytest.fixture
def writer(kept_writer: TransactionalWriter) -> Iterator[TransactionalWriter]:
    yield kept_writer
    if kept_writer.state is State.OPEN:
        kept_writer.abort()


@pytest.fixture(scope="module")
def reader(settings: KafkaSettings) -> Iterator[TailReader]:
    with TailReader(settings) as reader:
        yield reader


@pytest.fixture
def topic(settings: KafkaSettings) -> str:
    name = f"tail-{uuid.uuid4().hex}"
    TopicAdmin(settings).ensure(TopicSpec(name, partitions=1))
    return name


def commit(settings: KafkaSettings, writer: TransactionalWriter, topic: str, count: int) -> None:
    with writer.transaction():
        writer.write(topic, 0, numbered(count))
    wait_until_decided(settings, topic, 0)


class Log(NamedTuple):
    """What is written, in this order, and the offset of the last committed record of it."""

    committed: int
    aborted: int
    undecided: int
    tail: int | None


@pytest.mark.parametrize(
    "log",
    [
        pytest.param(Log(committed=0, aborted=0, undecided=0, tail=None), id="empty"),
        pytest.param(Log(committed=5, aborted=0, undecided=0, tail=4), id="one batch"),
        pytest.param(Log(committed=20_000, aborted=0, undecided=0, tail=19_999), id="one large batch"),
        pytest.param(Log(committed=5, aborted=0, undecided=10, tail=4), id="committed, open"),
        pytest.param(Log(committed=5, aborted=3_000, undecided=0, tail=4), id="committed, 3,000 aborted"),
        pytest.param(Log(committed=5, aborted=3_000, undecided=10, tail=4), id="committed, aborted, open"),
        pytest.param(Log(committed=0, aborted=50, undecided=0, tail=None), id="only aborted"),
        pytest.param(Log(committed=0, aborted=0, undecided=50, tail=None), id="only open"),
    ],
)
def test_the_tail_is_the_last_committed_record(
    settings: KafkaSettings, writer: TransactionalWriter, reader: TailReader, topic: str, log: Log
) -> None:
    assert reader.read_tail(topic, 0) is None
    if log.committed:
        commit(settings, writer, topic, log.committed)
    decided = log.committed + bool(log.committed)  # the marker of the commit
    if log.aborted:
        writer.begin()
        writer.write(topic, 0, numbered(log.aborted))
        wait_for_log_end(settings, topic, 0, decided + log.aborted)  # else the abort may overtake the records
        writer.abort()
        decided += log.aborted + 1
    if log.undecided:
        writer.begin()
        writer.write(topic, 0, numbered(log.undecided))
        wait_for_log_end(settings, topic, 0, decided + log.undecided)
    wait_until(lambda: reader.watermarks(topic, 0) == Watermarks(low=0, end=decided), "the commits are visible")
    with TailReader(settings) as fresh:
        for tail in (reader.read_tail(topic, 0), fresh.read_tail(topic, 0)):
            assert (tail and tail.offset) == log.tail
            assert tail is None or tail.value == b"%d" % tail.offset


def test_a_range_is_what_was_committed_in_it_in_batches(
    settings: KafkaSettings, writer: TransactionalWriter, reader: TailReader, topic: str
) -> None:
    for _ in range(3):
        commit(settings, writer, topic, 100)  # offsets 0-99, 101-200, 202-301; markers between
    offsets = [*range(100), *range(101, 201), *range(202, 302)]
    for start, end in [(0, 303), (0, 100), (0, 101), (50, 150), (100, 101), (100, 202), (201, 303), (302, 303), (7, 7)]:
        batches = list(reader.read_range(topic, 0, start=start, end=end, batch_records=40))
        assert all(0 < len(batch) <= 40 for batch in batches)
        read = [record.offset for batch in batches for record in batch]
        assert read == [offset for offset in offsets if start <= offset < end], (start, end)
    assert sum(map(len, reader.read_range(topic, 0, start=0, batch_records=1))) == 300


def test_a_question_that_fails_takes_nothing_from_a_range_that_is_being_read(
    settings: KafkaSettings, writer: TransactionalWriter, reader: TailReader, topic: str
) -> None:
    """To learn why it failed the client is polled, and what it then gives is a record of the range."""
    commit(settings, writer, topic, 500)
    offsets = []
    for batch in reader.read_range(topic, 0, start=0, batch_records=50):
        offsets += [record.offset for record in batch]
        with pytest.raises(MissingTopic):
            reader.watermarks(f"{topic}-nonesuch", 0)
    assert offsets == [*range(500)]


def test_a_range_without_an_end_is_read_to_the_committed_end(
    settings: KafkaSettings, writer: TransactionalWriter, reader: TailReader, topic: str
) -> None:
    commit(settings, writer, topic, 3)
    batches = reader.read_range(topic, 0, start=0)
    commit(settings, writer, topic, 3)
    assert [record.offset for batch in batches for record in batch] == [0, 1, 2]


def test_what_is_not_decided_in_time_is_an_error(
    settings: KafkaSettings, writer: TransactionalWriter, reader: TailReader, topic: str
) -> None:
    reader.require_decided(topic, 0)
    commit(settings, writer, topic, 5)
    writer.begin()
    writer.write(topic, 0, numbered(5))
    wait_for_log_end(settings, topic, 0, 11)
    with pytest.raises(Undecided, match=rf"\[6, 11\) of {topic}/0 .*find-hanging"):
        reader.require_decided(topic, 0, timeout_seconds=0.1)
    writer.commit()
    reader.require_decided(topic, 0)
    tail = reader.read_tail(topic, 0)
    assert tail is not None
    assert tail.offset == 10


def test_records_that_are_gone_are_an_error(
    settings: KafkaSettings, writer: TransactionalWriter, reader: TailReader, topic: str
) -> None:
    commit(settings, writer, topic, 100)
    range_asked_before = reader.read_range(topic, 0, start=0)
    delete_before(settings, topic, 60)
    with pytest.raises(RecordsGone, match=f"{topic}/0 at offset 0"):
        next(range_asked_before)
    with pytest.raises(RecordsGone, match=rf"\[0, 101\) of {topic}/0 .*\[60, 101\)"):
        reader.read_range(topic, 0, start=0)
    assert sum(map(len, reader.read_range(topic, 0, start=60))) == 40
    tail = reader.read_tail(topic, 0)
    assert tail is not None
    assert tail.offset == 99


def test_a_partition_whose_records_are_all_gone_has_no_tail(
    settings: KafkaSettings, writer: TransactionalWriter, reader: TailReader, topic: str
) -> None:
    commit(settings, writer, topic, 100)
    delete_before(settings, topic, 101)
    assert reader.watermarks(topic, 0) == Watermarks(low=101, end=101)
    assert reader.read_tail(topic, 0) is None


def test_a_range_beyond_what_is_committed_is_an_error(
    settings: KafkaSettings, writer: TransactionalWriter, reader: TailReader, topic: str
) -> None:
    commit(settings, writer, topic, 5)
    with pytest.raises(RecordsGone, match=rf"\[3, 9\) of {topic}/0 .*\[0, 6\)"):
        reader.read_range(topic, 0, start=3, end=9)
    with pytest.raises(UsageError, match="after its end"):
        reader.read_range(topic, 0, start=3, end=2)


def test_a_missing_topic_or_partition_is_named(reader: TailReader, topic: str) -> None:
    for name, partition in [("nonesuch", 0), (topic, 1)]:
        with pytest.raises(MissingTopic, match=f"{name}/{partition}"):
            reader.watermarks(name, partition)
        with pytest.raises(MissingTopic, match=f"{name}/{partition}"):
            reader.require_decided(name, partition)
        with pytest.raises(MissingTopic, match=f"{name}/{partition}"):
            reader.read_tail(name, partition)
        with pytest.raises(MissingTopic, match=f"{name}/{partition}"):
            reader.read_range(name, partition, start=0)


def test_a_topic_that_is_being_made_is_missing_or_there_and_nothing_between(settings: KafkaSettings) -> None:
    """For some milliseconds its partitions have no leader: that is waited for."""
    admin = TopicAdmin(settings)
    with TailReader(settings) as reader, ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            name = f"tail-{uuid.uuid4().hex}"
            made = pool.submit(admin.ensure, TopicSpec(name, partitions=30))
            found: Watermarks | None = None
            while found is None:
                with suppress(MissingTopic):
                    found = reader.watermarks(name, 29)
            assert found == Watermarks(0, 0)
            made.result()


def test_a_range_ends_when_another_read_begins_and_never_mixes(
    settings: KafkaSettings, writer: TransactionalWriter, reader: TailReader, topic: str
) -> None:
    commit(settings, writer, topic, 10)
    batches = reader.read_range(topic, 0, start=0, batch_records=4)
    next(batches)
    assert reader.read_tail(topic, 0) is not None
    with pytest.raises(UsageError, match="use two readers"):
        next(batches)


def test_a_closed_reader_says_so(settings: KafkaSettings, topic: str) -> None:
    reader = TailReader(settings)
    reader.close()
    reader.close()
    with pytest.raises(UsageError, match="closed"):
        reader.read_tail(topic, 0)


class EarlyEnd(NamedTuple):
    """An event that tells the end of a partition which has more."""

    where: str
    at: int

    def topic(self) -> str:
        return self.where

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError:
        return KafkaError(KafkaError._PARTITION_EOF)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["of the partition", "of one that was read before"])
def test_an_end_that_is_told_too_early_is_not_believed(
    *,
    settings: KafkaSettings,
    writer: TransactionalWriter,
    topic: str,
    elsewhere: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is lost, and the last record is found: who wrote a batch twice else would not know."""
    commit(settings, writer, topic, 5)
    with TailReader(settings) as reader:
        poll, early = reader._poll, [EarlyEnd(f"not-{topic}" if elsewhere else topic, 6) for _ in range(2)]
        monkeypatch.setattr(reader, "_poll", lambda *given: [early.pop()] if len(early) > 1 else poll(*given))
        assert [record.offset for batch in reader.read_range(topic, 0, start=0, end=6) for record in batch] == [
            *range(5)
        ]
        early.append(early[0])
        tail = reader.read_tail(topic, 0)
        assert tail is not None
        assert tail.offset == 4
