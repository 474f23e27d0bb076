"""Random lives of a feed's sources, and of the service that reads them with delays; what is allowed is decided here.

    sources emit ──(latency)──► partitions ──(a reader that lags)──► CutMaker ──► cuts

Instants are ticks of 100 ms, which is as fine as a feed keeps them. A row may be emitted only with a timestamp that
every bound allows, unless the run is to break them. The reader reads any number of rows of any partition at any tick,
so that partitions are far apart; it asks for ends when the maker wants them, and says so once all was read up to them.

`lowest_possible` is the theory, found by trying out: the smallest timestamp that an unread row can have, over all
instants at which it may have been emitted, and at which the rows that were read may have been.
"""

import random
from dataclasses import dataclass, field
from typing import NamedTuple

from lmerge.feed import Cut, CutMaker, FeedDefinition, Heartbeat, LeftOut, Row, Source, TopicBound

TICK = 100
Partition = tuple[str, int]


class Emission(NamedTuple):
    """A row as it was emitted and became readable."""

    key: Partition
    at: int
    readable_at: int
    row: Row

    @property
    def ts(self) -> int:
        assert self.row.ts is not None
        return self.row.ts


class Seen(NamedTuple):
    """A row as it was read: when, and into which heartbeat it went."""

    emission: Emission
    at: int
    n: int


@dataclass
class SourceRun:
    """A run, and all that can be told about it from outside."""

    definition: FeedDefinition
    log: dict[Partition, list[Emission]]
    heartbeats: list[Heartbeat]
    cuts: list[Cut] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)
    """(number of the next heartbeat, instant): all was read up to the ends of that instant."""
    crashes: int = 0

    @property
    def late(self) -> list[Seen]:
        """Rows that are late by the heartbeats alone."""
        taus = [beat.tau for beat in self.heartbeats]
        return [s for s in self.seen if (tau := taus[s.n - 1]) is not None and s.emission.ts <= tau]


def make_definition(rng: random.Random, *, timeout_ms: int | None = None, idle_ms: int | None = None) -> FeedDefinition:
    """Make a feed of one or two topics with a random set of bounds for each pair."""
    topics = "ab"[: rng.randint(1, 2)]
    sources = [
        Source(
            topic=topic,
            time="kafka",
            disorder_ms=rng.choice([0, 5, 40]),
            latency_ms=rng.choice([0, 1, 3]) * TICK,
            idle_ms=idle_ms,
        )
        for topic in topics
    ]
    bounds = [
        TopicBound(from_topic=i, to_topic=j, after_ms=rng.choice([0, 0, 1, 4]) * TICK, skew_ms=rng.choice([0, 10, 60]))
        for i in topics
        for j in topics
        for _ in range(rng.choice([0, 1, 1, 2]))
    ]
    return FeedDefinition(
        name="f", sources=tuple(sources), max_ahead_ms=None, bounds=tuple(bounds), timeout_ms=timeout_ms
    )


