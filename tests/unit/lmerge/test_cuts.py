"""The next heartbeat, and what becomes of rows, by literal examples."""

from typing import Any

import pytest

from lmerge.errors import UsageError
from lmerge.feed import (
    CutMaker,
    FeedDefinition,
    Heartbeat,
    Row,
    Source,
    SourceCounts,
    TopicBound,
)

BIDS = Source(topic="bids", time="$.ts", disorder_ms=10)
AUCTIONS = Source(topic="auctions", time="$.ts", disorder_ms=0)
HOUR_MS = 3_600_000


def feed(*sources: Source, max_ahead_ms: int | None = None) -> FeedDefinition:
    return FeedDefinition(name="auction", sources=sources or (BIDS,), max_ahead_ms=max_ahead_ms)


def maker(*partitions: int, definition: FeedDefinition | None = None) -> CutMaker:
    """Make one that begins at offset 0 of as many partitions of each source."""
    definition = definition or feed(*(BIDS, AUCTIONS)[: len(partitions)])
    ends = {topic: (0,) * count for topic, count in zip(definition.topics, partitions, strict=True)}
    return CutMaker(definition, Heartbeat.start("f", ends))


def bid(partition: int, offset: int, ts: int | None) -> Row:
    return Row("bids", partition, offset, ts)


def heartbeat(n: int, tau: int | None = None, *ends: int, **changes: Any) -> Heartbeat:
    fields = {"feed": "f", "n": n, "tau": tau, "ceiling": None, "max_ts": None, "ends": {"bids": ends}}
    return Heartbeat(**{**fields, **changes})


def test_tau_is_null_until_every_partition_has_spoken() -> None:
    cuts = maker(2, 1)
    cuts.add([bid(0, 0, 100), bid(1, 0, 200)], now_ms=0)
    first = cuts.cut(now_ms=0).heartbeat
    assert (first.n, first.tau, first.max_ts, first.ends) == (1, None, 200, {"bids": (1, 1), "auctions": (0,)})
    assert cuts.slowest() == [("auctions", 0)]
    cuts.add([Row("auctions", 0, 4, 95)], now_ms=0)
    second = cuts.cut(now_ms=0).heartbeat
    assert (second.n, second.tau, second.max_ts, second.ends) == (2, 89, 200, {"bids": (1, 1), "auctions": (5,)})
    assert cuts.slowest() == [("bids", 0)]


def test_tau_is_the_largest_timestamp_less_the_disorder_less_one_and_the_minimum_over_partitions() -> None:
    cuts = maker(2)
    cuts.add([bid(0, 0, 100), bid(1, 0, 200), bid(0, 1, 300), bid(0, 2, 290)], now_ms=0)
    assert cuts.cut(now_ms=0).heartbeat.tau == 200 - 10 - 1
    cuts.add([bid(1, 1, 190), bid(1, 2, 400)], now_ms=0)  # 190 is the lowest that obeys, and counts
    cut = cuts.cut(now_ms=0)
    assert cut.heartbeat.tau == 300 - 10 - 1
    assert cut.counts == {"bids": SourceCounts(rows=2)}


def test_rows_are_judged_by_the_tau_before_their_heartbeat() -> None:
    cuts = maker(1)
    cuts.add([bid(0, 0, 100), bid(0, 1, 50)], now_ms=0)  # nothing was promised yet, so that it counts
    assert cuts.cut(now_ms=0).counts["bids"].late == 0
    cuts.add([bid(0, 2, 200), bid(0, 3, 90), bid(0, 4, 89)], now_ms=0)
    cut = cuts.cut(now_ms=0)
    assert cut.counts == {"bids": SourceCounts(rows=3, late=1)}
    assert cut.heartbeat.tau == 189


