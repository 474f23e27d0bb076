"""Rows for people: columns that are as wide as they must be, and times that can be read."""

from collections.abc import Sequence
from typing import Final

from services.moment import show_ms

_PLAUSIBLE: Final = range(100_000_000_000, 10_000_000_000_000)
"""Milliseconds that are a date between 1973 and 2286; other numbers are shown as they are."""


def show(*rows: Sequence[str]) -> str:
    """Align rows.

    >>> print(show(("a", "bb", "c"), ("aaa", "b", "")))
    a    bb  c
    aaa  b
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(line.rstrip() for line in lines)


def show_stable(stable: int | str | None) -> str:
    """Write how far something has come.

    >>> show_stable(1_767_225_600_001), show_stable(15), show_stable(None)
    ('2026-01-01T00:00:00.001Z', '15', '-')
    """
    if stable is None:
        return "-"
    return show_ms(stable) if isinstance(stable, int) and stable in _PLAUSIBLE else str(stable)


def show_lag(lag_ms: int | None) -> str:
    """Write a lag.

    >>> show_lag(250), show_lag(90_500), show_lag(None)
    ('250 ms', '90.5 s', '-')
    """
    if lag_ms is None:
        return "-"
    return f"{lag_ms} ms" if lag_ms < 10_000 else f"{lag_ms / 1_000:.1f} s"