def emit_all(
    rng: random.Random, definition: FeedDefinition, *, ticks: int, breaks: float
) -> dict[Partition, list[Emission]]:
    """Let all partitions emit; a share of the rows is lower than a bound allows."""
    log: dict[Partition, list[Emission]] = {
        (source.topic, partition): [] for source in definition.sources for partition in range(rng.randint(1, 2))
    }
    latency = {source.topic: source.latency_ms or 0 for source in definition.sources}
    lively = {key: rng.choice([0.1, 0.5, 0.9]) for key in log}
    for at in range(0, ticks * TICK, TICK):
        for key, rows in log.items():
            if rng.random() >= lively[key]:
                continue
            least = lowest_allowed(definition, log, key, at)
            ts = max(least, at // 10 + rng.randrange(-30, 30))
            if rng.random() < breaks:
                ts = least - rng.randrange(1, 40)
            readable_at = at + rng.randint(0, latency[key[0]] // TICK) * TICK
            if rows:
                readable_at = max(readable_at, rows[-1].readable_at)
            offset = rows[-1].row.offset + rng.choice([1, 1, 3]) if rows else 0
            rows.append(Emission(key, at, readable_at, Row(*key, offset, ts)))
    return log


def lowest_allowed(definition: FeedDefinition, log: dict[Partition, list[Emission]], key: Partition, at: int) -> int:
    """Give the smallest timestamp that the bounds allow a partition at an instant, after all that was emitted."""
    disorder = next(s.disorder_ms for s in definition.sources if s.topic == key[0])
    limits = [-1_000, *(earlier.ts - disorder for earlier in log[key])]
    for bound in definition.bounds:
        if bound.to_topic == key[0]:
            limits += [
                earlier.ts - bound.skew_ms
                for (topic, _), rows in log.items()
                if topic == bound.from_topic
                for earlier in rows
                if at > earlier.at + bound.after_ms
            ]
    return max(limits)


def lowest_possible(run: SourceRun, n: int, key: Partition) -> int | None:
    """Give the smallest timestamp that an unread row of a partition can have when heartbeat n is made; None: any.

    Tried out: the unread row may have been emitted at any instant that explains why it was not readable when the ends
    were asked for last; a row that was read, at any instant of its latency before it was read.
    """
    sources = {source.topic: source for source in run.definition.sources}
    known = [s for s in run.seen if s.n <= n]
    asked_at = max((at for number, at in run.asked if number <= n), default=None)
    own = [s.emission.ts - sources[key[0]].disorder_ms for s in known if s.emission.key == key]
    if asked_at is None:
        return max(own, default=None)
    said = [
        (s.emission.ts - bound.skew_ms, bound.after_ms, range(s.at - (sources[i].latency_ms or 0), s.at + TICK, TICK))
        for bound in run.definition.bounds
        if bound.to_topic == key[0]
        for s in known
        if (i := s.emission.key[0]) == bound.from_topic
    ]
    worlds = []
    for emitted_at in range(asked_at - (sources[key[0]].latency_ms or 0), asked_at + TICK, TICK):
        limits = [ts for ts, after, instants in said if all(emitted_at > e + after for e in instants)]
        worlds.append(max(own + limits, default=None))
    return None if None in worlds else min(limit for limit in worlds if limit is not None)


def play(
    rng: random.Random,
    definition: FeedDefinition,
    *,
    ticks: int = 9,
    tail: int = 7,
    breaks: float = 0.0,
    crashes: float = 0.0,
) -> SourceRun:
    """Let the sources emit for some ticks, and read them until nothing is left, at least for a tail of ticks more."""
    log = emit_all(rng, definition, ticks=ticks, breaks=breaks)
    ends = {t: (0,) * sum(key[0] == t for key in log) for t in definition.topics}
    run = SourceRun(definition, log, [Heartbeat.start("id", ends)])
    reader = _Reader(rng, run)
    at = 0
    while at < (ticks + tail) * TICK or reader.is_behind:
        reader.step(at, most=3 if at < ticks * TICK else 9)
        if rng.random() < crashes:
            run.crashes += 1
            reader.take_over(at)
        at += TICK
    reader.cut()
    return run


class _Reader:
    """Reads, asks for ends, and cuts; what was read since the last cut is lost by a crash."""

    def __init__(self, rng: random.Random, run: SourceRun) -> None:
        self._rng = rng
        self._run = run
        self.take_over(0)

    def take_over(self, at: int) -> None:
        last = self._run.heartbeats[-1]
        self._maker = CutMaker(self._run.definition, last, at_ms=at)
        self._ends: dict[Partition, int] | None = None
        self._asked_at = 0
        # What is not in a cut yet.
        self._seen: list[Seen] = []
        self._left_out: list[LeftOut] = []
        self._asked: list[tuple[int, int]] = []

    @property
    def is_behind(self) -> bool:
        positions = self._maker.positions
        return any(rows and rows[-1].row.offset >= positions[key] for key, rows in self._run.log.items())

    def step(self, at: int, *, most: int) -> None:
        self._read(at, most)
        due = self._maker.due_at_ms
        if self._ends is None and ((due is not None and due <= at) or self._rng.random() < 0.05):
            self._asked_at = at
            self._ends = {key: self._end(rows, at) for key, rows in self._run.log.items()}
            self._read(at, most)
        if self._ends is not None and self._is_read_up_to(self._ends):
            self._maker.caught_up(self._asked_at)
            self._asked.append((self._maker.last.n + 1, self._asked_at))
            self._ends = None
        if self._rng.random() < 0.4:
            self.cut()

    def _end(self, rows: list[Emission], at: int) -> int:
        """Give the end of a partition; what becomes readable in this very tick may be in it or not."""
        readable = [e for e in rows if e.readable_at < at + self._rng.randint(0, 1)]
        return readable[-1].row.offset + 1 if readable else 0

    def _is_read_up_to(self, ends: dict[Partition, int]) -> bool:
        positions = self._maker.positions
        return all(
            positions[key] >= end or not any(positions[key] <= e.row.offset < end for e in self._run.log[key])
            for key, end in ends.items()
        )

    def _read(self, at: int, most: int) -> None:
        chosen = []
        for key, rows in self._run.log.items():
            position = self._maker.positions[key]
            waiting = [e for e in rows if e.row.offset >= position and e.readable_at <= at]
            chosen += waiting[: self._rng.randint(0, most)]
        n = self._maker.last.n + 1
        self._left_out += self._maker.add([e.row for e in chosen], now_ms=0, at_ms=at)
        self._seen += [Seen(e, at, n) for e in chosen]

    def cut(self) -> None:
        cut = self._maker.cut(now_ms=0)
        run = self._run
        run.heartbeats.append(cut.heartbeat)
        run.cuts.append(cut)
        run.seen += self._seen
        run.left_out += self._left_out
        run.asked += self._asked
        self._seen, self._left_out, self._asked = [], [], []
