"""Reading Spark's offset log: which batch was planned last, and what a batch stands for.

`offsets/N` is written before batch N runs and read again when N is replayed, so what is taken from it is the same in
every attempt. (`lastProgress` speaks of the batch before.) Its lines: a version, metadata with the watermark at which
the batch runs, then one offset per source in the order of the plan, `-` for a source that has none yet.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from lmerge.errors import UsageError

_LINES_BEFORE_SOURCES: Final = 2


class Skipped(NamedTuple):
    """What an incarnation has left out since it cannot matter."""

    before: int | None = None
    """No result with `ve < before` is in its stream that the merge does not have."""
    cuts: int = 0
    rows: int = 0
    """In cuts that were not read at all; offsets, so it is the most that there can be."""

    def beyond(self, joins_at: int | None) -> "Skipped":
        """Take out a `before` that says only where the incarnation joins, which the merge has no part in."""
        is_told = self.before is not None and (joins_at is None or self.before > joins_at)
        return self if is_told else self._replace(before=None)


class BatchOffsets(msgspec.Struct, frozen=True):
    """What the offset log says about a batch."""

    watermark: int
    sources: Sequence[dict[str, Any] | None]

    @property
    def before(self) -> int | None:
        """The largest `before` of the sources: no result with `ve < before` matters; None: all do."""
        given = [source.get("before") for source in self.sources if source is not None]
        return max((before for before in given if before is not None), default=None)

    @property
    def skipped(self) -> Skipped:
        """What was left out up to this batch, of all sources together."""
        sources = [source for source in self.sources if source is not None]
        cuts, rows = (sum(source.get(f"skipped_{what}", 0) for source in sources) for what in ("cuts", "rows"))
        return Skipped(self.before, cuts, rows)


def last_batch(checkpoint: Path) -> int | None:
    """Return the number of the last batch that was planned, or None if none was."""
    # Spark writes under a hidden name and renames, so what is a number is whole.
    numbers = [int(entry.name) for entry in (checkpoint / "offsets").glob("*") if entry.name.isdecimal()]
    return max(numbers, default=None)


def read_offsets(checkpoint: Path, batch: int) -> BatchOffsets:
    """Read what the offset log says about a batch.

    Raises:
        UsageError: the log is not as Spark 4.2 writes it, or the batch is not in it.
    """
    path = checkpoint / "offsets" / str(batch)
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        raise UsageError(
            f"{path} is not there, but its batch runs: a replay could have other rows (S6). Asynchronous progress "
            "tracking and real-time mode cannot be used with a replica; leave them out"
        ) from None
    try:
        return BatchOffsets(
            watermark=json.loads(lines[1])["batchWatermarkMs"],
            sources=[None if line == "-" else json.loads(line) for line in lines[_LINES_BEFORE_SOURCES:]],
        )
    except (IndexError, KeyError, ValueError) as error:
        raise UsageError(
            f"{path} is no offset log of Spark 4.2: {error!r}; run the Spark version that wrote it"
        ) from error
