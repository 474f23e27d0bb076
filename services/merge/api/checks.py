"""What a request needs to be true of the cluster before it is granted; asked of Kafka, decided here."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from lmerge.errors import LMergeError
from lmerge.kafka import MissingTopic, TopicDescription, WrongPartitions
from services.merge.api.seam import Topics
from services.merge.definitions import Attachment, Desired, InputDefinition, MergeDefinition
from services.merge.desired import Conflict
from services.merge.lane_record import LaneRecord
from services.merge.topics import MergeTopic, owned_topics, taken_topics


class NotQuarantined(Conflict):
    """There is no quarantine to lift."""


class PlannedTopic(NamedTuple):
    """A topic of a merge, and whether it is there already."""

    topic: MergeTopic
    found: TopicDescription | None


def plan_topics(topics: Topics, merge: str, definition: MergeDefinition) -> list[PlannedTopic]:
    """Look which topics of a merge are there.

    Raises:
        BrokerError: the broker does not answer, or refuses.
    """
    return [PlannedTopic(each, look(topics, each.spec.name)) for each in owned_topics(merge, definition)]


def look(topics: Topics, name: str) -> TopicDescription | None:
    """Describe a topic; None: it does not exist.

    Raises:
        BrokerError: the broker does not answer, or refuses.
    """
    try:
        return topics.describe(name)[name]
    except MissingTopic:
        return None


def merge_problems(
    merge: str, definition: MergeDefinition, plan: list[PlannedTopic], others: Mapping[str, Desired]
) -> Iterator[LMergeError]:
    """Say what stands in the way of defining a merge."""
    yield from taken_topics(merge, definition, others)
    for (role, spec), found in plan:
        if found is None and not definition.create_topics:
            yield MissingTopic(
                f"there is no {role} topic {spec.name} and create_topics is false: make it with {spec.partitions} "
                "partitions (`lmerge topics -f FILE` prints the settings), or let the service do it"
            )
        if found is not None and found.partitions != spec.partitions:
            yield WrongPartitions(
                f"{role} topic {spec.name} exists with {found.partitions} partitions, {spec.partitions} are wanted: "
                "choose another name, or ask for as many as it has"
            )


def input_problems(topics: Topics, merge: str, partitions: int, definition: InputDefinition) -> Iterator[LMergeError]:
    """Say what stands in the way of attaching an input.

    Raises:
        BrokerError: the broker does not answer, or refuses.
    """
    found = look(topics, definition.topic)
    if found is None:
        yield MissingTopic(
            f"there is no topic {definition.topic}: start the replica that writes it, make it with {partitions} "
            "partitions, or correct its name"
        )
    elif found.partitions != partitions:
        yield WrongPartitions(
            f"topic {definition.topic} has {found.partitions} partitions, merge {merge} has {partitions}: they must "
            "agree; make the topic anew, or define a merge with as many"
        )


def refuse_first(problems: Iterator[LMergeError]) -> None:
    """Refuse a request by the first of its problems.

    Raises:
        LMergeError: if there is one.
    """
    for problem in problems:
        raise problem


def require_quarantined(merge: str, name: str, attachment: Attachment, records: list[LaneRecord | None]) -> None:
    """Refuse to lift a quarantine that is not there.

    Raises:
        NotQuarantined: no lane has stopped this attachment for breaking its contract.
    """
    stops = [
        found.stop.kind
        for record in records
        if record is not None
        and (found := record.inputs.get(name)) is not None
        and found.attachment == attachment.attachment
        and found.stop is not None
    ]
    if "quarantined" in stops:
        return
    if stops:
        raise NotQuarantined(
            f"input {name} of merge {merge} is not quarantined: its records are gone; detach it and attach it again"
        )
    raise NotQuarantined(f"input {name} of merge {merge} is not quarantined in any lane: there is nothing to release")


def committed_everywhere(records: list[LaneRecord | None]) -> int | None:
    """Return how far every lane has come, by what is committed; None: one of them has come nowhere yet."""
    stables = [None if record is None else record.max_stable for record in records]
    reached = [stable for stable in stables if stable is not None]
    return min(reached) if stables and len(reached) == len(stables) else None
