"""What Spark's offset log says about a batch."""

import json
from pathlib import Path

import pytest

from lmerge.errors import UsageError
from replicas.checkpoint import Skipped, last_batch, read_offsets


def write(checkpoint: Path, batch: int, *sources: object) -> None:
    (checkpoint / "offsets").mkdir(exist_ok=True)
    lines = ["v1", json.dumps({"batchWatermarkMs": 70}), *("-" if one is None else json.dumps(one) for one in sources)]
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))


def test_of_several_sources_the_largest_before_holds_and_what_they_left_out_adds_up(tmp_path: Path) -> None:
    """One source hears of a signal a batch before the other: what it leaves out no result may rest on."""
    write(tmp_path, 3, {"before": 40, "skipped_cuts": 2, "skipped_rows": 50}, {"before": 90, "skipped_cuts": 1}, None)
    write(tmp_path, 4, {"before": None}, {"before": 90}, {"n": 1})
    write(tmp_path, 5, {"before": None}, None)
    assert last_batch(tmp_path) == 5
    assert read_offsets(tmp_path, 3).skipped == Skipped(90, cuts=3, rows=50)
    assert [read_offsets(tmp_path, batch).before for batch in (3, 4, 5)] == [90, 90, None]


@pytest.mark.parametrize(
    ("before", "joins_at", "shown"), [(90, None, 90), (90, 89, 90), (90, 90, None), (None, 9, None)]
)
def test_where_an_incarnation_joins_is_nothing_that_it_was_told(
    before: int | None, joins_at: int | None, shown: int | None
) -> None:
    assert Skipped(before, cuts=1, rows=2).beyond(joins_at) == Skipped(shown, cuts=1, rows=2)


def test_what_is_no_offset_log_is_refused(tmp_path: Path) -> None:
    assert last_batch(tmp_path) is None
    with pytest.raises(UsageError, match="is not there, but its batch runs"):
        read_offsets(tmp_path, 0)
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v9")
    with pytest.raises(UsageError, match=r"is no offset log of Spark 4\.2"):
        read_offsets(tmp_path, 0)
