"""When the lanes of a merge commit: decided from when records came, and how old they are."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from lmerge.kafka import Batch
from lmerge.kafka.group import SESSION_MS
from services.clock import now_ms

OLD_MS: Final = 1_000
"""A record that has waited for so long in its topic belongs to a backlog."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How often a process acts."""

    commit_seconds: float = 0.02
    """Lanes commit at most so often. Where there is always something, half of it is added to the latency."""
    catch_up_seconds: float = 0.1
    """The same while all that comes is old: nobody sees the difference, and a transaction costs what 500 records do."""
    session_ms: int = SESSION_MS
    """After how long without a sign of life another process takes the lanes over."""

    @property
    def gather_seconds(self) -> float:
        """After a silence a commit waits so long for the rest of what has begun to come.

        A replica writes a batch to all its lanes, and several write at the same time. The rest would wait for the next
        commit.
        """
        return self.commit_seconds / 4

    def interval(self, batches: Collection[Batch]) -> float:
        """Return how often to commit when these records came last; one that is in time is enough for the usual pace."""
        if batches and now_ms() - max(batch.first_timestamp for batch in batches) > OLD_MS:
            return max(self.commit_seconds, self.catch_up_seconds)
        return self.commit_seconds


class Schedule:
    """When to commit next. Times are those of the monotonic clock."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._every = pace.commit_seconds
        self._committed_at = -math.inf
        self._is_silent = True
        # When the first record came, after a silence, of those that no commit has followed.
        self._waits_since = -math.inf

    def came(self, batches: Collection[Batch], now: float) -> None:
        """Note what has come since the last call, perhaps nothing."""
        self._every = self._pace.interval(batches)
        if batches:
            if self._is_silent and self._waits_since == -math.inf:
                self._waits_since = now
            self._is_silent = False
        elif now >= self.soonest:  # that nothing comes within the interval is no silence
            self._is_silent = True

    def tried(self, now: float, *, has_committed: bool) -> None:
        """Note that a commit began at this time, and whether there was something to commit."""
        self._waits_since = -math.inf
        if has_committed:
            self._committed_at = now

    @property
    def due(self) -> float:
        """When to commit, by what has come."""
        return self._after(self._every)

    @property
    def soonest(self) -> float:
        """When to commit if what comes next is not old; until then nobody gains from its being read."""
        return self._after(self._pace.commit_seconds)

    def _after(self, seconds: float) -> float:
        return max(self._committed_at + seconds, self._waits_since + self._pace.gather_seconds)
