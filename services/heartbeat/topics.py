"""The topics of a feed: whether its sources can be read for good, and the topic of its heartbeats."""

from typing import Final

import msgspec

from lmerge.errors import UsageError
from lmerge.feed import FeedDefinition
from lmerge.kafka import MissingTopic, TopicAdmin, TopicDescription, TopicSpec

_FOREVER: Final = -1
"""Kafka's value of `retention.ms` for records that never expire."""

_VANISH: Final = "its rows vanish, so that two replicas would read different ones"


class FeedTopics(msgspec.Struct, frozen=True):
    """A feed's topics as they are.

    Attributes:
        feed_id: what the definition and the topics' own ids make of it.
        partitions: how many each source has.
        retention_is_short: whether heartbeats expire before rows do.
    """

    feed_id: str
    partitions: dict[str, int]
    retention_is_short: bool = False


def prepare(admin: TopicAdmin, definition: FeedDefinition, *, create: bool) -> FeedTopics:
    """Check the sources and create the heartbeats topic, and the late topic if copies are wanted, if there is none.

    It has one partition, and its records live as long as those of every source: a replica that can still read a row
    must be able to find out whether the row counts.

    Raises:
        UsageError: a source or the heartbeats topic is compacted.
        MissingTopic: a source does not exist, or a topic of the feed, and `create` is not set.
        WrongPartitions: a topic of the feed has several partitions.
        BrokerError: the broker does not answer, or refuses.
    """
    sources = _describe(admin, definition.topics, "create the sources first, or correct the feed file")
    for topic in sources.values():
        _refuse_compacted(topic, _VANISH)
    name = definition.heartbeats_topic
    retention = _longest(sources)
    config = {"cleanup.policy": "delete", "retention.ms": str(retention), "retention.bytes": "-1"}
    names = (name, definition.late_topic) if definition.copy_left_out else (name,)
    if create:
        heartbeats = admin.ensure(*(TopicSpec(each, partitions=1, config=config) for each in names))[name]
    else:
        heartbeats = _describe(admin, names, "create it with one partition, or let the service do it")[name]
    _refuse_compacted(heartbeats, "what a heartbeat decided must not vanish before the rows do")
    kept = _longest({name: heartbeats})
    is_short = kept != _FOREVER and (retention == _FOREVER or kept < retention)
    return msgspec.structs.replace(_feed_topics(definition, {**sources, name: heartbeats}), retention_is_short=is_short)


def look(admin: TopicAdmin, definition: FeedDefinition) -> FeedTopics:
    """See how the topics are now; they may have got partitions, or may have been made anew.

    Raises:
        UsageError: a source is compacted now.
        MissingTopic: one of them is gone.
        BrokerError: the broker does not answer, or refuses.
    """
    names = (*definition.topics, definition.heartbeats_topic)
    topics = _describe(admin, names, "it was deleted; the feed has ended")
    for name in definition.topics:
        _refuse_compacted(topics[name], _VANISH)
    return _feed_topics(definition, topics)


def require_feed(definition: FeedDefinition, *, expected: str, found: str) -> None:
    """Check that the topics and the definition still are those of the heartbeats.

    Raises:
        UsageError: they are another feed's.
    """
    if expected != found:
        raise UsageError(
            f"feed {definition.name}: its heartbeats are of feed id {expected}, the definition and the topics give "
            f"{found}: the topics, time fields or units were changed, or a topic was made anew; restore them, or begin "
            "a feed with another name"
        )


def _feed_topics(definition: FeedDefinition, topics: dict[str, TopicDescription]) -> FeedTopics:
    feed_id = definition.feed_id({name: topic.topic_id for name, topic in topics.items()})
    return FeedTopics(feed_id, {name: topics[name].partitions for name in definition.topics})


def _describe(admin: TopicAdmin, names: tuple[str, ...], way_out: str) -> dict[str, TopicDescription]:
    try:
        return admin.describe(*names)
    except MissingTopic as error:
        raise MissingTopic(f"{error}: {way_out}") from error


def _refuse_compacted(topic: TopicDescription, reason: str) -> None:
    policy = topic.config.get("cleanup.policy", "")
    if "compact" in policy:
        raise UsageError(
            f"topic {topic.name} has cleanup.policy={policy}: {reason}; set it to delete, or copy the topic"
        )


def _longest(topics: dict[str, TopicDescription]) -> int:
    """Give the longest retention in milliseconds, -1 if one of them keeps its records for ever."""
    retentions = [int(topic.config["retention.ms"]) for topic in topics.values()]
    return _FOREVER if _FOREVER in retentions else max(retentions)
