"""LMerge: merge equivalent streams into one, whatever their order, revisions and failures (paper 000).

The whole package is pure: no I/O, clock, thread or log. The one exception is `lmerge.kafka`.
"""

from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Element, Hello, Insert, Payload, Skip, Stable
from lmerge.errors import IllegalElement, InputError, LMergeError, MalformedRecord, UsageError
from lmerge.tdb import TDB, Event, Freeze, freeze, reconstitute

__all__ = [
    "INFINITY",
    "MINUS_INFINITY",
    "TDB",
    "Adjust",
    "Element",
    "Event",
    "Freeze",
    "Hello",
    "IllegalElement",
    "InputError",
    "Insert",
    "LMergeError",
    "MalformedRecord",
    "Payload",
    "Skip",
    "Stable",
    "UsageError",
    "freeze",
    "reconstitute",
]
