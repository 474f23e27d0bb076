"""R0: strictly increasing vs (paper 000, IV-A).

Assumes     only inserts and stables; vs rises with every insert of a stream. So all inputs have the same inserts in the
            same order, without duplicates.
Keeps       two numbers: the largest vs put out and the largest stable put out.
Insert      put out iff its vs exceeds the largest one so far (lines 3-5).
Stable      put out iff it exceeds the largest one so far (lines 9-11).
Correct     since the inputs agree on the sequence of vs, what has a larger vs than everything put out is the next
            element of that sequence, or one after a gap that its own input has too.
Missing     an event that one input lacks is put out iff another delivers it before max_vs has passed it (V-C).
Cost        O(1) time per element and O(1) space, whatever the number of inputs.
"""

from lmerge.elements import Insert
from lmerge.membership import Stream
from lmerge.ordered import OrderedMerge


class R0(OrderedMerge):
    """Merge streams whose vs is strictly increasing."""

    strict = True

    def _is_new(self, stream: Stream, element: Insert) -> bool:  # noqa: ARG002
        return element.vs > self._max_vs  # line 3

    def _reached(self) -> int:
        # No other element has vs == max_vs, so a stream that is complete from max_vs + 1 on lacks nothing (RS 5.2).
        return max(self._max_stable, self._max_vs + 1)
