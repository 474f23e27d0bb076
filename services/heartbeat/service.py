"""The heartbeat service: one of several processes owns the feed, the others stand by.

    standby ──assigned by the group──► fence, read the tail ──► owner ──assignment lost, or fenced──► standby

Whoever is assigned the one partition of the heartbeats topic owns the feed. The group only says whose turn it is; what
keeps two owners apart is the fence.
"""

import time
from threading import Event
from typing import Final

from lmerge.feed import FeedDefinition
from lmerge.kafka import (
    Fenced,
    GroupMember,
    KafkaSettings,
    PartitionReader,
    RebuildError,
    RetryError,
    TopicAdmin,
    TransactionalWriter,
)
from lmerge.kafka.group import SESSION_MS
from lmerge.process.probes import Readiness
from services.heartbeat.ledger import Ledger
from services.heartbeat.left_out import LeftOutRows
from services.heartbeat.metrics import Metrics
from services.heartbeat.owner import LONGEST_WAIT, REFRESH_SECONDS, FeedOwner, Pace
from services.heartbeat.takeover import Start, take_over
from services.heartbeat.topics import Absence, FeedTopics, prepare
from services.log import log

_RETRY_SECONDS: Final = 0.2
"""Between two attempts to own the feed. The calls themselves wait for a broker that is away."""

_FENCED_SECONDS: Final = 2.0
"""Pause after being fenced: the group needs a moment to tell whose the feed is."""


def group_id(feed: str) -> str:
    """Name the consumer group of the processes that serve a feed."""
    return f"lmerge-feed.{feed}"


class HeartbeatService:
    """Serves one feed: owns it when it is this process's turn, and stands by otherwise.

    Args:
        settings: the cluster.
        definition: the feed.
        start: where it begins if it has no heartbeats yet.
        pace: how often to write.
        create: whether to create the topics of the feed.
        session_ms: after how long without a sign of life another process takes over.
        metrics: what to count.
        stop: looked at between any two steps; once it is set, `run` returns.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        definition: FeedDefinition,
        *,
        metrics: Metrics,
        stop: Event,
        start: Start = "earliest",
        pace: Pace = Pace(),  # noqa: B008  # frozen
        create: bool = True,
        session_ms: int = SESSION_MS,
    ) -> None:
        self._settings = settings
        self._definition = definition
        self._start: Start = start
        self._pace = pace
        self._create = create
        self._session_ms = session_ms
        self._metrics = metrics
        self._stop = stop
        self._admin = TopicAdmin(settings)
        self._absence = Absence()
        self._ledger = Ledger(definition, metrics)
        self._readiness = Readiness(is_ready=False, status="starting")

    @property
    def readiness(self) -> Readiness:
        """What this process does."""
        return self._readiness

    def run(self) -> None:
        """Serve the feed until told to stop.

        Raises:
            UsageError: the feed's topics or its heartbeats do not go with its definition.
            MalformedRecord: the last record of the heartbeats topic is no heartbeat.
            StopError: a topic is missing, rows are gone before they were read, or the broker refuses.
        """
        if self._prepare_at_last() is None:
            return
        with GroupMember(self._settings, group_id(self._definition.name), session_ms=self._session_ms) as member:
            member.subscribe([self._definition.heartbeats_topic])
            while not self._stop.is_set():
                if member.owned:
                    self._serve(member)
                else:
                    self._stand_by()
                    member.poll(LONGEST_WAIT)
            self._readiness = Readiness(is_ready=False, status="stopping")

    def _prepare_at_last(self) -> FeedTopics | None:
        """Look at the topics, so that a standby too is refused at once; None if told to stop before that."""
        while not self._stop.is_set():
            try:
                return self._prepare()
            except RetryError as error:
                log("warning", "cannot look at the topics", feed=self._definition.name, error=str(error))
                self._stop.wait(REFRESH_SECONDS)
        return None

    def _prepare(self) -> FeedTopics:
        return self._absence.watch(lambda: prepare(self._admin, self._definition, create=self._create))

    def _stand_by(self) -> None:
        self._metrics.state = None
        if self._readiness.status != "standby":
            log("info", "standing by", feed=self._definition.name)
        self._readiness = Readiness(is_ready=True, status="standby")

    def _serve(self, member: GroupMember) -> None:
        """Own the feed while it is ours; come back when it is not, or to take it over again."""
        try:
            self._own(member)
        except Fenced as error:
            self._failed("fenced", error)
            self._pause(member, _FENCED_SECONDS)
        except (RebuildError, RetryError) as error:
            self._failed("taking over again", error)
            self._pause(member, _RETRY_SECONDS)

    def _own(self, member: GroupMember) -> None:
        definition = self._definition
        topics = self._prepare()
        if topics.retention_is_short:
            log("warning", "heartbeats expire before the rows of a source", topic=definition.heartbeats_topic)
        transactional_id = f"{definition.name}/heartbeat"
        with TransactionalWriter(self._settings, transactional_id) as writer, PartitionReader(self._settings) as reader:
            last = take_over(self._settings, definition, topics, writer, self._start)
            self._ledger.found(last)
            self._metrics.took_over()
            log("info", "feed taken over", feed=definition.name, id=last.feed, n=last.n, tau=last.tau)
            owner = FeedOwner(
                definition,
                self._admin,
                writer,
                reader,
                last=last,
                topics=topics,
                pace=self._pace,
                left_out=LeftOutRows(
                    definition.name, copy_bytes=min(topics.copy_bytes, self._settings.max_message_bytes)
                ),
                ledger=self._ledger,
                metrics=self._metrics,
            )
            self._readiness = Readiness(is_ready=True, status="owner")
            while not self._stop.is_set() and member.owned:
                owner.step()
                member.poll(0)
            owner.report()

    def _failed(self, event: str, error: Exception) -> None:
        self._metrics.failed(event.replace(" ", "_"))
        log("warning", event, feed=self._definition.name, error=str(error))

    def _pause(self, member: GroupMember, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stop.is_set() and time.monotonic() < until:
            member.poll(LONGEST_WAIT)
