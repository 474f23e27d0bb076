"""Which heartbeats make up a batch, and which task reads what."""

import copy
import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from lmerge.errors import IllegalElement, UsageError
from lmerge.feed import Heartbeat, Source
from replicas.cuts import CutOffset, Located, choose_end, floor_of, plan_tasks, require_consecutive
from replicas.reader import CutReader, SourceSpec


def beat(n: int, ends: Sequence[int], tau: int | None = None, ceiling: int | None = None) -> Heartbeat:
    return Heartbeat(feed="f", n=n, tau=tau, ceiling=ceiling, max_ts=tau, ends={"bids": tuple(ends), "other": (9,)})


CHAIN = [Located(2 * n, beat(n, (10 * n, 5 * n), tau=None if n < 2 else 100 * n)) for n in range(10)]
START = CutOffset.of(CHAIN[0], "bids")


def end_of(*, max_cuts: int, max_rows: int, floor: int | None = None) -> int:
    return choose_end(START, CHAIN[1:], "bids", max_cuts=max_cuts, max_rows=max_rows, floor=floor).n


def test_an_offset_comes_back_from_json_as_it_was() -> None:
    offset = CutOffset.of(CHAIN[3], "bids", before=70)
    assert offset.to_json() == {"feed": "f", "n": 3, "at": 6, "ends": [30, 15], "tau": 300, "before": 70}
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
    end = choose_end(START, [], "bids", max_cuts=5, max_rows=5, floor=None)
    assert end == START


def test_before_is_kept_from_batch_to_batch() -> None:
    start = CutOffset.of(CHAIN[0], "bids", before=70)
    assert choose_end(start, CHAIN[1:], "bids", max_cuts=2, max_rows=99, floor=None).before == 70


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
    planner._following.extend(CHAIN)
    assert planner.__getstate__() == {"_spec": spec}
    arrived = copy.copy(planner)  # by the same methods as pickle
    assert (arrived._spec, [*arrived._following], arrived._known_n) == (spec, [], -1)


def test_missing_heartbeats_stop_the_reader() -> None:
    require_consecutive(START, CHAIN[1:], "bids")
    with pytest.raises(IllegalElement, match="missing"):
        require_consecutive(START, CHAIN[2:], "bids")
    other = Located(2, Heartbeat.start("g", {"bids": (0, 0)}))
    with pytest.raises(IllegalElement, match="feed"):
        require_consecutive(START, [other], "bids")


@pytest.mark.parametrize("rows_per_task", [1, 7, 30, 1_000])
def test_every_offset_is_read_once_under_the_rule_of_its_heartbeat(rows_per_task: int) -> None:
    heartbeats = [located.heartbeat for located in CHAIN]
    tasks = plan_tasks(heartbeats, "bids", rows_per_task=rows_per_task, tau=900)
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
    assert [task.tau for task in tasks] == [900] + [None] * (len(tasks) - 1)


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
        heartbeats = [start.heartbeat("bids"), *(located.heartbeat for located in chain[first + 1 : last + 1])]
        for task in plan_tasks(heartbeats, "bids", rows_per_task=8, tau=None):
            for part in task.ranges:
                for segment in part.segments:
                    for offset in range(segment.start, segment.end):
                        found[part.partition, offset] = segment.tau_before
    return found
