"""Which heartbeats make up a batch, which task reads what, and which rows come out."""

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest

from lmerge.errors import IllegalElement, UsageError
from lmerge.feed import Heartbeat, Segment, Source
from lmerge.kafka import Record
from replicas.cuts import CutOffset, Located, choose_end, plan_tasks, require_consecutive
from replicas.rows import RowReader, type_names

BIDS = Source(topic="bids", time="$.ts", disorder_ms=0)


def beat(n: int, ends: Sequence[int], tau: int | None = None, ceiling: int | None = None) -> Heartbeat:
    return Heartbeat(feed="f", n=n, tau=tau, ceiling=ceiling, max_ts=tau, ends={"bids": tuple(ends), "other": (9,)})


CHAIN = [Located(2 * n, beat(n, (10 * n, 5 * n), tau=None if n < 2 else 100 * n)) for n in range(10)]
START = CutOffset.of(CHAIN[0], "bids")


def end_of(*, max_cuts: int, max_rows: int, start: CutOffset = START, chain: Sequence[Located] = CHAIN[1:]) -> int:
    return choose_end(start, chain, "bids", max_cuts=max_cuts, max_rows=max_rows).n


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
    end = choose_end(START, [], "bids", max_cuts=5, max_rows=5)
    assert end == START


def test_before_is_kept_from_batch_to_batch() -> None:
    start = CutOffset.of(CHAIN[0], "bids", before=70)
    assert choose_end(start, CHAIN[1:], "bids", max_cuts=2, max_rows=99).before == 70


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


def record(offset: int, value: bytes) -> Record:
    return Record("bids", 0, offset, None, value, (), 0)


def test_late_early_and_malformed_rows_are_left_out_and_only_the_malformed_are_counted_here() -> None:
    reader = RowReader(BIDS, type_names({"auction": int, "city": str}))
    values = [
        b'{"ts":101,"auction":1,"city":"a","more":[]}',
        b'{"ts":100,"auction":2,"city":"late: at tau of the heartbeat before"}',
        b'{"ts":501,"auction":3,"city":"early"}',
        b'{"ts":500,"auction":4,"city":"b"}',
        b'{"ts":300,"auction":"no integer","city":"malformed"}',
        b'{"ts":300,"auction":6}',
        b'{"auction":7,"city":"without a timestamp"}',
        b"no JSON",
        b'{"ts":200,"auction":8,"city":"late in the second heartbeat only"}',
    ]
    segments = [Segment(0, 8, 100, 500), Segment(8, 20, 200, None)]
    batch = reader.read([record(offset, value) for offset, value in enumerate(values)], segments)
    assert batch is not None
    columns = batch.to_pydict()
    assert columns["auction"] == [1, 4]
    assert columns["city"] == ["a", "b"]
    assert [time.timestamp() for time in columns["event_time"]] == [0.101, 0.5]
    assert reader.malformed == 2


def test_a_control_row_has_no_data() -> None:
    reader = RowReader(BIDS, type_names({"auction": int}))
    plain = reader.control(5_000, 3).to_pydict()
    assert (plain["auction"], plain["_control"], plain["_malformed"]) == ([None], [True], [3])


def test_a_schema_with_unknown_types_or_our_own_names_is_refused() -> None:
    with pytest.raises(UsageError, match="'prices' is of type"):
        type_names({"prices": list})
    with pytest.raises(UsageError, match="cannot be named 'event_time'"):
        type_names({"event_time": int})


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
