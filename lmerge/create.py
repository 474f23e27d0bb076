"""`create`: from the name of an algorithm to a merge."""

from lmerge.elements import MINUS_INFINITY
from lmerge.errors import UsageError
from lmerge.merge import Merge
from lmerge.policies import OutputPolicy
from lmerge.r0 import R0
from lmerge.r1 import R1
from lmerge.r2 import R2
from lmerge.r3 import R3
from lmerge.r4 import R4

_PLAIN: dict[str, type[Merge]] = {"R0": R0, "R1": R1, "R2": R2, "R4": R4}


def create(algorithm: str, *, policy: OutputPolicy | None = None, origin: int = MINUS_INFINITY) -> Merge:
    """Make a merge.

    Args:
        algorithm: "R0" to "R4"; `choose` finds the cheapest one that the inputs' properties allow.
        policy: what goes out when; policies other than the default are R3's.
        origin: where the merge begins; see `Merge.origin`.

    Raises:
        UsageError: there is no such algorithm, or it has no such policy.

    >>> from lmerge import Adjust, Insert, Stable
    >>> merge = create("R3")
    >>> merge.attach("r1")
    >>> merge.attach("r2")
    >>> merge.process("r1", [Insert("A", 6, 20)])
    [Insert('A', 6, 20)]
    >>> merge.process("r2", [Insert("A", 6, 20), Adjust("A", 6, 20, 12), Stable(15)])
    [Adjust('A', 6, 20, 12), Stable(15)]
    """
    if algorithm == "R3":
        return R3(origin=origin, policy=policy)
    if algorithm not in _PLAIN:
        raise UsageError(f"unknown algorithm {algorithm!r}: use one of R0, R1, R2, R3, R4")
    if policy not in (None, OutputPolicy()):
        raise UsageError(
            f"{algorithm} has no output policy but the default: R0 to R2 put out each event once, when it comes, and "
            "R4 keeps to the paper's; use R3"
        )
    return _PLAIN[algorithm](origin=origin)
