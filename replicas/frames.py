"""Pieces that plans written in Python share: windows over a time, panes of them, and lifetimes of results."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from replicas.windows import Windows


def window(time: Column, windows: Windows) -> Column:
    """Return the windows of a time, to group by."""
    return _window(time, windows.width_ms, windows.slide_ms)


def pane(time: Column, length_ms: int) -> Column:
    """Return the pane of a time: of the pieces, so long and without gaps, that windows are put together from."""
    return _window(time, length_ms, length_ms)


def timed(panes: DataFrame, *columns: str) -> DataFrame:
    """Return results of panes with `pane_time`, a time inside the pane, for windows over it.

    `window_time` keeps the watermark for the second aggregation; a join or group on window.start would lose it.
    """
    return panes.select(F.window_time("window").alias("pane_time"), *columns)


def with_lifetime(results: DataFrame, *columns: str | Column) -> DataFrame:
    """Return these columns, and the window of each result as its lifetime."""
    return results.select(*columns, F.unix_millis("window.start").alias("vs"), F.unix_millis("window.end").alias("ve"))


def _window(time: Column, width_ms: int, slide_ms: int) -> Column:
    return F.window(time, f"{width_ms} milliseconds", f"{slide_ms} milliseconds").alias("window")
