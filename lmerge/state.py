"""What a merge tells about itself: `Stats` for people and metrics, `MergeState` for its next life.

Recovery (recovery-and-sink 2 to 4) needs little: scalars, what each stream has said about itself, and the events that
are live in the output. The inputs' own entries are not in it; they come back by re-feeding (`Merge.refeed`).
"""

from collections.abc import Mapping

import msgspec

from lmerge.elements import MINUS_INFINITY, Payload
from lmerge.facts import DropReason, StreamId


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be remembered of one attached stream."""

    joins_at: int = MINUS_INFINITY
    own_stable: int = MINUS_INFINITY
    last_vs: int = MINUS_INFINITY
    """R0 to R2: the vs of its last element, to which its next one is held."""
    count: int = 0
    """R1: how many elements it has delivered at `MergeState.max_vs`."""


class NodeState(msgspec.Struct, frozen=True):
    """One live event key of R3 or R4 with the ends that the output has for it; none: known, but not put out yet."""

    vs: int
    payload: Payload
    ends: tuple[int, ...]


class MergeState(msgspec.Struct, frozen=True, kw_only=True):
    """All that `load` needs; a service stores the scalars and takes nodes and payloads from its own output."""

    max_stable: int = MINUS_INFINITY
    leader: StreamId | None = None
    streams: Mapping[StreamId, StreamState] = {}
    max_vs: int = MINUS_INFINITY
    """R0 to R2: the largest vs put out."""
    emitted: int = 0
    """R1: how many elements were put out at `max_vs`."""
    payloads: frozenset[Payload] = frozenset()
    """R2: the payloads put out at `max_vs`."""
    nodes: tuple[NodeState, ...] = ()
    """R3 and R4: the live nodes."""


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters since the merge was made, and what it holds now."""

    inserts_in: int = 0
    adjusts_in: int = 0
    stables_in: int = 0
    inserts_out: int = 0
    adjusts_out: int = 0
    stables_out: int = 0
    dropped: Mapping[DropReason, int] = {}
    missing: int = 0
    """Events that some input had and the leading one lacked when it froze them: left out, or taken back (V-C)."""
    kept: int = 0
    """Half-frozen events that a later leader lacked or had ended before: kept as they were (trap 6)."""
    divergences: int = 0
    facts_lost: int = 0
    """Facts that nobody took in time."""
    nodes: int = 0
    """R3 and R4: live nodes. R2: payloads at the current vs."""
    bytes: int = 0
    """R3 and R4: about how much memory the live nodes take, with their payloads."""
    leader: StreamId | None = None
    """The stream whose stable moved the output last."""
