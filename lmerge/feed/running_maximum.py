"""The largest timestamp that arrived until a given instant, for the instants that still matter."""

from bisect import bisect_right


class RunningMaximum:
    """Keeps a maximum by instant; instants never go back. Looking one up is O(log entries).

    >>> largest = RunningMaximum()
    >>> for at, ts in [(1, 10), (4, 8), (6, 12)]:
    ...     largest.add(ts, at=at)
    >>> [largest.until(at) for at in (0, 1, 5, 6)]
    [None, 10, 10, 12]

    Args:
        resolution: what comes within this time of an entry is put into it, with the later instant.
    """

    def __init__(self, resolution: int = 1) -> None:
        self._resolution = resolution
        # Side by side, both rising: an instant, and the maximum from then on.
        self._at: list[int] = []
        self._ts: list[int] = []
        self._begun_at = 0

    def add(self, ts: int, *, at: int) -> None:
        """Take note of an arrival; one that is no new maximum says nothing."""
        if self._ts and ts <= self._ts[-1]:
            return
        if self._ts and at - self._begun_at < self._resolution:
            self._at[-1], self._ts[-1] = at, ts
        else:
            self._begun_at = at
            self._at.append(at)
            self._ts.append(ts)

    def until(self, at: int) -> int | None:
        """Give the maximum of what arrived up to an instant; None if nothing had."""
        index = bisect_right(self._at, at)
        return self._ts[index - 1] if index else None

    def next_at(self, after: int, *, above: int | None) -> int | None:
        """Give the first instant after `after` from which on the maximum was above a value; None if there is none."""
        index = bisect_right(self._at, after)
        if above is not None:
            index = max(index, bisect_right(self._ts, above))
        return self._at[index] if index < len(self._at) else None

    def forget(self, before: int) -> None:
        """Drop what no look at this instant or later needs."""
        index = bisect_right(self._at, before) - 1
        if index > 0:
            del self._at[:index], self._ts[:index]
