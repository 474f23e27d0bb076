"""Positions that are kept in Kafka under the name of a group, without being a member of it."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from lmerge.errors import UsageError
from lmerge.final_events import Position
from lmerge.kafka.deadline import Deadline
from lmerge.kafka.edge import Edge
from lmerge.kafka.errors import BrokerError, Refused, RetryError, is_group_in_use
from lmerge.kafka.reader import Partition
from lmerge.kafka.settings import KafkaSettings

TIMEOUT_SECONDS: Final = 30.0
"""How long a call may take in all: a broker that has just started is loading its coordinator for seconds."""

_SHORTEST_REQUEST: Final = 0.1


class GroupOffsets:
    """Reads and writes the committed positions of one group, 4 ms a call; a position's note is its metadata.

    Kafka forgets the offsets of a group without members 7 days after the last commit (`offsets.retention.minutes`).

    Args:
        settings: the cluster.
        group: the name of the group. Nobody may subscribe with it at the same time.
        timeout_seconds: how long a call may take before it fails with `RetryError`.
    """

    def __init__(self, settings: KafkaSettings, group: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        if not group:
            raise UsageError("empty group: positions are found by its name")
        self.group = group
        self._timeout_seconds = timeout_seconds
        self._edge = Edge(settings.bootstrap_servers)
        config: dict[str, Any] = {**settings.admin(), "error_cb": self._edge.note}
        with self._edge.calling(self._cannot("be used"), lambda _: None):
            self._client = AdminClient(config)

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, Position]:
        """Return the committed positions; partitions without one are left out.

        Raises:
            Refused: the broker does not allow it.
            RetryError: nobody answered in time.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        found = self._call("be read", self._client.list_consumer_group_offsets, wanted)
        return {
            (each.topic, each.partition): Position(each.offset, each.metadata or "")
            for each in found
            if each.offset >= 0
        }

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        """Store positions, durably.

        Raises:
            Refused: the broker does not allow it, or members of the group are there.
            RetryError: nobody answered in time; it may have been stored.
        """
        wanted = [TopicPartition(*partition, *position) for partition, position in positions.items()]
        self._call("be stored", self._client.alter_consumer_group_offsets, wanted)

    def _call(self, what: str, request: Any, partitions: list[TopicPartition]) -> list[TopicPartition]:
        deadline = Deadline(self._timeout_seconds)
        while True:
            try:
                return self._attempt(what, request, partitions, max(deadline.left, _SHORTEST_REQUEST))
            except RetryError:
                if deadline.passed:
                    raise

    def _attempt(
        self, what: str, request: Any, partitions: list[TopicPartition], timeout_seconds: float
    ) -> list[TopicPartition]:
        asked = ConsumerGroupTopicPartitions(self.group, partitions)
        (answer,) = request([asked], request_timeout=timeout_seconds).values()
        try:
            found = answer.result().topic_partitions or []
        except KafkaException as failure:
            self._edge.collect(self._client.poll)
            raise self._failure(what, failure.args[0]) from failure
        for each in found:
            if each.error is not None:  # an answer can fail in parts
                raise self._failure(what, each.error)
        return found

    def _failure(self, what: str, error: KafkaError) -> BrokerError:
        if not is_group_in_use(error):
            return self._edge.translate(error, self._cannot(what))
        return Refused(
            f"{self._cannot(what)}: it has members, and only they may do so ({error.name()}); "
            "choose a name that nobody subscribes with"
        )

    def _cannot(self, what: str) -> str:
        return f"positions of group {self.group!r} cannot {what}"
