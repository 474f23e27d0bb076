"""Knowing that all was read: the ends of all partitions, asked for at one instant, and whether they are reached.

What a feed promises by bounds between topics, by the timeout or by idleness may be promised only then (design, section
7): in a backlog the clock runs on while rows lie unread.
"""

from collections.abc import Mapping

from lmerge.feed import CutMaker, TopicPartition


class AskedEnds:
    """The ends as they were at an instant, by the steady clock.

    Args:
        at_ms: the instant, before the broker was asked.
        ends: the committed end of each partition.
    """

    def __init__(self, at_ms: int, ends: Mapping[TopicPartition, int]) -> None:
        self._at_ms = at_ms
        self._ends = dict(ends)

    def tell(self, maker: CutMaker, ended: Mapping[TopicPartition, int]) -> bool:
        """Tell the maker if all is read up to the ends, and return whether it is.

        Args:
            maker: it knows the last row of each partition.
            ended: for each partition, the end that a poll has met last. Where the last records are markers or were
                aborted, no row tells that it is reached.
        """
        positions = maker.positions
        self._ends = {
            key: end for key, end in self._ends.items() if end > max(positions.get(key, 0), ended.get(key, 0))
        }
        if self._ends:
            return False
        maker.caught_up(self._at_ms)
        return True
