"""One ownership of a feed, from the take-over on: read rows, write cuts. What is decided is decided in `lmerge/feed/`.

The only state is the last committed heartbeat, so whatever goes wrong with a write, the answer is to take over again:
new writer, fence, read the tail, seek to its offsets.
"""

import time
from collections import Counter
from typing import Final

import msgspec

from lmerge.feed import CutMaker, FeedDefinition, Heartbeat, Row, read_timestamp
from lmerge.kafka import (
    MissingTopic,
    PartitionReader,
    Record,
    RecordsGone,
    RetryError,
    TopicAdmin,
    TransactionalWriter,
)
from services.clock import now_ms
from services.heartbeat.ends import AskedEnds
from services.heartbeat.ledger import Ledger
from services.heartbeat.left_out import LeftOutRows
from services.heartbeat.metrics import FeedState, Metrics
from services.heartbeat.topics import Absence, FeedTopics, look, require_feed
from services.log import log

REFRESH_SECONDS: Final = 1.0
"""How often to look for new partitions, and whether the topics are still the same."""

REPORT_SECONDS: Final = 10.0
"""How often to say how far the feed is, while it moves."""

LONGEST_WAIT: Final = 0.1
"""Seconds of one poll: signals, the group and the refresh wait behind it."""


class Pace(msgspec.Struct, frozen=True):
    """How often to write: at most every `interval_seconds`, and at least every `silence_seconds`."""

    interval_seconds: float = 0.1
    silence_seconds: float = 60.0


