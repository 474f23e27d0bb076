"""Which records are of a range, whatever a client hands over."""

from collections.abc import Sequence

import pytest

from lmerge.kafka import Record, RetryError
from lmerge.kafka.tail import take


def offsets(*given: int, place: int = 10) -> Sequence[int]:
    records = [Record("t", 0, offset, None, b"", (), 0) for offset in given]
    return [record.offset for record in take(records, "t/0", start=10, place=place, end=20)]


def test_a_range_has_what_lies_in_it_and_may_have_gaps() -> None:
    assert offsets(10, 11, 14, 19, 20, 25) == [10, 11, 14, 19]
    assert offsets(15, 17, place=15) == [15, 17]


def test_what_an_earlier_read_has_left_behind_is_no_part_of_it() -> None:
    assert offsets(3, 9, 10, 11) == [10, 11]
    assert offsets(9, 15, place=15) == [15]


@pytest.mark.parametrize(("given", "place"), [((10, 11, 11), 10), ((14, 12), 10), ((14,), 15)])
def test_offsets_that_do_not_rise_end_the_read(given: tuple[int, ...], place: int) -> None:
    with pytest.raises(RetryError, match=r"t/0: the record at offset \d+ came after that at \d+; read it again"):
        offsets(*given, place=place)
