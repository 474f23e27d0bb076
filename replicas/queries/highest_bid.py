"""The highest bid of every tumbling window; of equal ones the first, which has the smallest id. Merged by R0.

Conservative plans, physically different:

    direct       one maximum per window; all rows of a window meet in one place
    by_auction   a maximum per auction first, spread over the cluster, then the maximum of those

Plans that answer before a window closes, and revise; merged with the others by R3: `eager`, `ordered`.

A maximum of structs compares them field by field, so that ties are broken by ~id: the greater the smaller the id is,
and unlike -id there for every id.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from replicas.early import early_plan
from replicas.frames import pane, timed, window, with_lifetime
from replicas.operators import Mode, maximum
from replicas.query import EVENT_TIME, Plan, Query, Sources
from replicas.windows import Windows


def _best(bid: Column) -> Column:
    return F.max(bid).alias("best")


def _bid() -> Column:
    return F.struct("price", F.bitwise_not("id").alias("reversed_id"), "auction", "bidder")


def _result(found: DataFrame) -> DataFrame:
    bid = F.bitwise_not("best.reversed_id").alias("bid")
    return with_lifetime(found, "best.price", bid, "best.auction", "best.bidder")


def direct(sources: Sources, windows: Windows) -> DataFrame:
    """Take the best of each window's bids."""
    return _result(sources["bids"].groupBy(window(F.col(EVENT_TIME), windows)).agg(_best(_bid())))


def by_auction(sources: Sources, windows: Windows) -> DataFrame:
    """Take the best of each auction's bids, and of those the best."""
    grouped = sources["bids"].groupBy(pane(F.col(EVENT_TIME), windows.slide_ms), "auction")
    parts = timed(grouped.agg(_best(_bid())), "best")
    return _result(parts.groupBy(window(F.col("pane_time"), windows)).agg(_best(F.col("best"))))


def early(mode: Mode) -> Plan:
    """Take the best of each window's bids as they come."""
    return early_plan(
        mode,
        maximum(),
        of=["price", "~id AS reversed_id", "auction", "bidder"],
        result=["price", "~reversed_id AS bid", "auction", "bidder"],
    )


QUERY = Query(
    name="highest_bid",
    sources={"bids": {"id": int, "auction": int, "bidder": int, "price": int}},
    key=("auction",),
    windows=Windows(width_ms=10_000, slide_ms=10_000),
    plans={
        "direct": Plan(build=direct),
        "by_auction": Plan(build=by_auction, check=Windows.require_whole_panes, reach_ms=Windows.reach_of_panes_ms),
        "eager": early(Mode.EAGER),
        "ordered": early(Mode.ORDERED),
    },
)
