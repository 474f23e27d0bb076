"""Membership in a consumer group, to learn which partitions one owns, never to read them.

The members of a group share the partitions of the topics that they subscribe to: each has one owner, a new member gets
its share, and what a dead one had goes to the living. The merge service subscribes to merged topics: whoever is
assigned partition p owns lane p. What an owner does is protected by fencing alone, as an owner that is cut off learns
of its loss later than its successor does.

How soon a death is noticed is the session timeout, and the broker decides how short it may be:

    protocol     how it is set                       least that a broker allows by default    SIGKILL to take-over
    `consumer`   a setting of the group              45 s, `group.consumer.min.session...`    2 s where it is lowered
    `classic`    by each member                      6 s, `group.min.session.timeout.ms`      6 s

So the `consumer` protocol is taken where the broker agrees to the timeout that is wanted, else the classic one.
"""

import enum
from collections.abc import Iterable
from concurrent.futures import Future, wait
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its hints forget to export two of them
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from lmerge.errors import UsageError
from lmerge.kafka.closing import Closing
from lmerge.kafka.deadline import Deadline
from lmerge.kafka.edge import Edge
from lmerge.kafka.errors import MissingTopic, RetryError, is_refused_group_setting
from lmerge.kafka.reader import Partition
from lmerge.kafka.settings import KafkaSettings

SESSION_MS: Final = 2_000
"""How long a member may be silent; shorter than a pause of a busy machine it only moves partitions about."""

CLASSIC_SESSION_MS: Final = 6_000
"""The shortest session of the classic protocol that brokers allow by default."""

_HEARTBEATS_PER_SESSION: Final = 4
"""So many may be missed, but one."""

_LONGEST_HEARTBEAT_MS: Final = 5_000
"""What changes for a member, it is told at its next heartbeat. This is the least that brokers allow by default."""

_ASK_SECONDS: Final = 10.0
"""How long the broker may take to answer whether it agrees to the session timeout, before it is asked again."""


class Protocol(enum.Enum):
    """How the members of a group agree with the broker; the table is at the top of this file."""

    CONSUMER = "consumer"
    CLASSIC = "classic"


