"""From the name of a merge to its topics: what `--merge` stands for."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from lmerge.compatible import Order
from lmerge.errors import UsageError
from lmerge.kafka import KafkaSettings, MissingTopic, TailReader, TopicAdmin
from lmerge.normal_form import NormalForm, json_pair
from services.merge.control_topic import TOPIC, desired_from
from services.merge.definitions import MAX_FORMER_TOPICS, Desired

_ORDERS: Final = {"R0": Order.STRICTLY_BY_VS, "R1": Order.BY_VS, "R2": Order.BY_VS}


class MergeTopics(NamedTuple):
    """What the definition of a merge says to those who judge it."""

    merged: str
    inputs: tuple[str, ...]
    """The topics of all inputs that are or were attached: one that left counts with what it wrote."""
    multiset: bool = False
    """Whether the algorithm is R1 or R4."""
    order: Order = Order.ANY
    """What the algorithm takes from the order of streams: R0 strictly by vs, R1 and R2 by vs."""
    origin: int | None = None
    """None: the merged topic says it in its hello."""
    new_form: Callable[[], NormalForm] | None = None
    """Makes the operator that every input passes first; None: there is none."""
    ends: tuple[int, ...] | None = None
    """Up to where to judge the merged topic, by partition; None: its committed ends."""
    notes: tuple[str, ...] = ()
    """What a reader of the verdict must know about the choice of topics."""


def resolve_merge(settings: KafkaSettings, name: str) -> MergeTopics:
    """Find the topics of a merge in `lmerge.control`, and where the merged topic ends now.

    The inputs are looked up *after* the merged topic's ends, so that whoever has said something of what lies before
    them is among them, also where somebody attaches an input at this very moment.

    Raises:
        UsageError: there is no such merge, or it never had an input.
        MissingTopic: the merged topic does not exist.
        BrokerError: the broker does not answer.
    """
    admin = TopicAdmin(settings)
    with TailReader(settings) as reader:
        definition = _known(_desired(settings, admin, reader), name, settings).definition
        merged = definition.merged(name)
        partitions = admin.describe(merged)[merged].partitions
        ends = tuple(reader.watermarks(merged, partition).end for partition in range(partitions))
        desired = _known(_desired(settings, admin, reader), name, settings)
    attached = [each.definition.topic for each in desired.inputs.values()]
    former, notes = _former(admin, [topic for topic in desired.former_topics if topic not in attached], partitions)
    if len(desired.former_topics) == MAX_FORMER_TOPICS:
        notes.append(f"only the last {MAX_FORMER_TOPICS} topics of former inputs are remembered; the rest do not count")
    if not attached and not former:
        reasons = "".join(f"; {note}" for note in notes)
        raise UsageError(f"merge {name} has no inputs to judge it by{reasons}")
    form = desired.definition.normal_form
    return MergeTopics(
        merged,
        (*attached, *former),
        multiset=desired.algorithm in ("R1", "R4"),
        order=_ORDERS.get(desired.algorithm, Order.ANY),
        new_form=None if form is None else lambda: NormalForm(form.cut_every_ms, label=json_pair),
        ends=ends,
        notes=tuple(notes),
    )


def _desired(settings: KafkaSettings, admin: TopicAdmin, reader: TailReader) -> dict[str, Desired]:
    """Read the control topic as it is committed now; nobody is fenced, nothing is written."""
    try:
        admin.describe(TOPIC)
    except MissingTopic as error:
        raise UsageError(
            f"there is no topic {TOPIC} on {settings.bootstrap_servers}, so no merge is defined there; run the merge "
            "service, or name topics by --merged-topic and --input-topic"
        ) from error
    low, end = reader.watermarks(TOPIC, 0)
    return desired_from(record for batch in reader.read_range(TOPIC, 0, start=low, end=end) for record in batch)


def _known(desired: Mapping[str, Desired], name: str, settings: KafkaSettings) -> Desired:
    if name not in desired:
        known = f"known are {', '.join(sorted(desired))}" if desired else "none is defined"
        raise UsageError(f"there is no merge {name} on {settings.bootstrap_servers}; {known}")
    return desired[name]


def _former(admin: TopicAdmin, topics: list[str], partitions: int) -> tuple[list[str], list[str]]:
    """Return those topics of former inputs that can still be read, and a note on each of the others."""
    readable, notes = [], []
    for topic in topics:
        try:
            has = admin.describe(topic)[topic].partitions
        except MissingTopic:
            notes.append(_left_out(topic, "it is gone"))
            continue
        if has == partitions:
            readable.append(topic)
        else:
            notes.append(_left_out(topic, f"it has {has} partitions now, the merged topic {partitions}"))
    return readable, notes


def _left_out(topic: str, why: str) -> str:
    return f"{topic}, the topic of a former input, is left out: {why}; what it alone had said cannot be borne out"
