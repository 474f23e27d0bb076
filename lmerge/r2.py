"""R2: non-decreasing vs, equal vs in any order, (payload, vs) a key (paper 000, IV-C).

Assumes     only inserts and stables; vs never falls; no two events of a stream have the same payload and vs.
Keeps       max_vs and the set of payloads put out with that vs.
Insert      below max_vs: dropped (line 4). Above: the set begins anew (lines 5-7). Put out iff its payload is not in
            the set (lines 8-10).
Stable      put out iff it exceeds the largest one so far (lines 13-16).
Correct     (payload, vs) identifies an event, and events below max_vs have been put out or are missing.
Checks      a stream that delivers a payload twice with the current vs breaks its key and is reported; what it delivered
            before a recovery is not remembered for that, only that it was put out.
Missing     as in R0, and within one vs every event that any input delivers in time is put out.
Cost        O(1) time per element, O(g) space for g events with the same vs (times s for the check of keys).
"""

import msgspec

from lmerge.elements import MINUS_INFINITY, Insert, Payload
from lmerge.facts import Rule, Violation
from lmerge.membership import Stream
from lmerge.ordered import OrderedMerge
from lmerge.state import MergeState


class R2(OrderedMerge):
    """Merge streams with non-decreasing vs, where (payload, vs) is a key."""

    def __init__(self, *, origin: int = MINUS_INFINITY) -> None:
        super().__init__(origin=origin)
        # The payloads put out with vs == max_vs.
        self._payloads: set[Payload] = set()

    def _is_new(self, stream: Stream, element: Insert) -> bool | Violation:
        vs, payload = element.vs, element.payload
        if stream.last_vs != vs:
            stream.seen = {payload}
        elif payload in stream.seen:
            return Violation(Rule.DUPLICATE, stream.stream_id, element, f"{element} comes a second time")
        else:
            stream.seen.add(payload)
        if vs > self._max_vs:
            self._payloads = {payload}
        elif payload in self._payloads:
            return False
        else:
            self._payloads.add(payload)
        return True

    def _held(self) -> int:
        return len(self._payloads)

    def dump(self) -> MergeState:
        """Return the scalars, with the payloads at max_vs."""
        return msgspec.structs.replace(self.scalars(), payloads=frozenset(self._payloads))

    def load(self, state: MergeState) -> None:
        """Go on from the scalars and the payloads."""
        self._payloads = set(state.payloads)
        super().load(state)
