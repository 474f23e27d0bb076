"""The loop of the heartbeat service: own the feed, read rows, write cuts.

All decisions are in `lmerge/feed/`. The only state is the last committed heartbeat, so whatever goes wrong with a
write, the answer is to take over again: new writer, fence, read the tail, seek to its offsets.
"""

import time
from threading import Event
from typing import Final

import msgspec

from lmerge.feed import Cut, CutMaker, FeedDefinition, Heartbeat, Row, SourceCounts, read_timestamp
from lmerge.kafka import KafkaSettings, PartitionReader, RebuildError, RetryError, TopicAdmin, TransactionalWriter
from services.heartbeat.takeover import Start, take_over
from services.heartbeat.topics import FeedTopics, look, prepare, require_feed
from services.log import log

REFRESH_SECONDS: Final = 1.0
"""How often to look for new partitions, and whether the topics are still the same."""

REPORT_SECONDS: Final = 10.0
"""How often to say how far the feed is, while it moves."""

_LONGEST_WAIT: Final = 0.1
"""Seconds of one poll: signals and the refresh wait behind it."""


_RETRY_SECONDS: Final = 0.2
"""Between two attempts to own the feed. The calls themselves wait for a broker that is away."""


class Pace(msgspec.Struct, frozen=True):
    """How often to write: at most every `interval_seconds`, and at least every `silence_seconds`."""

    interval_seconds: float = 0.1
    silence_seconds: float = 60.0


class HeartbeatService:
    """Writes the heartbeats of one feed, as their only writer.

    Args:
        settings: the cluster.
        definition: the feed.
        start: where it begins if it has no heartbeats yet.
        pace: how often to write.
        create: whether to create the heartbeats topic.
        stop: looked at between any two steps; once it is set, `run` returns.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        definition: FeedDefinition,
        *,
        start: Start,
        pace: Pace,
        create: bool,
        stop: Event,
    ) -> None:
        self._settings = settings
        self._definition = definition
        self._start: Start = start
        self._pace = pace
        self._create = create
        self._stop = stop
        self._admin = TopicAdmin(settings)
        self._sources = {source.topic: source for source in definition.sources}
        # What became of the rows in the cuts that this process has committed.
        self._totals = {topic: SourceCounts() for topic in definition.topics}
        # The cut that was written last and is not known to be committed: the tail tells at the next take-over.
        self._undecided: Cut | None = None
        self._written_at = self._refreshed_at = self._reported_at = 0.0
        self._reported: Heartbeat | None = None

    def run(self) -> None:
        """Own the feed until told to stop.

        Raises:
            Fenced: another process has taken over.
            UsageError: the feed's topics or its heartbeats do not go with its definition.
            MalformedRecord: the last record of the heartbeats topic is no heartbeat.
            StopError: a topic is missing, rows are gone before they were read, or the broker refuses.
        """
        while not self._stop.is_set():
            try:
                self._own()
            except (RebuildError, RetryError) as error:
                log("warning", "taking over again", feed=self._definition.name, error=str(error))
                self._stop.wait(_RETRY_SECONDS)

    def _own(self) -> None:
        topics = prepare(self._admin, self._definition, create=self._create)
        if topics.retention_is_short:
            log("warning", "heartbeats expire before the rows of a source", topic=self._definition.heartbeats_topic)
        transactional_id = f"{self._definition.name}/heartbeat"
        with TransactionalWriter(self._settings, transactional_id) as writer, PartitionReader(self._settings) as reader:
            last = take_over(self._settings, self._definition, topics, writer, self._start)
            if self._undecided is not None and self._undecided.heartbeat == last:
                self._settle(self._undecided)
            self._undecided = None
            log("info", "feed taken over", feed=self._definition.name, id=last.feed, n=last.n, tau=last.tau)
            maker = CutMaker(self._definition, last)
            reader.add(maker.positions)
            self._grow(maker, reader, topics)
            self._written_at = self._refreshed_at = time.monotonic()
            while not self._stop.is_set():
                self._step(writer, reader, maker)
            self._report(maker)

    def _step(self, writer: TransactionalWriter, reader: PartitionReader, maker: CutMaker) -> None:
        records = reader.poll(min(self._seconds_left(maker), _LONGEST_WAIT))
        rows = (
            Row(r.topic, r.partition, r.offset, read_timestamp(self._sources[r.topic], r.value, r.timestamp))
            for r in records
        )
        maker.add(rows, now_ms=_now_ms())
        if self._seconds_left(maker) <= 0:
            self._write(writer, maker.cut(now_ms=_now_ms()))
        if time.monotonic() - self._refreshed_at >= REFRESH_SECONDS:
            self._refresh(reader, maker)
        if time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self._report(maker)

    def _seconds_left(self, maker: CutMaker) -> float:
        """Give the time until the next heartbeat is due; negative if it is overdue."""
        pace = self._pace.interval_seconds if maker.changed else self._pace.silence_seconds
        return self._written_at + pace - time.monotonic()

    def _write(self, writer: TransactionalWriter, cut: Cut) -> None:
        self._undecided = cut
        with writer.transaction():
            writer.write(self._definition.heartbeats_topic, 0, [(None, cut.heartbeat.encode())])
        self._settle(cut)
        self._undecided = None
        self._written_at = time.monotonic()

    def _settle(self, cut: Cut) -> None:
        """Add up what became of the rows of a cut that is committed."""
        for topic, counts in cut.counts.items():
            self._totals[topic].add(counts)

    def _refresh(self, reader: PartitionReader, maker: CutMaker) -> None:
        self._refreshed_at = time.monotonic()
        try:
            topics = look(self._admin, self._definition)
        except RetryError as error:
            log("warning", "cannot look at the topics", feed=self._definition.name, error=str(error))
            return
        require_feed(self._definition, expected=maker.last.feed, found=topics.feed_id)
        self._grow(maker, reader, topics)

    def _grow(self, maker: CutMaker, reader: PartitionReader, topics: FeedTopics) -> None:
        for topic, partitions in topics.partitions.items():
            new = maker.grow(topic, partitions)
            if new:
                log("info", "partitions added", feed=self._definition.name, topic=topic, partitions=len(new))
                reader.add(dict.fromkeys(new, 0))

    def _report(self, maker: CutMaker) -> None:
        """Say how far the feed is, whom it waits for, and what became of the rows; nothing if nothing moved."""
        self._reported_at = time.monotonic()
        last = maker.last
        if last != self._reported:
            slowest = [f"{topic}/{partition}" for topic, partition in maker.slowest()]
            log(
                "info",
                "progress",
                feed=self._definition.name,
                n=last.n,
                tau=last.tau,
                max_ts=last.max_ts,
                waits_for=slowest[:5],
                rows=self._totals,
            )
        self._reported = last


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
