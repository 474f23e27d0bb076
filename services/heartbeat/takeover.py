"""Taking a feed over: shut the former owner out, then find the heartbeat to go on from."""

from typing import Literal, TypeAlias

from lmerge.errors import UsageError
from lmerge.feed import FeedDefinition, Heartbeat
from lmerge.kafka import KafkaSettings, TailReader, TransactionalWriter
from services.heartbeat.topics import FeedTopics, require_feed

Start: TypeAlias = Literal["earliest", "latest"]
"""Where a feed without heartbeats begins."""


def take_over(
    settings: KafkaSettings,
    definition: FeedDefinition,
    topics: FeedTopics,
    writer: TransactionalWriter,
    start: Start,
) -> Heartbeat:
    """Become the owner and return the last heartbeat; a feed without any gets its heartbeat 0.

    In this order: after `fence` nobody else can add to what is read.

    Raises:
        UsageError: the heartbeats are of another feed, or they are gone.
        MalformedRecord: the last record is no heartbeat.
        BrokerError: as of the calls to the broker.
    """
    topic = definition.heartbeats_topic
    writer.fence()
    with TailReader(settings) as tail:
        tail.require_decided(topic, 0)
        record = tail.read_tail(topic, 0)
        if record is not None:
            last = Heartbeat.decode(record.value)
            require_feed(definition, expected=last.feed, found=topics.feed_id)
            return last
        if tail.watermarks(topic, 0).low > 0:
            raise UsageError(
                f"topic {topic} is empty but begins above offset 0: heartbeats were there and are gone, and with them "
                "what was decided about the rows; begin a feed with another name"
            )
        first = Heartbeat.start(topics.feed_id, _first_ends(tail, topics, start))
    with writer.transaction():
        writer.write(topic, 0, [(None, first.encode())])
    return first


def _first_ends(tail: TailReader, topics: FeedTopics, start: Start) -> dict[str, tuple[int, ...]]:
    """Find where the partitions begin, or where what is committed ends now."""
    ends = {}
    for topic, partitions in topics.partitions.items():
        marks = [tail.watermarks(topic, partition) for partition in range(partitions)]
        ends[topic] = tuple(mark.low if start == "earliest" else mark.end for mark in marks)
    return ends
