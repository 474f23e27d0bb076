"""Chain: operators one behind the other, as one operator.

Assumes     operators with one input, but for the first, whose inputs are the chain's.
Keeps       what they keep; its state holds theirs.
Insert, Adjust, Stable   go through the first, what it puts out through the second, and so on, batch by batch.
Correct     every operator turns legal streams into legal ones, and so does the chain; TDBs compose.
Skips       an operator behind may make results that outlive those it is given, or end where they end, so that only the
            last one skips: and of filters and maps, which change no lifetime, the one before them. What it takes back
            goes through those behind it like any elements.
Cost        the sum of theirs.
"""

from collections.abc import Iterable

from lmerge.elements import Adjust, Element, Insert
from lmerge.errors import UsageError
from replicas.operators.filter import Filter
from replicas.operators.map import Map
from replicas.operators.operator import Operator, Saved
from replicas.operators.state import UnusableState


class SavedChain(Saved, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """What is saved of a chain."""

    states: list[bytes]


class Chain(Operator):
    """Run operators one behind the other.

    >>> from lmerge import Stable
    >>> chain = Chain(Filter(lambda x: x > 1), Map(lambda x: 10 * x))
    >>> chain.process([Insert(1, 1, 2), Insert(2, 1, 2), Stable(5)])
    [Insert(20, 1, 2), Stable(5)]
    """

    saved = SavedChain

    def __init__(self, first: Operator, *others: Operator) -> None:
        if any(operator.inputs != 1 for operator in others):
            raise UsageError("a chain: only its first operator may have several inputs")
        self.inputs = first.inputs  # type: ignore[misc]  # a chain has those of its first operator
        super().__init__()
        self._operators = (first, *others)

    @property
    def signature(self) -> str:
        """What a state must have been written by."""
        return f"chain({', '.join(operator.signature for operator in self._operators)})"

    @property
    def promised(self) -> int:
        """The output's last stable; MINUS_INFINITY before the first."""
        return self._operators[-1].promised

    def __len__(self) -> int:
        """Return how many entries all states have."""
        return sum(map(len, self._operators))

    def process(self, elements: Iterable[Element], source: int = 0) -> list[Element]:
        """Take a batch of elements of one input and return what comes out at the end."""
        first, *others = self._operators
        passing = first.process(elements, source)
        for operator in others:
            passing = operator.process(passing)
        return passing

    def _skip(self, output: list[Element]) -> None:
        skips = len(self._operators) - 1
        while skips and isinstance(self._operators[skips], Filter | Map):
            skips -= 1
        passing = self._operators[skips].fast_forward(self._before)
        for operator in self._operators[skips + 1 :]:
            passing = operator.process(passing)
        output += passing

    def _save(self) -> SavedChain:
        states = [operator.save() for operator in self._operators]
        return SavedChain(stables=self._stables, promised=self._promised, before=self._before, states=states)

    def _load(self, saved: Saved) -> None:
        assert isinstance(saved, SavedChain)
        if len(saved.states) != len(self._operators):
            raise UnusableState(f"state of {self.signature}: it holds {len(saved.states)} states")
        super()._load(saved)
        for operator, state in zip(self._operators, saved.states, strict=True):
            operator.load(state)

    def _insert(self, element: Insert, output: list[Element]) -> None:
        raise NotImplementedError  # `process` does not come here

    def _adjust(self, element: Adjust, output: list[Element]) -> None:
        raise NotImplementedError

    def _advance(self, vc: int, output: list[Element]) -> None:
        raise NotImplementedError
