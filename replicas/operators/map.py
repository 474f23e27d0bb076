"""Map: give every event another payload (seed-001, 3.2, projection).

Assumes     a function of the payload alone that gives equal results in every process: no clock, no randomness, no
            floating sums.
Keeps       nothing.
Insert      passes with the new payload.
Adjust      likewise: the new payload of an event is the same each time.
Stable      passes.
Correct     events correspond one to one. Two of them may become equal; the output is then a multiset, for R4
            (`lmerge.properties.after_map`).
Cost        O(1) an element, besides the function.
"""

from collections.abc import Callable
from typing import Any

from lmerge.elements import Adjust, Element, Insert, Payload
from replicas.operators.operator import Operator


class Map(Operator):
    """Replace payloads by what `function` makes of them.

    >>> from lmerge import Stable
    >>> Map(lambda cents: cents // 100).process([Insert(250, 1, 5), Adjust(250, 1, 5, 3), Stable(4)])
    [Insert(2, 1, 5), Adjust(2, 1, 5, 3), Stable(4)]
    """

    def __init__(self, function: Callable[[Any], Payload]) -> None:
        super().__init__()
        self._function = function

    @property
    def signature(self) -> str:
        """What a state must have been written by."""
        return "map"

    def _insert(self, element: Insert, output: list[Element]) -> None:
        output.append(Insert(self._function(element.payload), element.vs, element.ve))

    def _adjust(self, element: Adjust, output: list[Element]) -> None:
        output.append(Adjust(self._function(element.payload), element.vs, element.vold, element.ve))

    def _advance(self, vc: int, output: list[Element]) -> None:
        self._promise(vc, output)
