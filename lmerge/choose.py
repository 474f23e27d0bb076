"""From what the inputs promise to the cheapest algorithm that is right for all of them (paper 000, IV-G).

    algorithm   needs                                                      state (Table IV)
    R0          only inserts; strictly increasing vs                       two numbers
    R1          only inserts; non-decreasing vs; one order among ties      a counter per input
    R2          only inserts; non-decreasing vs; (payload, vs) a key       the payloads at the newest vs
    R3          (payload, vs) a key                                        an index of all that is not frozen
    R4          nothing                                                    the same, of multisets

The first row whose needs are met by every input is the choice. The rows are not a chain: R1 needs no key and R2 no
order among ties, so a stream of R1 need not be one of R2 or R3. That the inputs present the same TDB is a need of every
row and no property of a single stream; plans that are only snapshot-equivalent go through `lmerge.normal_form` (design
trap 1).
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

import msgspec

from lmerge.errors import UsageError
from lmerge.properties import Order, StreamProperties, meet

Algorithm: TypeAlias = Literal["R0", "R1", "R2", "R3", "R4"]


class Choice(msgspec.Struct, frozen=True):
    """An algorithm, and in words why this one and none cheaper."""

    algorithm: Algorithm
    reason: str


class _Need(msgspec.Struct, frozen=True):
    words: str
    met: Callable[[StreamProperties], bool]


_INSERT_ONLY = _Need("only inserts and stables", lambda p: p.insert_only)
_STRICT = _Need("strictly increasing vs", lambda p: p.order is Order.STRICTLY_INCREASING)
_ORDERED = _Need("non-decreasing vs", lambda p: p.ordered)
_TIES = _Need("one order among equal vs", lambda p: p.ties_ordered)
_KEY = _Need("(payload, vs) as a key", lambda p: p.key)

_NEEDS: Final[tuple[tuple[Algorithm, tuple[_Need, ...]], ...]] = (
    ("R0", (_INSERT_ONLY, _STRICT)),
    ("R1", (_INSERT_ONLY, _ORDERED, _TIES)),
    ("R2", (_INSERT_ONLY, _ORDERED, _KEY)),
    ("R3", (_KEY,)),
)
"""The table above, cheapest first; R4 is what remains."""


def choose(*properties: StreamProperties, names: Sequence[str] | None = None) -> Choice:
    """Return the cheapest algorithm that is right for inputs with these properties, and the reason in words.

    Args:
        properties: what each input promises.
        names: what to call the inputs in the reason; "input 1", "input 2", ... if left out.

    >>> choice = choose(StreamProperties.r2(), StreamProperties.r3(), names=["r1", "r2"])
    >>> choice.algorithm
    'R3'
    >>> for sentence in choice.reason.split(". "):
    ...     print(sentence)
    Every input promises (payload, vs) as a key
    R0 would need only inserts and stables (not promised by r2), strictly increasing vs (not promised by r1, r2)
    R1 would need only inserts and stables (not promised by r2), non-decreasing vs (not promised by r2), \
one order among equal vs (not promised by r1, r2)
    R2 would need only inserts and stables (not promised by r2), non-decreasing vs (not promised by r2).

    Raises:
        UsageError: there is no input, or not one name for each.
    """
    if not properties:
        raise UsageError("choose: needs the properties of at least one input")
    if names is None:
        names = [f"input {number}" for number in range(1, len(properties) + 1)]
    if len(names) != len(properties):
        raise UsageError(f"choose: {len(names)} names for {len(properties)} inputs")
    inputs = list(zip(names, properties, strict=True))
    common = meet(*properties)
    refusals: list[str] = []
    for algorithm, needs in _NEEDS:
        lacks = [_describe_lack(need, inputs) for need in needs if not need.met(common)]
        if not lacks:
            granted = ", ".join(need.words for need in needs)
            return Choice(algorithm, " ".join([f"Every input promises {granted}.", *refusals]))
        refusals.append(f"{algorithm} would need {', '.join(lacks)}.")
    return Choice("R4", " ".join(["R4 needs no promise.", *refusals]))


def lacking(algorithm: Algorithm, properties: StreamProperties) -> str:
    """Say in words what an algorithm needs and a stream does not promise; empty if it promises enough.

    >>> lacking("R2", StreamProperties.r3())
    'only inserts and stables, non-decreasing vs'
    """
    needs = dict(_NEEDS).get(algorithm, ())
    return ", ".join(need.words for need in needs if not need.met(properties))


def _describe_lack(need: _Need, inputs: Sequence[tuple[str, StreamProperties]]) -> str:
    """Say who stands in the way of a need that the inputs together do not meet."""
    lacking = [name for name, properties in inputs if not need.met(properties)]
    if lacking:
        return f"{need.words} (not promised by {', '.join(lacking)})"
    # Each input has an order among ties, but not all have the same: the one need that does not add up.
    orders = ", ".join(f"{name}: {properties.tie_order}" for name, properties in inputs if properties.tie_order)
    return f"{need.words} (they differ: {orders})"
