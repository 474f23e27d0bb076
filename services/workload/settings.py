"""What a user asks of the workload, and what follows from it."""

from pathlib import Path
from typing import Final

import msgspec

from lmerge.errors import UsageError
from lmerge.kafka import KafkaSettings
from services.workload.nexmark import Parameters

EVENT_RATE: Final = 1_000
"""Rows per second of event time where the wall clock sets no rate."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line, by their names; `start` is in milliseconds.

    Raises:
        UsageError: options that make no sense together.
    """

    kafka: KafkaSettings | None
    file: Path | None
    seed: int
    rows: int | None
    event_seconds: int | None
    rate: int
    event_rate: int | None
    start: int
    partitions: int
    disorder_ms: int
    skew_ms: int
    close: int | None
    prefix: str
    create: bool
    abort_share: float

    def __post_init__(self) -> None:
        if self.kafka is None and self.file is None:
            raise UsageError("nowhere to write to: give --bootstrap-servers, --file, or both")
        if self.kafka is None and self.rows is None and self.event_seconds is None:
            raise UsageError("a file without an end: give --rows or --event-seconds")
        if self.kafka is None and self.abort_share:
            raise UsageError(
                "a file has no transactions to abort: give --bootstrap-servers, or leave --abort-share out"
            )

    @property
    def wall_rate(self) -> int:
        """Rows per second of wall time. A file alone has nobody who wants to see it grow."""
        return self.rate if self.kafka is not None else 0

    def parameters(self) -> Parameters:
        """Give what the rows depend on.

        Raises:
            UsageError: a value that makes no sense.
        """
        event_rate = self.event_rate or self.rate or EVENT_RATE
        # Row n has the time 1000 n / rate, cut to milliseconds, so just this many have a time below the end.
        bounds = [self.rows, None if self.event_seconds is None else self.event_seconds * event_rate]
        return Parameters(
            seed=self.seed,
            rows=min((bound for bound in bounds if bound is not None), default=None),
            event_rate=event_rate,
            start_ms=self.start,
            partitions=self.partitions,
            disorder_ms=self.disorder_ms,
            skew_ms=self.skew_ms,
            prefix=self.prefix,
        )
