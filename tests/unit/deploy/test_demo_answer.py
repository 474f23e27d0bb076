"""DuckDB's answer against counting by hand, over a small file of the workload."""

from collections import Counter
from pathlib import Path

import pytest

from deploy.demo.answer import Result, answer
from services.workload.nexmark import Parameters, Row, close_rows, rows
from services.workload.sinks import FileSink


def counted(bids: list[Row], width: int, slide: int) -> set[Result]:
    """Go through all windows that could hold a row, one by one."""
    windows: Counter[tuple[int, int]] = Counter()
    for bid in bids:
        for vs in range(bid.ts - bid.ts % slide - 10 * slide, bid.ts + 1, slide):
            if vs <= bid.ts < vs + width:
                windows[int(bid.fields["auction"]), vs] += 1
    return {Result(auction, count, vs, vs + width) for (auction, vs), count in windows.items()}


@pytest.mark.parametrize(("width", "slide"), [(5_000, 1_000), (2_000, 2_000), (2_500, 1_000)])
def test_answer_counts_each_bid_in_each_of_its_windows(tmp_path: Path, width: int, slide: int) -> None:
    parameters = Parameters(seed=4, rows=600, event_rate=50, partitions=2, disorder_ms=500)
    made = list(rows(parameters))
    newest = max(row.ts for row in made)
    closing = close_rows(parameters, newest_ms=newest, ahead_ms=20_000)
    with FileSink(tmp_path / "rows") as file:
        file.write(made)
        file.write(closing)
    bids = [row for row in [*made, *closing] if row.topic == "bids"]
    found = answer(tmp_path / "rows", topic="bids", width_ms=width, slide_ms=slide)
    assert found.rows == len(bids)
    assert found.newest == max(row.ts for row in made if row.topic == "bids")
    assert found.closing == newest + 20_500
    assert len(found.results) == len(set(found.results))
    assert set(found.results) == counted(bids, width, slide)
