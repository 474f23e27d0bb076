"""Where a replica without a checkpoint starts, and from where on it is complete (recovery-and-sink.md 5.8)."""

import pytest

from lmerge.errors import UsageError
from lmerge.feed import Heartbeat
from replicas.start import Start, joins_at


def beat(n: int, max_ts: int | None) -> Heartbeat:
    return Heartbeat(feed="f", n=n, tau=None, ceiling=None, max_ts=max_ts, ends={"bids": (n,)})


BEATS = [beat(0, None), beat(1, None), beat(2, 100), beat(3, 100), beat(4, 170)]


def chosen(text: str) -> list[int]:
    start = Start.parse(text)
    return [heartbeat.n for heartbeat in BEATS if start.accepts(heartbeat)]


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("first", [0]),
        ("latest", [0, 1, 2, 3, 4]),
        ("heartbeat:3", [0, 1, 2, 3]),
        ("time:100", [0, 1]),
        ("time:101", [0, 1, 2, 3]),
        ("time:1000", [0, 1, 2, 3, 4]),
        ("time:1970-01-01T00:00:00.101Z", [0, 1, 2, 3]),
        ("time:1970-01-01T01:00:00.101+01:00", [0, 1, 2, 3]),
    ],
)
def test_heartbeats_are_accepted_up_to_the_one_where_to_start(text: str, accepted: list[int]) -> None:
    assert chosen(text) == accepted


@pytest.mark.parametrize(
    "text", ["", "newest", "heartbeat", "heartbeat:-1", "heartbeat:x", "time:", "time:x", "first:1"]
)
def test_what_is_no_start_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(UsageError, match="first, latest, heartbeat:NUMBER"):
        Start.parse(text)


def test_a_heartbeat_that_is_not_there_yet_is_named() -> None:
    Start("heartbeat", 4).require_found(BEATS[4])
    Start("time", 10**9).require_found(BEATS[4])
    with pytest.raises(UsageError, match="start at heartbeat 9: the newest is 4"):
        Start("heartbeat", 9).require_found(BEATS[4])


def test_j2_a_window_of_10_started_at_100_joins_at_110() -> None:
    """One less loses the event [99, 109), which ends at J and has a row that was not read."""
    assert joins_at(beat(7, 99), 10) == 110


def test_before_any_row_a_start_is_complete_whatever_the_plan() -> None:
    assert joins_at(BEATS[1], 10) is None
    assert joins_at(BEATS[1], None) is None


def test_without_a_bound_on_how_far_a_row_reaches_there_is_no_cold_start() -> None:
    with pytest.raises(UsageError, match="start at the first heartbeat"):
        joins_at(BEATS[2], None)
