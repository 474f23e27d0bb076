"""NEXMark's hot items: the number of bids on each auction, per sliding window.

Plans, both conservative (append mode, results are final), physically different:

    direct   every row goes into each of its width / slide windows, which are counted
    panes    rows are counted once, in panes as long as the slide; a window adds up its panes

With few windows per row `direct` has one stage of state less; with many, `panes` keeps each row's work constant.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from lmerge.errors import UsageError
from lmerge.properties import Results, after_grouped_aggregate, source
from replicas.query import EVENT_TIME, Plan, Query, Sources
from replicas.windows import Windows


def _milliseconds(length: int) -> str:
    return f"{length} milliseconds"


def _window(time: Column, width_ms: int, slide_ms: int) -> Column:
    return F.window(time, _milliseconds(width_ms), _milliseconds(slide_ms)).alias("window")


def _result(counted: DataFrame) -> DataFrame:
    """Give a window's count that window as its lifetime."""
    return counted.select(
        "auction",
        "count",
        F.unix_millis("window.start").alias("vs"),
        F.unix_millis("window.end").alias("ve"),
    )


def direct(sources: Sources, windows: Windows) -> DataFrame:
    """Count the rows of each window."""
    window = _window(F.col(EVENT_TIME), windows.width_ms, windows.slide_ms)
    return _result(sources["bids"].groupBy(window, "auction").agg(F.count("*").alias("count")))


def panes(sources: Sources, windows: Windows) -> DataFrame:
    """Count the rows of each pane, and add up the panes of each window."""
    pane = _window(F.col(EVENT_TIME), windows.slide_ms, windows.slide_ms)
    partial = sources["bids"].groupBy(pane, "auction").agg(F.count("*").alias("part"))
    # window_time keeps the watermark for the second aggregation; a join or group on window.start would lose it.
    timed = partial.select(F.window_time("window").alias("pane_time"), "auction", "part")
    window = _window(F.col("pane_time"), windows.width_ms, windows.slide_ms)
    return _result(timed.groupBy(window, "auction").agg(F.sum("part").alias("count")))


def _whole_panes(windows: Windows) -> None:
    if windows.width_ms % windows.slide_ms:
        raise UsageError(
            f"plan panes: a window of {windows.width_ms} ms is no whole number of panes of {windows.slide_ms} ms; "
            "choose a slide that divides the width, or the plan direct"
        )


def _width(windows: Windows) -> int:
    """Return how far a row reaches: panes lie inside of their windows, so they add nothing."""
    return windows.width_ms


_ROWS = source()
_COUNTED = after_grouped_aggregate(_ROWS, Results.FINAL, common_bounds=True)

QUERY = Query(
    name="hot_items",
    sources={"bids": {"auction": int}},
    key=("auction",),
    windows=Windows(width_ms=10_000, slide_ms=2_000),
    plans={
        "direct": Plan(build=direct, properties=_COUNTED, reach_ms=_width),
        "panes": Plan(
            build=panes,
            properties=after_grouped_aggregate(_COUNTED, Results.FINAL, common_bounds=True),
            check=_whole_panes,
            reach_ms=_width,
        ),
    },
)
