"""The loop of the workload: take the rows that are due, write them as one batch, say how far it is."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from threading import Event
from typing import Final

from services.moment import show_ms
from services.workload.nexmark import Row
from services.workload.sinks import Sink

BATCH_SECONDS: Final = 0.1
"""What is due in this time is one transaction: readers see rows after at most this long, and whole."""

REPORT_SECONDS: Final = 5.0

_CHUNK: Final = 1_000
"""Rows between two looks at the clock: 5 ms."""


class Run:
    """Writes rows batch by batch.

    Args:
        rows: what to write, in order.
        sinks: where to; each batch goes to one after the other.
        rate: rows per second; 0: as fast as they can be made and written. Who falls behind catches up.
        stop: set it to end the run after the batch that is being written.
        report: takes a line about the progress now and then.
        clock: gives the time in seconds.
    """

    def __init__(
        self,
        rows: Iterator[Row],
        sinks: Sequence[Sink],
        *,
        rate: int,
        stop: Event,
        report: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.written = 0
        self.newest_ms: int | None = None  # the largest event time that was written
        self._rows = rows
        self._sinks = sinks
        self._rate = rate
        self._stop = stop
        self._report = report
        self._clock = clock
        self._began = self._reported = self._clock()
        self._written_then = 0  # when the last line was reported

    def until_done(self) -> None:
        """Write until the rows are at an end or the run is told to stop.

        Raises:
            LMergeError: a batch could not be written.
        """
        self._began = self._reported = tick = self._clock()
        at_end = False
        while not at_end and not self._stop.is_set():
            batch, at_end = self._gather()
            if batch:
                self.write(batch)
            if self._clock() - self._reported >= REPORT_SECONDS:
                self._report(self._progress())
            if self._rate and not at_end:
                tick = max(tick + BATCH_SECONDS, self._clock())
                self._stop.wait(tick - self._clock())

    def write(self, batch: list[Row]) -> None:
        """Write a batch to all sinks."""
        for sink in self._sinks:
            sink.write(batch)
        self.written += len(batch)
        newest = max(row.ts for row in batch)
        self.newest_ms = newest if self.newest_ms is None else max(self.newest_ms, newest)

    def summary(self) -> str:
        """Say in a line what was written in all."""
        seconds = self._clock() - self._began
        return f"{self.written:,} rows in {seconds:.1f} s, {_per_second(self.written, seconds)}, {self._event_time()}"

    def _gather(self) -> tuple[list[Row], bool]:
        """Take the rows that are due, for no longer than a batch may take; tell whether there are no more."""
        begin = self._clock()
        most = int((begin - self._began) * self._rate) - self.written if self._rate else None
        batch: list[Row] = []
        wanted = _CHUNK if most is None else min(_CHUNK, most)
        while wanted > 0:
            chunk = list(islice(self._rows, wanted))
            batch += chunk
            if len(chunk) < wanted:
                return batch, True
            if self._clock() - begin >= BATCH_SECONDS:
                break
            wanted = _CHUNK if most is None else min(_CHUNK, most - len(batch))
        return batch, False

    def _progress(self) -> str:
        now = self._clock()
        speed = _per_second(self.written - self._written_then, now - self._reported)
        self._reported, self._written_then = now, self.written
        return f"{self.written:,} rows, {speed}, {self._event_time()}"

    def _event_time(self) -> str:
        return "nothing written" if self.newest_ms is None else f"event time {show_ms(self.newest_ms)}"


def _per_second(count: int, seconds: float) -> str:
    return f"{count / max(seconds, 0.001):,.0f} rows/s"
