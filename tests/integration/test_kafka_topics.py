"""Making, describing and deleting topics on a real broker."""

import uuid

import pytest

from lmerge.kafka import (
    KafkaSettings,
    MissingTopic,
    PartitionReader,
    Refused,
    RetryError,
    TopicAdmin,
    TopicSpec,
    TransactionalWriter,
    WrongPartitions,
)
from lmerge.kafka.deadline import Deadline
from tests.support.kafka import numbered, wait_for_log_end, wait_until, wait_until_decided


@pytest.fixture
def admin(bootstrap_servers: str) -> TopicAdmin:
    return TopicAdmin(KafkaSettings(bootstrap_servers))


@pytest.fixture
def name() -> str:
    return f"topics-{uuid.uuid4().hex}"


def test_a_topic_is_made_once_with_its_settings(admin: TopicAdmin, name: str) -> None:
    spec = TopicSpec(name, partitions=3, replication_factor=1, config={"cleanup.policy": "compact"})
    made = admin.ensure(spec)
    assert admin.ensure(spec) == made == admin.describe(name)
    assert (made[name].name, made[name].partitions) == (name, 3)
    assert made[name].config["cleanup.policy"] == "compact"
    assert made[name].config["compression.type"] == "producer"


def test_several_topics_are_made_in_one_call_though_some_exist(admin: TopicAdmin, name: str) -> None:
    specs = [TopicSpec(f"{name}-{number}", partitions=number) for number in (1, 2, 3)]
    admin.ensure(specs[1])
    assert {topic.name: topic.partitions for topic in admin.ensure(*specs).values()} == {
        spec.name: spec.partitions for spec in specs
    }


def test_two_callers_may_make_the_same_topic(bootstrap_servers: str, admin: TopicAdmin, name: str) -> None:
    spec = TopicSpec(name, partitions=1)
    other = TopicAdmin(KafkaSettings(bootstrap_servers))
    other.ensure(spec)
    admin._create([spec], Deadline(10))
    assert admin.describe(name)[name].partitions == 1


def test_another_number_of_partitions_is_an_error(admin: TopicAdmin, name: str) -> None:
    admin.ensure(TopicSpec(name, partitions=2))
    with pytest.raises(WrongPartitions, match=f"{name}: it has 2 partitions, 3 are wanted"):
        admin.ensure(TopicSpec(name, partitions=3))


def test_a_topic_that_is_made_anew_has_another_id(admin: TopicAdmin, name: str) -> None:
    spec = TopicSpec(name, partitions=1)
    first = admin.ensure(spec)
    admin.delete(name)
    with pytest.raises(MissingTopic, match=name):
        admin.describe(name)
    admin.delete(name, f"{name}-never-was")
    assert admin.ensure(spec)[name].topic_id != first[name].topic_id


def test_what_the_broker_does_not_allow_is_refused(admin: TopicAdmin, name: str) -> None:
    with pytest.raises(Refused, match=f"create topic {name}.*replicat"):
        admin.ensure(TopicSpec(name, partitions=1, replication_factor=3))
    with pytest.raises(Refused, match=f"create topic {name}.*nonsense"):
        admin.ensure(TopicSpec(name, partitions=1, config={"nonsense": "1"}))
    with pytest.raises(Refused, match="no name"):
        admin.ensure(TopicSpec("no name", partitions=1))


def test_nothing_asked_is_nothing_done(admin: TopicAdmin) -> None:
    assert admin.ensure() == {}
    assert admin.describe() == {}
    assert admin.committed_ends([]) == {}
    admin.delete()


def test_ends_are_those_of_what_is_committed_and_a_reader_meets_them(
    admin: TopicAdmin, name: str, bootstrap_servers: str
) -> None:
    settings = KafkaSettings(bootstrap_servers)
    admin.ensure(TopicSpec(name, partitions=2))
    with TransactionalWriter(settings, name) as writer, PartitionReader(settings) as reader:
        writer.fence()
        with writer.transaction():
            writer.write(name, 0, numbered(3))
        wait_until_decided(settings, name, 0)
        writer.begin()
        writer.write(name, 0, numbered(3))
        wait_for_log_end(settings, name, 0, 7)
        ends = {(name, 0): 4, (name, 1): 0}  # three records and a marker; what is open does not count
        assert admin.committed_ends(ends) == ends
        reader.add(dict.fromkeys(ends, 0))
        wait_until(lambda: not reader.poll(0.1) and reader.ended == ends, "the reader has met both ends")
        writer.abort()
        wait_until(lambda: not reader.poll(0.1) and reader.ended[name, 0] == 8, "aborted records are passed")
        assert admin.committed_ends(ends)[name, 0] == 8
    with pytest.raises(RetryError, match=f"cannot ask for the end of {name}"):
        admin.committed_ends([(f"{name}-never-was", 0)])
