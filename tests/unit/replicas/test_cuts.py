"""Which heartbeats make up a batch, and which task reads what."""

import copy
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from lmerge.errors import IllegalElement, UsageError
from lmerge.feed import Heartbeat, Source
from replicas.cuts import Bounds, CutOffset, Located, choose_end, floor_of, plan_tasks, require_consecutive
from replicas.reader import CutReader, SourceSpec


def beat(n: int, ends: Sequence[int], tau: int | None = None, ceiling: int | None = None) -> Heartbeat:
    return Heartbeat(feed="f", n=n, tau=tau, ceiling=ceiling, max_ts=tau, ends={"bids": tuple(ends), "other": (9,)})


CHAIN = [Located(2 * n, beat(n, (10 * n, 5 * n), tau=None if n < 2 else 100 * n)) for n in range(10)]
START = CutOffset.of(CHAIN[0], "bids")


def end_of(*, max_cuts: int, max_rows: int, floor: int | None = None) -> int:
    return choose_end(START, CHAIN[1:], "bids", Bounds(max_cuts, max_rows), before=floor, reach_ms=0).n


def test_an_offset_comes_back_from_json_as_it_was() -> None:
    offset = CutOffset.of(CHAIN[3], "bids", before=70)
    skipped = {"before": 70, "skipped_cuts": 0, "skipped_rows": 0}
    assert offset.to_json() == {"feed": "f", "n": 3, "at": 6, "ends": [30, 15], "tau": 300, "total": 45, **skipped}
    assert CutOffset.from_json(offset.to_json()) == offset
    with pytest.raises(UsageError, match="is no cut"):
        CutOffset.from_json({"n": 3})


def test_a_topic_that_the_feed_does_not_cover_is_named() -> None:
    with pytest.raises(UsageError, match="no topic people"):
        CutOffset.of(CHAIN[0], "people")


def test_a_batch_is_a_whole_number_of_cuts_within_its_bounds() -> None:
    assert end_of(max_cuts=1, max_rows=1_000) == 1
    assert end_of(max_cuts=7, max_rows=1_000) == 7
    assert end_of(max_cuts=1_000, max_rows=1_000) == 9
    assert end_of(max_cuts=1_000, max_rows=44) == 2
    assert end_of(max_cuts=1_000, max_rows=45) == 3


def test_a_cut_larger_than_the_bound_makes_a_batch_of_its_own() -> None:
    assert end_of(max_cuts=1_000, max_rows=1) == 1


def test_without_a_heartbeat_the_batch_ends_where_it_begins() -> None:
    end = choose_end(START, [], "bids", Bounds(5, 5), before=500, reach_ms=0)
    assert end == START


def test_what_is_left_out_is_counted_from_batch_to_batch() -> None:
    """With before = 460 and a reach of 10 cuts 1 to 4 are not read, and the second batch reads all."""
    first = choose_end(START, CHAIN[1:], "bids", Bounds(2, 99), before=460, reach_ms=10)
    assert (first.n, first.before, first.skipped_cuts, first.skipped_rows) == (6, 460, 4, 60)
    second = choose_end(first, CHAIN[7:], "bids", Bounds(2, 99), before=460, reach_ms=10)
    assert (second.n, second.before, second.skipped_cuts, second.skipped_rows) == (8, 460, 4, 60)


SKEWED = [
    Located(
        n, Heartbeat(feed="f", n=n, tau=n, ceiling=None, max_ts=100 * n, ends={"bids": (90 * n,), "auctions": (n,)})
    )
    for n in range(100)
]
"""Of a cut's 91 rows one is an auction."""


@pytest.mark.parametrize("before", [None, 4_000])
def test_sources_of_a_query_end_at_one_heartbeat_however_their_rows_are_spread(before: int | None) -> None:
    topics = ("bids", "auctions")
    ends = {topic: CutOffset.of(SKEWED[0], topic, topics=topics) for topic in topics}
    reached = []
    while ends["bids"].n < 99:
        for topic, end in ends.items():
            start = CutOffset.from_json(end.to_json())
            following = SKEWED[start.n + 1 :]
            bounds = Bounds(1_000, 1_000)
            ends[topic] = choose_end(start, following, topic, bounds, topics=topics, before=before, reach_ms=0)
        assert len({end.n for end in ends.values()}) == 1
        reached.append(ends["bids"].n)
    assert reached[:2] == ([10, 20] if before is None else [49, 59])


def test_an_offset_of_an_older_program_counts_its_own_rows_up_to_the_first_heartbeat() -> None:
    plain = CutOffset.of(SKEWED[0], "auctions").to_json()
    del plain["total"]
    end = choose_end(
        CutOffset.from_json(plain), SKEWED[1:], "auctions", Bounds(1_000, 1_000), topics=("bids", "auctions")
    )
    assert end.n == 11  # one more than others: its first cut was one row
    assert end.total == 11 * 91


def test_a_plan_without_a_bounded_reach_leaves_nothing_out() -> None:
    end = choose_end(START, CHAIN[1:], "bids", Bounds(2, 99), before=460, reach_ms=None)
    assert (end.n, end.skipped_cuts) == (2, 0)


def test_heartbeats_are_looked_up_until_enough_of_them_are_read() -> None:
    bounds = Bounds(3, 99)
    assert [bounds.are_filled_by(CHAIN[1:n], 450) for n in (5, 7, 8)] == [False, False, True]


