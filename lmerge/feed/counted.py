"""Bounds that are counted in arrivals instead of time, for one FIFO source (notes/seed-003, 3.4). Pure."""

from collections import deque
from collections.abc import Iterable

from lmerge.feed.generator import later


class CountedBounds:
    """The heartbeat of one source by bounds (n, d): n arrivals after timestamp x, what comes is above x - d.

    A source in order with at most k copies of a timestamp has (0, 1) and (k - 1, 0): a larger timestamp closes the one
    before it, and so does the last copy.

    >>> source = CountedBounds([(0, 1), (2, 0)])
    >>> [source.arrive(ts) for ts in (5, 5, 5, 6)]
    [4, 4, 5, 5]
    """

    def __init__(self, bounds: Iterable[tuple[int, int]]) -> None:
        self._bounds = tuple(bounds)
        # The running maximum after each of the last arrivals, as many as the largest count reaches back.
        self._maxima: deque[int] = deque(maxlen=1 + max((count for count, _ in self._bounds), default=0))
        self.tau: int | None = None
        """The heartbeat; None: nothing is promised."""

    def arrive(self, ts: int) -> int | None:
        """Take note of an arrival, and give the heartbeat after it."""
        self._maxima.append(max(ts, self._maxima[-1]) if self._maxima else ts)
        for count, lag in self._bounds:
            if count < len(self._maxima):
                self.tau = later(self.tau, self._maxima[-1 - count] - lag)
        return self.tau
