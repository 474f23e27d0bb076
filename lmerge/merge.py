"""`Merge`: what all algorithms have in common, and so the one interface that callers know.

A merge is fed batches of elements, stream by stream, and returns the elements to put out. It never raises for what an
input did, so that no output already made is lost: it stops at the first element that is illegal or must wait;
`consumed` tells how many it took, and `take_facts` what happened.

    attach, detach       streams come and go at any time (paper 000, V-B)
    process, consumed    elements in, elements out
    take_facts, stats    what happened, and how much of it
    max_stable           how far the output is final
    begin_batch, oldest_batch, dump, load, refeed    recovery, see below

This class keeps the books, holds every stream to its own promises and decides who may lead. What an insert, an adjust
or a stable *does* is in the five files r0.py to r4.py.

Recovery (recovery-and-sink 2 to 4). A caller numbers its batches with `begin_batch` and remembers where each began;
`oldest_batch` names the first one that a successor has to read again. The successor takes `load(state)`, with the
state of the moment of the crash, then `refeed` for every stream from that batch's beginning up to the crash, silently,
and goes on with `process`. R0 to R2 need no re-feeding.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import islice
from typing import final

from lmerge.elements import MINUS_INFINITY, Adjust, Element, Hello, Insert, Skip, Stable, show_time
from lmerge.errors import UsageError
from lmerge.facts import DropReason, Fact, Joined, Rule, StreamId, Violation
from lmerge.ledger import Ledger
from lmerge.membership import Membership, Stream
from lmerge.state import MergeState, Stats, StreamState


class Merge(ABC):
    """One Logical Merge: many equivalent streams in, one out."""

    def __init__(self, *, origin: int = MINUS_INFINITY) -> None:
        self._members = Membership(origin)
        self._ledger = Ledger()
        self._max_stable = MINUS_INFINITY
        # The stream whose stable moved the output last; None when it has left or none has.
        self._leader: Stream | None = None
        # How many elements of each stream the last call of `process` took.
        self._consumed: dict[StreamId, int] = {}
        # Elements without effect in the current call, by reason: numbers, as they are counted once per element.
        self._settled = self._behind = self._before_join = self._late = 0
        self._batch = 0

    # -- streams come and go

    def attach(self, stream_id: StreamId, *, joins_at: int = MINUS_INFINITY) -> None:
        """Add a stream that is complete from `joins_at` on. What it says itself, in a `Hello`, wins.

        Raises:
            UsageError: a stream with this id is attached already.
        """
        stream = self._members.attach(stream_id, joins_at)
        self._admit(stream)
        self._join_now(stream)

    def detach(self, stream_id: StreamId) -> None:
        """Forget a stream, at no cost. What it has contributed to the output stays.

        Raises:
            UsageError: no stream with this id is attached.
        """
        self._forget(self._members.detach(stream_id))
        self._consumed.pop(stream_id, None)

    def is_joined(self, stream_id: StreamId) -> bool:
        """Tell whether the stream may lead: whether all the others might die now."""
        return self._members[stream_id].joined

    @property
    def origin(self) -> int:
        """Where the merge begins; no stable below it is taken."""
        return self._members.origin

    # -- elements in, elements out

    @final
    def process(self, stream_id: StreamId, elements: Sequence[Element]) -> list[Element]:
        """Take elements of one stream and return what goes out because of them.

        Stops before the first element that is illegal (a `Violation`) or must wait (`Held`); see `consumed`. An empty
        batch is allowed: it lets streams lead that have become ready to.

        Raises:
            UsageError: no stream with this id is attached.
        """
        stream = self._members[stream_id]
        output: list[Element] = []
        self._lead_joined(output)
        taken, stop = 0, None
        while taken < len(elements) and stop is None:
            element, begin = elements[taken], taken
            if type(element) is Insert:  # as the loops over runs of them ask
                taken, stop = self._inserts(stream, elements, taken, output)
            elif type(element) is Adjust:
                taken, stop = self._adjusts(stream, elements, taken, output)
            elif isinstance(element, Hello):
                stream = self._reincarnate(stream, element)
                taken += 1
            else:
                stop = self._process_one(stream, element, output)
                taken += stop is None
            self._ledger.taken[type(element)] += taken - begin
        if stop is not None:
            self._ledger.note(stop)
        self._consumed[stream_id] = taken
        self._close(stream_id, output)
        return output

    def _process_one(self, stream: Stream, element: Element, output: list[Element]) -> Fact | None:
        if isinstance(element, Stable):
            return self._stable(stream, element, output)
        if isinstance(element, Skip):
            self._skip(stream, element)
            return None
        raise UsageError(f"{type(element).__name__} is no kind of element")

    def _insert_one(self, stream: Stream, element: Insert, output: list[Element]) -> Fact | None:
        if element.vs < stream.own_stable:
            return _broken_promise(stream, element)
        return self._insert(stream, element, output)

    def _adjusts(
        self, stream: Stream, elements: Sequence[Element], begin: int, output: list[Element]
    ) -> tuple[int, Fact | None]:
        """Take the adjusts from a place on, as `_inserts` takes inserts: revisions come in runs, too."""
        own_stable, place, stop = stream.own_stable, begin, None
        for element in islice(elements, begin, None):
            if type(element) is not Adjust:
                break
            if element.vold >= own_stable <= element.ve:
                stop = self._adjust(stream, element, output)
            else:
                stop = _broken_promise(stream, element)
            if stop is not None:
                break
            place += 1
        return place, stop

    def _close(self, stream_id: StreamId, output: Sequence[Element]) -> None:
        counts = (
            (DropReason.FROZEN, self._settled),
            (DropReason.BEHIND, self._behind),
            (DropReason.BEFORE_JOIN, self._before_join),
            (DropReason.LATE_INSERT, self._late),
        )
        self._settled = self._behind = self._before_join = self._late = 0
        self._ledger.close(stream_id, output, {reason: count for reason, count in counts if count})

    def consumed(self, stream_id: StreamId) -> int:
        """Return how many elements the last `process` of this stream took; fewer than given if it had to stop.

        Raises:
            UsageError: no stream with this id is attached.
        """
        return self._consumed.get(self._members[stream_id].stream_id, 0)

    def take_facts(self) -> list[Fact]:
        """Return what happened since the last call."""
        return self._ledger.take()

    @property
    def max_stable(self) -> int:
        """The stable point of the output; MINUS_INFINITY before the first."""
        return self._max_stable

    def stats(self) -> Stats:
        """Return counters, and what is held now."""
        leader = None if self._leader is None else self._leader.stream_id
        return self._ledger.stats(nodes=self._held(), size=self._held_bytes(), leader=leader)

    # -- recovery

    def begin_batch(self, number: int) -> None:
        """Say that what comes next belongs to batch `number`.

        Raises:
            UsageError: the number is smaller than the last one.
        """
        if number < self._batch:
            raise UsageError(f"batch {number} comes after batch {self._batch}: numbers never fall")
        self._batch = number

    @property
    def oldest_batch(self) -> int | None:
        """The batch that made the oldest live node; None if there is none, and always so for R0 to R2."""
        return None

    def dump(self) -> MergeState:
        """Return what `load` needs to go on from here."""
        return self.scalars()

    def scalars(self) -> MergeState:
        """Return the part of `dump` that a service stores; nodes and payloads it takes from its own output. O(s)."""
        streams = {stream.stream_id: self._kept(stream) for stream in self._members}
        leader = None if self._leader is None else self._leader.stream_id
        return MergeState(max_stable=self._max_stable, leader=leader, streams=streams)

    def load(self, state: MergeState) -> None:
        """Go on from a state; the merge must be new. Streams come back attached.

        Nodes count as made in the current batch: call `begin_batch` with the number of the recovered safe point first,
        and again with the next number when recovery is done.

        Raises:
            UsageError: the merge is in use already.
        """
        if len(self._members) or self._max_stable > MINUS_INFINITY:
            raise UsageError("a state can be loaded into a new merge only")
        self._max_stable = state.max_stable
        for stream_id, kept in state.streams.items():
            stream = self._members.attach(stream_id, kept.joins_at)
            self._admit(stream)
            self._restore(stream, kept)
            if stream_id == state.leader:
                self._leader = stream
        self._members.join(self._reached())

    def refeed(self, stream_id: StreamId, elements: Sequence[Element], *, done: bool) -> None:  # noqa: ARG002
        """Give back elements that the crashed merge had taken; `done` with the last of them. Nothing goes out.

        R3 and R4 need it for every stream of a loaded state. Until `done` the stream does not lead (E8); then it may,
        at the next `process` of any stream.
        """
        self._members.refeed(self._members[stream_id], done=done)

    # -- what the algorithms say

    @abstractmethod
    def _inserts(
        self, stream: Stream, elements: Sequence[Element], begin: int, output: list[Element]
    ) -> tuple[int, Fact | None]:
        """Take the inserts from a place on, up to one that stops the stream or to an element of another kind.

        Most elements are inserts: this loop takes the common ones itself, and calls `_insert_one` for the others.

        Returns:
            The place of the first element that was not taken, and why if it is an insert.
        """

    @abstractmethod
    def _insert(self, stream: Stream, element: Insert, output: list[Element]) -> Fact | None:
        """Take an insert that the stream's own stable allows and `_inserts` leaves; a fact: it was not taken."""

    @abstractmethod
    def _adjust(self, stream: Stream, element: Adjust, output: list[Element]) -> Fact | None:
        """Take an adjust that the stream's own stable allows; a fact means that it was not taken."""

    @abstractmethod
    def _advance(self, stream: Stream, stable: Stable, output: list[Element]) -> None:
        """Follow the stable of a joined stream, if it moves the output."""

    @abstractmethod
    def _reached(self) -> int:
        """Return how far the merge has come: a stream that is complete from there on may lead (RS 5.2)."""

    def _held(self) -> int:
        """Return how many events are held in memory."""
        return 0

    def _held_bytes(self) -> int:
        """Return about how much memory they take."""
        return 0

    def _admit(self, stream: Stream) -> None:  # noqa: B027  # most algorithms need nothing
        """Prepare for a stream that has been attached."""

    def _forget(self, stream: Stream) -> None:
        """Let go of a stream that has left."""
        if self._leader is stream:
            self._leader = None

    def _restore(self, stream: Stream, kept: StreamState) -> None:
        """Take back what is remembered of a stream."""
        stream.own_stable = kept.own_stable
        stream.last_vs = kept.last_vs

    def _kept(self, stream: Stream) -> StreamState:
        """Return what has to be remembered of a stream."""
        return StreamState(joins_at=stream.joins_at, own_stable=stream.own_stable, last_vs=stream.last_vs)

    # -- shared steps

    def _stable(self, stream: Stream, stable: Stable, output: list[Element]) -> Fact | None:
        """Take a stable. That of a stream that has not joined is remembered in `own_stable` (E17)."""
        if stable.vc < stream.own_stable:
            return _broken_promise(stream, stable)
        stream.own_stable = stable.vc
        if stream.joined:
            self._advance(stream, stable, output)
            self._lead_joined(output)
        return None

    def _lead_joined(self, output: list[Element]) -> None:
        """Join the streams that may lead now and follow the stables they sent before; that may let others join."""
        while ready := self._members.join(self._reached()):
            for stream in ready:
                self._ledger.note(Joined(stream.stream_id, self._max_stable))
                if stream.own_stable > MINUS_INFINITY:
                    self._advance(stream, Stable(stream.own_stable), output)

    def _reincarnate(self, stream: Stream, hello: Hello) -> Stream:
        self._forget(stream)
        stream = self._members.reincarnate(stream, hello)
        self._admit(stream)
        self._join_now(stream)
        return stream

    def _skip(self, stream: Stream, skip: Skip) -> None:
        self._members.skip(stream, skip, self._reached())
        if self._leader is stream and not stream.joined:
            self._leader = None

    def _join_now(self, stream: Stream) -> None:
        """Join a new stream at once if it may lead. It has sent no stable yet; others that wait may have: not here."""
        if self._members.join_one(stream, self._reached()):
            self._ledger.note(Joined(stream.stream_id, self._max_stable))


def _broken_promise(stream: Stream, element: Element) -> Violation:
    detail = f"{element} comes after Stable({show_time(stream.own_stable)})"
    return Violation(Rule.STABLE, stream.stream_id, element, detail)
