"""Final events of one partition, each handed out once, also by a reader that stops and starts again.

An event is final when its own partition's stable has passed its end (``ve < stable``; an event lives in one partition),
or when the partition is closed by ``Stable(INFINITY)``, which no end can pass.
The final events of a partition have one order, by (ve, vs, payload), that does not depend on when its stables came: a
stable(t) hands out all that end before t, and what is inserted later ends later. So how far a reader has come is a
point in that order: the end of the last event that it handed out, and how many with this end.

To go on from there, the events that were not handed out must be built up again. So a `Position` has

    offset   from where to read: the oldest insert that is still needed
    note     how far it was: the point, what had been read, how far everything was complete

and it is small, however many events are live. It lies as far back as the oldest of them: a reader of events that stay
open for days reads days of records when it starts again, and needs a topic that keeps them.

A `Hello` voids what its partition said before, because the merge had to accept a gap. What was handed out was final and
stays so: of the new incarnation come the events that end at or after the old stable. Those that ended between it and
the hello's `joins_at` may be missing for good; `gaps` says where.
"""

from collections import deque
from typing import Final as Constant
from typing import NamedTuple

import msgspec
from sortedcontainers import SortedList

from lmerge.elements import INFINITY, MINUS_INFINITY, Element, Hello
from lmerge.errors import UsageError
from lmerge.live_events import Final, LiveEvents, ends_before
from lmerge.tdb import Event

_VERSION: Constant = 1

_NOT_ALL: Constant = INFINITY - 1
"""How far a closed partition is complete while there are events without an end to hand out."""


class Position(NamedTuple):
    """Where a reader of one partition is: the offset to read from, and what else it has to know there."""

    offset: int
    note: str = ""


class Gap(NamedTuple):
    """A hello in mid-stream: events that end in ``[complete, joins_at)`` may be missing."""

    offset: int
    complete: int
    joins_at: int


class _Note(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    v: int
    at: int
    """The offset after the last record that was read."""
    ve: int = MINUS_INFINITY
    """The end of the last event that was handed out,"""
    n: int = 0
    """and how many with this end."""
    complete: int = MINUS_INFINITY
    floor: int = MINUS_INFINITY
    """The floor (see below) at the position's offset."""


class FinalEvents:
    """Hands out the final events of one partition, in order.

    Args:
        position: where an earlier reader stopped, or an offset to begin at.
        whole: that the offset is the beginning of the partition, or the note an earlier reader's. If not, events whose
            inserts lie before it are missing, unless they are adjusted later.

    Raises:
        UsageError: the note is not one of these.
    """

    def __init__(self, position: Position = Position(0), *, whole: bool = True) -> None:  # noqa: B008  # it is frozen
        note = _read(position)
        self.gaps: list[Gap] = []
        self._live = LiveEvents(start=position.offset, whole_from=note.at if whole else INFINITY)
        self._at = position.offset
        # What was read before: until it has been read again, adjusts of unknown events are met.
        self._read_before = note.at
        # The point: the end of the last event handed out, and how many with this end were.
        self._ve, self._n = note.ve, note.n
        # How many of those were met again; they come first among the events with this end.
        self._met_again = 0
        self._resumed = note
        # The hellos so far and from each on the floor: no event that ends before it is handed out any more.
        self._floors = [(-1, note.floor)]
        self._ready: deque[Final] = deque()
        # Inserts of the events that are ready, or were handed out with the end self._ve: the count begins with them.
        self._needed: SortedList[int] = SortedList()
        self._counted: list[int] = []

    @property
    def stable(self) -> int:
        """Events that end before this are final. It never goes back, not by a hello either."""
        return max(self._floors[-1][1], self._resumed.complete, self._live.stable)

    @property
    def next(self) -> Event | None:
        """The event to be handed out next, if there is one."""
        return self._ready[0].event if self._ready else None

    @property
    def complete(self) -> int:
        """Every event that ends before this was handed out; at INFINITY, where no more can come, every event."""
        return min(self.stable, self._ready[0].event.ve, _NOT_ALL) if self._ready else self.stable

    @property
    def position(self) -> Position:
        """Where a later reader has to begin, so that it goes on right after what was handed out."""
        oldest = [offset for offset in (self._live.oldest, *self._needed[:1]) if offset is not None]
        offset = min([self._at, *oldest])
        note = _Note(
            v=_VERSION,
            at=max(self._at, self._read_before),
            ve=self._ve,
            n=self._n,
            complete=self.complete,
            floor=max(floor for hello_at, floor in self._floors if hello_at < offset),
        )
        return Position(offset, msgspec.json.encode(note).decode())

    def take(self, element: Element, offset: int) -> None:
        """Read the element at an offset.

        Raises:
            IllegalElement: the partition's own earlier elements rule it out. Nothing is changed.
        """
        if isinstance(element, Hello):
            self._begin_anew(element, offset)
        for final in self._live.apply(element, offset):
            self._sort_out(final)
        self._at = offset + 1

    def hand_out(self) -> Event:
        """Return the next event; from now on it counts as handed out."""
        final = self._ready.popleft()
        if final.event.ve > self._ve:
            self._ve, self._n = final.event.ve, 0
            for origin in self._counted:
                self._needed.remove(origin)
            self._counted.clear()
        self._n += 1
        self._counted.append(final.origin)
        return final.event

    def _begin_anew(self, hello: Hello, offset: int) -> None:
        if offset < self._read_before:  # `stable` knows of what comes later
            self._floors.append((offset, max(self._floors[-1][1], self._live.stable)))
            return
        if self.stable > MINUS_INFINITY or self._live:
            self.gaps.append(Gap(offset, self.stable, hello.joins_at))
        self._floors.append((offset, self.stable))

    def _sort_out(self, final: Final) -> None:
        """Decide what a final event is: ready, handed out before, or of an incarnation that repeats what was."""
        ve = final.event.ve
        if ve < self._resumed.ve or ends_before(ve, self._floors[-1][1]):
            return
        self._needed.add(final.origin)
        if ve == self._resumed.ve and self._met_again < self._resumed.n:
            self._met_again += 1
            self._counted.append(final.origin)
        else:
            self._ready.append(final)


def _read(position: Position) -> _Note:
    if not position.note:
        return _Note(v=_VERSION, at=position.offset)
    try:
        note = msgspec.json.decode(position.note, type=_Note)
    except msgspec.DecodeError as error:
        raise UsageError(f"position {position}: its note is none of a reader of events: {error}") from error
    if note.v != _VERSION:
        raise UsageError(f"position {position}: a note of version {note.v}; this reads version {_VERSION}")
    return note
