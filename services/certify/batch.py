"""What a judge reads: elements with their positions, a batch at a time."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from lmerge.elements import Element


class Batch(NamedTuple):
    """Elements in the order of their stream, each with its position: the number of a line, or an offset.

    `problem` says what is wrong with one more record, at ``positions[len(elements)]``: it is no element.
    """

    elements: Sequence[Element]
    positions: Sequence[int]
    problem: str | None = None


Batches: TypeAlias = Iterator[Batch]
