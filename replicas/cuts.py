"""A Spark offset that is a cut: which heartbeats make up a batch, and which task reads what. Pure.

The offset of one source topic is

    {"feed": …, "n": 17, "at": 40, "ends": [5, 9], "tau": …, "total": 21, "before": null, "skipped_cuts": 0, …}

the heartbeat up to which rows were read (`n`, at Kafka offset `at` of the heartbeats topic) with what the next batch
needs of it. It is self-contained: a batch `(start, end]` is planned from these two and the heartbeats between them, so
that a replay, or another machine, plans the same.

Sources of one query, each with an offset of its own, go on together: each bounds a batch by the rows of all of them
(`total`). Else one with few rows would run ahead after a long absence, and a join keep all that waits for the others.

`before` says that no result with `ve < before` matters. A row gives results with `ve <= ts + reach`, so rows with
`ts < before - reach`, the *floor*, are left out as if they were late, and cuts that hold no other rows are not read;
they are counted, since the incarnation began. A replica that starts without a checkpoint begins so, with
`before = joins_at` (`replicas.start`), and one that lags goes on so when its merge tells it to (`replicas.skipping`).
"""

import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self

import msgspec
from pyspark.sql.datasource import InputPartition

from lmerge.errors import UsageError
from lmerge.feed import Heartbeat, Segment, segments


class Located(NamedTuple):
    """A heartbeat and its offset in the heartbeats topic."""

    at: int
    heartbeat: Heartbeat


class CutOffset(msgspec.Struct, frozen=True, kw_only=True):
    """How far one source topic was read: up to heartbeat `n`, whose ends for this topic are `ends`."""

    feed: str
    n: int
    at: int
    ends: tuple[int, ...]
    tau: int | None
    total: int | None = None
    """Where all topics of the query end together; None: by an older program, which counted this one alone."""
    before: int | None = None
    skipped_cuts: int = 0
    """How many cuts were not read, since they cannot matter."""
    skipped_rows: int = 0
    """How many offsets they have: at most so many rows, since markers of transactions take offsets too."""

    @classmethod
    def of(cls, located: Located, topic: str, *, topics: Sequence[str] = (), before: int | None = None) -> Self:
        """Make the offset of a topic at a heartbeat.

        Args:
            located: the heartbeat.
            topic: the topic.
            topics: all that the query reads; none: this one alone.
            before: no result with `ve < before` matters.

        Raises:
            UsageError: the heartbeat does not know the topic.
        """
        at, heartbeat = located
        if topic not in heartbeat.ends:
            raise UsageError(
                f"heartbeat {heartbeat.n} has no topic {topic}, only {sorted(heartbeat.ends)}: the feed does not cover "
                "what the query reads"
            )
        return cls(
            feed=heartbeat.feed,
            n=heartbeat.n,
            at=at,
            ends=tuple(heartbeat.ends[topic]),
            tau=heartbeat.tau,
            total=sum(sum(heartbeat.ends.get(each, ())) for each in topics or (topic,)),
            before=before,
        )

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Self:
        """Read what Spark stored.

        Raises:
            UsageError: it is no such offset.
        """
        try:
            return msgspec.convert(plain, cls)
        except msgspec.ValidationError as error:
            raise UsageError(f"offset {plain} in the checkpoint is no cut: {error}") from error

    def to_json(self) -> dict[str, Any]:
        """Return what Spark stores."""
        return {field: getattr(self, field) for field in self.__struct_fields__} | {"ends": [*self.ends]}

    def located(self, topic: str) -> Located:
        """Return the heartbeat, as far as it concerns this topic and the rows that come after it."""
        ends = {topic: self.ends}
        return Located(self.at, Heartbeat(feed=self.feed, n=self.n, tau=self.tau, ceiling=None, max_ts=None, ends=ends))


def floor_of(before: int | None, reach_ms: int | None) -> int | None:
    """Return the smallest timestamp whose row can give a result that matters; None if every row can.

    >>> floor_of(110, 10), floor_of(None, 10), floor_of(110, None)
    (100, None, None)
    """
    return None if before is None or reach_ms is None else before - reach_ms


def _is_below(heartbeat: Heartbeat, floor: int | None) -> bool:
    """Tell whether no row up to this heartbeat reaches the floor; what is below comes first, as max_ts never falls."""
    return floor is not None and (heartbeat.max_ts is None or heartbeat.max_ts < floor)


def forget_skipped(following: deque[Located], floor: int | None) -> None:
    """Of the heartbeats at the beginning that are not read keep the last, which tells how many they were.

    After a long absence there are as many of them as a feed makes in that time.
    """
    while len(following) > 1 and _is_below(following[1].heartbeat, floor):
        following.popleft()


class Bounds(NamedTuple):
    """How much a batch reads.

    Args:
        max_cuts: the most heartbeats.
        max_rows: the most offsets, over all partitions of all topics of the query.
    """

    max_cuts: int
    max_rows: int

    def are_filled_by(self, following: Iterable[Located], floor: int | None) -> bool:
        """Tell whether there are enough heartbeats, those not counted that are not read."""
        return sum(not _is_below(located.heartbeat, floor) for located in following) >= self.max_cuts


