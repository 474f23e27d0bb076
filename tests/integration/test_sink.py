"""The replica's sink on a real broker: cases S1, S2, S3 and S7 of recovery-and-sink, zombies, a broker that is killed.

No Spark is needed: what a driver does between two calls of the sink is done here by hand.
"""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Event

import pyarrow as pa
import pytest

from deploy.local import LocalStack
from lmerge import Hello, Insert
from lmerge.codec import decode_batch
from lmerge.errors import UsageError
from lmerge.kafka import KafkaSettings, RebuildError, TopicAdmin, TopicSpec, TransactionalWriter
from replicas import sink as sink_module
from replicas.emit import records_of
from replicas.errors import NotWritten, Superseded
from replicas.sink import HEADER, Sink
from replicas.state import Tag
from tests.support.kafka import committed

LANES = 2

BATCH_7 = ("a", "b", "c", "d")


def rows(*names: str) -> pa.Table:
    times = [range(len(names)), range(10, 10 + len(names))]
    return pa.table({"name": pa.array(names), "vs": pa.array(times[0]), "ve": pa.array(times[1])})


class World:
    """A replica's topic, and drivers that write to it."""

    def __init__(self, settings: KafkaSettings, resources: ExitStack) -> None:
        self.topic = f"sink-{uuid.uuid4().hex}"
        self._settings = settings
        self._resources = resources
        TopicAdmin(settings).ensure(TopicSpec(self.topic, LANES))

    def driver(self) -> Sink:
        """Give a driver's sink; it has not fenced yet."""
        return self._resources.enter_context(
            Sink(self._settings, topic=self.topic, transactional_id=self.topic, lanes=LANES)
        )

    def names(self) -> list[str]:
        """Give what was inserted, in the order of each lane, after the last hello."""
        found = []
        for lane in range(LANES):
            elements, error = decode_batch([record.value for record in committed(self._settings, self.topic, lane)])
            assert error is None
            hellos = [place for place, element in enumerate(elements) if isinstance(element, Hello)]
            for element in elements[hellos[-1] if hellos else 0 :]:
                if isinstance(element, Insert):
                    assert isinstance(element.payload, bytes)
                    found.append(element.payload.decode().split('"')[3])
        return found

    def tags(self) -> list[list[bytes | None]]:
        """Give the headers of each lane, in order."""
        lanes = [committed(self._settings, self.topic, lane) for lane in range(LANES)]
        return [[dict(record.headers)[HEADER] for record in records if record.headers] for records in lanes]


@pytest.fixture
def make_world(bootstrap_servers: str) -> Iterator[Callable[[], World]]:
    with ExitStack() as stack:
        yield lambda: World(KafkaSettings(bootstrap_servers), stack)


def write(sink: Sink, tag: Tag, *names: str) -> bool:
    return sink.write(tag, records_of(rows(*names), key=("name",), lanes=LANES))


@pytest.mark.parametrize("replayed", [BATCH_7, BATCH_7[::-1], ("c", "a", "d", "b")])
def test_s1_s2_a_batch_that_was_committed_is_not_written_again_whatever_its_tasks(
    replayed: tuple[str, ...], make_world: Callable[[], World]
) -> None:
    """The replay has other tasks, so another order: keyed by task, rows would be repeated or lost."""
    world = make_world()
    first = world.driver()
    first.hello(Hello(replica="r1", incarnation=1))
    assert write(first, Tag(1, 6), "z")
    assert write(first, Tag(1, 7), *BATCH_7)
    successor = world.driver()
    assert successor.recover() == Tag(1, 7)
    assert not write(successor, Tag(1, 7), *replayed)
    assert write(successor, Tag(1, 8), "e")
    assert sorted(world.names()) == ["a", "b", "c", "d", "e", "z"]