class GroupMember(Closing):
    """A member of a consumer group that owns partitions and reads none; for one thread.

    It must be polled all the time: what is taken from it is given to others only when a poll has noticed, and a member
    that was not polled for 5 minutes (`max.poll.interval.ms`, the user's to set) loses everything.

    Args:
        settings: the cluster.
        group: the name of the group. Its session timeout belongs to the group: members that want different ones
            overwrite each other's.
        session_ms: after how long a silent member counts as dead; 6 s at least where the classic protocol is used.
    """

    def __init__(self, settings: KafkaSettings, group: str, *, session_ms: int = SESSION_MS) -> None:
        if not group:
            raise UsageError("empty group: its members find each other by its name")
        if session_ms < 100:
            raise UsageError(f"session_ms {session_ms}: shorter than 100 ms no member lives")
        self.group = group
        self._settings = settings
        self._session_ms = session_ms
        self._topics: frozenset[str] = frozenset()
        self._owned: set[Partition] = set()
        self._edge = Edge(settings.bootstrap_servers)
        config: dict[str, Any] = {**settings.admin(), "error_cb": self._edge.note}
        with self._edge.calling(self._cannot("be made"), lambda _: None):
            # Until the broker has answered which protocol it is; then the consumer takes its place.
            self._admin: AdminClient | None = AdminClient(config)
        self._answer = self._ask(self._admin)
        self._protocol: Protocol | None = None
        self._consumer: Consumer | None = None

    @property
    def protocol(self) -> Protocol | None:
        """Which protocol is used; None until the broker has answered."""
        return self._protocol

    @property
    def owned(self) -> frozenset[Partition]:
        """The partitions that this member owns, as of the last poll."""
        return frozenset(self._owned)

    def subscribe(self, topics: Iterable[str]) -> None:
        """Say of which topics this member wants its share; of none, it leaves the group.

        What it owns changes in the polls that follow. A topic that does not exist (yet) has nothing to own.

        Raises:
            StopError: the client library refuses.
        """
        self._require_open()
        wanted = frozenset(topics)
        if wanted != self._topics:
            self._topics = wanted
            if self._consumer is not None:
                self._apply_topics(self._consumer)

    def poll(self, timeout_seconds: float) -> bool:
        """Wait for a change of what is owned, and tell whether there was one.

        A partition that is not in `owned` any more has, or will have, another owner: close what writes to it. A broker
        that is away is waited for, in silence; what was lost meanwhile shows when it is back.

        Raises:
            StopError: this member cannot be in the group: it is not allowed to, or no session of this length is.
        """
        self._require_open()
        before = self.owned
        deadline = Deadline(timeout_seconds)
        while True:
            self._step(deadline.slice())
            if self.owned != before or deadline.passed:
                return self.owned != before

    def _close(self) -> None:
        """Leave the group at once, so that the others need not wait until the session is over."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = self._admin = None
        self._owned.clear()

    def _step(self, timeout_seconds: float) -> None:
        if self._consumer is None:
            wait([self._answer], timeout_seconds)
            if self._answer.done():
                self._join()
            return
        with self._edge.calling(self._cannot("be a member"), lambda _: None):
            message = self._consumer.poll(timeout_seconds)
        error = None if message is None else message.error()
        if error is not None:
            failure = self._edge.translate(error, self._cannot("be a member"))
            if not isinstance(failure, RetryError | MissingTopic):
                raise failure

    def _ask(self, admin: AdminClient) -> "Future[Any]":
        """Ask the broker for the session timeout of the `consumer` protocol."""
        wanted = {
            "consumer.session.timeout.ms": self._session_ms,
            "consumer.heartbeat.interval.ms": _heartbeat_ms(self._session_ms),
        }
        entries = [
            ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET) for name, value in wanted.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, self.group, incremental_configs=entries)
        (answer,) = admin.incremental_alter_configs([resource], request_timeout=_ASK_SECONDS).values()
        return answer

    def _join(self) -> None:
        """Make the consumer by what the broker has answered; ask again if it did not."""
        assert self._admin is not None
        try:
            with self._edge.calling(self._cannot("set its session timeout"), self._admin.poll):
                self._protocol = _protocol_of(self._answer)
        except RetryError:
            self._answer = self._ask(self._admin)
            return
        if self._protocol is Protocol.CONSUMER:
            how: dict[str, Any] = {"group.protocol": "consumer"}
        else:
            session_ms = max(self._session_ms, CLASSIC_SESSION_MS)
            how = {
                "group.protocol": "classic",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": session_ms,
                "heartbeat.interval.ms": _heartbeat_ms(session_ms),
            }
        with self._edge.calling(self._cannot("be made"), lambda _: None):
            self._consumer = Consumer({**self._settings.member(self.group), **how, "error_cb": self._edge.note})
        self._admin = None
        self._apply_topics(self._consumer)

    def _apply_topics(self, consumer: Consumer) -> None:
        with self._edge.calling(self._cannot(f"subscribe to {sorted(self._topics)}"), lambda _: None):
            if self._topics:
                consumer.subscribe(
                    sorted(self._topics), on_assign=self._assign, on_revoke=self._revoke, on_lost=self._revoke
                )
            else:
                consumer.unsubscribe()

    def _assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # At offset 0, as nobody has committed one; it does not matter, since nothing is read.
        consumer.incremental_assign([TopicPartition(each.topic, each.partition, 0) for each in partitions])
        consumer.pause(partitions)
        self._owned.update((each.topic, each.partition) for each in partitions)

    def _revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._owned.difference_update((each.topic, each.partition) for each in partitions)
        consumer.incremental_unassign(partitions)

    def _cannot(self, what: str) -> str:
        return f"member of group {self.group!r} cannot {what}"


def _heartbeat_ms(session_ms: int) -> int:
    return min(session_ms // _HEARTBEATS_PER_SESSION, _LONGEST_HEARTBEAT_MS)


def _protocol_of(answer: "Future[Any]") -> Protocol:
    try:
        answer.result()
    except KafkaException as failure:
        if not is_refused_group_setting(failure.args[0]):
            raise
        return Protocol.CLASSIC
    return Protocol.CONSUMER
