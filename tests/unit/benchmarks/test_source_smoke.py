"""What `python -m benchmarks.source` is made of, without Spark: its ratios."""

import pytest

from benchmarks import source


@pytest.mark.parametrize(("rows", "counts"), [(200, 1.5), (20_000, 2.0)])
def test_small_batches_are_compared_by_their_time_and_others_by_rows_per_second(rows: int, counts: float) -> None:
    cuts = {"rows_per_batch": rows, "batch_p50_ms": 200, "rows_per_s": 1_000}
    connector = {"rows_per_batch": rows, "batch_p50_ms": 300, "rows_per_s": 500}
    assert source._ratio((cuts, connector)) == counts


def test_every_size_has_a_round_in_the_middle() -> None:
    assert all(size.rounds % 2 for size in (*source.SIZES, *source.QUICK))
