"""Topics: making them, looking at them, removing them. Each call can be repeated without harm."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import wait
from typing import TYPE_CHECKING, Any, Final

import msgspec
from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its hints forget to export four of them
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from lmerge.errors import UsageError
from lmerge.kafka.deadline import Deadline
from lmerge.kafka.edge import Edge
from lmerge.kafka.errors import MissingTopic, RetryError, WrongPartitions, is_existing_topic
from lmerge.kafka.reader import Partition
from lmerge.kafka.settings import KafkaSettings

if TYPE_CHECKING:
    from concurrent.futures import Future

TIMEOUT_SECONDS: Final = 30.0
"""How long a call may take in all."""

BROKER_DEFAULT: Final = -1
"""A replication factor as the broker is set up: 1 on one broker, usually 3 on three."""

_METADATA_WAIT: Final = 0.02
"""Seconds between two looks at metadata that is not there yet; on one broker the first look finds it."""

_SHORTEST_REQUEST: Final = 0.1
"""Seconds for a request that is made at the deadline: enough for a broker that is there."""


class TopicSpec(msgspec.Struct, frozen=True):
    """A topic as it should be.

    `config` are Kafka's own topic settings, such as ``{"cleanup.policy": "compact"}``.
    """

    name: str
    partitions: int
    replication_factor: int = BROKER_DEFAULT
    config: dict[str, str] = {}

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise UsageError(f"topic {self.name}: {self.partitions} partitions; it needs at least one")


class TopicDescription(msgspec.Struct, frozen=True):
    """A topic as it is. `topic_id` changes when a topic is deleted and made anew under the same name."""

    name: str
    topic_id: str
    partitions: int
    config: dict[str, str]


class TopicAdmin:
    """Manages topics by one kept connection.

    Args:
        settings: the cluster.
        timeout_seconds: how long a call may take before it fails with `RetryError`.
    """

    def __init__(self, settings: KafkaSettings, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._timeout_seconds = timeout_seconds
        self._edge = Edge(settings.bootstrap_servers)
        config: dict[str, Any] = {**settings.admin(), "error_cb": self._edge.note}
        with self._edge.calling("topic client cannot be made", lambda _: None):
            self._client = AdminClient(config)

    def ensure(self, *specs: TopicSpec) -> dict[str, TopicDescription]:
        """Create the topics that do not exist, wait until they can be used, and describe all of them.

        A topic that exists is left as it is, settings included.

        Raises:
            WrongPartitions: one exists with another number of partitions. (Placement depends on it, so it is never
                changed here.)
            Refused: the broker does not allow it, or not with these settings.
            RetryError: nobody answered in time.
        """
        deadline = Deadline(self._timeout_seconds)
        known = self._usable([spec.name for spec in specs], deadline)
        missing = [spec for spec in specs if spec.name not in known]
        self._create(missing, deadline)
        names = [spec.name for spec in missing]
        self._wait(lambda: len(self._usable(names, deadline)) == len(names), f"topics not ready: {names}", deadline)
        topics = self.describe(*(spec.name for spec in specs))
        for spec in specs:
            if topics[spec.name].partitions != spec.partitions:
                raise WrongPartitions(
                    f"topic {spec.name}: it has {topics[spec.name].partitions} partitions, {spec.partitions} are "
                    "wanted; delete it, choose another name, or ask for as many as it has"
                )
        return topics

    def describe(self, *names: str) -> dict[str, TopicDescription]:
        """Describe topics with their effective settings, leaving out those that are secret.

        Needs the permissions Describe and DescribeConfigs.

        Raises:
            MissingTopic: one of them does not exist.
            RetryError: nobody answered in time.
        """
        if not names:
            return {}
        timeout = {"request_timeout": self._timeout_seconds}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        topics = self._client.describe_topics(TopicCollection([*names]), **timeout)
        configs = self._client.describe_configs(resources, **timeout)
        # All of them, before one is allowed to raise: a client that is dropped while it still answers may be destroyed
        # in its own thread, and then librdkafka ends the process.
        wait([*topics.values(), *configs.values()])
        described = {}
        for name, resource in zip(names, resources, strict=True):
            topic = self._result(topics[name], f"cannot describe topic {name}")
            config = self._result(configs[resource], f"cannot read the settings of topic {name}")
            values = {entry.name: entry.value for entry in config.values() if entry.value is not None}
            described[name] = TopicDescription(name, str(topic.topic_id), len(topic.partitions), values)
        return described

    def committed_ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """Ask where partitions end for a read-committed reader, by one request to each broker.

        Raises:
            RetryError: nobody answered in time, or one of them has no leader; or none of them exists.
            MissingTopic: one of them does not exist.
        """
        wanted = {TopicPartition(*partition): OffsetSpec.latest() for partition in partitions}  # type: ignore[no-untyped-call]
        if not wanted:
            return {}
        answers = self._client.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=self._timeout_seconds
        )
        wait(answers.values())  # all, as in `describe`
        return {
            (where.topic, where.partition): self._result(answer, f"cannot ask for the end of {where.topic}").offset
            for where, answer in answers.items()
        }

    def delete(self, *names: str) -> None:
        """Delete topics and wait until they are gone; those that do not exist are gone already.

        Raises:
            Refused: the broker does not allow it.
            RetryError: nobody answered in time.
        """
        if not names:
            return
        deadline = Deadline(self._timeout_seconds)
        for name, future in self._client.delete_topics(
            [*names], request_timeout=max(deadline.left, _SHORTEST_REQUEST)
        ).items():
            try:
                self._result(future, f"cannot delete topic {name}")
            except MissingTopic:
                continue
        self._wait(lambda: not self._usable(names, deadline), f"topics not gone: {[*names]}", deadline)

    def _create(self, specs: list[TopicSpec], deadline: Deadline) -> None:
        if not specs:
            return
        new = [NewTopic(s.name, s.partitions, s.replication_factor, config=s.config) for s in specs]
        for name, future in self._client.create_topics(
            new, request_timeout=max(deadline.left, _SHORTEST_REQUEST)
        ).items():
            with self._edge.calling(f"cannot create topic {name}", self._client.poll):
                try:
                    future.result()
                except KafkaException as failure:
                    if not is_existing_topic(failure.args[0]):  # somebody else was quicker
                        raise

    def _usable(self, names: Sequence[str], deadline: Deadline) -> set[str]:
        """Give those topics that exist and whose partitions can all be written.

        By describe_topics: list_topics would create a missing topic on a broker that is set up to create topics.
        """
        if not names:
            return set()
        timeout = max(deadline.left, _SHORTEST_REQUEST)
        found = set()
        for name, future in self._client.describe_topics(TopicCollection([*names]), request_timeout=timeout).items():
            try:
                topic = self._result(future, f"cannot look for topic {name}")
            except MissingTopic:
                continue
            if all(partition.leader is not None and partition.leader.id >= 0 for partition in topic.partitions):
                found.add(name)
        return found

    def _wait(self, condition: Callable[[], bool], fact: str, deadline: Deadline) -> None:
        while not condition():
            if deadline.passed:
                raise RetryError(f"{fact}: not within {deadline.seconds:g} s; {RetryError.advice}")
            time.sleep(_METADATA_WAIT)

    def _result(self, future: "Future[Any]", fact: str) -> Any:
        with self._edge.calling(fact, self._client.poll):
            return future.result()
