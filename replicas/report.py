"""What a replica says about itself while it runs: a line of the log for each batch, metrics, whether it is ready."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from lmerge.process.probes import Readiness
from replicas.checkpoint import Skipped
from replicas.errors import RowsDropped
from replicas.metrics import Metrics, dropped_in
from replicas.source import malformed_in, samples_in

log = logging.getLogger(__name__)

NOTHING: Final = Skipped()

_WAITING: Final = ("Waiting for data to arrive", "Waiting for next trigger")
"""Spark's words for a query between two looks at its sources."""


class Report:
    """Follows a query by looking at it now and then.

    Args:
        metrics: where numbers go.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._batch: int | None = None
        self._is_stopping = False
        self.readiness = Readiness(is_ready=False, status="looking for the feed")
        """Whether the replica does its work; asked from other threads."""

    def starting(self) -> None:
        """Note that Spark is being started."""
        self.readiness = Readiness(is_ready=False, status="starting Spark")

    def started(self, incarnation: int) -> None:
        """Note that the query runs."""
        self._metrics.began(incarnation)
        self.readiness = Readiness(is_ready=False, status="working on its first batch")
        log.info("started")

    def look(
        self,
        batches: Sequence[Mapping[str, Any]],
        status: Mapping[str, Any],
        stable: int | None,
        skipped: Skipped = NOTHING,
    ) -> None:
        """Report each batch once.

        Args:
            batches: what Spark knows of the last ones, in order.
            status: what the query does now, in Spark's words.
            stable: the last that was written.
            skipped: what was left out.

        Raises:
            RowsDropped: Spark left rows out by its own watermark. Lateness is decided by heartbeats alone (invariant
                8), so the result is wrong from here on; better to stop than to go on with it.
        """
        self._metrics.promised(stable)
        self._metrics.skipped(skipped)
        for progress in batches:
            if _ran(progress) and (self._batch is None or progress["batchId"] > self._batch):
                self._batch = progress["batchId"]
                self._committed(progress)
        if self._batch is not None:
            self._ready(f"running, batch {self._batch} is committed")
        elif status["message"] in _WAITING and not status["isDataAvailable"]:
            self._ready("running, nothing new to read yet")

    def stopping(self) -> None:
        """Note that it is about to end."""
        self._is_stopping = True
        self.readiness = Readiness(is_ready=False, status="stopping")

    def _ready(self, status: str) -> None:
        if self._is_stopping:
            return
        if not self.readiness.is_ready:
            log.info("ready: %s", status)
        self.readiness = Readiness(is_ready=True, status=status)

    def _committed(self, progress: Mapping[str, Any]) -> None:
        self._metrics.committed(progress)
        dropped = dropped_in(progress)
        log.info(
            "progress batch=%d rows=%d dropped=%d malformed=%d ms=%d",
            progress["batchId"],
            progress["numInputRows"],
            dropped,
            malformed_in(progress),
            progress["batchDuration"],
        )
        for sample in samples_in(progress):
            log.warning("malformed row left out: %s", sample)
        if dropped:
            raise RowsDropped(
                f"batch {progress['batchId']}: Spark dropped {dropped} rows by its watermark, which no heartbeat "
                "called late: does the plan read its sources past replicas.source? The next start begins a new "
                "incarnation"
            )


def _ran(progress: Mapping[str, Any]) -> bool:
    """Tell whether a report is of a batch that ran; an idle query makes some with the number of the next batch."""
    return "addBatch" in progress["durationMs"]
