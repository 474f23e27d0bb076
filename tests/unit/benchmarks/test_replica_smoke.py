"""What `python -m benchmarks.replica` is made of, without Spark: its cases, their rows, its bars."""

import msgspec
import pytest

from benchmarks import replica
from benchmarks.replica import QUICK, SIZES, part_of
from benchmarks.spark_feed import AUCTIONS, BIDS, PARTITIONS, SMALL, Row, auction_row, bid_row
from lmerge.errors import UsageError
from replicas.loader import load_query, shipped_queries

CASES = [(size, *each.partition("/")[::2]) for size in (*SIZES, *QUICK) for each in size.plans]
QUERIES = {*shipped_queries()} - {"classified_bids"}


def _row(side: str, rows_per_batch: int, speed: int) -> Row:
    time = rows_per_batch / speed * 1000
    return {"query": "q", "plan": side, "rows_per_batch": rows_per_batch, "batch_p50_ms": time, "rows_per_s": speed}


def test_every_query_is_measured_in_batches_of_20_000_rows_and_a_join_in_larger_ones() -> None:
    assert {query for size, query, _ in CASES if size.rows == 20_000} == QUERIES
    assert any(size.rows == 100_000 and AUCTIONS in load_query(query).sources for size, query, _ in CASES)


def test_all_plans_are_conservative_and_read_what_the_feed_has() -> None:
    for size, name, plan in CASES:
        query = load_query(name)
        assert query.plan(plan).operator is None
        assert {*query.sources} == ({BIDS, AUCTIONS} if size.bids_per_auction else {BIDS})


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_rows_have_the_fields_that_a_query_reads(name: str) -> None:
    rows = {BIDS: bid_row(7, auction=3, price=5, ts=1), AUCTIONS: auction_row(3, ts=1)}
    for source, schema in load_query(name).sources.items():
        row = msgspec.json.decode(rows[source])
        assert {field: type(row[field]) for field in schema} == dict(schema)


@pytest.mark.parametrize("size", [*SIZES, *QUICK])
def test_batches_are_a_whole_number_of_rows_in_each_partition(size: replica.Size) -> None:
    assert size.rows % (PARTITIONS * (size.bids_per_auction or 1)) == 0


def test_a_part_is_a_query_a_plan_or_a_size() -> None:
    joins = part_of(SIZES, "bids_with_auction", None)
    assert [(size.rows, *size.plans) for size in joins] == [
        (20_000, "bids_with_auction/bids_first"),
        (100_000, "bids_with_auction/bids_first"),
    ]
    (other,) = part_of(SIZES, "category_prices/by_auction", None)
    assert [*other.plans] == ["category_prices/by_auction"]
    assert {size.rows for size in part_of(SIZES, None, 200)} == {200}
    assert part_of(SIZES, None, None) == [*SIZES]


@pytest.mark.parametrize(
    ("only", "rows"), [("nothing", None), ("hot_items/eager", None), ("hot_items/none", None), ("top_bids", 200)]
)
def test_what_is_not_measured_is_refused(only: str, rows: int | None) -> None:
    with pytest.raises(UsageError):
        part_of(SIZES, only, rows)


def test_small_batches_are_judged_by_their_time_and_others_by_rows_per_second() -> None:
    small = replica._bar((_row("replica", SMALL - 1, 100), _row("spark", SMALL - 1, 140)))
    large = replica._bar((_row("replica", SMALL, 70), _row("spark", SMALL, 100)))
    assert (small.value, small.at_most, small.met) == (1.4, 1.5, True)
    assert (large.value, large.at_least, large.met) == (0.7, 0.8, False)
