"""Feeds with bounds between topics, over random sources that are read with delays, against the theory tried out."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from tests.support.seeds import play_seeds
from tests.support.source_runs import SourceRun, lowest_allowed, lowest_possible, make_definition, play

RUNS = 10_000
PARTS = 4  # which two processes can share
OTHERS = 2_000


def check_nothing_is_lost(run: SourceRun) -> None:
    """Check what must hold whatever sources do: cuts follow, every row is in one, and what is left out is told."""
    for before, beat in pairwise(run.heartbeats):
        beat.require_follows(before)
    by_key = {key: [s.emission for s in run.seen if s.emission.key == key] for key in run.log}
    assert by_key == run.log
    for s in run.seen:
        before, beat = run.heartbeats[s.n - 1 : s.n + 1]
        assert beat.holds(*s.emission.key, s.emission.row.offset, before=before)
    assert sorted(left.row for left in run.left_out) == sorted(s.emission.row for s in run.late)
    told = Counter(left.reason for left in run.left_out)
    counted = Counter(dict.fromkeys(told, 0))
    for cut in run.cuts:
        for counts in cut.counts.values():
            counted.update(counts.left_out)
    assert +counted == +told
    rows = sum(counts.rows for cut in run.cuts for counts in cut.counts.values())
    assert rows == len(run.seen)


def check_tau_is_the_largest(run: SourceRun) -> int:
    """Check every tau against the theory; return how many there were."""
    for beat in run.heartbeats[1:]:
        lowest = [lowest_possible(run, beat.n, key) for key in run.log]
        assert beat.tau == (None if None in lowest else min(low for low in lowest if low is not None) - 1)
    return len(run.heartbeats) - 1


@pytest.mark.parametrize("part", range(PARTS))
def test_sources_that_obey_their_bounds_have_no_late_row_and_tau_is_as_large_as_can_be(part: int) -> None:
    by_bounds = 0

    def one(rng: random.Random) -> int:
        nonlocal by_bounds
        run = play(rng, make_definition(rng))
        check_nothing_is_lost(run)
        assert not run.late
        check_tau_is_the_largest(run)
        by_bounds += bool(run.asked and run.definition.bounds)
        return 1

    play_seeds(one, "obeying", until=RUNS / PARTS, first=part * RUNS)
    assert by_bounds > RUNS / PARTS / 2


def test_where_bounds_are_broken_exactly_the_rows_that_the_rule_names_are_late_and_each_broke_a_bound() -> None:
    late = 0

    def one(rng: random.Random) -> int:
        nonlocal late
        run = play(rng, make_definition(rng), ticks=14, breaks=0.2)
        check_nothing_is_lost(run)
        out = {s.emission for s in run.late}
        honest = {key: [e for e in rows if e not in out] for key, rows in run.log.items()}
        for emission in out:
            earlier = {key: [e for e in rows if e.at < emission.at] for key, rows in honest.items()}
            earlier[emission.key] = [e for e in honest[emission.key] if e.row.offset < emission.row.offset]
            assert emission.ts < lowest_allowed(run.definition, earlier, emission.key, emission.at)
        late += len(out)
        return 1

    play_seeds(one, "breaking", until=OTHERS)
    assert late > OTHERS / 2


def test_taking_over_at_random_moments_makes_no_row_late_and_promises_no_more() -> None:
    crashes = 0

    def one(rng: random.Random) -> int:
        nonlocal crashes
        run = play(rng, make_definition(rng), crashes=0.1)
        check_nothing_is_lost(run)
        assert not run.late
        crashes += run.crashes
        return 1

    play_seeds(one, "taking over", until=OTHERS)
    assert crashes > OTHERS


def test_idleness_makes_late_only_what_it_is_counted_for_and_the_timeout_releases_all() -> None:
    late = unsafe = 0

    def one(rng: random.Random) -> int:
        nonlocal late, unsafe
        run = play(rng, make_definition(rng, idle_ms=1_000), ticks=40)
        check_nothing_is_lost(run)
        assert {left.reason for left in run.left_out} <= {"late_after_idle"}
        late += len(run.left_out)
        unsafe += sum("idle" in cut.unsafe for cut in run.cuts)
        timed = play(rng, make_definition(rng, timeout_ms=1_000), ticks=10, tail=25)
        last = timed.heartbeats[-1]
        assert last.tau == last.max_ts
        return 1

    play_seeds(one, "idleness", until=OTHERS / 5)
    assert late > 0
    assert unsafe > 0
