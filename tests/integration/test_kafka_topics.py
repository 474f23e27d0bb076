"""Making, describing and deleting topics on a real broker."""

import uuid

import pytest

from lmerge.kafka import (
    KafkaSettings,
    MissingTopic,
    Refused,
    TopicAdmin,
    TopicSpec,
    WrongPartitions,
)
from lmerge.kafka.deadline import Deadline


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
    admin.delete()
