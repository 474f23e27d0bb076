"""A Spark offset that is a cut: which heartbeats make up a batch, and which task reads what. Pure.

The offset of one source topic is

    {"feed": …, "n": 17, "at": 40, "ends": [5, 9], "tau": …, "before": null}

the heartbeat up to which rows were read (`n`, at Kafka offset `at` of the heartbeats topic) with what the next batch
needs of it. It is self-contained: a batch `(start, end]` is planned from these two and the heartbeats between them, so
that a replay, or another machine, plans the same. `before` is for fast-forward; nothing sets it yet.
"""

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


def choose_end(
    start: CutOffset, following: Sequence[Located], topic: str, *, max_cuts: int, max_rows: int
) -> CutOffset:
    """Return where the batch that begins at `start` ends: a whole number of cuts, bounded by cuts and rows.

    The bounds count from `start`, never from what this process has seen: after a restart that would go backwards. A
    cut is not divided, so one that is larger than `max_rows` makes a batch of its own.

    Args:
        start: where the batch begins.
        following: the heartbeats after it, in order; none means that there is nothing to do.
        topic: which topic.
        max_cuts: the most heartbeats of a batch.
        max_rows: the most offsets of a batch, over all partitions.
    """
    end = start
    for located in following[:max_cuts]:
        candidate = CutOffset.of(located, topic, before=start.before)
        if end is not start and sum(candidate.ends) - sum(start.ends) > max_rows:
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


def plan_tasks(heartbeats: Sequence[Heartbeat], topic: str, *, rows_per_task: int, tau: int | None) -> list[Task]:
    """Divide the rows of a batch among tasks.

    A Python task costs 35 to 50 ms whatever it reads, so small ranges of several partitions share one.

    Args:
        heartbeats: consecutive ones, beginning with the one before the batch.
        topic: which topic.
        rows_per_task: how many offsets a task may have.
        tau: what the heartbeat row says; None: there is no such row yet.
    """
    tasks: list[list[Range]] = [[]]
    room = rows_per_task
    for partition in range(len(heartbeats[-1].ends[topic])):
        waiting = segments(heartbeats, topic, partition)
        while waiting:
            if room == 0:
                tasks.append([])
                room = rows_per_task
            taken, waiting = _take(waiting, room)
            tasks[-1].append(Range(partition, tuple(taken)))
            room -= sum(segment.end - segment.start for segment in taken)
    return [Task(ranges, tau if number == 0 else None) for number, ranges in enumerate(tasks)]


def _take(waiting: list[Segment], room: int) -> tuple[list[Segment], list[Segment]]:
    """Divide segments after `room` offsets, or at the first gap (there is none while offsets are contiguous)."""
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
