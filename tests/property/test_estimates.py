"""Heartbeats that rest on estimated bounds, judged from the arrivals alone, as notes/seed-003, section 6, defines them.

Sources emit what they like. A generator is made of the estimates of all that has arrived; after some time it is
replaced by one that is made of newer estimates, and that goes on from what was promised.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from lmerge.feed.estimators import AdaptiveBound, RunningBound, SkewEstimator
from lmerge.feed.generator import Generator, Group
from tests.support.seeds import play_seeds

SOURCES = "123"
LONGEST = 3
"""t_max."""
INSTANTS = 16
RUNS = 300


class Arrival(NamedTuple):
    """A row, in the order in which rows are read."""

    number: int
    at: int
    source: str
    ts: int


class Falling(NamedTuple):
    """How fast an adaptive estimate falls: W and alpha."""

    window: int
    weight: float


@dataclass
class Run:
    """What arrived, and at which instants, before what arrives then, the estimates were put to use."""

    falling: Falling | None
    is_fifo: bool
    learned_at: list[int]
    arrivals: list[Arrival] = field(default_factory=list)
    late: list[Arrival] = field(default_factory=list)


def play(rng: random.Random) -> Run:
    falling = rng.choice([None, Falling(rng.randint(1, 3), rng.choice([0.0, 0.5, 1.0]))])
    run = Run(falling, rng.random() < 0.5, sorted(rng.sample(range(INSTANTS), rng.randint(1, 4))))
    estimator = SkewEstimator(
        SOURCES,
        longest=LONGEST,
        make=lambda: AdaptiveBound(window=falling.window, weight=falling.weight) if falling else RunningBound(),
    )
    behind = {source: rng.randrange(30) for source in SOURCES}
    generator: Generator | None = None
    for at in range(INSTANTS):
        if at in run.learned_at:
            generator = learned(estimator, generator, at, is_fifo=run.is_fifo)
        for source in rng.choices(SOURCES, k=rng.randrange(5)):
            row = Arrival(len(run.arrivals), at, source, 10 * at - behind[source] + rng.randrange(-20, 20))
            run.arrivals.append(row)
            if generator is not None:
                tau = generator.tau((source, 0))
                if tau is not None and row.ts <= tau:
                    run.late.append(row)
                generator.arrive((source, 0), row.ts, at=at)
            estimator.arrive(source, row.ts, at=at)
        if generator is not None:
            generator.advance(at)
    return run


def learned(estimator: SkewEstimator, before: Generator | None, at: int, *, is_fifo: bool) -> Generator:
    """Make a generator of the estimates; where sources are FIFO, their own disorder acts at once."""
    groups = {source: Group(lag=estimator.lags(source, source)[0] if is_fifo else None) for source in SOURCES}
    generator = Generator(groups, estimator.bounds(), at=at)
    for source in SOURCES:
        tau = None if before is None else before.tau((source, 0))
        generator.add_source((source, 0), tau=tau, at=at)
    return generator


def broken(run: Run, row: Arrival) -> Iterator[tuple[Arrival, int]]:
    """Give the arrivals, and delays, behind which a row lags by more than was estimated when they were put to use.

    What arrived at c promises for c + t, if the same estimates are in use then; the instant itself is still before it.
    """
    for earlier in run.arrivals[: row.number]:
        used = max((at for at in run.learned_at if at <= earlier.at), default=None)
        if used is None:
            continue
        replaced = min((at for at in run.learned_at if at > earlier.at), default=INSTANTS)
        for after in range(LONGEST + 1):
            acts_at_once = run.is_fifo and after == 0 and earlier.source == row.source
            if (earlier.at + after < min(row.at, replaced) or acts_at_once) and (
                earlier.ts - row.ts + 1 > estimate(run, earlier.source, row.source, after, before=used)
            ):
                yield earlier, after


def estimate(run: Run, i: str, j: str, after: int, *, before: int) -> int:
    """Estimate the lag of source j behind source i from what arrived before an instant."""
    lags = []
    for row in run.arrivals:
        if row.source == j and row.at < before:
            seen = [e.ts for e in run.arrivals[: row.number] if e.source == i and e.at <= row.at - after]
            lags += [max(max(seen) - row.ts + 1, 0)] if seen else []
    return max(lags, default=0) if run.falling is None else adapted(lags, run.falling)


def adapted(lags: Sequence[int], falling: Falling) -> int:
    """Follow 6.3 word by word."""
    d, largest, number = 0.0, 0, 0
    for lag in lags:
        number += 1
        if lag > d:
            d, largest, number = lag, 0, 0
        else:
            largest = max(largest, lag)
            if number > falling.window:
                d, largest, number = falling.weight * d + (1 - falling.weight) * largest, 0, 0
    return ceil(d)


def test_exactly_the_rows_are_late_that_lag_behind_an_arrival_by_more_than_was_estimated_before_it() -> None:
    rows = late = 0

    def one(rng: random.Random) -> int:
        nonlocal rows, late
        run = play(rng)
        assert run.late == [row for row in run.arrivals if any(broken(run, row))]
        rows += len(run.arrivals)
        late += len(run.late)
        return 1

    play_seeds(one, "estimated", until=RUNS)
    assert rows / 20 < late < rows / 2
