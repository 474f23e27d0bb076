"""What has to be there before a merge can run: its topics, and the place where it begins."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from lmerge import MINUS_INFINITY, Hello
from lmerge.codec import decode
from lmerge.kafka import (
    BrokerError,
    KafkaSettings,
    MissingTopic,
    TailReader,
    TopicAdmin,
    TopicDescription,
    WrongPartitions,
)
from services.merge import desired as decide
from services.merge.control import Control
from services.merge.definitions import Attachment, Desired
from services.merge.lane_input import begin_without_hello, is_hello
from services.merge.topics import owned_topics


def make_topics(settings: KafkaSettings, name: str, desired: Desired) -> dict[str, TopicDescription]:
    """Make the topics of a merge, or see that somebody has, and describe them.

    Raises:
        MissingTopic: it is not there, and the definition says that others make it.
        WrongPartitions: it has another number of partitions than the merge.
    """
    admin = TopicAdmin(settings)
    specs = [topic.spec for topic in owned_topics(name, desired.definition)]
    if desired.definition.create_topics:
        return admin.ensure(*specs)
    found = admin.describe(*(spec.name for spec in specs))
    for spec in specs:
        has = found[spec.name].partitions
        if has != spec.partitions:
            raise WrongPartitions(f"topic {spec.name} has {has} partitions, merge {name} needs {spec.partitions}")
    return found


def require_topics(made: Mapping[str, TopicDescription], found: Mapping[str, TopicDescription | None]) -> None:
    """See that the topics of a merge are those that it began with.

    One look is believed: a merge that begins anew without need has lost a second, and finds them.

    Raises:
        MissingTopic: one is gone, or is another one under the same name: nothing that the merge knows holds there.
    """
    for topic, before in made.items():
        now = found.get(topic, before)
        if now is None or now.topic_id != before.topic_id:
            what = "is gone" if now is None else "was deleted and made anew"
            raise MissingTopic(f"topic {topic} {what}; the merge begins anew, with topics that are there or are made")


class Look(NamedTuple):
    """What the first partition of an input's topic holds."""

    low: int
    """Where its log begins."""
    is_empty: bool
    hello: Hello | None
    """The newest one: what lies before it is void."""


class Beginning(NamedTuple):
    """Where a merge begins, and of which feed it is, by the word of its first input."""

    input: str
    origin: int | None
    feed: str


def fix_origin(settings: KafkaSettings, control: Control, name: str) -> bool:
    """Let the merge begin where its first input does (RS 5.6); False while no input says where that is.

    Raises:
        BrokerError: an input cannot be looked at, and no other says it.
    """
    desired = control.desired.get(name)
    if desired is None or desired.origin_fixed:
        return desired is not None
    with TailReader(settings) as reader:
        first = first_beginning(desired.inputs, lambda topic: _look(reader, topic))
    if first is None:
        return False
    control.change(
        name,
        lambda now: decide.fix_origin(now, name, first.origin, first.feed),
        by="merge service",
        what="fix origin",
        why=f"input {first.input} is the first that has said something",
    )
    return True


def first_beginning(inputs: Mapping[str, Attachment], look: Callable[[str], Look]) -> Beginning | None:
    """Return what the first input says that says where it begins; None if nobody does yet.

    Raises:
        BrokerError: one cannot be looked at, and no other says it.
    """
    failure: BrokerError | None = None
    for name, attachment in inputs.items():
        definition = attachment.definition
        try:
            found = look(definition.topic)
        except MissingTopic:
            continue
        except BrokerError as error:
            failure = failure or error
            continue
        if found.hello is not None:
            origin = None if found.hello.joins_at == MINUS_INFINITY else found.hello.joins_at
            return Beginning(name, origin, found.hello.feed)
        # An empty topic may begin with a hello; of one whose first records are gone nobody knows what is lacking.
        if definition.joins_at is None and (found.is_empty or begin_without_hello(definition, found.low) is None):
            continue
        return Beginning(name, definition.joins_at, "")
    if failure is not None:
        raise failure
    return None


def _look(reader: TailReader, topic: str) -> Look:
    newest: bytes | None = None
    is_empty = True
    low = reader.watermarks(topic, 0).low
    for batch in reader.read_range(topic, 0, start=low):
        for record in batch:
            is_empty = False
            if is_hello(record.value):
                newest = record.value
    element = None if newest is None else decode(newest)
    return Look(low, is_empty, element if isinstance(element, Hello) else None)


def describe_topics(admin: TopicAdmin, topics: Iterable[str]) -> dict[str, TopicDescription | None]:
    """Describe each topic, None for one that does not exist; what cannot be told now is left out."""
    found: dict[str, TopicDescription | None] = {}
    for topic in topics:
        try:
            found[topic] = admin.describe(topic)[topic]
        except MissingTopic:
            found[topic] = None
        except BrokerError:
            continue
    return found
