"""Heartbeats deduced from bounds, by literal examples; those of the paper are in tests/golden."""

import pytest

from lmerge.errors import UsageError
from lmerge.feed.bounds import Bound, Matrix
from lmerge.feed.estimators import AdaptiveBound, SkewEstimator
from lmerge.feed.generator import Generator, Group, Promise, minimum
from lmerge.feed.running_maximum import RunningMaximum

A, B = ("a", 0), ("b", 0)
A_TO_B: Matrix = {("a", "b"): (Bound(10, 5),)}


def two(bounds: Matrix = A_TO_B, *, timeout: int | None = None, idle: int | None = None) -> Generator:
    groups = {"a": Group(lag=1, idle=idle), "b": Group(lag=1, latency=20)}
    generator = Generator(groups, bounds, timeout=timeout)
    for source in (A, B):
        generator.add_source(source, tau=None, at=0)
    return generator


def test_a_bound_acts_after_its_delay_and_the_latency_of_its_target() -> None:
    generator = two()
    generator.arrive(A, 100, at=7)
    assert (generator.tau(A), generator.tau(B)) == (99, None)
    assert generator.due_at() == 7 + 10 + 20
    generator.advance(36)
    assert generator.tau(B) is None
    generator.advance(37)
    assert generator.tau(B) == 95
    assert generator.due_at() is None
    assert generator.promise(None) == Promise(95, by_idleness=False)


def test_what_can_change_nothing_is_not_waited_for() -> None:
    generator = two()
    generator.arrive(B, 200, at=0)
    generator.arrive(A, 100, at=5)
    assert generator.due_at() is None  # b has promised more by itself
    generator.arrive(A, 300, at=6)
    assert generator.due_at() == 36


def test_wall_time_that_goes_back_changes_nothing() -> None:
    generator = two()
    generator.arrive(A, 100, at=7)
    generator.advance(37)
    generator.advance(3)
    assert generator.tau(B) == 95


def test_the_timeout_releases_the_largest_timestamp_once_all_are_silent() -> None:
    generator = two({}, timeout=50)
    generator.arrive(A, 100, at=7)
    generator.arrive(B, 300, at=9)
    assert generator.due_at() == 59
    generator.advance(58)
    assert (generator.promise(None).tau, generator.timeouts) == (99, 0)
    generator.advance(59)
    assert (generator.promise(None).tau, generator.timeouts) == (300, 1)
    assert generator.due_at() is None
    generator.advance(200)
    assert generator.timeouts == 1


def test_before_anything_has_arrived_no_timeout_releases_anything() -> None:
    generator = two({}, timeout=50)
    assert generator.due_at() is None
    generator.advance(1_000)
    assert (generator.promise(None).tau, generator.timeouts) == (None, 0)


def test_a_timeout_releases_what_was_seen_before_a_take_over() -> None:
    generator = Generator({"a": Group(lag=1)}, {}, timeout=50, max_ts=77, at=1_000)
    generator.add_source(A, tau=10, at=1_000)
    assert generator.due_at() == 1_050
    generator.advance(1_050)
    assert generator.tau(A) == 77


def test_an_idle_source_is_left_out_until_it_speaks_and_moves_that_rest_on_it_are_told() -> None:
    generator = two({}, idle=50)
    generator.arrive(A, 100, at=0)
    generator.arrive(B, 300, at=40)
    assert generator.due_at() == 50
    generator.advance(49)
    assert generator.promise(None) == Promise(99, by_idleness=False)
    generator.advance(50)
    assert (generator.idle, generator.waits_for) == ([A], [B])
    assert generator.promise(99) == Promise(299, by_idleness=True)
    assert generator.promise(299) == Promise(299, by_idleness=False)  # nothing has moved since
    assert generator.due_at() is None
    generator.arrive(A, 150, at=60)
    assert generator.idle == []
    assert generator.promise(299) == Promise(299, by_idleness=False)  # it never falls


def test_where_all_are_idle_nothing_moves() -> None:
    generator = Generator({"a": Group(lag=1, idle=50)}, {})
    generator.add_source(A, tau=None, at=0)
    generator.arrive(A, 100, at=0)
    generator.advance(50)
    assert generator.promise(42) == Promise(42, by_idleness=False)


def test_the_minimum_of_nothing_is_nothing() -> None:
    assert minimum([]) is None
    assert minimum([3, None, 1]) is None
    assert minimum([3, 1]) == 1


def test_a_running_maximum_of_coarse_time_is_later_and_never_larger() -> None:
    exact, coarse = RunningMaximum(), RunningMaximum(10)
    for at, ts in [(0, 1), (4, 2), (9, 3), (10, 4), (25, 5)]:
        exact.add(ts, at=at)
        coarse.add(ts, at=at)
    assert [exact.until(at) for at in (0, 4, 9, 10, 25)] == [1, 2, 3, 4, 5]
    assert [coarse.until(at) for at in (0, 4, 9, 10, 25)] == [None, None, 3, 4, 5]
    coarse.forget(12)
    assert [coarse.until(at) for at in (9, 12, 25)] == [None, 4, 5]
    assert coarse.next_at(12, above=None) == 25
    assert coarse.next_at(12, above=5) is None


@pytest.mark.parametrize(("window", "weight", "message"), [(0, 0.5, "window 0"), (1, 1.5, "weight 1.5")])
def test_an_estimate_with_settings_that_cannot_be_is_refused(window: int, weight: float, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        AdaptiveBound(window=window, weight=weight)


def test_an_adaptive_estimate_that_never_falls_is_the_running_one() -> None:
    adaptive = SkewEstimator("12", longest=3, make=lambda: AdaptiveBound(window=1, weight=1.0))
    running = SkewEstimator("12", longest=3)
    for at, (source, ts) in enumerate([("1", 9), ("2", 4), ("1", 3), ("2", 8), ("2", 1), ("1", 20), ("2", 15)]):
        for estimator in (adaptive, running):
            estimator.arrive(source, ts, at=at)
    assert adaptive.bounds() == running.bounds()
