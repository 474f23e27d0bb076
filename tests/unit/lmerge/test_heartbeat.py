"""The rules for rows, and heartbeats on the wire, by literal examples."""

from typing import Any

import pytest

from lmerge.errors import IllegalElement, MalformedRecord
from lmerge.feed import (
    Heartbeat,
    Segment,
    counts,
    is_early,
    is_late,
    segments,
)


def test_rows_at_the_promise_are_late_and_rows_above_the_ceiling_early() -> None:
    assert [is_late(ts, 5) for ts in (4, 5, 6)] == [True, True, False]
    assert [is_early(ts, 9) for ts in (9, 10)] == [False, True]
    assert [counts(ts, tau_before=5, ceiling=9) for ts in (None, 5, 6, 9, 10)] == [False, False, True, True, False]
    assert not is_late(-(10**9), None)
    assert not is_early(10**18, None)


def heartbeat(n: int, tau: int | None = None, *ends: int, **changes: Any) -> Heartbeat:
    fields = {"feed": "f", "n": n, "tau": tau, "ceiling": None, "max_ts": None, "ends": {"bids": ends}}
    return Heartbeat(**{**fields, **changes})


def test_an_offset_belongs_to_the_heartbeat_that_moved_past_it() -> None:
    before, after = heartbeat(3, None, 2, 7), heartbeat(4, None, 5, 7, 1)
    assert [after.holds("bids", 0, offset, before=before) for offset in (1, 2, 4, 5)] == [False, True, True, False]
    assert not after.holds("bids", 1, 7, before=before)
    assert after.holds("bids", 2, 0, before=before)  # a new partition begins at 0
    assert not after.holds("auctions", 0, 0, before=before)


def test_segments_divide_a_partition_among_heartbeats() -> None:
    cuts = [heartbeat(3, None, 2), heartbeat(4, 9, 2, 1), heartbeat(5, 12, 6, 1, ceiling=77), heartbeat(6, 13, 8, 4)]
    assert segments(cuts, "bids", 0) == [Segment(2, 6, 9, 77), Segment(6, 8, 12, None)]
    assert segments(cuts, "bids", 1) == [Segment(0, 1, None, None), Segment(1, 4, 12, None)]
    assert segments(cuts, "bids", 2) == []
    assert segments(cuts[:1], "bids", 0) == []


# wire


def test_the_wire_form_is_as_documented() -> None:
    value = (
        b'{"kind":"heartbeat","v":1,"feed":"f","n":17,"tau":5,"ceiling":null,"max_ts":9,"ends":{"bids":[1,2],'
        b'"auctions":[3]}}'
    )
    ends = {"bids": (1, 2), "auctions": (3,)}
    beat = Heartbeat(feed="f", n=17, tau=5, ceiling=None, max_ts=9, ends=ends)
    assert beat.encode() == value
    assert Heartbeat.decode(value) == beat
    assert Heartbeat.decode(value[:-1] + b',"later":[true]}') == beat


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"heartbeat"', b'"stable"', "Invalid value 'stable'"),
        (b'"v":1', b'"v":2', r"\$\.v"),
        (b'"n":17', b'"n":-1', r"\$\.n"),
        (b'"n":17', b'"n":"17"', r"\$\.n"),
        (b'"feed":"f"', b'"feed":""', r"\$\.feed"),
        (b'"tau":5,', b"", "missing required field `tau`"),
        (b'"tau":5', b'"tau":9223372036854775807', r"\$\.tau"),
        (b'"tau":5', b'"tau":5.5', r"\$\.tau"),
        (b"[1,2]", b"[1,-2]", r"\$\.ends"),
        (b"}}", b"}", "truncated"),
    ],
)
def test_malformed_heartbeats_say_what_is_wrong(old: bytes, new: bytes, message: str) -> None:
    value = b'{"kind":"heartbeat","v":1,"feed":"f","n":17,"tau":5,"ceiling":null,"max_ts":9,"ends":{"bids":[1,2]}}'
    with pytest.raises(MalformedRecord, match=f"no heartbeat: .*{message}.*the record begins"):
        Heartbeat.decode(value.replace(old, new))


def test_a_tombstone_is_no_heartbeat() -> None:
    with pytest.raises(MalformedRecord, match="tombstone"):
        Heartbeat.decode(None)


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (heartbeat(4, 6, 3, 3, feed="g"), "of feed g"),
        (heartbeat(5, 6, 3, 3), "5 comes after 3"),
        (heartbeat(3, 6, 3, 3), "3 comes after 3"),
        (heartbeat(4, 4, 3, 3), "tau goes back from 5 to 4"),
        (heartbeat(4, None, 3, 3), "tau goes back from 5 to None"),
        (heartbeat(4, 5, 3, 3, max_ts=8), "max_ts goes back from 9 to 8"),
        (heartbeat(4, 5, 3, 1, max_ts=9), "bids/1 goes back from 2"),
        (heartbeat(4, 5, 3, max_ts=9), "bids/1 goes back from 2"),
    ],
)
def test_a_heartbeat_that_cannot_follow_is_named(after: Heartbeat, message: str) -> None:
    before = heartbeat(3, 5, 1, 2, max_ts=9)
    heartbeat(4, 5, 1, 2, 0, max_ts=9).require_follows(before)
    with pytest.raises(IllegalElement, match=message):
        after.require_follows(before)