def test_cuts_without_a_row_that_matters_are_not_read_and_do_not_count() -> None:
    """Heartbeats 0 and 1 have counted no row, n counted up to 100 n: with the floor at 450 cut 5 is the first."""
    assert end_of(max_cuts=1, max_rows=1_000, floor=450) == 5
    assert end_of(max_cuts=2, max_rows=1_000, floor=450) == 6
    assert end_of(max_cuts=9, max_rows=44, floor=450) == 6
    heartbeats = [located.heartbeat for located in CHAIN]
    (task,) = plan_tasks(heartbeats, "bids", rows_per_task=1_000, tau=900, floor=450)
    assert [(part.segments[0].start, part.segments[-1].end) for part in task.ranges] == [(40, 90), (20, 45)]
    assert [segment.tau_before for segment in task.ranges[0].segments] == [449, 500, 600, 700, 800]
    (empty,) = plan_tasks(heartbeats, "bids", rows_per_task=1_000, tau=900, floor=901)
    assert (empty.ranges, empty.tau) == ([], 900)


def test_without_a_floor_every_row_matters() -> None:
    assert floor_of(None, 10) is None
    assert floor_of(110, None) is None
    assert floor_of(110, 10) == 100


def test_what_travels_to_a_task_is_the_spec_alone() -> None:
    spec = SourceSpec(
        bootstrap_servers="127.0.0.1:1",
        heartbeats="f.heartbeats",
        source=Source(topic="bids", time="$.ts", disorder_ms=0),
        schema={"auction": "int"},
        directory="/nonesuch",
        max_cuts=7,
        max_rows=100,
    )
    planner = CutReader(spec)
    planner._ahead.following.extend(CHAIN)
    assert planner.__getstate__() == {"_spec": spec}
    arrived = copy.copy(planner)  # by the same methods as pickle
    assert (arrived._spec, [*arrived._ahead.following]) == (spec, [])


def test_missing_heartbeats_stop_the_reader() -> None:
    first = CHAIN[0].heartbeat
    require_consecutive(first, CHAIN[1:])
    with pytest.raises(IllegalElement, match="missing"):
        require_consecutive(first, CHAIN[2:])
    other = Located(2, Heartbeat.start("g", {"bids": (0, 0)}))
    with pytest.raises(IllegalElement, match="feed"):
        require_consecutive(first, [other])


@pytest.mark.parametrize("rows_per_task", [1, 7, 30, 1_000])
def test_every_offset_is_read_once_under_the_rule_of_its_heartbeat(rows_per_task: int) -> None:
    heartbeats = [located.heartbeat for located in CHAIN]
    tasks = plan_tasks(heartbeats, "bids", rows_per_task=rows_per_task, tau=900, before=700)
    found = {}
    for task in tasks:
        size = 0
        for part in task.ranges:
            for segment in part.segments:
                size += segment.end - segment.start
                for offset in range(segment.start, segment.end):
                    assert (part.partition, offset) not in found
                    found[part.partition, offset] = segment.tau_before
        assert size <= rows_per_task
    assert sorted(found) == [(0, offset) for offset in range(90)] + [(1, offset) for offset in range(45)]
    for (partition, offset), tau_before in found.items():
        n = offset // (10 if partition == 0 else 5) + 1
        assert tau_before == CHAIN[n - 1].heartbeat.tau
    assert [(task.tau, task.before) for task in tasks] == [(900, 700)] + [(None, None)] * (len(tasks) - 1)


def test_a_range_says_whether_it_ends_behind_a_row() -> None:
    """A cut does; where a task is full there may be a marker, and no record is to be expected."""
    tasks = plan_tasks([beat(1, (0, 0), tau=1), beat(2, (10, 5), tau=2)], "bids", rows_per_task=7, tau=2)
    found = [(part.segments[-1].end, part.ends_with_row) for task in tasks for part in task.ranges]
    assert found == [(7, False), (10, True), (4, False), (5, True)]


def test_small_ranges_of_several_partitions_share_a_task() -> None:
    assert len(plan_tasks([CHAIN[0].heartbeat, CHAIN[1].heartbeat], "bids", rows_per_task=1_000, tau=None)) == 1


def test_a_heartbeat_alone_is_one_task_without_ranges() -> None:
    (task,) = plan_tasks([beat(1, (5, 5), tau=1), beat(2, (5, 5), tau=2)], "bids", rows_per_task=10, tau=2)
    assert (task.ranges, task.tau) == ([], 2)


def test_random_batches_of_the_same_heartbeats_choose_the_same_rows() -> None:
    """However the chain is divided into batches, each offset gets the same rule."""
    expected = rules(CHAIN, [0, 9])
    rng = random.Random(5)
    for _ in range(20):
        stops = sorted({0, 9, *rng.sample(range(1, 9), rng.randrange(1, 8))})
        assert rules(CHAIN, stops) == expected


def rules(chain: Sequence[Located], stops: Sequence[int]) -> dict[tuple[int, int], int | None]:
    found = {}
    for first, last in pairwise(stops):
        start = CutOffset.from_json(CutOffset.of(chain[first], "bids").to_json())
        heartbeats = [start.located("bids").heartbeat, *(located.heartbeat for located in chain[first + 1 : last + 1])]
        for task in plan_tasks(heartbeats, "bids", rows_per_task=8, tau=None):
            for part in task.ranges:
                for segment in part.segments:
                    for offset in range(segment.start, segment.end):
                        found[part.partition, offset] = segment.tau_before
    return found
