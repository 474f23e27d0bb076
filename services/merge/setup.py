"""What has to be there before a merge can run: its topics, and the place where it begins."""

from collections.abc import Iterable

from lmerge import MINUS_INFINITY, Hello
from lmerge.codec import decode
from lmerge.kafka import BrokerError, KafkaSettings, MissingTopic, TailReader, TopicAdmin, WrongPartitions
from services.merge import desired as decide
from services.merge.control import Control
from services.merge.definitions import Desired
from services.merge.lane_input import is_hello
from services.merge.topics import owned_topics


def make_topics(settings: KafkaSettings, name: str, desired: Desired) -> None:
    """Make the topics of a merge, or see that somebody has.

    Raises:
        MissingTopic: it is not there, and the definition says that others make it.
        WrongPartitions: it has another number of partitions than the merge.
    """
    admin = TopicAdmin(settings)
    specs = [topic.spec for topic in owned_topics(name, desired.definition)]
    if desired.definition.create_topics:
        admin.ensure(*specs)
        return
    for spec in specs:
        has = admin.describe(spec.name)[spec.name].partitions
        if has != spec.partitions:
            raise WrongPartitions(f"topic {spec.name} has {has} partitions, merge {name} needs {spec.partitions}")


def fix_origin(settings: KafkaSettings, control: Control, name: str) -> bool:
    """Let the merge begin where its first input does (RS 5.6); False while no input has said anything."""
    desired = control.desired.get(name)
    if desired is None or desired.origin_fixed:
        return desired is not None
    with TailReader(settings) as reader:
        for each, attachment in desired.inputs.items():
            definition = attachment.definition
            try:
                hello, is_empty = _newest_hello(reader, definition.topic)
            except MissingTopic:
                continue
            if is_empty and definition.joins_at is None:
                continue
            origin = definition.joins_at
            if hello is not None:
                origin = None if hello.joins_at == MINUS_INFINITY else hello.joins_at
            feed = "" if hello is None else hello.feed
            control.change(
                name,
                lambda now, origin=origin, feed=feed: decide.fix_origin(now, name, origin, feed),  # type: ignore[misc]
                by="merge service",
                what="fix origin",
                why=f"input {each} is the first that has said something",
            )
            return True
    return False


def _newest_hello(reader: TailReader, topic: str) -> tuple[Hello | None, bool]:
    """Return the newest hello in the first partition, and whether that is empty; what lies before it is void."""
    newest: bytes | None = None
    is_empty = True
    for batch in reader.read_range(topic, 0, start=reader.watermarks(topic, 0).low):
        for record in batch:
            is_empty = False
            if is_hello(record.value):
                newest = record.value
    element = None if newest is None else decode(newest)
    return element if isinstance(element, Hello) else None, is_empty


def topic_ids(admin: TopicAdmin, topics: Iterable[str]) -> dict[str, str | None]:
    """Return Kafka's id of each topic, None for one that does not exist; what cannot be told now is left out."""
    found: dict[str, str | None] = {}
    for topic in topics:
        try:
            found[topic] = admin.describe(topic)[topic].topic_id
        except MissingTopic:
            found[topic] = None
        except BrokerError:
            continue
    return found
