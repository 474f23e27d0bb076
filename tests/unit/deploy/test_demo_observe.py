"""Rates, gaps and memberships from samples that are made up."""

import msgspec

from deploy.demo.observe import (
    RATE_MS,
    Input,
    Lane,
    Tally,
    all_joined,
    has_caught_up,
    late_rows,
    leader,
    longest_gap_at,
    longest_gap_before,
    longest_gap_since,
    merged_stable,
    replica_view,
    skipped_rows,
    told_to_skip_to,
)


def lane(stable: int | None = None, leads: str | None = None, **inputs: Input) -> Lane:
    return Lane("running", stable=stable, leader=leads, inputs=inputs)


def joined(stable: int | None, lag_ms: int | None = 0) -> Input:
    return Input("joined", stable=stable, lag_ms=lag_ms)


def test_rate_counts_the_records_of_the_last_seconds_only() -> None:
    tally = Tally()
    for time in (1_000, 1_000, 4_000, 7_000, 7_000, 7_000):
        tally.add(time)
    assert tally.count == 6
    assert tally.times == [1_000, 4_000, 7_000]
    assert tally.per_second(7_000) == 4_000 / RATE_MS
    assert tally.per_second(7_000 + RATE_MS) == 0
    assert Tally().per_second(7_000) == 0


def test_clock_that_goes_back_makes_no_gap() -> None:
    tally = Tally()
    for time in (1_000, 900, 1_100):
        tally.add(time)
    assert tally.times == [1_000, 1_100]
    assert tally.count == 3


def test_gap_before_the_kill_lies_between_commits_before_it() -> None:
    times = [0, 50, 60, 75, 100]
    assert longest_gap_before(times, 45, 90) == 15, "neither what was before nor the one that the kill falls into"
    assert longest_gap_before(times, 80, 90) == 0


def test_gap_at_the_kill_is_the_one_that_it_falls_into_or_a_later_one() -> None:
    times = [0, 100, 110, 140, 145]
    assert longest_gap_at(times, 115, 150) == 30
    assert longest_gap_at(times, 141, 200) == 55, "what has not ended counts with what was seen of it"
    assert longest_gap_at([], 100, 130) == 30


def test_longest_gap_is_that_of_the_slowest_partition() -> None:
    assert longest_gap_since({0: [0, 100, 110, 120], 1: [100, 130]}, 100, 140) == 30
    assert longest_gap_since({}, 100, 140) == 0


def test_leader_is_who_leads_in_most_lanes() -> None:
    assert leader([lane(leads="r2"), lane(leads="r1"), lane(leads="r1")]) == "r1"
    assert leader([lane(), lane()]) is None


def test_merged_stable_is_the_smallest_and_none_while_a_lane_has_none() -> None:
    assert merged_stable([lane(7), lane(5)]) == 5
    assert merged_stable([lane(7), lane()]) is None
    assert merged_stable([]) is None


def test_replicas_are_joined_once_they_are_in_every_lane_and_have_a_stable() -> None:
    both = [lane(r1=joined(5), r2=joined(6)), lane(r1=joined(5), r2=joined(6))]
    assert all_joined(both, ["r1", "r2"])
    assert not all_joined([both[0], lane(r1=joined(5))], ["r1", "r2"])
    assert not all_joined([both[0], lane(r1=joined(5), r2=joined(None))], ["r1", "r2"])
    assert not all_joined([lane(r1=Input("joining", stable=5))], ["r1"])
    assert not all_joined([], ["r1"])


def test_replica_has_caught_up_when_no_lane_lags() -> None:
    assert has_caught_up([lane(r4=joined(5)), lane(r4=joined(5, 1_000))], "r4")
    assert not has_caught_up([lane(r4=joined(5)), lane(r4=joined(5, 60_000))], "r4")
    assert not has_caught_up([lane(r4=joined(None))], "r4")


def test_replica_is_shown_by_its_worst_lane_and_a_dead_one_never_leads() -> None:
    lanes = [lane(9, "r1", r1=joined(9, 0)), lane(9, "r1", r1=joined(7, 2))]
    view = replica_view("r1", "direct", lanes, absent="starting", halted="", per_second=3.0)
    assert (view.state, view.leads, view.stable, view.lag_ms) == ("joined", True, 7, 2)
    killed = replica_view("r1", "direct", lanes, absent="starting", halted="killed", per_second=0.0)
    assert (killed.state, killed.leads) == ("killed", False)
    far = [lane(9, "r1", r4=joined(9)), lane(9, "r1", r4=joined(None, None))]
    assert replica_view("r4", "panes", far, absent="starting", halted="", per_second=0.0).is_behind
    assert not view.is_behind
    assert not killed.is_behind
    absent = replica_view("r2", "panes", lanes, absent="detached", halted="", per_second=0.0)
    assert (absent.state, absent.stable, absent.lag_ms) == ("detached", None, None)


def test_a_replica_is_told_once_all_lanes_have_said_so_and_each_tells_the_same_rows() -> None:
    told, other = (Input("joined", fast_forwarded_to=before, skipped_rows=70) for before in (40, 30))
    assert told_to_skip_to([lane(r2=told), lane(r2=other)], "r2") == 30
    assert told_to_skip_to([lane(r2=told), lane(r2=joined(5))], "r2") is None
    assert told_to_skip_to([], "r2") is None
    assert skipped_rows([lane(r2=told), lane(r2=joined(5))], "r2") == 70
    assert skipped_rows([lane(r1=told)], "r2") == 0


def test_late_rows_are_those_of_the_report_that_has_the_closing_rows() -> None:
    def progress(max_ts: int, late: int) -> str:
        rows = {"bids": {"rows": 10, "late": late, "late_in_new": 0, "early": 0, "unreadable": 0}}
        return msgspec.json.encode({"event": "progress", "max_ts": max_ts, "rows": rows}).decode()

    taken = '{"event":"feed taken over","id":"x","n":0,"tau":null}'
    assert late_rows("\n".join([taken, progress(50, 1), "no JSON"]), closing=100) is None
    assert late_rows("\n".join([taken, progress(50, 1), progress(100, 2), "half a li"]), closing=100) == 2
