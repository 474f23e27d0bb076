"""The topics of a feed: whether its sources can be read for good, and the topic of its heartbeats."""

from collections.abc import Callable
from typing import Final

import msgspec

from lmerge.errors import UsageError
from lmerge.feed import FeedDefinition
from lmerge.kafka import MissingTopic, RetryError, TopicAdmin, TopicDescription, TopicSpec

_FOREVER: Final = -1
"""Kafka's value of `retention.ms` for records that never expire."""

MISSING_LOOKS: Final = 5
"""So many looks in a row must miss a topic before it is gone: a broker that is behind does not know it either."""

_BROKERS_DEFAULT_BYTES: Final = 1_048_588
"""What a topic takes by default. Less would be less than a batch of the client library."""

_COPY_BYTES: Final = 1_024
"""What the copy of a row has more than the row: headers, which are below 500 bytes, and their frames."""

_MOST_BYTES: Final = 2**31 - 1
"""The largest `max.message.bytes`."""

_VANISH: Final = "its rows vanish, so that two replicas would read different ones"


class FeedTopics(msgspec.Struct, frozen=True):
    """A feed's topics as they are.

    Attributes:
        feed_id: what the definition and the topics' own ids make of it.
        partitions: how many each source has.
        retention_is_short: whether heartbeats expire before rows do.
        copy_bytes: the largest record that the late topic takes; 0 if copies are not wanted.
    """

    feed_id: str
    partitions: dict[str, int]
    retention_is_short: bool = False
    copy_bytes: int = 0


class Absence:
    """Tells a topic that is gone from the news of a broker that is behind."""

    def __init__(self) -> None:
        # Looks in a row that have missed a topic.
        self._missed = 0

    def watch(self, look: Callable[[], FeedTopics]) -> FeedTopics:
        """Look at the topics.

        Raises:
            RetryError: one is missing, which may be the news of a broker that is behind; or as `look`.
            MissingTopic: so many looks in a row have missed one.
        """
        try:
            found = look()
        except MissingTopic as error:
            self._missed += 1
            if self._missed < MISSING_LOOKS:
                raise RetryError(
                    f"{error}; looking again: {self._missed} of {MISSING_LOOKS} looks missed it"
                ) from error
            raise
        self._missed = 0
        return found


def prepare(admin: TopicAdmin, definition: FeedDefinition, *, create: bool) -> FeedTopics:
    """Check the sources and create the heartbeats topic, and the late topic if copies are wanted, if there is none.

    Each has one partition, and its records live as long as those of every source: a replica that can still read a row
    must be able to find out whether the row counts. The late topic takes the largest row of every source.

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
    specs = [TopicSpec(name, partitions=1, config=config)]
    if definition.copy_left_out:
        size = {"max.message.bytes": str(_copy_bytes(sources))}
        specs.append(TopicSpec(definition.late_topic, partitions=1, config={**config, **size}))
    if create:
        own = admin.ensure(*specs)
    else:
        names = tuple(spec.name for spec in specs)
        own = _describe(admin, names, "create it with one partition, or let the service do it")
    heartbeats = own[name]
    _refuse_compacted(heartbeats, "what a heartbeat decided must not vanish before the rows do")
    kept = _longest({name: heartbeats})
    is_short = kept != _FOREVER and (retention == _FOREVER or kept < retention)
    return msgspec.structs.replace(
        _feed_topics(definition, {**sources, name: heartbeats}),
        retention_is_short=is_short,
        copy_bytes=_takes(own[definition.late_topic]) if definition.copy_left_out else 0,
    )


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


def _copy_bytes(sources: dict[str, TopicDescription]) -> int:
    """Give what the late topic must take: the largest row of a source, with the headers of a copy."""
    largest = max(_BROKERS_DEFAULT_BYTES, *(_takes(topic) for topic in sources.values()))
    return min(largest + _COPY_BYTES, _MOST_BYTES)


def _takes(topic: TopicDescription) -> int:
    return int(topic.config["max.message.bytes"])
