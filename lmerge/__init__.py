"""LMerge: merge equivalent streams into one, whatever their order, revisions and failures (paper 000).

The whole package is pure: no I/O, clock, thread or log. The one exception is `lmerge.kafka`.
"""

from lmerge.choose import Algorithm, Choice, choose
from lmerge.cleanse import Cleanse, cleanse
from lmerge.compatibility_checker import CompatibilityChecker
from lmerge.compatible import check_compatible
from lmerge.create import create
from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Element, Hello, Insert, Payload, Skip, Stable
from lmerge.errors import IllegalElement, InputError, LMergeError, MalformedRecord, UsageError
from lmerge.facts import Divergence, Dropped, DropReason, Fact, Held, Joined, Rule, Violation
from lmerge.merge import Merge
from lmerge.normal_form import NormalForm, normal_form
from lmerge.policies import Adjusts, Inserts, OutputPolicy, Quorum
from lmerge.properties import StreamProperties
from lmerge.state import MergeState, NodeState, Stats, StreamState
from lmerge.tdb import TDB, Event, Freeze, freeze, reconstitute

__all__ = [
    "INFINITY",
    "MINUS_INFINITY",
    "TDB",
    "Adjust",
    "Adjusts",
    "Algorithm",
    "Choice",
    "Cleanse",
    "CompatibilityChecker",
    "Divergence",
    "DropReason",
    "Dropped",
    "Element",
    "Event",
    "Fact",
    "Freeze",
    "Held",
    "Hello",
    "IllegalElement",
    "InputError",
    "Insert",
    "Inserts",
    "Joined",
    "LMergeError",
    "MalformedRecord",
    "Merge",
    "MergeState",
    "NodeState",
    "NormalForm",
    "OutputPolicy",
    "Payload",
    "Quorum",
    "Rule",
    "Skip",
    "Stable",
    "Stats",
    "StreamProperties",
    "StreamState",
    "UsageError",
    "Violation",
    "check_compatible",
    "choose",
    "cleanse",
    "create",
    "freeze",
    "normal_form",
    "reconstitute",
]
