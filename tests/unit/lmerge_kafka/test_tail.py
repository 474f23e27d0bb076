"""Which records are of a range, whatever a client hands over; and when a topic is missing."""

from collections.abc import Sequence

import pytest

from lmerge.kafka import KafkaSettings, MissingTopic, Record, RetryError, TailReader, Watermarks
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


class Forgetful(TailReader):
    """Does not know the topic when it is first asked, as a client whose only broker was away for a moment."""

    def __init__(self, *, is_there: bool) -> None:
        super().__init__(KafkaSettings("127.0.0.1:1"), timeout_seconds=60)
        self.asked = 0
        self._known_to_the_cluster = is_there

    def _ask(self, *_: object) -> Watermarks:
        self.asked += 1
        if self.asked <= 3:
            raise MissingTopic("unknown partition")
        return Watermarks(0, 5)

    def _is_there(self, *_: object) -> bool:
        return self._known_to_the_cluster


def test_a_topic_that_the_cluster_knows_is_asked_for_again() -> None:
    with Forgetful(is_there=True) as reader:
        assert reader.watermarks("t", 0) == Watermarks(0, 5)


def test_a_topic_that_the_cluster_does_not_know_is_missing_at_once() -> None:
    with Forgetful(is_there=False) as reader:
        with pytest.raises(MissingTopic):
            reader.watermarks("t", 0)
        assert reader.asked == 1
