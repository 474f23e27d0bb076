"""NEXMark's hot items: the number of bids on each auction, per sliding window. Merged by R2.

Conservative plans (append mode, results are final), physically different:

    direct   every row goes into each of its width / slide windows, which are counted
    panes    rows are counted once, in panes as long as the slide; a window adds up its panes

With few windows per row `direct` has one stage of state less; with many, `panes` keeps each row's work constant.

Plans that answer before a window closes, and revise; merged with the others by R3:

    eager    counts as they are now, in windows that end where they end
    ordered  the same, but a window has no end until rows have come to it
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from replicas.early import early_plan
from replicas.frames import pane, timed, window, with_lifetime
from replicas.operators import Mode, count
from replicas.query import EVENT_TIME, Plan, Query, Sources
from replicas.windows import Windows


def direct(sources: Sources, windows: Windows) -> DataFrame:
    """Count the rows of each window."""
    grouped = sources["bids"].groupBy(window(F.col(EVENT_TIME), windows), "auction")
    return with_lifetime(grouped.agg(F.count("*").alias("count")), "auction", "count")


def panes(sources: Sources, windows: Windows) -> DataFrame:
    """Count the rows of each pane, and add up the panes of each window."""
    grouped = sources["bids"].groupBy(pane(F.col(EVENT_TIME), windows.slide_ms), "auction")
    parts = timed(grouped.agg(F.count("*").alias("part")), "auction", "part")
    counted = parts.groupBy(window(F.col("pane_time"), windows), "auction").agg(F.sum("part").alias("count"))
    return with_lifetime(counted, "auction", "count")


def early(mode: Mode) -> Plan:
    """Count the rows of each window as they come."""
    return early_plan(mode, count(), by=["auction"], result=["auction", "answer AS count"])


QUERY = Query(
    name="hot_items",
    sources={"bids": {"auction": int}},
    key=("auction",),
    windows=Windows(width_ms=10_000, slide_ms=2_000),
    plans={
        "direct": Plan(build=direct),
        "panes": Plan(build=panes, check=Windows.require_whole_panes, reach_ms=Windows.reach_of_panes_ms),
        "eager": early(Mode.EAGER),
        "ordered": early(Mode.ORDERED),
    },
)
