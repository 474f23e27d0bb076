"""The metrics of a replica. `docs/metrics.md` promises them; a test holds the two together.

All of them are of this process, from Spark's own report of each batch; counters begin at 0 when it does.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from replicas.checkpoint import Skipped
from replicas.source import malformed_in

_LABELS: Final = ("merge", "replica")
_SECONDS: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)


def dropped_in(progress: Mapping[str, Any]) -> int:
    """Return how many rows Spark left out of a batch by its own watermark, which must never be."""
    return sum(operator["numRowsDroppedByWatermark"] for operator in progress["stateOperators"])


class Metrics:
    """All metrics of one replica's process, and the registry that holds them."""

    def __init__(self, merge: str, replica: str) -> None:
        self._names = (merge, replica)
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._incarnation = self._gauge("incarnation", "Which incarnation this is.")
        self._batch = self._gauge("batch", "The last batch that was committed.")
        self._batch_at = self._gauge("batch_timestamp_seconds", "When this process saw that.")
        self._stable = self._gauge("stable_milliseconds", "The last stable that this process has written.")
        self._state_rows = self._gauge("state_rows", "Rows in Spark's state after the last batch.")
        self._state_bytes = self._gauge("state_bytes", "Memory of Spark's state after the last batch.")
        self._skipped_to = self._gauge(
            "skipped_to_milliseconds", "What ends before it was left out, as the merge said."
        )
        self._skipped_cuts = self._gauge("skipped_cuts", "Cuts that this incarnation did not have to read.")
        self._skipped_rows = self._gauge("skipped_rows", "Offsets in them: at most so many rows.")
        self._attached = self._gauge("attached", "1 once the merge has this replica as an input.")
        self._rows = self._counter("rows", "Rows that batches have read.")
        self._malformed = self._counter("malformed_rows", "Rows left out since they do not fit the schema.")
        self._dropped = self._counter("dropped_rows", "Rows that Spark dropped by its watermark; it ends then.")
        self._batch_seconds = Histogram(
            "lmerge_replica_batch_seconds",
            "How long a batch took, from planning to Spark's commit.",
            _LABELS,
            buckets=_SECONDS,
            registry=self.registry,
        )
        for counter in (self._rows, self._malformed, self._dropped):
            counter.labels(*self._names)  # shown as 0 from the start

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(f"lmerge_replica_{name}", meaning, _LABELS, registry=self.registry)

    def _counter(self, name: str, meaning: str) -> Counter:
        return Counter(f"lmerge_replica_{name}", meaning, _LABELS, registry=self.registry)

    def began(self, incarnation: int) -> None:
        """Note which incarnation runs."""
        self._incarnation.labels(*self._names).set(incarnation)

    def attached(self, *, is_attached: bool) -> None:
        """Note whether the merge has this replica as an input; without a call there is no series."""
        self._attached.labels(*self._names).set(is_attached)

    def promised(self, stable: int | None) -> None:
        """Note the last stable; one that is not there yet has no series."""
        if stable is not None:
            self._stable.labels(*self._names).set(stable)

    def skipped(self, skipped: Skipped) -> None:
        """Note what was left out; where nothing was, there is no time."""
        if skipped.before is not None:
            self._skipped_to.labels(*self._names).set(skipped.before)
        self._skipped_cuts.labels(*self._names).set(skipped.cuts)
        self._skipped_rows.labels(*self._names).set(skipped.rows)

    def committed(self, progress: Mapping[str, Any]) -> None:
        """Note a batch, from Spark's report of it."""
        operators = progress["stateOperators"]
        self._batch.labels(*self._names).set(progress["batchId"])
        self._batch_at.labels(*self._names).set(time.time())
        self._batch_seconds.labels(*self._names).observe(progress["batchDuration"] / 1_000)
        self._rows.labels(*self._names).inc(progress["numInputRows"])
        self._malformed.labels(*self._names).inc(malformed_in(progress))
        self._dropped.labels(*self._names).inc(dropped_in(progress))
        self._state_rows.labels(*self._names).set(sum(operator["numRowsTotal"] for operator in operators))
        self._state_bytes.labels(*self._names).set(sum(operator["memoryUsedBytes"] for operator in operators))
