"""What a batch becomes in the lanes."""

import json
import random
import zlib
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pytest

from lmerge import INFINITY, TDB, Adjust, Insert, Skip, Stable
from lmerge.codec import decode, decode_batch
from lmerge.errors import UsageError
from lmerge.kafka import KeyValue
from replicas import emit
from replicas.emit import lane_of, stable_of, with_element
from replicas.windows import Windows

SLIDING = Windows(width_ms=10, slide_ms=5)


Row = Mapping[str, int | None]


def table(rows: Sequence[Row]) -> pa.Table:
    names = [*rows[0]] if rows else ["auction", "vs", "ve"]
    return pa.table({name: pa.array([row.get(name) for row in rows], pa.int64()) for name in names})


def records_of(
    rows: Sequence[Row], *, key: Sequence[str], lanes: int, rank: str | None = None
) -> dict[int, list[KeyValue]]:
    return emit.records_of(table(rows), key=key, lanes=lanes, rank=rank)


def require_lifetimes(rows: Sequence[Row], windows: Windows, promised: int | None) -> None:
    emit.require_lifetimes(table(rows), windows, promised)


def row(auction: int, count: int, vs: int) -> dict[str, int]:
    return {"auction": auction, "count": count, "vs": vs, "ve": vs + 10}


def test_a_row_becomes_an_insert_under_the_canonical_json_of_its_key() -> None:
    records = records_of([row(7, 3, 1000)], key=("auction",), lanes=1)
    assert records == {
        0: [(b'{"auction":7}', b'{"kind":"insert","payload":{"auction":7,"count":3},"vs":1000,"ve":1010}')]
    }


def test_without_a_key_the_whole_payload_places_a_row() -> None:
    (record,) = records_of([row(7, 3, 1000)], key=(), lanes=1)[0]
    assert record[0] == b'{"auction":7,"count":3}'


def test_a_lane_is_the_crc32_of_the_key_whatever_else_the_row_holds() -> None:
    rows = [row(auction, count, 1000) for auction in range(200) for count in (1, 2)]
    for lane, records in records_of(rows, key=("auction",), lanes=7).items():
        for key, _ in records:
            assert key is not None
            assert lane == zlib.crc32(key) % 7 == lane_of(key, 7)


def test_the_records_are_a_function_of_the_set_of_rows() -> None:
    rows = [row(auction, 1 + auction % 3, vs) for auction in range(40) for vs in (1000, 1005, 1010)]
    expected = records_of(rows, key=("auction",), lanes=3)
    for seed in range(5):
        random.Random(seed).shuffle(rows)
        assert records_of(rows, key=("auction",), lanes=3) == expected


def test_s8_a_lane_is_in_the_order_of_vs_then_payload() -> None:
    rows = [row(auction, 1, vs) for vs in (1010, 1000, 1005) for auction in (100, 20, 3)]
    elements, error = decode_batch([value for _, value in records_of(rows, key=("auction",), lanes=1)[0]])
    assert error is None
    order = [(element.vs, element.payload) for element in elements if isinstance(element, Insert)]
    assert order == sorted(order)
    assert len(order) == 9


def test_a_lane_is_in_the_order_of_the_rank_where_the_query_has_one() -> None:
    rows = [row(auction, 10 - auction, vs) for vs in (1010, 1000) for auction in (1, 10, 5)]
    values = [json.loads(value or b"") for _, value in records_of(rows, key=("auction",), lanes=1, rank="count")[0]]
    assert [(value["vs"], value["payload"]["count"]) for value in values] == [
        (vs, count) for vs in (1000, 1010) for count in (0, 5, 9)
    ]


