"""The lane record: what a lane stores in each transaction beside its output (recovery-and-sink 2).

It is written to the merge's compacted state topic, partition = lane, key ``lane``, last in the transaction, so that a
successor finds it at the tail. Together with the merged topic it is all the state there is, and all that REST shows.
"""

from typing import Final

import msgspec

from lmerge.errors import LMergeError

LANE_KEY: Final = b"lane"
VERSION: Final = 1


class Seek(msgspec.Struct, frozen=True):
    """The input is being searched for the hello of its newest incarnation; nothing of it is merged yet."""

    until: int
    """The end of the topic when the search began; from there on, the first hello is taken at once."""
    begin: int | None
    """Where to begin if there is no hello; null: then it has to wait for one."""
    found: int | None = None
    """The offset of the newest hello so far."""
    why: str = ""
    """Why it is sought again, if it was read before: its records were gone, or it was stopped."""


class Stop(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why an input is not read any more: it broke its contract, or its records are gone."""

    kind: str
    """`quarantined` or `gap`."""
    reason: str
    offset: int | None = None
    """The record that broke the contract; null if no single one did."""
    at_hello: bool = False
    """That record is a hello: nothing is known of the incarnation that follows, so it is not skipped."""


class Counts(msgspec.Struct, frozen=True, omit_defaults=True):
    """Elements, by kind: taken of an input since it was attached, or put out."""

    inserts: int = 0
    adjusts: int = 0
    stables: int = 0
    dropped: dict[str, int] = {}
    """Elements without effect, by reason."""


class InputRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One input as the lane has it."""

    attachment: str
    topic: str
    topic_id: str = ""
    """Kafka's id of the topic: one that is made anew under the same name is another topic."""
    position: int
    """The next offset to process: everything below it is in the output."""
    start: int
    """The offset of its hello, or where it began: a re-feed never reads below it (E13)."""
    safe: int
    """From where a successor re-feeds it."""
    joins_at: int | None = None
    """Where it is complete from; null: minus infinity."""
    own_stable: int | None = None
    """The largest stable that it sent; null: none."""
    last_vs: int | None = None
    """R0 to R2: the vs of its last element."""
    count: int = 0
    """R1: how many elements it has delivered at the lane's `max_vs`."""
    joined: bool = False
    """Whether it may lead: whether all others might die now (RS 5.2)."""
    incarnation: int = 0
    plan: str = ""
    heard_at_ms: int = 0
    """Wall time when something new was last read of it, also while its newest incarnation is looked for."""
    seek: Seek | None = None
    stop: Stop | None = None
    skipped: tuple[int, ...] = ()
    """Offsets that are left out by order of an operator."""
    handled: tuple[str, ...] = ()
    """The ids of the operator's orders that were carried out: release, fast-forward."""
    paused: bool = False
    held: bool = False
    """R0 to R2: it waits until the lane has come to its joins_at."""
    signalled: int | None = None
    """The `before` of the last signal that told it to skip ahead."""
    signalled_at_ms: int = 0
    skipped_to: int | None = None
    """The `before` of the last skip that it wrote: what ends before it may lack."""
    skipped_cuts: int = 0
    skipped_rows: int = 0
    """What its incarnation did not have to read for that, by its own word; of rows the most that there can be."""
    counts: Counts = Counts()


class Sample(msgspec.Struct, frozen=True):
    """One contradiction between inputs, for people to look at."""

    payload: str
    vs: int
    claims: dict[str, str]
    odd: str | None = None
    """The input that stands alone against a majority, if there is one."""


class LaneRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a lane after a transaction."""

    v: int
    merge_id: str = ""
    """Which life of the merge it belongs to: one that is deleted and defined again is another merge."""
    batch: int
    at_ms: int
    """Wall time of the transaction: an old one tells that nobody runs the lane."""
    owner: str = ""
    """The process that runs it."""
    max_stable: int | None = None
    """The merged stable; stored, never taken from the merged topic (E2). Null: none yet."""
    origin: int | None = None
    leader: str | None = None
    max_vs: int | None = None
    """R0 to R2: the largest vs put out."""
    emitted: int = 0
    """R1: how many elements were put out at `max_vs`."""
    merged_safe: int = 0
    """An offset of the merged topic from which everything that is live can be rebuilt."""
    safe_at_ms: int = 0
    """Wall time of the safe point, for the metric of its age."""
    control_offset: int = 0
    """How far `lmerge.control` had been applied (RS 1.5)."""
    nodes: int = 0
    """Events that are not final."""
    bytes: int = 0
    """About how much memory they take."""
    out: Counts = Counts()
    """What was put out since the merge began."""
    output_at_ms: int = 0
    """Wall time of the last transaction with merged elements in it."""
    leader_changes: int = 0
    signals: int = 0
    """How many feedback signals it has written."""
    divergences: int = 0
    samples: tuple[Sample, ...] = ()
    inputs: dict[str, InputRecord] = {}


class UnreadableRecord(LMergeError):
    """A lane record of another version, or one that is damaged."""


_decoder = msgspec.json.Decoder(LaneRecord)


def encode(record: LaneRecord) -> bytes:
    """Return the record's value on the state topic."""
    return msgspec.json.encode(record)


def decode(value: bytes) -> LaneRecord:
    """Return the record of a value.

    Raises:
        UnreadableRecord: it is not one that this version can read.
    """
    try:
        record = _decoder.decode(value)
    except msgspec.DecodeError as error:
        raise UnreadableRecord(f"lane record cannot be read: {error}") from error
    if record.v != VERSION:
        raise UnreadableRecord(f"lane record has version {record.v}: this service reads version {VERSION}")
    return record
