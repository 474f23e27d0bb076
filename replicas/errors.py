"""What can go wrong in a replica, beyond what `lmerge.errors` and `lmerge.kafka.errors` know.

LMergeError
├── Stopped        somebody asked it to stop: no failure
├── Superseded     a higher incarnation of this replica is at work
├── BatchTooLarge  there is no room for a batch, or for its results in the driver
├── NotWritten     a batch could not be written to the replica's topic
├── NotAttached    the merge service refuses this replica as an input
└── ReplicaFailed  the query ended with an error
    └── RowsDropped    its result is wrong: Spark left rows out
"""

import re
from typing import Final

from lmerge.errors import LMergeError


class Stopped(LMergeError):
    """The replica was asked to stop; a batch that had just begun is left for the next start."""


class Superseded(LMergeError):
    """A higher incarnation of this replica writes to its topic: this process is a zombie and must not go on (S7)."""


class ReplicaFailed(LMergeError):
    """The query ended with an error."""


class RowsDropped(ReplicaFailed):
    """Spark left rows out by its own watermark: what this incarnation has written is wrong, and cannot be mended."""


class NotAttached(LMergeError):
    """The merge service refuses this replica as an input of its merge."""


class BatchTooLarge(LMergeError):
    """There is no room for a batch, or for its results in the driver: the bounds of a batch are too large."""


class NotWritten(LMergeError):
    """A batch could not be written, in as many attempts as it is given."""


_NOISE: Final = re.compile(r"^\[[\w.]+\] |\s*(?:SQLSTATE: |\n).*", re.DOTALL)


def in_a_line(text: str) -> str:
    """Say in a line what Spark says in a page.

    >>> in_a_line("[UNRESOLVED_COLUMN] no column `x`. SQLSTATE: 42703; line 4 pos 7; …")
    'no column `x`.'
    """
    return _NOISE.sub("", text.strip())


_RESULTS: Final = (
    "its results do not fit into the driver",
    "the driver more room: --conf spark.driver.memory=2g --conf spark.driver.maxResultSize=1g",
)
_MEMORY: Final = (
    "Spark ran out of memory, in a task or in the driver",
    "it more: --conf spark.driver.memory=2g, and on a cluster --conf spark.executor.memory=2g for the tasks",
)
_NO_ROOM: Final = {
    "spark.driver.maxResultSize": _RESULTS,
    "spark.rpc.message.maxSize": _RESULTS,
    "java.lang.OutOfMemoryError": _MEMORY,
}
"""What Spark's errors name when there is no room for a batch; what that means, and what to give."""


def explain_room(text: str, batch: int, *, max_rows: int) -> BatchTooLarge | None:
    """Say what to do if Spark's error means that there is no room for a batch; else None."""
    found = [(line, meaning) for sign, meaning in _NO_ROOM.items() for line in text.splitlines() if sign in line]
    if not found:
        return None
    line, (fact, remedy) = found[0]
    return BatchTooLarge(
        f"batch {batch}: {fact} ({line.strip()[:200]}); what it reads is decided, so give {remedy}. Smaller bounds, "
        f"--max-rows below {max_rows} or --max-cuts, help only later batches; or move its directory away and begin a "
        "new incarnation with them"
    )
