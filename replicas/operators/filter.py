"""Filter: keep the events whose payload passes a test (seed-001, 3.2).

Assumes     a test that depends on the payload alone: an adjust carries its event's payload, so the same test decides
            for all elements of an event.
Keeps       nothing.
Insert      passes if the payload does.
Adjust      likewise.
Stable      passes.
Correct     the output is the input without the events that fail: every element is as legal as in the input, and every
            stable promises as much.
Cost        O(1) an element.
"""

from collections.abc import Callable
from typing import Any

from lmerge.elements import Adjust, Element, Insert
from replicas.operators.operator import Operator


class Filter(Operator):
    """Keep the events for whose payload `test` is true.

    >>> from lmerge import Stable
    >>> Filter(lambda price: price > 10).process([Insert(5, 1, 2), Insert(20, 1, 2), Stable(4)])
    [Insert(20, 1, 2), Stable(4)]
    """

    def __init__(self, test: Callable[[Any], bool]) -> None:
        super().__init__()
        self._test = test

    @property
    def signature(self) -> str:
        """What a state must have been written by."""
        return "filter"

    def _insert(self, element: Insert, output: list[Element]) -> None:
        if self._test(element.payload):
            output.append(element)

    def _adjust(self, element: Adjust, output: list[Element]) -> None:
        if self._test(element.payload):
            output.append(element)

    def _advance(self, vc: int, output: list[Element]) -> None:
        self._promise(vc, output)
