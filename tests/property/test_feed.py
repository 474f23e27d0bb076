"""Heartbeats over random sources, judged from the rows and the heartbeats alone, by the rules that the design states.

A run has some topics with partitions, each with rows whose timestamps obey the disorder bound of their topic (or, where
a test wants it, break it). It is read in random order and cut at random moments; a crash loses what was read since the
last committed heartbeat, and a cut that was made but not committed.
"""

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import cached_property
from itertools import pairwise, permutations
from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmerge.feed import (
    MAX_TS,
    MIN_TS,
    CutMaker,
    FeedDefinition,
    Heartbeat,
    Row,
    Source,
    SourceCounts,
    counts,
    read_timestamp,
    segments,
)
from tests.support.seeds import play_seeds

Partition = tuple[str, int]


@dataclass
class Run:
    """Sources with all their rows, and the heartbeats that were committed."""

    definition: FeedDefinition
    rows: dict[Partition, list[Row]]
    heartbeats: list[Heartbeat]
    totals: dict[str, SourceCounts] = field(default_factory=dict)
    crashes: int = 0

    @property
    def disorder_ms(self) -> dict[str, int]:
        return {source.topic: source.disorder_ms for source in self.definition.sources}

    @cached_property
    def read_rows(self) -> list[tuple[Row, Heartbeat, Heartbeat]]:
        """All rows, partition by partition, each with its heartbeat and the one before; each row is in just one cut."""
        cuts = list(pairwise(self.heartbeats))
        found = [
            (row, before, beat)
            for (topic, partition), rows in self.rows.items()
            for row in rows
            for before, beat in cuts
            if beat.holds(topic, partition, row.offset, before=before)
        ]
        assert [row for row, _, _ in found] == [row for rows in self.rows.values() for row in rows]
        return found


def make_rows(rng: random.Random, key: Partition, disorder_ms: int, *, breaks: float) -> list[Row]:
    """Make rows with gaps between their offsets; a share of them breaks the bound or cannot be read."""
    rows, offset, highest = [], 0, rng.randrange(100)
    for _ in range(rng.randrange(14)):
        offset += rng.choice([1, 1, 1, 2, 5])
        ts: int | None = highest + rng.randrange(-disorder_ms, 30)
        if rng.random() < breaks:
            ts = rng.choice([None, highest - disorder_ms - rng.randrange(1, 50), 100_000 + rng.randrange(5)])
        elif ts is not None:
            highest = max(highest, ts)
        rows.append(Row(*key, offset, ts))
    return rows


def play(rng: random.Random, *, breaks: float = 0.0, crashes: float = 0.0, grows: bool = False) -> Run:
    sources = [
        Source(topic=topic, time="kafka", disorder_ms=rng.choice([0, 1, 7, 40])) for topic in "ab"[: rng.randint(1, 2)]
    ]
    ahead = rng.choice([None, 1_000, 50_000]) if breaks else None
    run = Run(FeedDefinition(name="f", sources=tuple(sources), max_ahead_ms=ahead), {}, [])
    for source in sources:
        for partition in range(rng.randint(1, 3)):
            key = (source.topic, partition)
            run.rows[key] = make_rows(rng, key, source.disorder_ms, breaks=breaks)
    known = {s.topic: 1 if grows else sum(key[0] == s.topic for key in run.rows) for s in sources}
    run.heartbeats.append(Heartbeat.start("id", {topic: (0,) * count for topic, count in known.items()}))
    _read_all(rng, run, known, crashes)
    return run


def _read_all(rng: random.Random, run: Run, known: dict[str, int], crashes: float) -> None:
    maker = CutMaker(run.definition, run.heartbeats[-1])
    while True:
        topic = rng.choice(list(known))
        if rng.random() < 0.1 and (topic, known[topic]) in run.rows:
            known[topic] += 1
        for each, partitions in known.items():  # as after a restart
            maker.grow(each, partitions)
        waiting = {
            key: [row for row in run.rows[key] if row.offset >= position] for key, position in maker.positions.items()
        }
        if not any(waiting.values()) and len(waiting) == len(run.rows) and not maker.changed:
            return
        _add_some(rng, maker, waiting)
        if rng.random() < 0.4:
            cut = maker.cut(now_ms=0)
            if rng.random() >= crashes:
                run.heartbeats.append(cut.heartbeat)
                for name, found in cut.counts.items():
                    run.totals.setdefault(name, SourceCounts()).add(found)
                continue
        if rng.random() < crashes:
            run.crashes += 1
            maker = CutMaker(run.definition, run.heartbeats[-1])
        elif maker.last is not run.heartbeats[-1]:
            maker = CutMaker(run.definition, run.heartbeats[-1])  # the cut was not committed


def _add_some(rng: random.Random, maker: CutMaker, waiting: dict[Partition, list[Row]]) -> None:
    """Add the next rows of some partitions, interleaved."""
    chosen = [key for key in waiting for _ in range(rng.randrange(3))]
    rng.shuffle(chosen)
    maker.add([waiting[key].pop(0) for key in chosen if waiting[key]], now_ms=0)


