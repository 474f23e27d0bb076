"""What `python -m benchmarks.feedback` is made of, without Spark: its rows, its plans, its bars and its picture."""

from pathlib import Path

import pytest

from benchmarks import feedback, feedback_query
from benchmarks.feedback import FULL, WARM_CUTS, Size, bars_of, bounds_of, price_of, runs_of
from benchmarks.feedback_plot import draw
from benchmarks.spark_feed import PARTITIONS
from replicas.queries import classified_bids
from replicas.queries.classified_bids import TOP_PRICE, place

SIZE = Size(runs=4, cuts=10)
TIMES = {"oracle": 30.0, "udf0": 150.0, "udf1": 150.0, "merged": 155.0, "merged with feedback": 40.0}
ROWS = [{"way": way, "seconds": time, "progress": [(0.0, 0.9), (time, 5.0)]} for way, time in TIMES.items()]


def test_low_and_high_prices_come_in_runs_of_different_length_and_are_as_many() -> None:
    runs = runs_of(FULL)
    assert sum(runs[::2]) == sum(runs[1::2])
    assert len(set(runs)) > 1
    price = price_of(FULL)
    rows_per_cut = feedback.CUT_ROWS // PARTITIONS
    prices = [price(number) for number in range((WARM_CUTS + sum(runs)) * rows_per_cut)]
    first, second = (WARM_CUTS * rows_per_cut, (WARM_CUTS + runs[0]) * rows_per_cut)
    assert max(prices[first:second]) < TOP_PRICE // 5
    assert min(prices[second : second + runs[1] * rows_per_cut]) > TOP_PRICE * 4 // 5
    assert bounds_of(FULL)[0] == WARM_CUTS / 10
    assert len(bounds_of(FULL)) == FULL.runs + 1


def test_the_oracle_walks_from_the_nearer_end(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []

    def walk(number: int, steps: int) -> int:
        walked.append(steps)
        return number

    scores = feedback_query.scores(100)
    monkeypatch.setattr(classified_bids, "up", walk)
    monkeypatch.setattr(classified_bids, "down", walk)
    for price in (TOP_PRICE // 10, TOP_PRICE - TOP_PRICE // 10):
        scores["oracle"](place(price, 100))
    assert walked == [10, 10]


def test_bars_compare_with_the_oracle() -> None:
    assert [(bar.value, bar.met) for bar in bars_of(ROWS)] == [(5.0, True), (5.17, True), (1.33, True)]
    slow = [row | {"seconds": 50.0} if row["way"] == "merged with feedback" else row for row in ROWS]
    assert not bars_of(slow)[-1].met


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    draw(ROWS, bounds_of(SIZE), tmp_path / "feedback.png")
    assert (tmp_path / "feedback.png").stat().st_size > 10_000
