"""A Spark offset that is a cut: which heartbeats make up a batch, and which task reads what. Pure.

The offset of one source topic is

    {"feed": …, "n": 17, "at": 40, "ends": [5, 9], "tau": …, "before": null}

the heartbeat up to which rows were read (`n`, at Kafka offset `at` of the heartbeats topic) with what the next batch
needs of it. It is self-contained: a batch `(start, end]` is planned from these two and the heartbeats between them, so
that a replay, or another machine, plans the same.

`before` says that no result with `ve < before` matters. A row gives results with `ve <= ts + reach`, so rows with
`ts < before - reach`, the *floor*, are left out as if they were late, and cuts that hold no other rows are not read. A
replica that starts without a checkpoint begins so, with `before = joins_at` (`replicas.start`).
"""

import itertools
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
    before: int | None = None

    @classmethod
    def of(cls, located: Located, topic: str, *, before: int | None = None) -> Self:
        """Make the offset of a topic at a heartbeat.

        Raises:
            UsageError: the heartbeat does not know the topic.
        """
        at, heartbeat = located
        if topic not in heartbeat.ends:
            raise UsageError(
                f"heartbeat {heartbeat.n} has no topic {topic}, only {sorted(heartbeat.ends)}: the feed does not cover "
                "what the query reads"
            )
        ends = tuple(heartbeat.ends[topic])
        return cls(feed=heartbeat.feed, n=heartbeat.n, at=at, ends=ends, tau=heartbeat.tau, before=before)

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

    def heartbeat(self, topic: str) -> Heartbeat:
        """Return the heartbeat, as far as it concerns this topic and the rows that come after it."""
        return Heartbeat(feed=self.feed, n=self.n, tau=self.tau, ceiling=None, max_ts=None, ends={topic: self.ends})


def floor_of(before: int | None, reach_ms: int | None) -> int | None:
    """Return the smallest timestamp whose row can give a result that matters; None if every row can.

    >>> floor_of(110, 10), floor_of(None, 10), floor_of(110, None)
    (100, None, None)
    """
    return None if before is None or reach_ms is None else before - reach_ms


def _is_below(heartbeat: Heartbeat, floor: int | None) -> bool:
    """Tell whether no row up to this heartbeat reaches the floor; what is below comes first, as max_ts never falls."""
    return floor is not None and (heartbeat.max_ts is None or heartbeat.max_ts < floor)


def choose_end(
    start: CutOffset, following: Iterable[Located], topic: str, *, max_cuts: int, max_rows: int, floor: int | None
) -> CutOffset:
    """Return where the batch that begins at `start` ends: a whole number of cuts, bounded by cuts and rows.

    The bounds count from `start`, never from what this process has seen: after a restart that would go backwards. A
    cut is not divided, so one that is larger than `max_rows` makes a batch of its own. Cuts that are not read do not
    count.

    Args:
        start: where the batch begins.
        following: the heartbeats after it, in order; none means that there is nothing to do.
        topic: which topic.
        max_cuts: the most heartbeats of a batch.
        max_rows: the most offsets of a batch, over all partitions.
        floor: rows below it are not wanted.
    """
    end = start
    cuts = rows = 0
    for located in following:
        candidate = CutOffset.of(located, topic, before=start.before)
        if not _is_below(located.heartbeat, floor):
            cuts += 1
            rows += sum(candidate.ends) - sum(end.ends)
            if cuts > max_cuts or (cuts > 1 and rows > max_rows):
                break
        end = candidate
    return end


def require_consecutive(start: CutOffset, following: Iterable[Located], topic: str) -> None:
    """Check that the heartbeats follow each other and `start`.

    Raises:
        IllegalElement: another feed, a gap, or something that goes back.
    """
    before = start.heartbeat(topic)
    for _, heartbeat in following:
        heartbeat.require_follows(before)
        before = heartbeat


class Range(NamedTuple):
    """Offsets of one partition, without gaps, each segment with the rule for its rows."""

    partition: int
    segments: tuple[Segment, ...]


class Task(InputPartition):
    """What one Spark task reads; one task of a batch also makes the heartbeat row, with this tau."""

    def __init__(self, ranges: Sequence[Range], tau: int | None) -> None:
        super().__init__(0)
        self.ranges = ranges
        self.tau = tau


def plan_tasks(
    heartbeats: Sequence[Heartbeat], topic: str, *, rows_per_task: int, tau: int | None, floor: int | None = None
) -> list[Task]:
    """Divide the rows of a batch among tasks.

    A Python task costs 35 to 50 ms whatever it reads, so small ranges of several partitions share one.

    Args:
        heartbeats: consecutive ones, beginning with the one before the batch.
        topic: which topic.
        rows_per_task: how many offsets a task may have.
        tau: what the heartbeat row says; None: there is no such row yet.
        floor: rows below it are left out.
    """
    read = [*itertools.dropwhile(lambda heartbeat: _is_below(heartbeat, floor), heartbeats[1:])]
    heartbeats = heartbeats[-len(read) - 1 :]
    tasks: list[list[Range]] = [[]]
    room = rows_per_task
    for partition in range(len(heartbeats[-1].ends[topic])):
        waiting = [_from_floor(segment, floor) for segment in segments(heartbeats, topic, partition)]
        while waiting:
            if room == 0:
                tasks.append([])
                room = rows_per_task
            taken, waiting = _take(waiting, room)
            tasks[-1].append(Range(partition, tuple(taken)))
            room -= sum(segment.end - segment.start for segment in taken)
    return [Task(ranges, tau if number == 0 else None) for number, ranges in enumerate(tasks)]


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
