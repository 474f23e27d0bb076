"""What became of the rows in the cuts that this process has committed: each cut once, whatever its commit did."""

from lmerge.feed import Cut, FeedDefinition, Heartbeat, SourceCounts
from services.heartbeat.metrics import Metrics


class Ledger:
    """Adds up cuts once they are known to be committed.

    Args:
        definition: the feed.
        metrics: what to count in.
    """

    def __init__(self, definition: FeedDefinition, metrics: Metrics) -> None:
        self._metrics = metrics
        self.totals = {topic: SourceCounts() for topic in definition.topics}
        """By topic, what became of its rows."""
        # The cut that was written last and is not known to be committed.
        self._undecided: Cut | None = None

    def writing(self, cut: Cut) -> None:
        """Take note of a cut whose commit begins; it may end in a way that nobody knows."""
        self._undecided = cut

    def committed(self) -> None:
        """Count the cut that was being written."""
        if self._undecided is not None:
            self._metrics.settle(self._undecided)
            for topic, counts in self._undecided.counts.items():
                self.totals[topic].add(counts)
        self._undecided = None

    def found(self, last: Heartbeat) -> None:
        """Learn from a take-over what the last heartbeat is, and so whether the cut was committed."""
        if self._undecided is not None and self._undecided.heartbeat == last:
            self.committed()
        self._undecided = None
