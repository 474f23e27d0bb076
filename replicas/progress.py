"""When the results of a plan are complete, as a function of the offset log: what a stable rests on. Pure.

A plan puts a result out either *at once*, in the batch that has the last of its rows (filters, projections, inner
joins), or *at the watermark*, when the window has ended there (aggregates). A join below an aggregate holds rows back
for its partners, so Spark lowers the watermark above it, by `delay_ms` (spark-facts.md 2).
"""

from typing import Final

import msgspec

from replicas.checkpoint import BatchOffsets


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the results of a plan are complete after a batch.

    Args:
        at_once: results come with their rows; a result must not start before the newest of them.
        delay_ms: by how much the watermark is lowered on its way to the aggregate; 0 without a join.
    """

    at_once: bool = False
    delay_ms: int = 0

    def complete(self, offsets: BatchOffsets) -> int:
        """Return t such that every result that ends at or before t is out after the batch; 0: none is sure to be.

        At once, all rows up to tau of the batch's last heartbeat were read, the smallest tau of all sources. Results
        about instants end one later, hence the 1.

        >>> read = BatchOffsets(watermark=70, sources=[{"tau": 95}, {"tau": 90}])
        >>> Progress(at_once=True).complete(read), Progress(delay_ms=20).complete(read)
        (91, 50)
        """
        if not self.at_once:
            return max(0, offsets.watermark - self.delay_ms) if offsets.watermark > 0 else 0
        taus = [None if source is None else source.get("tau") for source in offsets.sources]
        return min((0 if tau is None else tau + 1 for tau in taus), default=0)


AT_ONCE: Final = Progress(at_once=True)
AT_WATERMARK: Final = Progress()
