"""Consuming a merged topic, on a real broker: three partitions, written in transactions of which some are aborted."""

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from random import Random

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from lmerge import INFINITY, MINUS_INFINITY, TDB, Adjust, Element, Event, Insert, Stable, reconstitute
from lmerge.canonical import payload
from lmerge.codec import encode_batch
from lmerge.errors import IllegalElement, InputError, UsageError
from lmerge.kafka import (
    Gap,
    GroupMember,
    KafkaSettings,
    MergedReader,
    MissingTopic,
    Partition,
    PartitionReader,
    RecordsGone,
    Refused,
    TopicAdmin,
    TopicSpec,
    TransactionalWriter,
)
from lmerge.properties import StreamProperties
from tests.support.kafka import wait_until, wait_until_decided
from tests.support.presentations import plan, present
from tests.support.streams import adj, hello, ins, stb

PARTITIONS = 3
A, B, C = (payload(letter) for letter in "ABC")


@pytest.fixture
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture
def topic(settings: KafkaSettings) -> str:
    name = f"merged-{uuid.uuid4().hex}"
    TopicAdmin(settings).ensure(TopicSpec(name, PARTITIONS))
    return name


@pytest.fixture
def writer(settings: KafkaSettings, topic: str) -> Iterator[TransactionalWriter]:
    with TransactionalWriter(settings, topic) as writer:
        writer.fence()
        yield writer


def write(settings: KafkaSettings, writer: TransactionalWriter, topic: str, logs: dict[int, list[Element]]) -> None:
    """Commit elements, by partition, and wait until they can be read."""
    with writer.transaction():
        for partition, elements in logs.items():
            writer.write(topic, partition, [(None, value) for value in encode_batch(elements)])
    for partition in logs:
        wait_until_decided(settings, topic, partition)


def random_log(rng: Random) -> list[Element]:
    """Make a merged stream of one partition, which opens with a hello and is closed by a stable."""
    log: list[Element] = [hello()]
    for element in present(rng, plan(rng, payloads="abcdef", endless=True), StreamProperties()):
        match element:
            case Insert(text, vs, ve):
                log.append(Insert(payload(str(text)), vs, ve))
            case Adjust(text, vs, vold, ve):
                log.append(Adjust(payload(str(text)), vs, vold, ve))
            case _:
                log.append(element)
    return log


def write_in_pieces(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str, logs: list[list[Element]], rng: Random
) -> None:
    """Write the logs in transactions of a few elements each, with aborted ones in between."""
    done = [0] * len(logs)
    while any(done[p] < len(log) for p, log in enumerate(logs)):
        pieces = {p: log[done[p] : done[p] + rng.randrange(5)] for p, log in enumerate(logs)}
        if rng.random() < 0.5:
            writer.begin()
            for partition in range(len(logs)):
                writer.write(topic, partition, [(None, value) for value in encode_batch([ins(A, 1, 2), stb(INFINITY)])])
            writer.abort()
        with writer.transaction():
            for partition, piece in pieces.items():
                writer.write(topic, partition, [(None, value) for value in encode_batch(piece)])
        done = [count + len(pieces[p]) for p, count in enumerate(done)]
    for partition in range(len(logs)):
        wait_until_decided(settings, topic, partition)


@pytest.mark.parametrize("seed", range(10))
def test_however_often_it_starts_again_nothing_is_lost_or_repeated(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str, seed: int, *, long: bool
) -> None:
    if seed and not long:
        pytest.skip("more seeds: --long")
    rng = Random(seed)
    logs = [random_log(rng) for _ in range(PARTITIONS)]
    write_in_pieces(settings, writer, topic, logs, rng)
    tdbs = [reconstitute(log) for log in logs]
    expected = Counter(event for tdb in tdbs for event in tdb)

    elements: list[list[Element]] = [[] for _ in logs]
    events: list[Event] = []
    by_start: list[Event] = []
    start = None
    is_done = [False, False, False]
    while not all(is_done):
        most = rng.randrange(1, 8)
        with MergedReader(settings, topic, group=f"{topic}-elements", follow=False) as reader:
            batch = list(islice(reader.elements(), most))
            reader.commit()
        for item in batch:
            assert item.topic == topic
            elements[item.partition].append(item.element)
        with MergedReader(settings, topic, group=f"{topic}-events", follow=False) as reader:
            found = list(islice(reader.events(), most))
            events += found
            reader.commit()
        with MergedReader(settings, topic, start=start, follow=False) as reader:
            more = list(islice(reader.events(in_order=True), most))
            by_start += more
            start = reader.positions
        is_done = [len(some) < most for some in (batch, found, more)]
    assert elements == logs
    assert Counter(events) == expected
    assert by_start == sorted(expected.elements(), key=lambda event: (event.ve, event.vs, event.payload))

    with MergedReader(settings, topic, follow=False) as reader:
        table = reader.table()
        assert Counter(table) == expected
        assert table.stable == reader.stable == INFINITY
        for t in range(-1, 18):
            assert table.at(t) == sum((tdb.snapshot(t) for tdb in tdbs), Counter())


