"""What a judge can find, in words, and where."""

import enum
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec

from lmerge.elements import MINUS_INFINITY, Payload, show_time

SAMPLES: Final = 10
"""Findings that are kept in full. The first one matters; a few more show a pattern; all are counted."""

Locate: TypeAlias = Callable[[str, int], str]
"""Names a place for people, from a stream and a position in it."""


class Kind(enum.Enum):
    """The rule that was broken; the value says it in words."""

    LOST = "an event of the inputs is lacking and can no longer come"
    REPEATED = "an event comes again"
    LATE = "an insert comes after the stable that settled its event as lacking"
    INVENTED = "an event that no input has"
    WRONG_END = "an event ends where the inputs do not let it end"
    ILLEGAL_ADJUST = "an adjust of an event that is not there or is final"
    STABLE_BACK = "a stable goes back"
    AHEAD = "a stable is ahead of every input"
    BEGINS_ANEW = "the stream begins anew below what it had promised"
    MALFORMED = "a record is no element"
    CONTRACT = "a stream breaks its own contract"
    CONTESTED = "the inputs contradict each other"
    SHORT = "the merged stream has not come as far as asked"
    NOT_THE_REFERENCE = "the merged stream differs from the reference"


class Finding(msgspec.Struct, frozen=True):
    """One violation: the element to blame, by stream and position, and what it does."""

    kind: Kind
    stream: str
    position: int
    detail: str


class Findings:
    """Keeps the first findings and counts all."""

    def __init__(self) -> None:
        self.samples: list[Finding] = []
        self.counts: Counter[Kind] = Counter()

    def add(self, finding: Finding, *, events: int = 1) -> None:
        """Take a finding that concerns this many events."""
        self.counts[finding.kind] += events
        if len(self.samples) < SAMPLES:
            self.samples.append(finding)


def show_payload(payload: Payload) -> str:
    """Write a payload for people: canonical JSON is text."""
    return payload.decode() if isinstance(payload, bytes) else repr(payload)


def show_ends(ends: tuple[int, ...], *, vs: int, stable: int, joins_at: int = MINUS_INFINITY) -> str:
    """Say what a stream with this stable has at a payload and vs: final ends, and what is alive."""
    words = [f"[{vs}, {ve})" for ve in ends if ve < stable]
    alive = len(ends) - len(words)
    if alive:
        words.append(f"[{vs}, …) alive at {show_time(stable)}" + (f", {alive} times" if alive > 1 else ""))
    since = "" if joins_at == MINUS_INFINITY else f" (complete from {joins_at} on)"
    return (" and ".join(words) or "none") + since