def check_promises(run: Run) -> None:
    """Check what must hold whatever the sources and the service do."""
    for before, beat in pairwise(run.heartbeats):
        beat.require_follows(before)
    left_out: Counter[tuple[str, str]] = Counter()
    for row, before, beat in run.read_rows:
        if counts(row.ts, tau_before=before.tau, ceiling=beat.ceiling):
            assert row.ts is not None
            for earlier in run.heartbeats[: beat.n]:
                assert earlier.tau is None or row.ts > earlier.tau
            for later in run.heartbeats[beat.n :]:
                assert later.max_ts is not None
                assert later.max_ts >= row.ts
        elif row.ts is None:
            left_out[row.topic, "unreadable"] += 1
        else:
            is_late = before.tau is not None and row.ts <= before.tau
            left_out[row.topic, "late" if is_late else "early"] += 1
        left_out[row.topic, "rows"] += 1
    found = Counter({(topic, "rows"): total.rows for topic, total in run.totals.items()})
    for topic, total in run.totals.items():
        found[topic, "late"] += total.late + total.late_in_new
        found[topic, "early"] += total.early
        found[topic, "unreadable"] += total.unreadable
    assert +found == left_out, "the service's counts are not those of the rule"


def largest_tau(run: Run, beat: Heartbeat) -> int | None:
    """Give the largest promise at a heartbeat that no row obeying the bounds can break, from all rows up to there.

    In each partition the next row may be as low as its highest that counted, less the bound.
    """
    highest: dict[Partition, int] = {}
    for row, before, own in run.read_rows:
        if own.n <= beat.n and row.ts is not None and counts(row.ts, tau_before=before.tau, ceiling=own.ceiling):
            key = (row.topic, row.partition)
            highest[key] = max(row.ts, highest.get(key, row.ts))
    if len(highest) < sum(map(len, beat.ends.values())):
        return None
    return min(ts - run.disorder_ms[topic] for (topic, _), ts in highest.items()) - 1


@pytest.fixture
def runs(long: bool) -> int:
    return 10_000 if long else 500


def test_sources_that_obey_their_bounds_have_no_late_row_and_tau_is_as_large_as_can_be(runs: int) -> None:
    def one(rng: random.Random) -> int:
        run = play(rng)
        check_promises(run)
        assert all(counts(row.ts, tau_before=before.tau, ceiling=None) for row, before, _ in run.read_rows)
        for beat in run.heartbeats[1:]:
            assert beat.tau == largest_tau(run, beat)
        return 1

    play_seeds(one, "obeying", until=runs)


def test_where_bounds_are_broken_exactly_the_rows_that_the_rule_names_are_late(runs: int) -> None:
    late = 0

    def one(rng: random.Random) -> int:
        nonlocal late
        run = play(rng, breaks=0.2)
        check_promises(run)
        highest: dict[Partition, int] = {}
        for row, before, beat in run.read_rows:  # each partition's in order
            if counts(row.ts, tau_before=before.tau, ceiling=beat.ceiling):
                assert row.ts is not None
                highest[row.topic, row.partition] = max(row.ts, highest.get((row.topic, row.partition), row.ts))
            elif row.ts is not None and not (beat.ceiling is not None and row.ts > beat.ceiling):
                late += 1  # none but those that break the bound of their own partition
                assert row.ts < highest[row.topic, row.partition] - run.disorder_ms[row.topic]
        for beat in run.heartbeats[1:]:
            assert beat.tau == largest_tau(run, beat)
        return 1

    play_seeds(one, "breaking", until=runs)
    assert late > runs / 10


def test_recovery_at_random_moments_breaks_no_promise_and_makes_no_row_late(runs: int) -> None:
    crashes = 0

    def one(rng: random.Random) -> int:
        nonlocal crashes
        run = play(rng, crashes=0.2)
        crashes += run.crashes
        check_promises(run)
        assert all(counts(row.ts, tau_before=before.tau, ceiling=None) for row, before, _ in run.read_rows)
        for beat in run.heartbeats[1:]:
            largest = largest_tau(run, beat)
            assert beat.tau is None or (largest is not None and beat.tau <= largest)
        return 1

    play_seeds(one, "recovery", until=runs)
    assert crashes > runs


def test_whatever_happens_at_once_promises_hold_and_every_row_is_accounted_for(runs: int) -> None:
    def one(rng: random.Random) -> int:
        run = play(rng, breaks=0.2, crashes=0.1, grows=True)
        check_promises(run)
        for key, rows in run.rows.items():
            held = [row.offset for s in segments(run.heartbeats, *key) for row in rows if s.start <= row.offset < s.end]
            assert held == [row.offset for row in rows]
        return 1

    play_seeds(one, "everything", until=runs)


