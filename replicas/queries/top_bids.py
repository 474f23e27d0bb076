"""The three highest bids of every tumbling window, in the order of their rank. Merged by R1.

The ranking is total: by price, and of equal prices the smaller bid id comes first. So every plan gives each bid the
same rank, and the sink writes the results of a window in that order.

Conservative plans, physically different:

    direct   the bids of a window are kept until it ends, then the best are taken
    panes    the best of each pane, a tenth of a window, and of those the best: a pane's bids are all that is kept

Plans that answer before a window closes, and revise; merged with the others by R3: `eager`, `ordered`.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from lmerge.errors import UsageError
from lmerge.properties import Results, after_top_k, source
from replicas.early import early_plan
from replicas.frames import pane, timed, window, with_lifetime
from replicas.operators import Mode, top
from replicas.query import EVENT_TIME, Plan, Query, Sources
from replicas.windows import Windows

K: Final = 3
PANES: Final = 10


def _best(bids: Column) -> Column:
    """Return the best of bids; structs compare field by field, so ties are broken by ~id, which reverses every id."""
    return F.slice(F.sort_array(bids, asc=False), 1, K).alias("best")


def _bid() -> Column:
    return F.struct("price", F.bitwise_not("id").alias("reversed_id"), "auction", "bidder")


def _ranked(results: DataFrame) -> DataFrame:
    ranked = results.select("window", F.posexplode("best").alias("place", "bid"))
    return with_lifetime(
        ranked,
        (F.col("place") + 1).alias("rank"),
        F.col("bid.price").alias("price"),
        F.bitwise_not("bid.reversed_id").alias("bid"),
        F.col("bid.auction").alias("auction"),
        F.col("bid.bidder").alias("bidder"),
    )


def direct(sources: Sources, windows: Windows) -> DataFrame:
    """Take the best of a window's bids."""
    grouped = sources["bids"].groupBy(window(F.col(EVENT_TIME), windows))
    return _ranked(grouped.agg(_best(F.collect_list(_bid()))))


def panes(sources: Sources, windows: Windows) -> DataFrame:
    """Take the best of each pane's bids, and of those the best."""
    grouped = sources["bids"].groupBy(pane(F.col(EVENT_TIME), windows.slide_ms // PANES))
    parts = timed(grouped.agg(_best(F.collect_list(_bid()))), "best")
    again = parts.groupBy(window(F.col("pane_time"), windows))
    return _ranked(again.agg(_best(F.flatten(F.collect_list("best")))))


def _whole_panes(windows: Windows) -> None:
    windows.require_whole_panes()
    if windows.slide_ms % PANES:
        raise UsageError(
            f"plan panes: a slide of {windows.slide_ms} ms is no whole number of {PANES} panes; choose a multiple of "
            f"{PANES} ms, or the plan direct"
        )


def early(mode: Mode) -> Plan:
    """Rank the bids of each window as they come."""
    return early_plan(
        mode,
        top(K),
        of=["price", "~id AS reversed_id", "auction", "bidder"],
        result=["rank", "price", "~reversed_id AS bid", "auction", "bidder"],
    )


# A rank comes once in a window, which no plan's shape tells.
_RANKED: Final = after_top_k(source(), Results.FINAL, rank_in_payload=True)

QUERY = Query(
    name="top_bids",
    sources={"bids": {"id": int, "auction": int, "bidder": int, "price": int}},
    key=("auction",),
    rank="rank",
    windows=Windows(width_ms=10_000, slide_ms=10_000),
    plans={
        "direct": Plan(build=direct, properties=_RANKED),
        "panes": Plan(build=panes, properties=_RANKED, check=_whole_panes, reach_ms=Windows.reach_of_panes_ms),
        "eager": early(Mode.EAGER),
        "ordered": early(Mode.ORDERED),
    },
)