def test_early_and_unreadable_rows_move_the_ends_and_nothing_else() -> None:
    cuts = maker(1, definition=feed(max_ahead_ms=1_000))
    cuts.add([bid(0, 0, 100), bid(0, 3, 1_051), bid(0, 4, None)], now_ms=50)
    cuts.add([bid(0, 5, 1_060)], now_ms=70)  # the first row has fixed the ceiling
    beat, found, _ = cuts.cut(now_ms=90)
    assert (beat.ceiling, beat.tau, beat.max_ts, beat.ends) == (1_050, 89, 100, {"bids": (6,)})
    assert found == {"bids": SourceCounts(rows=4, early=2, unreadable=1)}
    cuts.add([bid(0, 6, 1_060)], now_ms=100)
    assert cuts.cut(now_ms=100).heartbeat.max_ts == 1_060


def test_a_partition_whose_rows_do_not_count_has_not_spoken() -> None:
    cuts = maker(2, definition=feed(max_ahead_ms=1_000))
    cuts.add([bid(0, 0, 100), bid(1, 0, 5_000), bid(1, 1, None)], now_ms=0)
    assert cuts.cut(now_ms=0).heartbeat.tau is None


def test_a_backlog_of_an_hour_read_one_partition_after_the_other_makes_no_row_late() -> None:
    cuts = maker(2)
    late = 0
    for partition in (0, 1):
        for second in range(3_600):
            cuts.add([bid(partition, second, 1_000 * second)], now_ms=0)
            found = cuts.cut(now_ms=0).counts
            late += found["bids"].late
    assert late == 0
    assert cuts.last.tau == 3_599_000 - 10 - 1


def test_a_cut_without_rows_repeats_the_promise() -> None:
    cuts = maker(1)
    cuts.add([bid(0, 0, 100)], now_ms=0)
    first = cuts.cut(now_ms=0).heartbeat
    assert not cuts.changed
    second, found, _ = cuts.cut(now_ms=0)
    assert (second.n, second.tau, second.max_ts, second.ends) == (2, first.tau, first.max_ts, first.ends)
    assert found == {}
    assert cuts.last is second


def test_a_new_partition_begins_at_zero_finds_the_promise_and_holds_it_back() -> None:
    cuts = maker(1)
    cuts.add([bid(0, 0, 100)], now_ms=0)
    cuts.cut(now_ms=0)
    assert cuts.grow("bids", 1) == []
    assert not cuts.changed
    assert cuts.grow("bids", 3) == [("bids", 1), ("bids", 2)]
    assert cuts.changed
    assert cuts.positions == {("bids", 0): 1, ("bids", 1): 0, ("bids", 2): 0}
    cuts.add([bid(0, 1, 500), bid(1, 0, 89), bid(1, 1, 300)], now_ms=0)
    beat, found, _ = cuts.cut(now_ms=0)
    assert (beat.tau, beat.ends) == (89, {"bids": (2, 2, 0)})
    assert found == {"bids": SourceCounts(rows=3, late_in_new=1)}
    assert cuts.slowest() == [("bids", 2)]


def test_a_new_partition_must_speak_before_the_first_promise() -> None:
    cuts = maker(1)
    cuts.add([bid(0, 0, 100)], now_ms=0)
    cuts.grow("bids", 2)
    assert cuts.cut(now_ms=0).heartbeat.tau is None


def test_fewer_partitions_are_the_news_of_a_broker_that_is_behind() -> None:
    cuts = maker(2)
    assert cuts.grow("bids", 1) == []
    assert not cuts.changed
    assert len(cuts.positions) == 2


def test_a_successor_goes_on_from_the_last_heartbeat() -> None:
    last = heartbeat(7, 89, 4, 6, max_ts=500)
    cuts = CutMaker(feed(), last)
    assert cuts.positions == {("bids", 0): 4, ("bids", 1): 6}
    cuts.add([bid(0, 4, 600)], now_ms=0)
    beat = cuts.cut(now_ms=0).heartbeat
    beat.require_follows(last)
    assert (beat.tau, beat.max_ts) == (89, 600)  # what partition 1 had said is forgotten


