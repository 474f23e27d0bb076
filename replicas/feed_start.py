"""Finding the feed that a replica reads: its id, and the heartbeat where a replica without a checkpoint starts."""

import threading
import time
from collections.abc import Iterable
from typing import Final

from lmerge.feed import FeedDefinition, Heartbeat
from lmerge.kafka import KafkaSettings, MissingTopic, RecordsGone, RetryError, TailReader, TopicAdmin
from replicas.cuts import Located
from replicas.errors import Stopped
from replicas.start import Start

_LOOK_SECONDS: Final = 0.2
"""Between two looks for something that the heartbeat service makes when it starts."""


class FeedStart:
    """Looks for a feed, waiting for the heartbeat service if that has not begun yet.

    Args:
        kafka: the cluster.
        feed: the definition.
        wait_seconds: how long each call may wait.
        stopping: ends the waiting.
    """

    def __init__(
        self, kafka: KafkaSettings, feed: FeedDefinition, *, wait_seconds: float, stopping: threading.Event
    ) -> None:
        self._kafka = kafka
        self._feed = feed
        self._wait_seconds = wait_seconds
        self._stopping = stopping

    def feed_id(self) -> str:
        """Return the id of the feed as it is now: of the definition and of the topics that exist.

        Raises:
            MissingTopic: a topic does not exist, and nobody has made it in time.
            Stopped: told to stop.
        """
        feed, admin = self._feed, TopicAdmin(self._kafka)
        deadline = time.monotonic() + self._wait_seconds
        while True:
            try:
                described = admin.describe(feed.heartbeats_topic, *feed.topics)
            except MissingTopic:
                if time.monotonic() > deadline:
                    raise
                self._pause()
            else:
                return feed.feed_id({name: topic.topic_id for name, topic in described.items()})

    def find(self, start: Start, feed_id: str, topics: Iterable[str]) -> Located:
        """Return the heartbeat where to start: the last one that `start` accepts.

        Args:
            start: where.
            feed_id: the feed that it must be of.
            topics: the source topics that will be read from there on.

        Raises:
            RecordsGone: it, or rows after it, were removed by retention.
            RetryError: there is no heartbeat, and none has come in time.
            UsageError: the one that was asked for is not there yet.
            Stopped: told to stop.
        """
        with TailReader(self._kafka) as reader:
            first, end = self._first(reader)
            self._require_feed(first.heartbeat, feed_id)
            if not start.accepts(first.heartbeat):
                raise RecordsGone(
                    f"topic {self._feed.heartbeats_topic} begins with heartbeat {first.heartbeat.n}, earlier ones were "
                    f"removed by retention: a replica cannot start with --start {_show(start)}; start it with "
                    f"--start latest, or --start heartbeat:{first.heartbeat.n} for all that is left"
                )
            found = self._last_accepted(reader, start, first, end)
            start.require_found(found.heartbeat)
            self._require_feed(found.heartbeat, feed_id)
            self._require_rows(reader, found.heartbeat, topics)
            return found

    def _first(self, reader: TailReader) -> tuple[Located, int]:
        """Wait for the first heartbeat in the log; return it and where the log ends."""
        topic = self._feed.heartbeats_topic
        deadline = time.monotonic() + self._wait_seconds
        while time.monotonic() < deadline:
            low, end = reader.watermarks(topic, 0)
            first = self._at_or_after(reader, low, end)
            if first is not None:
                return first, end
            self._pause()
        raise RetryError(
            f"topic {topic} has no heartbeat after {self._wait_seconds:g} s: start the heartbeat service for feed "
            f"{self._feed.name}, then this replica again"
        )

    def _last_accepted(self, reader: TailReader, start: Start, first: Located, end: int) -> Located:
        """Search by halves: heartbeats are accepted up to one, and none after it."""
        found = first
        while found.at + 1 < end:
            middle = (found.at + end) // 2
            located = self._at_or_after(reader, middle, end)
            if located is not None and start.accepts(located.heartbeat):
                found = located
            else:
                end = middle
        return found

    def _at_or_after(self, reader: TailReader, offset: int, end: int) -> Located | None:
        for records in reader.read_range(self._feed.heartbeats_topic, 0, start=offset, end=end, batch_records=1):
            return Located(records[0].offset, Heartbeat.decode(records[0].value))
        return None

    def _require_feed(self, heartbeat: Heartbeat, feed_id: str) -> None:
        if heartbeat.feed != feed_id:
            raise RecordsGone(
                f"topic {self._feed.heartbeats_topic} has heartbeats of feed {heartbeat.feed}, the definition and its "
                f"topics are feed {feed_id}: a topic was made anew, or the definition changed; start a feed with "
                "another name"
            )

    def _require_rows(self, reader: TailReader, heartbeat: Heartbeat, topics: Iterable[str]) -> None:
        """Check that the rows after a heartbeat are still there."""
        for topic in topics:
            for partition, end in enumerate(heartbeat.ends.get(topic, ())):
                low, _ = reader.watermarks(topic, partition)
                if low > end:
                    raise RecordsGone(
                        f"rows [{end}, {low}) of {topic}/{partition}, which come after heartbeat {heartbeat.n}, were "
                        "removed by retention: a replica that starts there cannot be complete; start it with --start "
                        "latest, or at a later heartbeat or time"
                    )

    def _pause(self) -> None:
        if self._stopping.wait(_LOOK_SECONDS):
            raise Stopped(f"stopped while it waited for feed {self._feed.name}")


def _show(start: Start) -> str:
    return f"{start.kind}:{start.value}" if start.kind in {"heartbeat", "time"} else start.kind