@pytest.mark.parametrize(
    ("vs", "ve", "promised", "said"),
    [
        (1000, 1010, 1005, "came after it was promised that all before 1005 are out"),
        (1001, 1011, None, r"lives \[1001, 1011\), which is none of the query's windows"),
        (1000, 1011, None, "none of the query's windows"),
        (None, 1010, None, "has a null in 'vs'"),
    ],
)
def test_a_result_that_breaks_a_promise_stops_the_replica(
    vs: int | None, ve: int, promised: int | None, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        require_lifetimes([row(1, 1, 1005), {"auction": 1, "vs": vs, "ve": ve}], SLIDING, promised)


def test_results_in_the_querys_windows_and_behind_its_promise_are_taken() -> None:
    require_lifetimes([row(1, 1, 1000), row(1, 1, 1005)], SLIDING, 1000)
    require_lifetimes([row(1, 1, 1000)], SLIDING, None)


def said(sequence: int, vs: int, ve: int, vold: int | None = None) -> Row:
    """Make a row of an operator."""
    return {"auction": 7, "vs": vs, "ve": ve, "_sequence": sequence, "_vold": vold}


def test_an_operators_rows_may_be_removed_and_have_an_open_end_but_no_other_lifetime() -> None:
    require_lifetimes([said(0, 1000, 1010), said(1, 1000, 1000, 1010)], SLIDING, 1000)
    require_lifetimes([said(0, 1000, INFINITY), said(1, 1000, 1010, INFINITY)], SLIDING, 1000)
    for wrong in (said(0, 1000, 1011, 1010), said(0, 1000, 1000, 1011)):
        with pytest.raises(UsageError, match="none of the query's windows"):
            require_lifetimes([wrong], SLIDING, 1000)
    with pytest.raises(UsageError, match="came after it was promised"):
        require_lifetimes([said(0, 1000, 1010, INFINITY)], SLIDING, 1005)


def test_a_batch_takes_back_then_skips_then_says_what_is_new_and_promises_last() -> None:
    """As in F4: what will not be finished is gone before the skip."""
    rows = [said(1, 1025, 1025, 1035), said(0, 1025, 1035), said(-1, 1005, 1005, 1015), said(-2, 1000, 1000, 1010)]
    records = emit.batch_of(table(rows), Skip(1020), Stable(1020), key=("auction",), lanes=1, before=1020)
    elements, error = decode_batch([value for _, value in records[0]])
    assert error is None
    payload = b'{"auction":7}'
    assert elements == [
        Adjust(payload, 1000, 1010, 1000),
        Adjust(payload, 1005, 1015, 1005),
        Skip(1020),
        Insert(payload, 1025, 1035),
        Adjust(payload, 1025, 1035, 1025),
        Stable(1020),
    ]


def test_nothing_that_an_operator_says_is_left_out() -> None:
    """It closes by itself what it skips: without the insert the end of it would be illegal."""
    rows = [said(0, 1000, 1010), said(1, 1000, 1000, 1010)]
    records = emit.batch_of(table(rows), Skip(1020), None, key=("auction",), lanes=1, before=1020)
    payload = b'{"auction":7}'
    assert [decode(value) for _, value in records[0]] == [
        Skip(1020),
        Insert(payload, 1000, 1010),
        Adjust(payload, 1000, 1010, 1000),
    ]


def test_a_conservative_batch_skips_first_and_leaves_out_what_ends_before() -> None:
    records = emit.batch_of(
        table([row(1, 1, 1000), row(1, 1, 1010)]), Skip(1020), None, key=("auction",), lanes=2, before=1020
    )
    assert all(decode(lane[0][1]) == Skip(1020) for lane in records.values())
    assert sorted(len(lane) for lane in records.values()) == [1, 2]


def test_a_batch_without_anything_to_say_has_no_records() -> None:
    assert emit.batch_of(table([]), None, None, key=("auction",), lanes=2) == {}


def test_a_result_without_a_lifetime_or_a_key_is_refused() -> None:
    with pytest.raises(UsageError, match="lacks the column 've'"):
        records_of([{"auction": 1, "vs": 0}], key=("auction",), lanes=1)
    with pytest.raises(UsageError, match="lacks the column 'bidder'"):
        records_of([row(1, 1, 0)], key=("bidder",), lanes=1)


def test_a_stable_closes_every_lane_also_those_without_rows() -> None:
    records = with_element(records_of([row(7, 3, 1000)], key=("auction",), lanes=4), Stable(1005), lanes=4)
    assert sorted(records) == [0, 1, 2, 3]
    assert all(decode(rows[-1][1]) == Stable(1005) for rows in records.values())
    assert sum(len(rows) for rows in records.values()) == 5


@pytest.mark.parametrize("windows", [SLIDING, Windows(width_ms=10, slide_ms=10), Windows(width_ms=7, slide_ms=3)])
def test_the_promise_is_the_start_of_the_earliest_window_that_has_not_ended(windows: Windows) -> None:
    for watermark in range(1, 100):
        starts = range(-20 * windows.slide_ms, 200, windows.slide_ms)
        expected = min(start for start in starts if start + windows.width_ms > watermark)
        assert stable_of(watermark, windows, None) == Stable(expected)


def test_before_the_first_heartbeat_nothing_is_promised_and_a_promise_is_made_once() -> None:
    assert stable_of(0, SLIDING, None) is None
    assert stable_of(24, SLIDING, 15) is None
    assert stable_of(25, SLIDING, 15) == Stable(20)


def test_a_plan_that_emits_windows_as_they_end_keeps_its_promises() -> None:
    tdb, last = TDB(), None
    for watermark in range(1, 200, 3):
        ended = [vs for vs in range(0, 200, 5) if watermark - 3 < vs + 10 <= watermark]
        records = records_of([row(1, 1, vs) for vs in ended], key=("auction",), lanes=1)
        stable = stable_of(watermark, SLIDING, last)
        if stable is not None:
            records, last = with_element(records, stable, lanes=1), stable.vc
        for element in decode_batch([value for _, value in records.get(0, [])])[0]:
            tdb.apply(element)
    assert tdb.stable == 190
    assert len(tdb) == 38


@pytest.mark.parametrize(("width", "slide"), [(10, 0), (5, 10)])
def test_windows_that_leave_rows_out_are_refused(width: int, slide: int) -> None:
    with pytest.raises(UsageError, match="windows"):
        Windows(width_ms=width, slide_ms=slide)