def test_a_heartbeat_of_other_topics_is_refused() -> None:
    with pytest.raises(UsageError, match=r"heartbeat 7 has the topics \['bids'\], the definition \['auctions', 'bids"):
        CutMaker(feed(BIDS, AUCTIONS), heartbeat(7, 1, 2))


def test_counts_add_up() -> None:
    total = SourceCounts(rows=9, late=1)
    total.add(SourceCounts(rows=5, late=1, late_in_new=2, late_after_idle=6, early=3, unreadable=4))
    assert total == SourceCounts(rows=14, late=2, late_in_new=2, late_after_idle=6, early=3, unreadable=4)


# what a partition's own rows do not tell


def spanning(**changes: Any) -> CutMaker:
    """Make one of two topics of one partition each, with a bound from bids to auctions."""
    definition = FeedDefinition(
        name="auction",
        sources=(BIDS, Source(topic="auctions", time="$.ts", disorder_ms=0, latency_ms=200)),
        max_ahead_ms=None,
        bounds=(TopicBound(from_topic="bids", to_topic="auctions", after_ms=300, skew_ms=20),),
        **changes,
    )
    return CutMaker(definition, Heartbeat.start("f", {"bids": (0,), "auctions": (0,)}), at_ms=1_000)


def test_a_bound_between_topics_moves_a_silent_one_once_all_is_read_up_to_ends_of_after_it_fell_due() -> None:
    cuts = spanning()
    assert cuts.due_at_ms is None
    cuts.add([bid(0, 0, 1_000)], now_ms=0, at_ms=1_100)
    assert cuts.cut(now_ms=0).heartbeat.tau is None
    assert cuts.due_at_ms == 1_100 + 300 + 200 + 1
    cuts.caught_up(1_600)
    assert not cuts.changed  # a straggler may come in this very millisecond
    cuts.caught_up(1_601)
    assert cuts.changed
    assert cuts.promises() == {"bids": 989, "auctions": 979}
    beat, _, unsafe = cuts.cut(now_ms=0)
    assert (beat.tau, unsafe) == (979, ())
    assert cuts.due_at_ms is None


def test_a_timeout_is_told_and_makes_late_what_is_not_above_the_largest() -> None:
    cuts = spanning(timeout_ms=5_000)
    cuts.add([bid(0, 0, 1_000), Row("auctions", 0, 0, 400)], now_ms=0, at_ms=1_100)
    assert cuts.cut(now_ms=0).heartbeat.tau == 399
    cuts.caught_up(6_101)
    beat, _, unsafe = cuts.cut(now_ms=0)
    assert (beat.tau, unsafe) == (1_000, ("timeout",))
    assert cuts.cut(now_ms=0).unsafe == ()
    left = cuts.add([bid(0, 1, 1_000), bid(0, 2, 1_001)], now_ms=0, at_ms=6_200)
    assert left == [(bid(0, 1, 1_000), "late")]


def test_an_idle_partition_is_left_out_and_what_it_then_says_is_counted_apart() -> None:
    sleepy = Source(topic="bids", time="$.ts", disorder_ms=10, idle_ms=1_000)
    cuts = maker(2, definition=feed(sleepy))
    cuts.add([bid(0, 0, 100), bid(1, 0, 100)], now_ms=0, at_ms=0)
    cuts.add([bid(0, 1, 900)], now_ms=0, at_ms=500)
    assert cuts.cut(now_ms=0).heartbeat.tau == 89
    cuts.caught_up(1_001)
    assert (cuts.idle, cuts.slowest()) == ([("bids", 1)], [("bids", 0)])
    beat, _, unsafe = cuts.cut(now_ms=0)
    assert (beat.tau, unsafe) == (889, ("idle",))
    left = cuts.add([bid(1, 1, 89), bid(1, 2, 500), bid(1, 3, 890)], now_ms=0, at_ms=1_200)
    assert [(row.ts, reason) for row, reason in left] == [(89, "late"), (500, "late_after_idle")]
    assert cuts.idle == []
    beat, found, unsafe = cuts.cut(now_ms=0)
    assert (beat.tau, unsafe) == (889, ())  # it waits for it again, and does not fall
    assert found["bids"].left_out == {
        **dict.fromkeys(("late_in_new", "early", "unreadable"), 0),
        "late": 1,
        "late_after_idle": 1,
    }


