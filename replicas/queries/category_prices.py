"""The average price of bids per category of their auction, per tumbling window, exactly. Merged by R2.

A bid counts if it came in the first 20 seconds of its auction. The average is in cents with two decimals, rounded half
up, and made of integers alone: an average of floats would depend on the order of the rows.

Plans, both conservative, physically different:

    direct       bids find their auction, and each joined row goes into the sum of its category
    by_auction   the other order of the join, and sums per auction first, then of those per category
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from replicas.frames import pane, timed, window, with_lifetime
from replicas.query import EVENT_TIME, Plan, Query, Sources
from replicas.windows import Windows


def _bids(sources: Sources) -> DataFrame:
    return sources["bids"].select("auction", "price", F.col(EVENT_TIME).alias("bid_time"))


def _auctions(sources: Sources) -> DataFrame:
    return sources["auctions"].select("id", "category", F.col(EVENT_TIME).alias("opened"))


def _matches() -> Column:
    return F.expr("auction = id and bid_time >= opened and bid_time < opened + interval 20 seconds")


def _total(prices: str) -> Column:
    """Return a sum that has room for any prices."""
    return F.sum(F.col(prices).cast("decimal(28, 0)"))


def _result(summed: DataFrame) -> DataFrame:
    """Divide: whole cents, which fit wherever prices do, and hundredths of the rest, rounded half up."""
    rest = "(200 * cast(total % bids AS bigint) + bids)"
    hundredths = F.expr(
        f"100 * cast(total div bids AS decimal(20, 0)) + ({rest} - pmod({rest}, 2 * bids)) div (2 * bids)"
    ).cast("decimal(23, 0)")
    average = (hundredths * F.expr("0.01BD")).cast("string").alias("average")
    return with_lifetime(summed, "category", "bids", average)


def direct(sources: Sources, windows: Windows) -> DataFrame:
    """Join, then sum per category."""
    joined = _bids(sources).join(_auctions(sources), _matches())
    grouped = joined.groupBy(window(F.col("bid_time"), windows), "category")
    return _result(grouped.agg(_total("price").alias("total"), F.count("*").alias("bids")))


def by_auction(sources: Sources, windows: Windows) -> DataFrame:
    """Join, sum per auction and pane, then per category and window."""
    joined = _auctions(sources).join(_bids(sources), _matches())
    grouped = joined.groupBy(pane(F.col("bid_time"), windows.slide_ms), "auction", "category")
    parts = timed(grouped.agg(_total("price").alias("part"), F.count("*").alias("rows")), "category", "part", "rows")
    again = parts.groupBy(window(F.col("pane_time"), windows), "category")
    return _result(again.agg(_total("part").alias("total"), F.sum("rows").alias("bids")))


def _reach_ms(windows: Windows) -> int:
    """Return how far a row reaches: an auction lies at most 20 s before its bids."""
    return windows.reach_of_panes_ms() + 20_000


QUERY = Query(
    name="category_prices",
    sources={"bids": {"auction": int, "price": int}, "auctions": {"id": int, "category": int}},
    key=("category",),
    windows=Windows(width_ms=10_000, slide_ms=10_000),
    plans={
        "direct": Plan(build=direct),
        "by_auction": Plan(build=by_auction, check=Windows.require_whole_panes, reach_ms=_reach_ms),
    },
)
