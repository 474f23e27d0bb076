"""What R0, R1 and R2 share: inputs that only insert, in the order of vs (paper 000, III-C).

Such streams need no index. The output follows whichever input is furthest, and an element that some input has gone past
is dropped. Two things beyond the paper's listings:

- A stream that joins late lacks events, so its elements must not move the output before it is joined: those below its
  J are skipped, and at the first one at or above J the stream is *held* (RS 5.4). Using it would lose what lies between
  (E6), dropping it would lose the element itself (E6b).
- An insert below the output's own stable would be illegal and is dropped (E24): either its event was missing in the
  input that led, or the inputs diverge.
"""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import islice

import msgspec

from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Element, Insert, Stable
from lmerge.facts import Fact, Held, Rule, Violation
from lmerge.membership import Stream
from lmerge.merge import Merge
from lmerge.state import MergeState


class OrderedMerge(Merge):
    """A merge of insert-only streams in the order of vs; the three algorithms differ in how they treat equal vs."""

    strict = False
    """Whether vs must rise with every element of a stream."""

    def __init__(self, *, origin: int = MINUS_INFINITY) -> None:
        super().__init__(origin=origin)
        self._origin = origin
        # The largest vs put out: an input that is behind it brings nothing new.
        self._max_vs = MINUS_INFINITY

    @abstractmethod
    def _is_new(self, stream: Stream, element: Insert) -> bool | Violation:
        """Tell whether an element with ``vs >= max_vs`` has not been put out yet, and note it."""

    def _inserts(
        self, stream: Stream, elements: Sequence[Element], begin: int, output: list[Element]
    ) -> tuple[int, Fact | None]:
        """Take inserts; those of a joined stream without a call, but to ask whether one is new."""
        lowest, max_vs = max(stream.own_stable, self._origin), self._max_vs
        strict, is_joined, is_new = self.strict, stream.joined, self._is_new
        place, behind, stop = begin, 0, None
        for element in islice(elements, begin, None):
            if type(element) is not Insert:  # a run of inserts is over; isinstance would cost twice as much
                break
            vs = element.vs
            if vs < lowest or not is_joined or (vs <= (last := stream.last_vs) and (strict or vs < last)):
                if (stop := self._insert_one(stream, element, output)) is not None:
                    break
            elif vs < max_vs:
                behind += 1
                stream.last_vs = vs
            elif vs < self._max_stable:
                self._late += 1
                stream.last_vs = vs
            else:
                new = is_new(stream, element)
                if new is True:
                    self._max_vs = max_vs = vs
                    output.append(element)
                    if self._members.earliest < INFINITY:
                        self._lead_joined(output)
                elif new is False:  # another stream has brought it
                    behind += 1
                else:
                    stop = new
                    break
                stream.last_vs = vs
            place += 1
        self._behind += behind
        return place, stop

    def _insert(self, stream: Stream, element: Insert, output: list[Element]) -> Fact | None:  # noqa: ARG002
        vs = element.vs
        if vs < stream.last_vs or (self.strict and vs == stream.last_vs):
            detail = f"{element} comes after an element with vs {stream.last_vs}"
            return Violation(Rule.ORDERED, stream.stream_id, element, detail)
        if not stream.joined and vs >= stream.joins_at:
            return Held(stream.stream_id, element)
        self._before_join += 1
        stream.last_vs = vs
        return None

    def _adjust(self, stream: Stream, element: Adjust, output: list[Element]) -> Fact | None:  # noqa: ARG002
        return Violation(Rule.INSERT_ONLY, stream.stream_id, element, f"{element} cannot be merged without an index")

    def _stable(self, stream: Stream, stable: Stable, output: list[Element]) -> Fact | None:
        if not stream.joined and stable.vc > stream.joins_at:
            return Held(stream.stream_id, stable)
        return super()._stable(stream, stable, output)

    def _advance(self, stream: Stream, stable: Stable, output: list[Element]) -> None:
        if self._max_stable < stable.vc >= self.origin:
            self._max_stable = stable.vc
            self._leader = stream
            output.append(stable)

    def _reached(self) -> int:
        return max(self._max_stable, self._max_vs)

    def scalars(self) -> MergeState:
        """Return what is stored; nothing has to be re-fed."""
        return msgspec.structs.replace(super().scalars(), max_vs=self._max_vs)

    def load(self, state: MergeState) -> None:
        """Go on from the scalars."""
        self._max_vs = state.max_vs
        super().load(state)
