"""One run of `lmerge merge`: what to put out, whom to leave out, and what to say. Pure: lines in, elements out."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from lmerge import (
    MINUS_INFINITY,
    CompatibilityChecker,
    Divergence,
    Element,
    Hello,
    Merge,
    OutputPolicy,
    Violation,
    create,
)
from lmerge.codec import decode_batch
from lmerge.compatible import Order
from lmerge.elements import show_time
from services.cli.lines import Lines

_ORDERS = {"R0": Order.STRICTLY_BY_VS, "R1": Order.BY_VS, "R2": Order.BY_VS}


@dataclass
class _Input:
    """What is known of one input: elements that the merge has not taken yet, and the lines they come from."""

    elements: list[Element] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    attached: bool = True
    problem: str | None = None  # a line that is no element; it is reported once everything before it is taken


class MergeRun:
    """Merges inputs by name."""

    def __init__(
        self, names: Sequence[str], algorithm: str, policy: OutputPolicy | None, *, origin: int | None, check: bool
    ) -> None:
        self.failed = False
        self._algorithm = algorithm
        self._policy = policy
        self._origin = origin
        self._inputs = {name: _Input() for name in names}
        self._merge: Merge | None = None
        self._checker: CompatibilityChecker | None = None
        self._check = check
        self._complaints: list[str] = []
        self._read: set[str] = set()  # inputs that the checker knows
        create(algorithm, policy=policy)  # refuses what cannot be before anything is read

    def feed(self, lines: Lines) -> list[Element]:
        """Take what an input has to say and return what goes out.

        An input that has ended stays attached: what it said still counts when the others are judged.
        """
        state = self._inputs[lines.name]
        values, numbers = lines.take()
        if state.problem is None:
            self._decode(lines.name, state, values, numbers)
        if self._merge is None and not (state.elements or state.problem):
            return []
        output: list[Element] = []
        if self._merge is None:
            self._merge = self._begin(state)
            if self._merge.origin > MINUS_INFINITY:  # where the output is complete from, for whoever merges it again
                output.append(Hello(replica="lmerge", incarnation=1, joins_at=self._merge.origin))
        merge = self._merge
        output += self._process(merge, lines.name)
        while released := self._release_held(merge):
            output += released
        return output

    def _release_held(self, merge: Merge) -> list[Element]:
        """Try the inputs again that were held until now (R0 to R2); what one puts out may release another."""
        return [out for name, state in self._inputs.items() if state.elements for out in self._process(merge, name)]

    def is_held(self, name: str) -> bool:
        """Tell whether an input has to wait until the others have come further; no more of it should be read."""
        return bool(self._inputs[name].elements)

    def _begin(self, first: _Input) -> Merge:
        origin = self._origin
        if origin is None:
            opening = first.elements[0] if first.elements else None
            origin = opening.joins_at if isinstance(opening, Hello) else MINUS_INFINITY
        merge = create(self._algorithm, policy=self._policy, origin=origin)
        if self._check:
            order = _ORDERS.get(self._algorithm, Order.ANY)
            self._checker = CompatibilityChecker(multiset=self._algorithm in ("R1", "R4"), origin=origin, order=order)
        for name in self._inputs:
            merge.attach(name)
        return merge

    def _decode(self, name: str, state: _Input, values: list[bytes], numbers: list[int]) -> None:
        elements, error = decode_batch(values)
        state.elements += elements
        state.numbers += numbers[: len(elements)]
        if error is not None:
            state.problem = f"{name}:{numbers[error.index]}: {error.reason}"

    def _process(self, merge: Merge, name: str) -> list[Element]:
        state = self._inputs[name]
        if not state.attached:
            return []
        output = merge.process(name, state.elements)
        taken = merge.consumed(name)
        self._judge(name, state.elements[:taken], output)
        for fact in merge.take_facts():
            if isinstance(fact, Violation):
                state.problem = f"{name}:{state.numbers[taken]}: {fact.detail} ({fact.rule.value})"
                taken = len(state.elements)
            elif isinstance(fact, Divergence):
                claims = ", ".join(f"{stream} says {claim}" for stream, claim in fact.claims.items())
                assert isinstance(fact.payload, bytes)
                payload = fact.payload.decode()
                self._complain(f"the inputs contradict each other about {payload} at {fact.vs}: {claims}")
        del state.elements[:taken], state.numbers[:taken]
        if state.problem and not state.elements:
            self._complain(f"{state.problem}; {name} is left out from here on")
            state.attached = False
            merge.detach(name)
            if self._checker and name in self._read:
                self._checker.leave(name)
        return output

    def _judge(self, name: str, taken: Sequence[Element], output: Sequence[Element]) -> None:
        if self._checker is None:
            return
        self._read.update([name] if taken else [])
        for element in taken:
            self._checker.input(name, element)
        for element in output:
            for violation in self._checker.output(element):
                self._complain(f"check: {violation}")

    def _complain(self, text: str) -> None:
        self.failed = True
        self._complaints.append(text)

    def take_complaints(self) -> list[str]:
        """Return what is to be said about the inputs since the last call."""
        complaints, self._complaints = self._complaints, []
        return complaints

    def finish(self) -> list[str]:
        """Return what is to be said when all inputs have ended."""
        for name, state in self._inputs.items():
            if state.elements and self._merge is not None:
                at = show_time(self._merge.max_stable)
                self._complain(f"{name} never joined: the output ended at {at}, before the input was complete")
        return self.take_complaints()

    def summary(self) -> str:
        """Return the counters in one line."""
        if self._merge is None:
            return "nothing was read"
        stats = self._merge.stats()
        return (
            f"in: {stats.inserts_in} inserts, {stats.adjusts_in} adjusts, {stats.stables_in} stables; "
            f"out: {stats.inserts_out} inserts, {stats.adjusts_out} adjusts, {stats.stables_out} stables; "
            f"stable {show_time(self._merge.max_stable)}, {stats.nodes} live"
        )
