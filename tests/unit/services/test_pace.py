"""When the lanes of a merge commit."""

import pytest

from lmerge.kafka import Batch
from services.clock import now_ms
from services.merge.pace import Pace, Schedule

PACE = Pace(commit_seconds=0.02, catch_up_seconds=0.1)


def batches(*ages_ms: int) -> list[Batch]:
    return [Batch(range(1), [b""], now_ms() - age) for age in ages_ms]


@pytest.mark.parametrize(
    ("ages_ms", "commit_seconds", "expected"),
    [
        ([], 0.02, 0.02),
        ([5_000, 60_000], 0.02, 0.1),
        ([5, 60_000], 0.02, 0.02),  # one is in time: its consumers wait
        ([5_000], 0.5, 0.5),
    ],
)
def test_a_backlog_is_committed_less_often(ages_ms: list[int], commit_seconds: float, expected: float) -> None:
    assert Pace(commit_seconds=commit_seconds).interval(batches(*ages_ms)) == expected


def test_after_a_silence_the_rest_of_what_has_begun_to_come_is_waited_for() -> None:
    schedule = Schedule(PACE)
    schedule.came([], 10.0)
    assert schedule.due < 10.0
    schedule.came(batches(5), 10.0)
    schedule.came(batches(5), 10.003)
    assert schedule.due == schedule.soonest == pytest.approx(10.005)
    schedule.tried(10.005, has_committed=True)
    assert schedule.due == pytest.approx(10.025)
    schedule.came([], 10.025)
    schedule.came(batches(5), 10.026)
    assert schedule.due == pytest.approx(10.031)


def test_where_there_is_always_something_nothing_is_waited_for_but_the_interval() -> None:
    schedule = Schedule(PACE)
    schedule.came(batches(5), 10.0)
    schedule.tried(10.005, has_committed=True)
    for commit in (10.025, 10.045):
        assert schedule.soonest == pytest.approx(commit)
        schedule.came(batches(5), commit)
        assert schedule.due == pytest.approx(commit)
        schedule.tried(commit, has_committed=True)


def test_the_first_that_came_after_a_silence_waits_no_longer_for_those_behind_it() -> None:
    schedule = Schedule(PACE)
    for records, now in ((batches(5), 10.0), ([], 10.001), (batches(5), 10.002), ([], 10.003), (batches(5), 10.004)):
        schedule.came(records, now)
    assert schedule.due == pytest.approx(10.005)


def test_that_nothing_comes_between_two_commits_is_no_silence() -> None:
    schedule = Schedule(PACE)
    schedule.came(batches(5), 10.0)
    schedule.tried(10.005, has_committed=True)
    schedule.came([], 10.006)
    schedule.came(batches(5), 10.025)
    assert schedule.due == pytest.approx(10.025)


def test_where_there_was_nothing_to_commit_the_next_that_comes_waits_for_no_interval() -> None:
    schedule = Schedule(PACE)
    schedule.tried(10.0, has_committed=True)
    schedule.came(batches(5), 10.02)
    schedule.tried(10.02, has_committed=False)
    schedule.came(batches(5), 10.021)
    assert schedule.due < 10.021


def test_a_backlog_is_committed_less_often_and_what_is_in_time_behind_it_is_not_held_up() -> None:
    schedule = Schedule(PACE)
    schedule.tried(10.0, has_committed=True)
    schedule.came(batches(5_000), 10.01)
    assert (schedule.due, schedule.soonest) == pytest.approx((10.1, 10.02))
    schedule.came(batches(5_000, 5), 10.02)
    assert schedule.due == pytest.approx(10.02)