def test_an_event_is_final_by_its_own_partition_and_complete_is_the_minimum(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str
) -> None:
    one: dict[int, list[Element]] = {0: [ins(A, 1, 8), stb(20)], 1: [ins(B, 1, 5), stb(7)], 2: [ins(C, 1, 5)]}
    write(settings, writer, topic, one)
    with MergedReader(settings, topic, follow=False) as reader:
        assert Counter(reader.events()) == Counter([Event(A, 1, 8), Event(B, 1, 5)])
        assert reader.stable == MINUS_INFINITY  # partition 2 has said nothing
    with MergedReader(settings, topic, follow=False) as reader:
        assert list(reader.events(in_order=True)) == []
    with MergedReader(settings, topic, partitions=[0, 1], follow=False) as reader:
        assert list(reader.events(in_order=True)) == [Event(B, 1, 5)]
        assert reader.stable == 7
    with MergedReader(settings, topic, follow=False) as reader:
        assert len(list(reader.elements())) == 5
        assert reader.stable == MINUS_INFINITY
    write(settings, writer, topic, {2: [stb(6)]})
    with MergedReader(settings, topic, follow=False) as reader:
        assert list(reader.events(in_order=True)) == [Event(B, 1, 5), Event(C, 1, 5)]
        assert reader.stable == 6
    with MergedReader(settings, topic, follow=False) as reader:
        list(reader.elements())
        assert reader.stable == 6


