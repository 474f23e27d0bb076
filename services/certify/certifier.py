"""Certifying one lane: is this stream a right merge of these inputs? `services.certify.judge` has the argument."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from lmerge.compatible import Key, Order
from lmerge.elements import MINUS_INFINITY, Adjust, Element, Insert, Stable, show_time
from lmerge.facts import Rule
from services.certify.batch import Batches
from services.certify.finding import Finding, Findings, Kind, Locate, show_ends, show_payload
from services.certify.judge import Broken, Judge, Step, Taken
from services.certify.table import MERGED, Row

_LOST_KEYS: Final = 10_000
"""Lost events that are remembered, to tell one that comes too late from one that comes again."""


class InputFigures(msgspec.Struct, frozen=True):
    """What was read of an input, and the (position, problem) pairs at which it broke its contract."""

    name: str
    elements: int
    incarnations: int
    stable: int
    problems: list[tuple[int, str]]


class Certificate(msgspec.Struct, frozen=True):
    """The verdict on a lane, with what it rests on."""

    merged: str
    stable: int
    """The stable of the merged stream."""
    judged: int
    """How far it was judged; less than `stable` only if it is ahead of the inputs."""
    complete_from: int
    """The origin of the merge: nothing is said about events that end before it."""
    inserts: int
    adjusts: int
    stables: int
    final: int
    """Events that are settled for good."""
    alive: int
    """Events that are not."""
    inputs: list[InputFigures]
    reference_until: int | None
    """How far the merged stream was compared with the reference; None without one."""
    counts: dict[Kind, int]
    findings: list[Finding]
    """The first violation comes first; the counts are of all."""

    @property
    def certified(self) -> bool:
        """Tell whether nothing was found."""
        return not self.counts

    @property
    def lost(self) -> int:
        """How many events are lacking."""
        return self.counts.get(Kind.LOST, 0)

    @property
    def repeated(self) -> int:
        """How many events came again."""
        return self.counts.get(Kind.REPEATED, 0)


class Certifier:
    """Certifies one merged stream against its inputs, streaming.

    Args:
        merged: name and batches of the stream under test.
        inputs: batches by name; read only as far as the verdict needs.
        locate: names places in findings.
        begin_late: inputs whose beginning is gone; each counts from its first hello on.
        reference: name and batches of a stream that is known to be right, to be compared as far as both are stable.
        multiset: judge by R4: a payload and vs may have several events.
        origin: where the merge begins, if no hello opens the merged stream.
        order: what the order of all streams promises (R0 to R2).
        until: stop when the merged stream has come to this stable.
    """

    def __init__(
        self,
        merged: tuple[str, Batches],
        inputs: Mapping[str, Batches],
        *,
        locate: Locate = lambda stream, position: f"{stream}:{position}",
        begin_late: frozenset[str] = frozenset(),
        reference: tuple[str, Batches] | None = None,
        multiset: bool = False,
        origin: int | None = None,
        order: Order = Order.ANY,
        until: int | None = None,
    ) -> None:
        self._name, self._batches = merged
        self._locate = locate
        self._until = until
        self._findings = Findings()
        self._lost: set[Key] = set()
        self._position = 0  # of the element under test
        self._kinds: Counter[type[Element]] = Counter()
        self._judge = Judge(
            self._name,
            inputs,
            self._note_step,
            begin_late=begin_late,
            multiset=multiset,
            origin=origin,
            order=order,
        )
        self._reference = None
        self._comparable = True  # until the reference ends
        if reference is not None:
            named = dict([reference])
            self._reference = Judge(self._name, named, self._note_reference, multiset=multiset, origin=origin)

    @property
    def stable(self) -> int:
        """How far the merged stream has been judged."""
        return self._judge.table.judged

    def run(self) -> Certificate:
        """Read the merged stream to its end, or as far as was asked, and return the verdict."""
        for batch in self._batches:
            for element, position in zip(batch.elements, batch.positions, strict=False):
                self._position = position
                if not self._take(element):
                    return self._certificate()
            if batch.problem is not None:
                self._position = batch.positions[len(batch.elements)]
                self._add(Kind.MALFORMED, batch.problem)
        if self._until is not None:
            self._add(Kind.SHORT, f"it ends at {show_time(self._judge.merged.stable)}, before {self._until}")
        return self._certificate()

    def _take(self, element: Element) -> bool:
        """Judge the next element; False if it is the last one to be judged."""
        outcome = self._judge.take(element, self._position)
        self._kinds[type(element)] += 1
        if isinstance(outcome, Rule):
            self._note_illegal(element, outcome)
            return True
        if outcome is Taken.BEGINS_ANEW:
            stable = show_time(self._judge.merged.stable)
            self._add(Kind.BEGINS_ANEW, f"{element} comes after Stable({stable}); what follows was not judged")
            return False
        if outcome is Taken.AHEAD:  # nothing can be judged from here on, and all of it would have to be kept
            reach = f"the inputs, each from where it joins, have come to {show_time(self._judge.reach)}"
            self._add(Kind.AHEAD, f"{element}: {reach}; what follows was not judged")
            return False
        if self._reference is not None and self._comparable:
            self._comparable = self._reference.take(element, self._position) is Taken.LEGAL
        return self._until is None or self._judge.merged.stable < self._until

    def _add(self, kind: Kind, detail: str, *, at: int = -1, events: int = 1) -> None:
        position = self._position if at < 0 else at
        self._findings.add(Finding(kind, self._name, position, detail), events=events)

    def _note_illegal(self, element: Element, rule: Rule) -> None:
        after = f"{element} comes after Stable({show_time(self._judge.merged.stable)})"
        match element:
            case Stable():
                self._add(Kind.STABLE_BACK, after)
            case Adjust():
                absent = f"{element}: the merged stream has no such event"
                self._add(Kind.ILLEGAL_ADJUST, after if rule is Rule.STABLE else absent)
            case Insert(payload, vs, _) if (payload, vs) in self._lost:
                self._lost.discard((payload, vs))
                self._add(Kind.LATE, after)
            case Insert():
                present = f"{element} comes while an event with its payload and vs is there"
                settled = f"{after}: what begins before it was settled"
                self._add(Kind.REPEATED, settled if rule is Rule.STABLE else present)
            case _:
                raise AssertionError(f"no rule speaks of {element}")

    def _note_step(self, step: Step) -> None:
        for broken in sorted(step.broken, key=lambda broken: (broken.row.at < 0, broken.row.at, broken.row.vs)):
            if broken.contested:
                self._add(Kind.CONTESTED, self._describe(self._judge, broken.row, step.until), at=broken.row.at)
            if broken.rule is not None:
                self._note_broken(broken, step)

    def _note_broken(self, broken: Broken, step: Step) -> None:
        """Say in which way a key is wrong: by how many events it has, and if that is right, by their ends."""
        row = broken.row
        has, least, most = _count(self._judge, row, step.until)
        if has < least:
            kind, events = Kind.LOST, least - has
            if len(self._lost) < _LOST_KEYS:
                self._lost.add(row.key)
        elif has > most:
            kind, events = (Kind.REPEATED if most else Kind.INVENTED), has - most
        else:
            kind, events = Kind.WRONG_END, 1
        self._add(kind, self._describe(self._judge, row, step.until), at=row.at, events=events)

    def _note_reference(self, step: Step) -> None:
        assert self._reference is not None
        for broken in step.broken:
            detail = self._describe(self._reference, broken.row, step.until)
            self._add(Kind.NOT_THE_REFERENCE, detail, at=broken.row.at)

    def _describe(self, judge: Judge, row: Row, until: int) -> str:
        """Say what every stream has at a key, and which stable of the merged stream makes it final."""
        payload, vs = row.key
        says = [f"merged has {show_ends(row.ends[MERGED], vs=vs, stable=until)}"]
        for claimant in judge.table.claimants:
            if claimant.stable > vs:
                stable = min(claimant.stable, until)
                ends = row.ends[claimant.column]
                says.append(f"{claimant.name} has {show_ends(ends, vs=vs, stable=stable, joins_at=claimant.joins_at)}")
        by = f"Stable({show_time(judge.merged.stable)}) at {self._locate(self._name, self._position)}"
        return f"{show_payload(payload)} from {vs}: {', '.join(says)}; settled by {by}"

    def _close_reference(self) -> int | None:
        """Return how far the reference was of use; that it was of none is a finding, not a pass."""
        if self._reference is None:
            return None
        source, until = self._reference.inputs[0], self._reference.table.judged
        for position, problem in source.problems:
            self._findings.add(Finding(Kind.CONTRACT, source.name, position, problem))
        if until == MINUS_INFINITY < self._judge.table.judged and not source.problems:
            self._add(Kind.NOT_THE_REFERENCE, f"{source.name} has no stable: nothing of it is final")
        return until

    def _certificate(self) -> Certificate:
        judge = self._judge
        final, alive = judge.table.events()
        reference_until = self._close_reference()
        return Certificate(
            merged=self._name,
            stable=judge.merged.stable,
            judged=judge.table.judged,
            complete_from=judge.merged.joins_at,
            inserts=self._kinds[Insert],
            adjusts=self._kinds[Adjust],
            stables=self._kinds[Stable],
            final=final,
            alive=alive,
            inputs=[
                InputFigures(source.name, source.elements, source.incarnations, source.claimant.stable, source.problems)
                for source in judge.inputs
            ],
            reference_until=reference_until,
            counts=dict(self._findings.counts),
            findings=self._findings.samples,
        )


def _count(judge: Judge, row: Row, until: int) -> tuple[int, int, int]:
    """Return how many events of a key the merged stream has, and the least and the most that inputs have."""
    first = max(judge.merged.joins_at, row.vs + 1)
    has = sum(ve >= first for ve in row.ends[MERGED])
    claimants = [claimant for claimant in judge.table.claimants if claimant.stable > row.vs]
    complete = [claimant for claimant in claimants if claimant.joins_at <= min(first, until)] or claimants
    counts = [sum(ve >= first for ve in row.ends[claimant.column]) for claimant in complete]
    return has, min(counts, default=0), max(counts, default=0)
