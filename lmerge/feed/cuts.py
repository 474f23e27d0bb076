"""Making cuts: what becomes of each row, and the next heartbeat."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from lmerge.errors import UsageError
from lmerge.feed.definition import FeedDefinition
from lmerge.feed.heartbeat import Heartbeat, counts, is_late

TopicPartition: TypeAlias = tuple[str, int]


class Row(NamedTuple):
    """What the heartbeats need of a row; `ts` is what `read_timestamp` gave."""

    topic: str
    partition: int
    offset: int
    ts: int | None


class SourceCounts(msgspec.Struct):
    """What became of the rows of one source topic. Those left out are late, early or unreadable.

    `late_in_new` are late rows of partitions that were added while the feed ran: such a partition finds a promise that
    it had no part in.
    """

    rows: int = 0
    late: int = 0
    late_in_new: int = 0
    early: int = 0
    unreadable: int = 0

    def add(self, other: "SourceCounts") -> None:
        """Add the counts of further rows."""
        self.rows += other.rows
        self.late += other.late
        self.late_in_new += other.late_in_new
        self.early += other.early
        self.unreadable += other.unreadable


class Cut(NamedTuple):
    """A heartbeat to be written, and what became of its rows, by topic; they count once it is committed."""

    heartbeat: Heartbeat
    counts: dict[str, SourceCounts]


class _Partition(msgspec.Struct):
    """What is known of one partition: `tau` is its tau_j at the last cut, `max_ts` the largest ts seen that counted."""

    end: int
    tau: int | None
    is_new: bool
    max_ts: int | None = None


class CutMaker:
    """Decides the next heartbeat from the rows that were read since the last one.

    After a failed write throw it away and make another from the last heartbeat that was committed: it has no state
    that must survive. Adding a row costs O(1), a cut O(partitions).

    Args:
        definition: the feed.
        last: the last committed heartbeat.

    Raises:
        UsageError: the heartbeat has other topics than the definition.
    """

    def __init__(self, definition: FeedDefinition, last: Heartbeat) -> None:
        if set(last.ends) != set(definition.topics):
            raise UsageError(
                f"feed {definition.name}: heartbeat {last.n} has the topics {sorted(last.ends)}, the definition "
                f"{sorted(definition.topics)}"
            )
        self._disorder_ms = {source.topic: source.disorder_ms for source in definition.sources}
        self._max_ahead_ms = definition.max_ahead_ms
        # What the rows of the next cut are judged by: its tau_before, its n.
        self._last = last
        # Every known partition, in the order of `ends`; a successor takes every tau_j = tau.
        self._partitions = {
            (topic, partition): _Partition(end=end, tau=last.tau, is_new=False)
            for topic, ends in last.ends.items()
            for partition, end in enumerate(ends)
        }
        self._counts: dict[str, SourceCounts] = {}
        # Of the cut in the making, fixed by its first row; `_open` says whether it is.
        self._ceiling: int | None = None
        self._open = False
        self._changed = False

    @property
    def last(self) -> Heartbeat:
        """The last heartbeat that was made."""
        return self._last

    @property
    def changed(self) -> bool:
        """Whether rows or partitions came since the last cut."""
        return self._changed

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Where to read on: the end of every partition."""
        return {key: state.end for key, state in self._partitions.items()}

    def slowest(self) -> list[TopicPartition]:
        """Name the partitions that hold tau back: those that have not spoken yet or, if all have, the lowest."""
        taus = {key: self._tau(key, state) for key, state in self._partitions.items()}
        silent = [key for key, tau in taus.items() if tau is None]
        lowest = min((tau for tau in taus.values() if tau is not None), default=None)
        return silent or [key for key, tau in taus.items() if tau == lowest]

    def grow(self, topic: str, partitions: int) -> list[TopicPartition]:
        """Take note of how many partitions a topic has now; return those that are new. They begin at offset 0.

        Raises:
            UsageError: it has fewer than it had.
        """
        known = sum(key[0] == topic for key in self._partitions)
        if partitions < known:
            raise UsageError(f"topic {topic} has {partitions} partitions, it had {known}: it was made anew")
        new = [(topic, partition) for partition in range(known, partitions)]
        for key in new:
            self._partitions[key] = _Partition(end=0, tau=self._last.tau, is_new=True)
        self._changed = self._changed or bool(new)
        return new

    def add(self, rows: Iterable[Row], *, now_ms: int) -> None:
        """Take rows that were read, each partition's in the order of offsets.

        Args:
            rows: the rows.
            now_ms: the wall clock; the first call of a cut fixes its ceiling.
        """
        for topic, partition, offset, ts in rows:
            if not self._open:
                self._fix_ceiling(now_ms)
            state = self._partitions[topic, partition]
            assert offset >= state.end, f"{topic}/{partition}: offset {offset} comes after {state.end - 1}"
            state.end = offset + 1
            if counts(ts, tau_before=self._last.tau, ceiling=self._ceiling):
                self._counts_of(topic).rows += 1
                state.max_ts = _later(state.max_ts, ts)
            else:
                self._leave_out(topic, ts, is_new=state.is_new)

    def cut(self, *, now_ms: int) -> Cut:
        """Make the next heartbeat. Not written, it must not be followed by another: see the class."""
        if not self._open:
            self._fix_ceiling(now_ms)
        max_ts = self._last.max_ts
        ends: dict[str, list[int]] = {topic: [] for topic in self._last.ends}
        for key, state in self._partitions.items():
            state.tau = self._tau(key, state)
            max_ts = _later(max_ts, state.max_ts)
            ends[key[0]].append(state.end)
        taus = [state.tau for state in self._partitions.values()]
        self._last = Heartbeat(
            feed=self._last.feed,
            n=self._last.n + 1,
            tau=_minimum(taus),
            ceiling=self._ceiling,
            max_ts=max_ts,
            ends={topic: tuple(offsets) for topic, offsets in ends.items()},
        )
        cut = Cut(self._last, self._counts)
        self._counts, self._open, self._changed = {}, False, False
        return cut

    def _tau(self, key: TopicPartition, state: _Partition) -> int | None:
        """Give tau_j as of the rows added so far."""
        promise = None if state.max_ts is None else state.max_ts - self._disorder_ms[key[0]] - 1
        return _later(state.tau, promise)

    def _fix_ceiling(self, now_ms: int) -> None:
        self._ceiling = None if self._max_ahead_ms is None else now_ms + self._max_ahead_ms
        self._open = self._changed = True

    def _leave_out(self, topic: str, ts: int | None, *, is_new: bool) -> None:
        found = self._counts_of(topic)
        found.rows += 1
        if ts is None:
            found.unreadable += 1
        elif not is_late(ts, self._last.tau):
            found.early += 1
        elif is_new:
            found.late_in_new += 1
        else:
            found.late += 1

    def _counts_of(self, topic: str) -> SourceCounts:
        return self._counts.setdefault(topic, SourceCounts())


def _later(one: int | None, other: int | None) -> int | None:
    """Give the larger; None is smaller than every instant."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def _minimum(taus: Sequence[int | None]) -> int | None:
    """Give the smallest, None if one is None."""
    known = [tau for tau in taus if tau is not None]
    return min(known) if len(known) == len(taus) else None