def test_the_disorder_that_was_seen_is_the_largest_step_back_in_a_partition() -> None:
    cuts = maker(2)
    cuts.add([bid(0, 0, 100), bid(1, 0, 10), bid(0, 1, 97), bid(0, 2, 120)], now_ms=0)
    assert cuts.disorder_ms == {"bids": 3}
    cuts.cut(now_ms=0)
    cuts.add([bid(1, 1, -70), bid(0, 3, 118)], now_ms=0)  # late, and tells all the more
    assert cuts.disorder_ms == {"bids": 80}
    successor = CutMaker(feed(), cuts.last)
    successor.add([bid(0, 3, -500)], now_ms=0)  # late, before anything that counts
    assert successor.disorder_ms == {"bids": 0}


# sources that go wrong


def test_a_source_that_goes_silent_holds_tau_back_and_nothing_of_it_becomes_late() -> None:
    cuts = maker(2)
    cuts.add([bid(0, 0, 1_000), bid(1, 0, 1_000)], now_ms=0)
    cuts.cut(now_ms=0)
    cuts.add([bid(0, 1, 900_000)], now_ms=0)
    assert cuts.cut(now_ms=0).heartbeat.tau == 989
    assert cuts.slowest() == [("bids", 1)]
    assert cuts.add([bid(1, 1, 990)], now_ms=0) == []


def test_a_source_that_jumps_more_than_an_hour_ahead_is_early_and_moves_nothing() -> None:
    cuts = maker(1, definition=feed(max_ahead_ms=HOUR_MS))
    cuts.add([bid(0, 0, 1_000)], now_ms=1_000)
    cuts.cut(now_ms=1_000)
    left = cuts.add([bid(0, 1, 2_001 + HOUR_MS)], now_ms=2_000)
    assert left == [(bid(0, 1, 2_001 + HOUR_MS), "early")]
    beat = cuts.cut(now_ms=2_000).heartbeat
    assert (beat.tau, beat.max_ts) == (989, 1_000)
    assert cuts.add([bid(0, 2, 2_100)], now_ms=2_100) == []  # the clock is right again


def test_a_partition_that_jumps_ahead_by_less_moves_nothing_alone_and_counts_on_when_it_is_right_again() -> None:
    cuts = maker(2, definition=feed(max_ahead_ms=HOUR_MS))
    cuts.add([bid(0, 0, 1_000), bid(1, 0, 1_000)], now_ms=1_000)
    cuts.cut(now_ms=1_000)
    cuts.add([bid(0, 1, 3_000_000), bid(1, 1, 2_000)], now_ms=2_000)
    assert cuts.cut(now_ms=2_000).heartbeat.tau == 1_989  # the other partition holds it
    assert cuts.add([bid(0, 2, 2_100), bid(1, 2, 2_100)], now_ms=2_100) == []


def test_the_one_partition_that_jumps_ahead_by_less_drags_tau_along_and_is_late_when_it_is_right_again() -> None:
    cuts = maker(1, definition=feed(max_ahead_ms=HOUR_MS))
    cuts.add([bid(0, 0, 1_000)], now_ms=1_000)
    cuts.cut(now_ms=1_000)
    assert cuts.add([bid(0, 1, 3_000_000)], now_ms=2_000) == []
    assert cuts.cut(now_ms=2_000).heartbeat.tau == 3_000_000 - 10 - 1
    left = cuts.add([bid(0, 2, 2_100), bid(0, 3, 2_999_990)], now_ms=2_100)
    assert left == [(bid(0, 2, 2_100), "late")]
    assert cuts.cut(now_ms=2_100).heartbeat.tau == 2_999_989  # it stands until the clock has passed it