@pytest.mark.parametrize("spoke", [False, True], ids=["from the first row on", "after a pause"])
@pytest.mark.parametrize("order", [*permutations(range(3))], ids=str)
def test_a_backlog_of_an_hour_read_one_partition_after_the_other_makes_no_row_late(
    *, order: tuple[int, ...], spoke: bool, long: bool
) -> None:
    """The cuts come while the first partition is an hour ahead of the last; in a pause, tau is that of before."""
    if not long and order not in {(1, 0, 2), (2, 1, 0)}:
        pytest.skip("in the short run two orders stand for all")
    rng = random.Random(11)
    disorder_ms, hour_ms = 2_000, 3_600_000
    times = {p: [1_000 * n + rng.randrange(disorder_ms) for n in range(3_600)] for p in order}
    rows = {("a", p): [Row("a", p, offset, ts) for offset, ts in enumerate(times[p])] for p in order}
    definition = FeedDefinition(name="f", sources=(Source(topic="a", time="kafka", disorder_ms=disorder_ms),))
    run = Run(definition, rows, [Heartbeat.start("id", {"a": (0,) * len(order)})])
    maker = CutMaker(definition, run.heartbeats[0])
    if spoke:
        maker.add([queue[0] for queue in rows.values()], now_ms=hour_ms)
        run.heartbeats.append(maker.cut(now_ms=hour_ms).heartbeat)
    late = 0
    for partition in order:
        for first in range(int(spoke), 3_600, 100):
            maker.add(rows["a", partition][first : first + 100], now_ms=hour_ms)
            cut = maker.cut(now_ms=hour_ms)
            run.heartbeats.append(cut.heartbeat)
            late += cut.counts["a"].late
    assert late == 0
    assert all(counts(row.ts, tau_before=before.tau, ceiling=beat.ceiling) for row, before, beat in run.read_rows)
    tau = run.heartbeats[-1].tau
    assert tau is not None
    assert hour_ms - tau < 2 * disorder_ms
    # By the largest timestamp over all partitions, as Spark takes it, as good as all of the other partitions is late.
    behind = [row for row, before, _ in run.read_rows if (row.ts or 0) <= (before.max_ts or 0) - disorder_ms - 1]
    assert len(behind) > 7_000


instants = st.none() | st.integers(min_value=-(2**63) + 1, max_value=2**63 - 2)
offsets = st.lists(st.integers(min_value=0, max_value=2**63 - 2), max_size=4).map(tuple)
heartbeats = st.builds(
    Heartbeat,
    feed=st.text("0123abcdef", min_size=1),
    n=st.integers(min_value=0, max_value=2**63 - 2),
    tau=instants,
    ceiling=instants,
    max_ts=instants,
    ends=st.dictionaries(st.text('az09._-"\\é'), offsets, max_size=3),
)


@given(heartbeats)
def test_every_heartbeat_comes_back_from_the_wire(beat: Heartbeat) -> None:
    assert Heartbeat.decode(beat.encode()) == beat


@given(
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20),
    st.sampled_from(["s", "ms", "us", "ns"]),
    st.booleans(),
)
def test_numbers_are_read_as_exact_decimals_rounded_down(number: Decimal, unit: str, quoted: bool) -> None:
    text = f"{number:f}" if len(f"{number:f}") <= 64 else "0"
    exact = Decimal(text).as_integer_ratio()
    scale = {"s": (1_000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}[unit]
    ms = exact[0] * scale[0] // (exact[1] * scale[1])
    source = Source(topic="a", time="$.ts", unit=unit, disorder_ms=0)  # type: ignore[arg-type]  # one of the literals
    value = f'{{"ts":"{text}"}}' if quoted else f'{{"ts":{text}}}'
    assert read_timestamp(source, value.encode(), 0) == (ms if MIN_TS <= ms <= MAX_TS else None)


anything = st.binary(max_size=40) | st.text(alphabet='{}[]":,ts0123456789.eE-+ truefalsn', max_size=40).map(str.encode)
in_fields = st.integers(min_value=-9, max_value=2 * MAX_TS).map(str) | st.sampled_from(
    ["0", "0.9", f'"{MAX_TS}.9"', str(MAX_TS + 1), "true", "null", "[7]", '"ts"']
)
objects = st.lists(st.tuples(st.sampled_from(["ts", "s"]), in_fields), min_size=1, max_size=2).map(
    lambda fields: "{" + ",".join(f'"{name}":{text}' for name, text in fields) + "}"
)


def spelt(value: bytes) -> Decimal | None:
    """Give the number that the last `ts` of an object spells, by Python's own reader of JSON, or None."""
    try:
        row = json.loads(value.decode(errors="replace"), parse_int=Decimal, parse_float=Decimal)
        ts = row.get("ts") if isinstance(row, dict) else None
        return Decimal(ts) if isinstance(ts, Decimal | str) else None
    except (ValueError, InvalidOperation):
        return None


@given(st.tuples(objects.map(str.encode), anything))
def test_no_bytes_make_the_reading_of_a_timestamp_fail_and_what_it_reads_is_a_number_of_the_row(
    values: tuple[bytes, bytes],
) -> None:
    for value in values:
        found, number = read_timestamp(Source(topic="a", time="$.ts", disorder_ms=0), value, 7), spelt(value)
        assert found is None or (number is not None and found == floor(number) and MIN_TS <= found <= MAX_TS)
