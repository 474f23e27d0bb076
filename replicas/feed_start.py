"""Finding the feed that a replica reads: its id, and heartbeat 0, where a replica without a checkpoint starts."""

import threading
import time
from typing import Final

from lmerge.feed import FeedDefinition, Heartbeat
from lmerge.kafka import KafkaSettings, MissingTopic, RecordsGone, RetryError, TailReader, TopicAdmin
from replicas.cuts import Located
from replicas.errors import Stopped

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

    def first_heartbeat(self, feed_id: str) -> Located:
        """Return heartbeat 0.

        Raises:
            RecordsGone: the log begins with another one; earlier rows cannot be had any more.
            RetryError: there is none, and none has come in time.
            Stopped: told to stop.
        """
        topic = self._feed.heartbeats_topic
        deadline = time.monotonic() + self._wait_seconds
        with TailReader(self._kafka) as reader:
            while time.monotonic() < deadline:
                low, _ = reader.watermarks(topic, 0)
                for records in reader.read_range(topic, 0, start=low):
                    return _require_first(
                        Located(records[0].offset, Heartbeat.decode(records[0].value)), feed_id, topic
                    )
                self._pause()
        raise RetryError(
            f"topic {topic} has no heartbeat after {self._wait_seconds:g} s: start the heartbeat service for feed "
            f"{self._feed.name}, then this replica again"
        )

    def _pause(self) -> None:
        if self._stopping.wait(_LOOK_SECONDS):
            raise Stopped(f"stopped while it waited for feed {self._feed.name}")


def _require_first(located: Located, feed_id: str, topic: str) -> Located:
    """Check that the first heartbeat in the log is where the feed began."""
    heartbeat = located.heartbeat
    if heartbeat.feed != feed_id:
        raise RecordsGone(
            f"topic {topic} has heartbeats of feed {heartbeat.feed}, the definition and its topics are feed {feed_id}: "
            "a topic was made anew, or the definition changed; start a feed with another name"
        )
    if heartbeat.n != 0:
        raise RecordsGone(
            f"topic {topic} begins with heartbeat {heartbeat.n}: a replica without a checkpoint starts at heartbeat 0, "
            "which retention has removed"
        )
    return located
