"""R1: non-decreasing vs, and equal vs in the same order on all inputs (paper 000, IV-B).

Assumes     only inserts and stables; vs never falls; elements with equal vs come in one order, such as that of rank.
Keeps       max_vs, the number of elements put out with that vs, and for each input how many it has delivered with it.
Insert      below max_vs: dropped (line 4). Above: the counts begin anew (lines 5-7). The n-th element of an input with
            this vs is put out iff fewer than n have been (lines 8-10).
Stable      put out iff it exceeds the largest one so far (lines 13-16).
Correct     the n-th element with a given vs is the same on all inputs.
Differs     the paper compares with the maximum over the inputs' counts. That maximum falls when the input that holds it
            leaves or begins anew, and elements come out twice (E5); we keep the number put out itself, which is also
            what a successor needs (E4).
Missing     as in R0; within one vs an input that lacks an element shifts those after it, which the counts cannot see.
Cost        O(1) time per element, O(s) space for s inputs.
"""

import msgspec

from lmerge.elements import MINUS_INFINITY, Insert
from lmerge.membership import Stream
from lmerge.ordered import OrderedMerge
from lmerge.state import MergeState, StreamState


class R1(OrderedMerge):
    """Merge streams with non-decreasing vs and one order among equal vs."""

    def __init__(self, *, origin: int = MINUS_INFINITY) -> None:
        super().__init__(origin=origin)
        # How many elements were put out with vs == max_vs.
        self._emitted = 0

    def _is_new(self, stream: Stream, element: Insert) -> bool:
        if element.vs > self._max_vs:
            self._emitted = 0
        stream.count = stream.count + 1 if stream.last_vs == element.vs else 1
        if stream.count <= self._emitted:
            return False
        self._emitted = stream.count
        return True

    def scalars(self) -> MergeState:
        """Return what is stored, with the counts at max_vs."""
        return msgspec.structs.replace(super().scalars(), emitted=self._emitted)

    def load(self, state: MergeState) -> None:
        """Go on from the scalars."""
        self._emitted = state.emitted
        super().load(state)

    def _restore(self, stream: Stream, kept: StreamState) -> None:
        super()._restore(stream, kept)
        stream.count = kept.count

    def _kept(self, stream: Stream) -> StreamState:
        count = stream.count if stream.last_vs == self._max_vs else 0
        return msgspec.structs.replace(super()._kept(stream), count=count)
