"""What a merge reports besides its output: `Merge.take_facts()` yields these values.

A merge never raises for what an input did, since output that it has already made must not be lost. It returns its
output and leaves facts; the service turns them into metrics, states and quarantines.
"""

import enum
from collections.abc import Hashable, Mapping
from typing import TypeAlias

import msgspec

from lmerge.elements import Element, Payload

StreamId: TypeAlias = Hashable
"""Names one incarnation of one input inside a merge; a service uses more than the input's name."""


class Rule(enum.Enum):
    """What an input, or an output under test, broke."""

    STABLE = "an element contradicts the stream's own stable"
    DUPLICATE = "a second event with the same payload and vs"
    NO_SUCH_EVENT = "an adjust of an event that does not exist"
    INSERT_ONLY = "an adjust in a stream declared insert-only"
    ORDERED = "a vs out of the declared order"
    C1 = "the output's stable is ahead of every input's"
    C2 = "an event in the output that no input supports"
    C3 = "an event of an input that the output lacks and can no longer have"


class Violation(msgspec.Struct, frozen=True):
    """A rule that was broken: by which stream, with which element (None where no single one is to blame)."""

    rule: Rule
    stream_id: StreamId
    element: Element | None
    detail: str

    def __str__(self) -> str:
        return f"{self.stream_id}: {self.rule.value}: {self.detail}"


class Held(msgspec.Struct, frozen=True):
    """R0 to R2 stopped before this element: the input has not joined yet (recovery-and-sink 5.4)."""

    stream_id: StreamId
    element: Element


class DropReason(enum.Enum):
    """Why an element had no effect; none of these is an error by itself."""

    FROZEN = "its event lies below the merged stable and is settled"
    BEHIND = "another input has gone past its vs (R0 to R2)"
    BEFORE_JOIN = "it lies below the joins_at of its stream, or below the origin (R0 to R2)"
    LATE_INSERT = "an insert below the merged stable from a stream of R0 to R2: a missing element, or divergence"


class Dropped(msgspec.Struct, frozen=True):
    """How many elements of a stream had no effect in one call, by reason."""

    stream_id: StreamId
    reason: DropReason
    count: int


class Divergence(msgspec.Struct, frozen=True):
    """Joined streams that contradict each other about one event (recovery-and-sink 9)."""

    payload: Payload
    vs: int
    claims: Mapping[StreamId, str]
    """Every stream that claims something about the event, and what: ``gone``, ``ends at 12``, ``alive at 15``."""
    odd: StreamId | None = None
    """The stream that stands alone against a majority, if there is one."""


class Joined(msgspec.Struct, frozen=True):
    """A joining stream became joined: from now on it may lead."""

    stream_id: StreamId
    stable: int


Fact: TypeAlias = Violation | Held | Dropped | Divergence | Joined