def test_by_default_clocks_that_are_exactly_an_hour_ahead_are_not_early_and_make_the_right_time_late() -> None:
    """As after a slip of time zones, in all partitions."""
    definition = FeedDefinition(name="auction", sources=(BIDS,))
    assert definition.max_ahead_ms == HOUR_MS
    cuts = maker(2, definition=definition)
    cuts.add([bid(0, 0, 1_000), bid(1, 0, 1_000)], now_ms=1_000)
    cuts.cut(now_ms=1_000)
    slipped = 2_000 + HOUR_MS
    left = cuts.add([bid(0, 1, slipped), bid(1, 1, slipped), bid(1, 2, slipped + 1)], now_ms=2_000)
    assert left == [(bid(1, 2, slipped + 1), "early")]  # the ceiling itself is not
    beat = cuts.cut(now_ms=2_000).heartbeat
    assert (beat.ceiling, beat.max_ts, beat.tau) == (slipped, slipped, slipped - 10 - 1)
    left = cuts.add([bid(0, 2, 3_000), bid(1, 3, 3_000)], now_ms=3_000)
    assert [reason for _, reason in left] == ["late", "late"]


def test_with_a_bound_below_an_hour_clocks_that_are_an_hour_ahead_are_early_and_move_nothing() -> None:
    cuts = maker(1, definition=feed(max_ahead_ms=600_000))
    cuts.add([bid(0, 0, 1_000)], now_ms=1_000)
    cuts.cut(now_ms=1_000)
    assert cuts.add([bid(0, 1, 2_000 + HOUR_MS)], now_ms=2_000) == [(bid(0, 1, 2_000 + HOUR_MS), "early")]
    assert cuts.cut(now_ms=2_000).heartbeat.tau == 989
    assert cuts.add([bid(0, 2, 3_000)], now_ms=3_000) == []


def test_a_source_that_goes_back_has_late_rows_and_tau_stands() -> None:
    cuts = maker(1)
    cuts.add([bid(0, 0, 10_000)], now_ms=0)
    cuts.cut(now_ms=0)
    left = cuts.add([bid(0, 1, 5_000), bid(0, 2, 5_001)], now_ms=0)
    assert [reason for _, reason in left] == ["late", "late"]
    assert cuts.cut(now_ms=0).heartbeat.tau == 9_989


def test_a_source_whose_clock_stops_holds_tau_back_and_its_rows_count() -> None:
    cuts = maker(2)
    cuts.add([bid(0, 0, 1_000), bid(1, 0, 1_000)], now_ms=0)
    cuts.cut(now_ms=0)
    for offset in range(1, 5):
        assert cuts.add([bid(0, offset, 1_000 * offset), bid(1, offset, 1_000)], now_ms=0) == []
        assert cuts.cut(now_ms=0).heartbeat.tau == 989


def test_a_stopped_clock_has_late_rows_where_another_topic_vouches_for_it() -> None:
    cuts = spanning()
    cuts.add([bid(0, 0, 1_000), Row("auctions", 0, 0, 1_000)], now_ms=0, at_ms=1_100)
    cuts.add([bid(0, 1, 5_000), Row("auctions", 0, 1, 1_000)], now_ms=0, at_ms=2_000)
    assert cuts.cut(now_ms=0).heartbeat.tau == 999
    cuts.caught_up(2_501)
    assert cuts.cut(now_ms=0).heartbeat.tau == 4_979
    left = cuts.add([Row("auctions", 0, 2, 1_000)], now_ms=0, at_ms=2_600)
    assert [reason for _, reason in left] == ["late"]
