"""The topics of a merge: names, settings, and under which ids they are written and read.

The one place that knows: the service makes them so, REST shows them, and `lmerge topics` prints them for a cluster
where somebody else makes them.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

from lmerge.kafka import TopicSpec
from services.merge.definitions import Desired, MergeDefinition
from services.merge.desired import Conflict

Role: TypeAlias = Literal["merged", "state", "feedback"]

CONTROL: Final = TopicSpec("lmerge.control", partitions=1, config={"cleanup.policy": "compact"})
"""The desired state of all merges of a cluster."""

AUDIT: Final = TopicSpec("lmerge.audit", partitions=1, config={"cleanup.policy": "delete", "retention.ms": "-1"})
"""Who changed the desired state, when and why; kept for good."""

STATE_CONFIG: Final = {
    "cleanup.policy": "compact",
    # Small segments: a successor reads what is not compacted yet, and by default that is up to a week.
    "segment.bytes": "1048576",
    "segment.ms": "10000",
    "min.cleanable.dirty.ratio": "0.1",
}


class TopicTaken(Conflict):
    """A topic belongs to something else."""


class MergeTopic(NamedTuple):
    """One topic that a merge owns."""

    role: Role
    spec: TopicSpec


def owned_topics(merge: str, definition: MergeDefinition) -> tuple[MergeTopic, ...]:
    """Return the topics that the service writes for a merge, as it makes them.

    Merged and feedback topics take the broker's retention: how long a consumer or a replica may be away is its owner's
    choice.
    """
    partitions = definition.partitions
    return (
        MergeTopic("merged", TopicSpec(definition.merged(merge), partitions, config={"cleanup.policy": "delete"})),
        MergeTopic("state", TopicSpec(definition.state(merge), partitions, config=dict(STATE_CONFIG))),
        MergeTopic("feedback", TopicSpec(definition.signals(merge), 1, config={"cleanup.policy": "delete"})),
    )


def taken_topics(merge: str, definition: MergeDefinition, others: Mapping[str, Desired]) -> Iterator[TopicTaken]:
    """Say which topics that a merge would write belong to something else."""
    names = [each.spec.name for each in owned_topics(merge, definition)]
    for name in sorted(set(names)):
        if names.count(name) > 1:
            yield TopicTaken(f"topic {name} is named twice: merged, state and feedback are three topics")
        if name in (CONTROL.name, AUDIT.name):
            yield TopicTaken(f"topic {name} belongs to the service, for all merges: choose another name")
        for other, desired in others.items():
            if other != merge and name in [each.spec.name for each in owned_topics(other, desired.definition)]:
                yield TopicTaken(f"topic {name} is written by merge {other}: choose another name")


def group_id(merge: str) -> str:
    """Return the consumer group by which processes share the lanes of a merge."""
    return f"lmerge.{merge}"


def transactional_id(merge: str, lane: int) -> str:
    """Return the id under which a lane is written; two owners with the same one fence each other."""
    return f"{merge}/{lane}"