def test_an_end_that_is_told_too_early_ends_nothing(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever believed it would hold an empty table, or would end before it has begun (ADR 9)."""
    add = PartitionReader.add

    def misled(self: PartitionReader, offsets: Mapping[Partition, int]) -> None:
        add(self, offsets)
        self._ended.update({partition: (offset, 0.0) for partition, offset in offsets.items()})

    monkeypatch.setattr(PartitionReader, "add", misled)
    write(settings, writer, topic, {0: [ins(A, 1, 5), stb(10)], 2: [ins(B, 2, 6), stb(10)]})
    with MergedReader(settings, topic, follow=False) as reader:
        assert {item.element for item in reader.elements()} == {ins(A, 1, 5), ins(B, 2, 6), stb(10)}
    with MergedReader(settings, topic) as reader:
        assert set(reader.table().at(3)) == {A, B}


def test_readers_follow_what_is_written(settings: KafkaSettings, writer: TransactionalWriter, topic: str) -> None:
    with (
        MergedReader(settings, topic, partitions=[0]) as events_reader,
        MergedReader(settings, topic, partitions=[0]) as table_reader,
    ):
        events, table = events_reader.events(), table_reader.table()
        for t in range(3):
            write(settings, writer, topic, {0: [ins(A, 10 * t, 10 * t + 5), stb(10 * t + 6)]})
            assert next(events) == Event(A, 10 * t, 10 * t + 5)
            assert events_reader.stable == 10 * t + 6
            assert table_reader.refresh(30)
            assert table.stable == 10 * t + 6
            assert table.at(10 * t) == {A: 1}
        table.forget(26)
        assert len(table) == 0


def test_a_hello_in_mid_stream_voids_the_table_and_shows_as_a_gap(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str
) -> None:
    before: list[Element] = [hello(1), ins(A, 1, 5), ins(B, 6, 30), stb(8)]
    after: list[Element] = [hello(2, joins_at=20), ins(A, 1, 5), ins(C, 21, 25), stb(40)]
    write(settings, writer, topic, {0: before + after})
    with MergedReader(settings, topic, partitions=[0], follow=False) as reader:
        assert list(reader.events()) == [Event(A, 1, 5), Event(C, 21, 25)]
        assert reader.gaps == {0: [Gap(4, 8, 20)]}
    with MergedReader(settings, topic, partitions=[0], follow=False) as reader:
        assert TDB(reader.table()) == reconstitute(before + after)


def test_a_record_that_does_not_fit_is_named_after_all_before_it_were_handed_out(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str
) -> None:
    write(settings, writer, topic, {0: [ins(A, 1, 5), stb(8)], 1: [ins(B, 1, 5), adj(B, 1, 6, 7)]})
    with writer.transaction():
        writer.write(topic, 0, [(None, b'{"kind":"insect"}')])
    wait_until_decided(settings, topic, 0)
    with MergedReader(settings, topic, partitions=[0], follow=False) as reader:
        events = reader.events()
        assert next(events) == Event(A, 1, 5)
        with pytest.raises(InputError, match=f"{topic}/0 at offset 3 is no element.*insect"):
            next(events)
    for way in ("events", "table"):
        with (
            MergedReader(settings, topic, partitions=[1], follow=False) as reader,
            pytest.raises(IllegalElement, match=f"{topic}/1 at offset 1: .*does not exist"),
        ):
            list(getattr(reader, way)())


def test_a_beginning_that_is_gone_is_refused_or_accepted(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str
) -> None:
    write(settings, writer, topic, {0: [ins(A, 1, 50), ins(B, 1, 40), ins(C, 1, 9), adj(B, 1, 40, 6), stb(60)]})
    admin = AdminClient({"bootstrap.servers": settings.bootstrap_servers, "log_level": 2})
    for future in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        future.result(10)
    for way in ("events", "table"):
        with (
            MergedReader(settings, topic, partitions=[0], follow=False) as reader,
            pytest.raises(RecordsGone, match=f"{topic}/0 cannot be read from offset 2 on.*accept_gap"),
        ):
            list(getattr(reader, way)())
        with MergedReader(settings, topic, partitions=[0], follow=False, accept_gap=True) as reader:
            assert set(getattr(reader, way)()) == {Event(B, 1, 6), Event(C, 1, 9)}  # A is missing


def test_what_cannot_be_is_refused(settings: KafkaSettings, writer: TransactionalWriter, topic: str) -> None:
    write(settings, writer, topic, {0: [ins(A, 1, 5), stb(8), ins(B, 9, 10)]})
    with pytest.raises(MissingTopic, match="nowhere"):
        MergedReader(settings, "nowhere")
    for partitions in ([3], []):
        with pytest.raises(UsageError, match="partitions 0 to 2"):
            MergedReader(settings, topic, partitions=partitions)
    with MergedReader(settings, topic, group=topic, partitions=[0], follow=False) as reader:
        with pytest.raises(UsageError, match="no table"):
            reader.refresh()
        assert len(list(reader.events())) == 1
        reader.commit()
        with pytest.raises(UsageError, match=r"reads events\(\) already"):
            reader.table()
        positions = reader.positions
    with pytest.raises(UsageError, match="closed"):
        reader.commit()
    with pytest.raises(UsageError, match=r"only \(1,\)"):
        MergedReader(settings, topic, partitions=[1], start=positions)
    with (
        MergedReader(settings, topic, group=topic, partitions=[0]) as reader,
        pytest.raises(UsageError, match=r"is one of events\(\)"),
    ):
        reader.elements()
    with MergedReader(settings, topic, partitions=[1], follow=False) as reader:
        reader.table()
        with pytest.raises(UsageError, match="give it a group"):
            reader.commit()
        with pytest.raises(UsageError, match="no positions"):
            reader.positions  # noqa: B018


def test_a_group_with_members_keeps_its_offsets_to_them(settings: KafkaSettings, topic: str) -> None:
    with GroupMember(settings, topic) as member, MergedReader(settings, topic, group=topic) as reader:
        member.subscribe([topic])
        wait_until(lambda: member.poll(0.1), "it is a member")
        reader.elements()
        with pytest.raises(Refused, match=f"group '{topic}' cannot be stored: it has members"):
            reader.commit()


def test_stable_is_known_again_right_after_a_start(
    settings: KafkaSettings, writer: TransactionalWriter, topic: str
) -> None:
    write(settings, writer, topic, {p: [ins(A, 1, 5), Stable(8 + p)] for p in range(PARTITIONS)})
    with MergedReader(settings, topic, group=topic, follow=False) as reader:
        assert len(list(reader.events())) == PARTITIONS
        reader.commit()
    with MergedReader(settings, topic, group=topic, follow=False) as reader:
        assert list(reader.events()) == []
        assert reader.stable == 8
