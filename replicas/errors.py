"""What can go wrong in a replica, beyond what `lmerge.errors` and `lmerge.kafka.errors` know.

LMergeError
├── Stopped        somebody asked it to stop: no failure
├── Superseded     a higher incarnation of this replica is at work
├── BatchTooLarge  the results of a batch are more than the driver has room for
├── NotAttached    the merge service refuses this replica as an input
└── ReplicaFailed  the query ended with an error
"""

from typing import Final

from lmerge.errors import LMergeError


class Stopped(LMergeError):
    """The replica was asked to stop; a batch that had just begun is left for the next start."""


class Superseded(LMergeError):
    """A higher incarnation of this replica writes to its topic: this process is a zombie and must not go on (S7)."""


class ReplicaFailed(LMergeError):
    """The query ended with an error."""


class NotAttached(LMergeError):
    """The merge service refuses this replica as an input of its merge."""


class BatchTooLarge(LMergeError):
    """The results of one batch are more than the driver has room for: the bounds of a batch are too large for it."""


_NO_ROOM: Final = ("spark.driver.maxResultSize", "java.lang.OutOfMemoryError", "spark.rpc.message.maxSize")
"""What Spark's errors name when the results of a batch do not fit."""


def explain_room(text: str, batch: int, *, max_rows: int) -> BatchTooLarge | None:
    """Say what to do if Spark's error means that the results of a batch do not fit into the driver; else None."""
    line = next((line for line in text.splitlines() if any(sign in line for sign in _NO_ROOM)), None)
    if line is None:
        return None
    return BatchTooLarge(
        f"batch {batch}: its results do not fit into the driver ({line.strip()[:200]}); read less in a batch: "
        f"--max-rows below {max_rows} or a smaller --max-cuts, or give the driver more room: "
        "--conf spark.driver.memory=2g --conf spark.driver.maxResultSize=1g"
    )
