"""Bounds that are not known, learned from what arrives (notes/seed-003, section 6). Pure.

The skew is estimated as it is seen on arrival, so that latency is in it. For each ordered pair of sources and each
delay t from 0 to t_max, an arrival of timestamp x on j at instant c is a sample of d:

    max(largest timestamp that arrived on i up to c - t, less x, plus 1; 0)         the arrival itself left out

Two ways to make a bound of samples: `RunningBound` keeps the largest, and errs only where a skew is larger than any
before; `AdaptiveBound` rises at once and falls slowly, window by window, and errs more often. An estimate is no
promise: what comes behind a heartbeat that rests on one is late. Given to a `Generator` without latencies, `bounds()`
acts as the paper's matrix B' (6.1).

Cost: O(t_max sources log t_max) for an arrival, O(t_max sources²) of memory.
"""

import math
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from lmerge.errors import UsageError
from lmerge.feed.bounds import Bound, BoundSet, reduced
from lmerge.feed.running_maximum import RunningMaximum


class Estimate(Protocol):
    """A bound in the making."""

    @property
    def lag(self) -> int:
        """The bound as of now."""

    def sample(self, lag: int) -> None:
        """Take note of a lag that was seen."""


class RunningBound:
    """The largest lag seen (6.2)."""

    def __init__(self) -> None:
        self.lag = 0

    def sample(self, lag: int) -> None:
        """Take note of a lag that was seen."""
        self.lag = max(self.lag, lag)


class AdaptiveBound:
    """Rises with a larger lag at once; after a window without one, falls towards the window's largest (6.3).

    Args:
        window: W, of how many samples.
        weight: alpha, how much of the old bound stays: 1 never falls, 0 falls to the window's largest at once.

    Raises:
        UsageError: one of them cannot be.
    """

    def __init__(self, *, window: int, weight: float) -> None:
        if window < 1:
            raise UsageError(f"window {window}: it needs at least one sample")
        if not 0 <= weight <= 1:
            raise UsageError(f"weight {weight}: it must be between 0 and 1")
        self._window: Final = window
        self._weight: Final = weight
        self.exact = 0.0
        """The bound before it is rounded up."""
        self._largest = 0
        self._samples = 0

    @property
    def lag(self) -> int:
        """The bound, rounded up: a smaller one would be too small."""
        return math.ceil(self.exact)

    def sample(self, lag: int) -> None:
        """Take note of a lag that was seen."""
        self._samples += 1
        if lag > self.exact:
            self.exact = float(lag)
            self._largest = self._samples = 0
            return
        self._largest = max(self._largest, lag)
        if self._samples > self._window:
            self.exact = self._weight * self.exact + (1 - self._weight) * self._largest
            self._largest = self._samples = 0


class SkewEstimator:
    """Estimates the bounds of all pairs of sources.

    Args:
        sources: their names.
        longest: t_max, the longest delay that is looked at.
        make: makes the estimate of one pair and delay.
    """

    def __init__(self, sources: Iterable[str], *, longest: int, make: Callable[[], Estimate] = RunningBound) -> None:
        self._longest = longest
        self._maxima = {source: RunningMaximum() for source in sources}
        self._estimates = {(i, j): [make() for _ in range(longest + 1)] for i in self._maxima for j in self._maxima}

    def arrive(self, source: str, ts: int, *, at: int) -> None:
        """Take note of an arrival; instants never go back."""
        for i, maximum in self._maxima.items():
            for after, estimate in enumerate(self._estimates[i, source]):
                largest = maximum.until(at - after)
                if largest is not None:
                    estimate.sample(max(largest - ts + 1, 0))
        self._maxima[source].add(ts, at=at)
        for maximum in self._maxima.values():
            maximum.forget(at - self._longest)

    def lags(self, i: str, j: str) -> list[int]:
        """Give the estimated lag of a pair at each delay."""
        return [estimate.lag for estimate in self._estimates[i, j]]

    def bounds(self) -> dict[tuple[str, str], BoundSet]:
        """Give the estimates as bounds, as of now."""
        return {
            pair: reduced(Bound(after, estimate.lag) for after, estimate in enumerate(estimates))
            for pair, estimates in self._estimates.items()
        }
