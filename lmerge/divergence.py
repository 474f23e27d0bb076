"""When two streams contradict each other about an event (recovery-and-sink 9).

Comparing ends is not enough: a late joiner may lack what it need not have, and a laggard may not know yet. So each
stream is asked what it *claims*. With own stable s, and J the larger joins_at of the two, a stream claims about
(payload, vs):

    nothing       if vs >= s: it may still say anything
    gone          it has no such event, or one with ve < s and ve < J
    ends at ve    if J <= ve < s: final
    alive at s    if ve >= s >= J: it ends at s or later
    nothing       otherwise

Gone contradicts the other two, different ends contradict each other, and an end at v contradicts being alive at s > v.
"""

import enum
from collections.abc import Mapping
from typing import NamedTuple

from lmerge.facts import StreamId
from lmerge.membership import Stream


class Kind(enum.Enum):
    """What is claimed about an event."""

    GONE = "gone"
    ENDS = "ends at"
    ALIVE = "alive at"


class Claim(NamedTuple):
    """What a stream claims about an event; `at` is an end or a stable point, and 0 for GONE."""

    kind: Kind
    at: int

    def __str__(self) -> str:
        return self.kind.value if self.kind is Kind.GONE else f"{self.kind.value} {self.at}"


def claim(stream: Stream, vs: int, ve: int | None, joins_at: int) -> Claim | None:
    """Return what a stream that gives the event the end `ve` (None: has no such event) claims about it."""
    stable = stream.own_stable
    if vs >= stable:
        return None
    if ve is None or (ve < stable and ve < joins_at):
        return Claim(Kind.GONE, 0)
    if joins_at <= ve < stable:
        return Claim(Kind.ENDS, ve)
    return Claim(Kind.ALIVE, stable) if ve >= stable >= joins_at else None


def contradict(one: Claim | None, other: Claim | None) -> bool:
    """Tell whether two claims cannot both be true.

    >>> contradict(Claim(Kind.ENDS, 12), Claim(Kind.ALIVE, 12)), contradict(Claim(Kind.ENDS, 12), Claim(Kind.ALIVE, 13))
    (False, True)
    """
    if one is None or other is None:
        return False
    kinds = {one.kind, other.kind}
    if Kind.GONE in kinds:
        return len(kinds) == 2
    if kinds == {Kind.ENDS}:
        return one.at != other.at
    if kinds == {Kind.ENDS, Kind.ALIVE}:
        ends, alive = (one, other) if one.kind is Kind.ENDS else (other, one)
        return alive.at > ends.at
    return False


def odd_one_out(leader: StreamId, claims: Mapping[StreamId, str], agreeing: int) -> StreamId | None:
    """Name the stream that stands alone against a majority; None if there is none.

    Args:
        leader: the stream that all others were compared with.
        claims: what it and those that contradict it claim.
        agreeing: how many others claim something that goes with what it claims.

    >>> odd_one_out("r1", {"r1": "gone", "r2": "ends at 9", "r3": "ends at 9"}, agreeing=0)
    'r1'
    >>> odd_one_out("r1", {"r1": "gone", "r2": "ends at 9"}, agreeing=1)
    'r2'
    >>> odd_one_out("r1", {"r1": "gone", "r2": "ends at 9"}, agreeing=0)
    """
    others = [stream for stream in claims if stream != leader]
    if agreeing == 0:
        agree = len({claims[stream] for stream in others}) == 1
        return leader if agree and len(others) > 1 else None
    return others[0] if len(others) == 1 else None