def choose_end(
    start: CutOffset,
    following: Iterable[Located],
    topic: str,
    bounds: Bounds,
    *,
    topics: Sequence[str] = (),
    before: int | None = None,
    reach_ms: int | None = None,
) -> CutOffset:
    """Return where the batch that begins at `start` ends: a whole number of cuts, bounded by cuts and rows.

    The bounds count from `start`, never from what this process has seen: after a restart that would go backwards. A
    cut is not divided, so one that is larger than `max_rows` makes a batch of its own. Cuts that are not read do not
    count. What counts is the same for all sources of a query, so that they end at one heartbeat, or nearly so: they do
    not look at the log, or hear a signal, in the same moment.

    Args:
        start: where the batch begins.
        following: the heartbeats after it, in order; none means that there is nothing to do. Of those that are not
            read the last is enough.
        topic: which topic.
        bounds: how much it reads.
        topics: all that the query reads; none: this one alone.
        before: no result with `ve < before` matters; never less than that of `start`.
        reach_ms: of the plan; without one nothing is left out.
    """
    floor = floor_of(before, reach_ms)
    end = start
    cuts = rows = 0
    skipped_cuts, skipped_rows = start.skipped_cuts, start.skipped_rows
    for located in following:
        candidate = CutOffset.of(located, topic, topics=topics, before=before)
        size = sum(candidate.ends) - sum(end.ends)
        if _is_below(located.heartbeat, floor):
            skipped_cuts += candidate.n - end.n if size else 0  # one without rows leaves nothing out
            skipped_rows += size
        else:
            cuts += 1
            rows += size if end.total is None or candidate.total is None else candidate.total - end.total
            if cuts > bounds.max_cuts or (cuts > 1 and rows > bounds.max_rows):
                break
        end = msgspec.structs.replace(candidate, skipped_cuts=skipped_cuts, skipped_rows=skipped_rows)
    return end


def require_consecutive(before: Heartbeat, following: Iterable[Located]) -> None:
    """Check that heartbeats follow each other and the one before them.

    Raises:
        IllegalElement: another feed, a gap, or something that goes back.
    """
    for _, heartbeat in following:
        heartbeat.require_follows(before)
        before = heartbeat


class Range(NamedTuple):
    """Offsets of one partition, without gaps, each segment with the rule for its rows."""

    partition: int
    segments: tuple[Segment, ...]
    ends_with_row: bool
    """Whether it ends as a cut does, right behind a row; where it was divided there may be a marker."""


class Task(InputPartition):
    """What one Spark task reads; one task of a batch also makes the heartbeat row, with this tau and `before`."""

    def __init__(self, ranges: Sequence[Range], tau: int | None, before: int | None) -> None:
        super().__init__(0)
        self.ranges = ranges
        self.tau = tau
        self.before = before


def plan_tasks(
    heartbeats: Sequence[Heartbeat],
    topic: str,
    *,
    rows_per_task: int,
    tau: int | None,
    before: int | None = None,
    floor: int | None = None,
) -> list[Task]:
    """Divide the rows of a batch among tasks.

    A Python task costs 35 to 50 ms whatever it reads, so small ranges of several partitions share one.

    Args:
        heartbeats: consecutive ones, beginning with the one before the batch.
        topic: which topic.
        rows_per_task: how many offsets a task may have.
        tau: what the heartbeat row says; None: it does not.
        before: the same.
        floor: rows below it are left out.
    """
    read = [*itertools.dropwhile(lambda heartbeat: _is_below(heartbeat, floor), heartbeats[1:])]
    heartbeats = heartbeats[-len(read) - 1 :]
    tasks: list[list[Range]] = [[]]
    room = rows_per_task
    for partition in range(len(heartbeats[-1].ends[topic])):
        waiting = [_from_floor(segment, floor) for segment in segments(heartbeats, topic, partition)]
        ends = {segment.end for segment in waiting}
        while waiting:
            if room == 0:
                tasks.append([])
                room = rows_per_task
            taken, waiting = _take(waiting, room)
            tasks[-1].append(Range(partition, tuple(taken), ends_with_row=taken[-1].end in ends))
            room -= sum(segment.end - segment.start for segment in taken)
    said = [(tau, before)] + [(None, None)] * (len(tasks) - 1)
    return [Task(ranges, *heartbeat) for ranges, heartbeat in zip(tasks, said, strict=True)]


def _from_floor(segment: Segment, floor: int | None) -> Segment:
    """Let a row below the floor be left out by the same rule as a late one."""
    if floor is None:
        return segment
    late = floor - 1 if segment.tau_before is None else max(segment.tau_before, floor - 1)
    return segment._replace(tau_before=late)


def _take(waiting: list[Segment], room: int) -> tuple[list[Segment], list[Segment]]:
    """Divide segments, which follow each other without gaps, after `room` offsets."""
    taken = []
    for number, segment in enumerate(waiting):
        size = segment.end - segment.start
        if size > room:
            if room:
                taken.append(segment._replace(end=segment.start + room))
            return taken, [segment._replace(start=segment.start + room), *waiting[number + 1 :]]
        taken.append(segment)
        room -= size
    return taken, []
