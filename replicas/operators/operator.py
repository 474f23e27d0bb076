"""What all operators share: elements in, elements out, batch by batch; stables checked; state to bytes and back.

    operator = Filter(lambda row: row["price"] > 100)
    operator.process(elements)           what a batch of elements makes the operator put out
    operator.process(elements, 1)        the same for its second input, if it has one (a join)
    operator.fast_forward(before)        results with ve < before matter to nobody any more
    operator.save(), operator.load(b)    its whole state between two batches

**A batch** is a list of elements of one input, of any length. Results are put out at each stable and at the end of the
batch, so a result that is changed twice in a batch is put out once. How a stream is cut into batches changes the
elements of the output, never what they mean.

**Replay.** What comes out is a function of the state and of the batches: there is no clock, no randomness, and no order
of a set. A loaded state goes on exactly as the saved one would have.

**Illegal elements.** An element below the input's own stable is refused with IllegalElement. That an adjusted event
exists is not checked by operators that do not keep events; where the state shows that it does not, it is refused too.
After an error the operator must not be used on: load its last state.

**Fast-forward** (recovery-and-sink 8.4). After `fast_forward(before)` the output is right for events with ``ve >=
before``; others may be missing, or be left as they were. Aggregates take back what they have put out that ends before
`before`, where no promise rests on it, and put out no more of it; the others finish what they have begun as usual. The
input may leave out what bears on no result with ``ve >= before``: how far that reaches is for the plan to say (its
*reach*), not for the operator.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, assert_never

import msgspec

from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Element, Hello, Insert, Skip, Stable, show_time
from lmerge.errors import IllegalElement, UsageError
from replicas.operators.state import seal, unseal


class Saved(msgspec.Struct, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """What is saved of every operator; those with more to remember add fields."""

    stables: list[int]
    promised: int
    before: int


class Operator(ABC):
    """An operator on streams of elements."""

    inputs: ClassVar[int] = 1
    """How many inputs it has."""

    saved: ClassVar[type[Saved]] = Saved
    """The form of its state."""

    def __init__(self) -> None:
        self._stables = [MINUS_INFINITY] * self.inputs  # the last stable of each input
        self._promised = MINUS_INFINITY  # the output's last stable
        self._before = MINUS_INFINITY  # results that end before it are not wanted
        self._source = 0  # the input whose batch is at hand

    @property
    @abstractmethod
    def signature(self) -> str:
        """What a state must have been written by to be loaded: kind and parameters."""

    @property
    def promised(self) -> int:
        """The output's last stable; MINUS_INFINITY before the first."""
        return self._promised

    def __len__(self) -> int:
        """Return how many entries the state has; what they are is the operator's business."""
        return 0

    def process(self, elements: Iterable[Element], source: int = 0) -> list[Element]:
        """Take a batch of elements of one input and return what they make the operator put out.

        Raises:
            IllegalElement: an element that the input's earlier ones rule out.
            UsageError: a hello or skip, which are for whoever runs the operator; or an input that there is not.
        """
        if not 0 <= source < self.inputs:
            raise UsageError(f"{self.signature} has no input {source}: they are counted from 0 to {self.inputs - 1}")
        output: list[Element] = []
        self._source = source
        stable = self._stables[source]
        for element in elements:
            if isinstance(element, Insert):
                if element.vs < stable:
                    raise self._illegal(element, stable)
                self._insert(element, output)
            elif isinstance(element, Adjust):
                if element.vold < stable or element.ve < stable:
                    raise self._illegal(element, stable)
                self._adjust(element, output)
            elif isinstance(element, Stable):
                if element.vc < stable:
                    raise self._illegal(element, stable)
                self._flush(output)
                stable = self._stables[source] = element.vc
                self._advance(element.vc, output)
            elif isinstance(element, Hello | Skip):
                raise UsageError(
                    f"{element}: no element of an operator's input; begin with a new operator, or call fast_forward"
                )
            else:
                assert_never(element)
        self._flush(output)
        return output

    def fast_forward(self, before: int) -> list[Element]:
        """Drop results that end before `before`, and return what takes back those that were put out.

        The caller writes these elements and then the skip. A smaller `before` than an earlier one changes nothing.

        Raises:
            UsageError: `before` is not an instant.
        """
        if not MINUS_INFINITY < before < INFINITY:
            raise UsageError(f"fast_forward({show_time(before)}): needs a finite instant")
        if before <= self._before:
            return []
        self._before = before
        output: list[Element] = []
        self._skip(output)
        return output

    def save(self) -> bytes:
        """Return the state as bytes."""
        return seal(self.signature, self._save())

    def load(self, state: bytes) -> None:
        """Go on from a state that an operator with the same parameters has saved.

        Raises:
            UnusableState: it is damaged, foreign, or of another operator.
        """
        self._load(unseal(state, self.signature, self.saved))

    # -- what an operator defines

    @abstractmethod
    def _insert(self, element: Insert, output: list[Element]) -> None: ...

    @abstractmethod
    def _adjust(self, element: Adjust, output: list[Element]) -> None: ...

    @abstractmethod
    def _advance(self, vc: int, output: list[Element]) -> None:
        """React to a stable; the input's stable is noted already."""

    def _flush(self, output: list[Element]) -> None:  # noqa: B027  # only aggregates wait with their answers
        """Put out what the elements since the last flush have changed."""

    def _skip(self, output: list[Element]) -> None:  # noqa: B027  # the others finish as usual
        """React to a new `before`, which is noted already."""

    def _save(self) -> Saved:
        return Saved(stables=self._stables, promised=self._promised, before=self._before)

    def _load(self, saved: Saved) -> None:
        self._stables = saved.stables
        self._promised = saved.promised
        self._before = saved.before

    # -- for operators

    def _promise(self, vc: int, output: list[Element]) -> None:
        """Put out a stable, if it says something new."""
        if vc > self._promised:
            self._promised = vc
            output.append(Stable(vc))

    @staticmethod
    def _illegal(element: Element, stable: int) -> IllegalElement:
        return IllegalElement(f"{element} comes after Stable({show_time(stable)})")


def missing(element: Adjust) -> IllegalElement:
    """Return the error for an adjust of an event that the state shows not to exist."""
    return IllegalElement(f"{element} adjusts an event that does not exist")
