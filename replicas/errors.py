"""What can go wrong in a replica, beyond what `lmerge.errors` and `lmerge.kafka.errors` know.

LMergeError
├── Stopped        somebody asked it to stop: no failure
├── Superseded     a higher incarnation of this replica is at work
└── ReplicaFailed  the query ended with an error
"""

from lmerge.errors import LMergeError


class Stopped(LMergeError):
    """The replica was asked to stop; a batch that had just begun is left for the next start."""


class Superseded(LMergeError):
    """A higher incarnation of this replica writes to its topic: this process is a zombie and must not go on (S7)."""


class ReplicaFailed(LMergeError):
    """The query ended with an error."""