def test_s3_a_slow_commit_that_arrives_just_before_the_fence_is_seen(
    make_world: Callable[[], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tails that were read before the fence would lack batch 7, and it would be written twice."""
    world = make_world()
    slow = world.driver()
    slow.hello(Hello(replica="r1", incarnation=1))
    assert write(slow, Tag(1, 6), "z")
    assert slow._writer is not None
    writer: TransactionalWriter = slow._writer
    writer.begin()
    for lane, records in records_of(rows(*BATCH_7), key=("name",), lanes=LANES).items():
        writer.write(world.topic, lane, records, last_headers=((HEADER, Tag(1, 7).encode()),))

    class FencesLate(TransactionalWriter):
        def fence(self, timeout_seconds: float = 30) -> None:
            writer.commit()
            super().fence(timeout_seconds)

    monkeypatch.setattr(sink_module, "TransactionalWriter", FencesLate)
    successor = world.driver()
    assert successor.recover() == Tag(1, 7)
    assert not write(successor, Tag(1, 7), *BATCH_7)
    assert sorted(world.names()) == ["a", "b", "c", "d", "z"]


def test_s3_a_slow_commit_that_arrives_after_the_fence_is_refused_and_the_batch_written_once(
    make_world: Callable[[], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    slow = world.driver()
    slow.hello(Hello(replica="r1", incarnation=1))
    assert write(slow, Tag(1, 6), "z")
    successor = world.driver()
    commit = TransactionalWriter.commit

    def commit_late(writer: TransactionalWriter) -> None:
        monkeypatch.setattr(TransactionalWriter, "commit", commit)
        assert successor.recover() == Tag(1, 6)
        assert write(successor, Tag(1, 7), *BATCH_7)
        commit(writer)

    monkeypatch.setattr(TransactionalWriter, "commit", commit_late)
    assert not write(slow, Tag(1, 7), *BATCH_7), "fenced, it reads the tails and finds its batch"
    assert sorted(world.names()) == ["a", "b", "c", "d", "z"]


def test_s7_a_zombie_writes_nothing_after_the_hello_of_its_successor(make_world: Callable[[], World]) -> None:
    """Comparing batch numbers only, batch 58 of incarnation 1 would come after hello(2)."""
    world = make_world()
    zombie = world.driver()
    zombie.hello(Hello(replica="r1", incarnation=1))
    assert write(zombie, Tag(1, 57), "old")
    successor = world.driver()
    assert successor.recover() == Tag(1, 57)
    successor.hello(Hello(replica="r1", incarnation=2))
    with pytest.raises(Superseded, match="incarnation 2 has begun, this is 1"):
        write(zombie, Tag(1, 58), "zombie")
    assert write(successor, Tag(2, 0), "new"), "the zombie's last fence does not stop its successor"
    assert world.names() == ["new"]
    for tags in world.tags():
        assert tags[-1] in {b"2:-1", b"2:0"}


def test_a_zombie_of_the_same_incarnation_writes_what_is_missing_once_and_then_knows(
    make_world: Callable[[], World],
) -> None:
    """Two drivers of one checkpoint: whoever comes second to a batch finds it done."""
    world = make_world()
    one, other = world.driver(), world.driver()
    one.hello(Hello(replica="r1", incarnation=1))
    for batch in range(4):
        first, second = (one, other) if batch % 2 else (other, one)
        assert write(first, Tag(1, batch), f"n{batch}")
        assert not write(second, Tag(1, batch), f"n{batch}")
    assert sorted(world.names()) == ["n0", "n1", "n2", "n3"]


def test_nothing_to_write_is_no_transaction_and_a_foreign_topic_is_refused(
    make_world: Callable[[], World], bootstrap_servers: str
) -> None:
    world = make_world()
    driver = world.driver()
    assert not write(driver, Tag(1, 0))
    assert world.tags() == [[], []]
    with TransactionalWriter(KafkaSettings(bootstrap_servers), f"{world.topic}/foreign") as foreign:
        foreign.fence()
        with foreign.transaction():
            foreign.write(world.topic, 0, [(None, b"whatever")])
    with pytest.raises(UsageError, match="a replica needs a topic to itself"):
        driver.recover()


def test_a_commit_that_succeeded_and_whose_answer_was_lost_is_found_in_the_lanes(
    make_world: Callable[[], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written again by what the driver knows alone, the batch would be there twice."""
    world = make_world()
    driver = world.driver()
    driver.hello(Hello(replica="r1", incarnation=1))
    commit = TransactionalWriter.commit

    def commit_without_an_answer(writer: TransactionalWriter) -> None:
        commit(writer)
        monkeypatch.setattr(TransactionalWriter, "commit", commit)
        raise RebuildError("the commit was not answered in time")

    monkeypatch.setattr(TransactionalWriter, "commit", commit_without_an_answer)
    assert not write(driver, Tag(1, 7), *BATCH_7), "it did not write, since the lanes hold the batch"
    assert write(driver, Tag(1, 8), "e")
    assert sorted(world.names()) == ["a", "b", "c", "d", "e"]


def test_a_batch_that_is_never_written_in_time_ends_with_the_setting_that_helps(
    make_world: Callable[[], World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    driver = world.driver()
    driver.hello(Hello(replica="r1", incarnation=1))

    def outlive(_writer: TransactionalWriter) -> None:
        raise RebuildError("the transaction has outlived its timeout")

    monkeypatch.setattr(TransactionalWriter, "commit", outlive)
    with pytest.raises(NotWritten, match=r"in 5 attempts: .* outlived .*10000 ms, raise --transaction-timeout-ms"):
        write(driver, Tag(1, 7), *BATCH_7)
    assert not world.names()


def test_a_broker_killed_in_mid_commit_leaves_every_batch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records have been sent and its commit is due when the broker dies; it comes back a moment later.

    A transaction may outlive its timeout meanwhile, so that its outcome is not known: then the tails tell.
    """
    with LocalStack() as mortal, ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        world = World(KafkaSettings(mortal.bootstrap_servers, transaction_timeout_ms=5_000), stack)
        driver = world.driver()
        driver.hello(Hello(replica="r1", incarnation=1))
        for lane in range(LANES):
            # A broker that is killed before a decision reached the partitions may lose it (KAFKA-20734).
            driver._reader.require_decided(world.topic, lane)
        commit = TransactionalWriter.commit
        due, dead = Event(), Event()

        def commit_to_the_dead(writer: TransactionalWriter) -> None:
            due.set()
            assert dead.wait(60)
            commit(writer)

        monkeypatch.setattr(TransactionalWriter, "commit", commit_to_the_dead)
        written = pool.submit(write, driver, Tag(1, 0), *BATCH_7)
        assert due.wait(60)
        mortal.kill()
        dead.set()
        mortal.restart()  # here, not in the pool: a broker dies with the thread that started it
        assert written.result(120)
        assert write(driver, Tag(1, 1), "e")
        assert sorted(world.names()) == ["a", "b", "c", "d", "e"]
