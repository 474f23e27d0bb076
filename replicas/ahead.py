"""The heartbeats ahead of a source: those after an offset, as far as they were looked up. It decides what to read."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from replicas.cuts import Bounds, CutOffset, Located, forget_skipped, require_consecutive

Read: TypeAlias = Callable[[int, int], Iterator[list[Located]]]
"""Gives the heartbeats at Kafka offsets from the first to before the second, in batches."""


class Ahead:
    """What a source knows of the heartbeats after the offset at which its next batch begins.

    What was looked up is not asked for again. Of heartbeats that are not read only the last is kept.

    Args:
        topic: of the source.
        end: tells where the heartbeats end now.
        read: gives those of a range.
    """

    def __init__(self, topic: str, end: Callable[[], int], read: Read) -> None:
        self._topic = topic
        self._end = end
        self._read = read
        # The one before all others, whole if it was read here, else what its offset tells of it.
        self._start: Located | None = None
        self.following: deque[Located] = deque()
        """Those after it, in order."""
        # To which Kafka offset they were looked up: behind the last heartbeat there is a transaction's marker, which a
        # read that begins at the next offset would wait for in vain, in every poll.
        self._read_to = 0

    def begin_at(self, start: CutOffset) -> None:
        """Forget the heartbeats up to an offset; all of them if it is not among them, as when Spark went back."""
        if self._start is None or not self._start.heartbeat.n <= start.n <= self._last(self._start).heartbeat.n:
            self.following.clear()
            self._start, self._read_to = start.located(self._topic), start.at + 1
        while self.following and self.following[0].heartbeat.n <= start.n:
            self._start = self.following.popleft()
        if self._start.heartbeat.n != start.n:  # it was among those that are not kept
            self._start = start.located(self._topic)

    def look(self, bounds: Bounds, floor: int | None) -> None:
        """Read on, to where the heartbeats end now or until there are enough for a batch.

        Raises:
            IllegalElement: they do not follow each other.
        """
        assert self._start is not None
        if bounds.are_filled_by(self.following, floor) or (end := self._end()) <= self._read_to:
            return
        for batch in self._read(self._read_to, end):
            require_consecutive(self._last(self._start).heartbeat, batch)
            self.following += batch
            forget_skipped(self.following, floor)
            self._read_to = batch[-1].at + 1
            if bounds.are_filled_by(self.following, floor):
                return
        self._read_to = end

    def chain(self, start: CutOffset, end: CutOffset, floor: int | None) -> Sequence[Located]:
        """Return the heartbeats of a batch that are read, and the one before them; the last is that of `end`, if found.

        From the log if they are not in memory, as after a restart.

        Raises:
            IllegalElement: they do not follow each other.
        """
        chain = deque([start.located(self._topic)])
        known = [located for located in self.following if start.n < located.heartbeat.n <= end.n]
        if self._start is not None and self._start.heartbeat.n == start.n and known[-1:] and known[-1].at == end.at:
            chain += known
        else:
            for batch in self._read(start.at + 1, end.at + 1):
                require_consecutive(chain[-1].heartbeat, batch)
                chain += batch
                forget_skipped(chain, floor)
        return chain

    def _last(self, start: Located) -> Located:
        return self.following[-1] if self.following else start
