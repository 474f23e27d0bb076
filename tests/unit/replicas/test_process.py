"""How a replica's process ends."""

import threading
from typing import Any, cast

import pytest

from replicas.checkpoint import Skipped
from replicas.errors import RowsDropped
from replicas.job import Replica
from replicas.metrics import Metrics
from replicas.process import _run
from replicas.report import Report
from tests.unit.replicas.test_report import BUSY, batch


class LastBatch:
    """A replica, and its query, whose last batch is committed while it is being stopped."""

    incarnation = 1
    stable: int | None = None
    skipped = Skipped()
    isActive = True  # noqa: N815  # Spark's name
    status = BUSY

    def __init__(self, *, dropped: int) -> None:
        self.recentProgress: list[Any] = []  # Spark's name
        self.given_up: str | None = None
        self._dropped = dropped

    def start(self) -> "LastBatch":
        return self

    def stop(self) -> None:
        self.recentProgress.append(batch(7, dropped=self._dropped))

    def give_up(self, reason: str) -> None:
        self.given_up = reason


def stop(replica: LastBatch) -> Report:
    asked = threading.Event()
    asked.set()
    report = Report(Metrics("m", "r1"))
    _run(cast("Replica", replica), report, None, asked)
    return report


def test_rows_that_the_last_batch_dropped_end_the_incarnation_too() -> None:
    replica = LastBatch(dropped=3)
    with pytest.raises(RowsDropped, match="batch 7: Spark dropped 3 rows"):
        stop(replica)
    assert replica.given_up is not None


def test_a_last_look_does_not_make_it_ready_again() -> None:
    replica = LastBatch(dropped=0)
    assert stop(replica).readiness == (False, "stopping")
    assert replica.given_up is None