class FeedOwner:
    """Writes the heartbeats of a feed after the last one; for one thread.

    Args:
        definition: the feed.
        admin: looks at its topics.
        writer: writes the heartbeats, and has fenced all others.
        reader: reads the sources; it begins where the last heartbeat ends.
        last: the last heartbeat.
        topics: the topics as they are.
        pace: how often to write.
        left_out: collects the rows that do not count; it is new.
        ledger: adds up what became of the rows.
        metrics: shows how far the feed is.
    """

    def __init__(
        self,
        definition: FeedDefinition,
        admin: TopicAdmin,
        writer: TransactionalWriter,
        reader: PartitionReader,
        *,
        last: Heartbeat,
        topics: FeedTopics,
        pace: Pace,
        left_out: LeftOutRows,
        ledger: Ledger,
        metrics: Metrics,
    ) -> None:
        self._definition = definition
        self._admin = admin
        self._writer = writer
        self._reader = reader
        self._pace = pace
        self._ledger = ledger
        self._metrics = metrics
        self._sources = {source.topic: source for source in definition.sources}
        self._left_out = left_out
        self._absence = Absence()
        self._maker = CutMaker(definition, last, at_ms=_steady_ms())
        # Ends that are not reached yet, and when ends were asked for last.
        self._asked: AskedEnds | None = None
        self._asked_at = 0.0
        self._reported: Heartbeat | None = None
        self._written_at = self._refreshed_at = self._reported_at = time.monotonic()
        reader.add(self._maker.positions)
        self._grow(topics)
        self._show()

    def step(self) -> None:
        """Read what is there, and write a heartbeat if one is due.

        Raises:
            Fenced: another process has taken over.
            UsageError: the feed's topics have changed into another feed's.
            RebuildError: a write failed, or nobody knows; take over again.
            StopError: a topic is missing, rows are gone before they were read, or the broker refuses.
        """
        self._take(self._read())
        if self._definition.needs_ends:
            self._catch_up()
        if self._seconds_left() <= 0:
            self._write()
        if time.monotonic() - self._refreshed_at >= REFRESH_SECONDS:
            self._refresh()
        if time.monotonic() - self._reported_at >= REPORT_SECONDS:
            self.report()

    def report(self) -> None:
        """Say how far the feed is, whom it waits for, and what became of the rows; nothing if nothing moved."""
        self._reported_at = time.monotonic()
        last = self._maker.last
        if last != self._reported:
            log(
                "info",
                "progress",
                feed=self._definition.name,
                n=last.n,
                tau=last.tau,
                max_ts=last.max_ts,
                waits_for=_names(self._maker.slowest()),
                idle=_names(self._maker.idle),
                rows=self._ledger.totals,
            )
        self._reported = last

    def _read(self) -> list[Record]:
        try:
            return self._reader.poll(max(0.0, min(self._seconds_left(), LONGEST_WAIT)))
        except MissingTopic as error:  # whether it is missing is for `_refresh` to say
            log("warning", "a source cannot be read", feed=self._definition.name, error=str(error))
            return []
        except RecordsGone:
            # A topic that was made anew lacks them too, and is to be told from one that retention has shortened.
            self._require_same(look(self._admin, self._definition))
            raise

    def _take(self, records: list[Record]) -> None:
        rows = (
            Row(r.topic, r.partition, r.offset, read_timestamp(self._sources[r.topic], r.value, r.timestamp))
            for r in records
        )
        left_out = self._maker.add(rows, now_ms=now_ms(), at_ms=_steady_ms())
        self._left_out.note(records, left_out, at_seconds=time.monotonic())

    def _catch_up(self) -> None:
        """Ask for the ends when something has fallen due, and say so when all is read up to them."""
        due_at_ms = self._maker.due_at_ms
        at_ms = _steady_ms()
        is_due = due_at_ms is not None and due_at_ms <= at_ms
        if self._asked is None and is_due and time.monotonic() - self._asked_at >= self._pace.interval_seconds:
            self._asked_at = time.monotonic()
            try:
                self._asked = AskedEnds(at_ms, self._admin.committed_ends(self._maker.positions))
            except (RetryError, MissingTopic) as error:  # whether a topic is missing is for `_refresh` to say
                log("warning", "cannot ask for the ends", feed=self._definition.name, error=str(error))
        if self._asked is not None and self._asked.tell(self._maker, self._reader.ended):
            self._asked = None

    def _seconds_left(self) -> float:
        """Give the time until the next heartbeat is due; negative if it is overdue."""
        pace = self._pace.interval_seconds if self._maker.changed else self._pace.silence_seconds
        return self._written_at + pace - time.monotonic()

    def _write(self) -> None:
        cut = self._maker.cut(now_ms=now_ms())
        begun = time.monotonic()
        self._ledger.writing(cut)
        with self._writer.transaction():
            self._left_out.write(self._writer, self._definition.late_topic, n=cut.heartbeat.n)
            self._writer.write(self._definition.heartbeats_topic, 0, [(None, cut.heartbeat.encode())])
        self._ledger.committed()
        self._metrics.not_copied(self._left_out.written())
        self._written_at = time.monotonic()
        self._metrics.committed(self._written_at - begun)
        self._show()

    def _refresh(self) -> None:
        self._refreshed_at = time.monotonic()
        try:
            topics = self._absence.watch(lambda: look(self._admin, self._definition))
        except RetryError as error:
            log("warning", "cannot look at the topics", feed=self._definition.name, error=str(error))
            return
        self._require_same(topics)
        self._read_again()
        self._grow(topics)

    def _read_again(self) -> None:
        """Go on with topics that are there, though the client library said once that they are not."""
        missed = [where for where, reason in self._reader.failed.items() if isinstance(reason, MissingTopic)]
        if missed:
            self._reader.remove(*missed)
            self._reader.add({where: self._maker.positions[where] for where in missed})

    def _require_same(self, topics: FeedTopics) -> None:
        require_feed(self._definition, expected=self._maker.last.feed, found=topics.feed_id)

    def _grow(self, topics: FeedTopics) -> None:
        for topic, partitions in topics.partitions.items():
            new = self._maker.grow(topic, partitions, at_ms=_steady_ms())
            if new:
                log("info", "partitions added", feed=self._definition.name, topic=topic, partitions=len(new))
                self._reader.add(dict.fromkeys(new, 0))

    def _show(self) -> None:
        maker = self._maker
        idle = Counter(topic for topic, _ in maker.idle)
        self._metrics.state = FeedState(
            heartbeat=maker.last,
            at_seconds=now_ms() / 1_000,
            promises=maker.promises(),
            idle={topic: idle[topic] for topic in self._definition.topics},
            disorder_ms=dict(maker.disorder_ms),
        )


def _names(partitions: list[tuple[str, int]]) -> list[str]:
    """Name the first few partitions."""
    return [f"{topic}/{partition}" for topic, partition in partitions[:5]]


def _steady_ms() -> int:
    """Give a clock that nobody sets."""
    return time.monotonic_ns() // 1_000_000
