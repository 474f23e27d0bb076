"""The lane record: what a lane stores in each transaction beside its output (recovery-and-sink 2).

It is written to the merge's compacted state topic, partition = lane, key ``lane``, last in the transaction, so that a
successor finds it at the tail. Together with the merged topic it is all the state there is.
"""

from typing import Final

import msgspec

from lmerge.errors import LMergeError

LANE_KEY: Final = b"lane"
VERSION: Final = 1


class InputRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One input as the lane has it."""

    attachment: str
    topic: str
    position: int
    """The next offset to process: everything below it is in the output."""
    start: int
    """The offset of its hello, or where it began: a re-feed never reads below it (E13)."""
    safe: int
    """From where a successor re-feeds it."""
    joins_at: int | None
    """Where it is complete from; null: minus infinity."""
    own_stable: int | None
    """The largest stable that it sent; null: none."""
    incarnation: int = 0
    verdict: str = ""
    """Why it is not read any more; empty while it is."""


class LaneRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a lane after a transaction."""

    v: int = VERSION
    batch: int
    max_stable: int | None
    """The merged stable; stored, never taken from the merged topic (E2). Null: none yet."""
    origin: int | None
    leader: str | None
    merged_safe: int
    """An offset of the merged topic from which everything that is live can be rebuilt."""
    safe_at_ms: int
    """Wall time of the safe point, for the metric of its age."""
    control_offset: int
    """How far `lmerge.control` had been applied (RS 1.5)."""
    inputs: dict[str, InputRecord]


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
