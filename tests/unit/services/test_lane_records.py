"""Lane records are read one at a time; a broker that is away holds a caller for a moment, not for all before it."""

from collections.abc import Iterator

import pytest

from lmerge.kafka import KafkaSettings, RetryError
from services.merge.definitions import Desired, MergeDefinition
from services.merge.lane_records import LaneRecords

DESIRED = Desired(definition=MergeDefinition(), algorithm="R3")


@pytest.fixture
def records() -> Iterator[LaneRecords]:
    """Return a reader of a cluster that is not there."""
    records = LaneRecords(KafkaSettings("127.0.0.1:1"), timeout_seconds=0.1)
    yield records
    records.close()


def test_a_broker_that_does_not_answer_is_given_up_in_time_and_the_next_one_may_ask(records: LaneRecords) -> None:
    for _ in range(2):
        with pytest.raises(RetryError, match=r"cannot ask for the end of m\.state/0"):
            records.read("m", DESIRED)


def test_who_waits_for_others_that_wait_is_told_to_try_again(records: LaneRecords) -> None:
    with records._lock, pytest.raises(RetryError, match="others wait for the broker"):
        records.read("m", DESIRED)
