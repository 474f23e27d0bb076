"""Comparing two streams as far as both are stable: equal TDBs, equal snapshots, and the first difference.

With ``v = min(stable of A, stable of B)``: the TDBs are equal up to v if both have the same events with ``ve < v``, and
equally many others of each ``(payload, vs)`` with ``vs < v``. The snapshots are equal if at every instant ``t < v`` the
same multiset of payloads is valid. Beyond v the streams are not comparable yet. Streams that join late, or skip, are
compared where both are complete.

A merged stream is compatible with one input exactly if it agrees with it up to the smaller stable, so `Judge` finds the
keys that differ, with A in the place of the merged stream. *Snapshots*: keys at which A and B agree cancel out; of
those that differ, each step adds up how often a payload is valid in A and in B between the times at which that changes.
A key is followed until it has ended in both. State: what is not frozen, and the differing keys that are alive.
"""

import itertools
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from lmerge.elements import INFINITY, MINUS_INFINITY, Element, Hello, Payload, Stable
from lmerge.facts import Rule
from services.certify.batch import Batch, Batches
from services.certify.finding import Finding, Findings, Kind, show_ends, show_payload
from services.certify.judge import Judge, Step, Taken
from services.certify.table import MERGED, Row

_OTHER: Final = 1
"""The column of B: the only claimant that stays."""


class BeginsAnew(Exception):
    """A signal to the reader, not an error: what came before a hello is void, both streams are to be read again.

    Attributes:
        stream: which one; from now on it begins at `position`.
        position: that of the hello.
    """

    def __init__(self, stream: str, position: int) -> None:
        super().__init__(f"{stream} begins anew at {position}")
        self.stream = stream
        self.position = position


class Difference(msgspec.Struct, frozen=True):
    """What the two streams have where they first differ."""

    instant: int
    payload: str
    a: str
    b: str


class Compared(msgspec.Struct, frozen=True):
    """The outcome of a comparison."""

    a: str
    b: str
    a_stable: int
    b_stable: int
    since: int
    """Both are complete from here on."""
    until: int
    """Both are stable up to here; beyond, they are not comparable yet."""
    differing: int
    """How many (payload, vs) differ."""
    tdb_difference: Difference | None
    snapshot_difference: Difference | None
    findings: list[Finding]
    """Where a stream breaks its own contract: from there on it was not compared."""

    @property
    def tdb_equal(self) -> bool:
        """Tell whether they have the same events, as far as they can be compared."""
        return self.tdb_difference is None and not self.findings

    @property
    def snapshot_equal(self) -> bool:
        """Tell whether the same payloads are valid at every instant that can be compared."""
        return self.snapshot_difference is None and not self.findings


class Comparison:
    """Compares two streams by name. Its `run` raises `BeginsAnew` where it must be done again."""

    def __init__(self, a: tuple[str, Batches], b: tuple[str, Batches]) -> None:
        (self._a, a_batches), (self._b, b_batches) = a, b
        a_since, self._a_batches = _opening(_single_incarnation(self._a, a_batches))
        b_since, self._b_batches = _opening(_single_incarnation(self._b, b_batches))
        since = max(a_since, b_since)
        other = {self._b: self._b_batches}
        self._judge = Judge(self._a, other, self._note_step, multiset=True, origin=since, follow=True)
        self._findings = Findings()
        self._differing = 0
        self._tdb: Difference | None = None
        self._snapshot: Difference | None = None
        self._followed: dict[Payload, list[Row]] = {}  # differing keys that are alive, by payload

    @property
    def stable(self) -> int:
        """How far the streams have been compared."""
        return self._judge.table.judged

    def run(self) -> Compared:
        """Read both streams and compare them.

        Raises:
            BeginsAnew: a stream has another incarnation; compare again, reading it from there.
        """
        a_stable = self._compare()
        # What is left of B is read without keeping it: how far it goes, and whether a hello voids all of this.
        b_stable = max(self._judge.inputs[0].claimant.stable, _last_stable(self._b_batches))
        for position, problem in self._judge.inputs[0].problems:
            self._findings.add(Finding(Kind.CONTRACT, self._b, position, problem))
        return Compared(
            a=self._a,
            b=self._b,
            a_stable=a_stable,
            b_stable=b_stable,
            since=self._judge.merged.joins_at,
            until=self._judge.table.judged,
            differing=self._differing,
            tdb_difference=self._tdb,
            snapshot_difference=self._snapshot,
            findings=self._findings.samples,
        )

    def _compare(self) -> int:
        """Read all of A, compare it while that can be done, and return how far it is stable."""
        stable = MINUS_INFINITY
        comparable = True
        for batch in self._a_batches:
            for element, position in zip(batch.elements, batch.positions, strict=False):
                if isinstance(element, Stable):
                    stable = max(stable, element.vc)
                comparable = comparable and self._take(element, position)
            if batch.problem is not None and comparable:
                position = batch.positions[len(batch.elements)]
                self._findings.add(Finding(Kind.CONTRACT, self._a, position, batch.problem))
                comparable = False
        return stable

    def _take(self, element: Element, position: int) -> bool:
        """Compare up to the next element of A; False if no further one can be compared."""
        outcome = self._judge.take(element, position)
        if isinstance(outcome, Rule):
            self._findings.add(Finding(Kind.CONTRACT, self._a, position, f"{element}: {outcome.value}"))
        return outcome is Taken.LEGAL

    def _note_step(self, step: Step) -> None:
        rows = [broken.row for broken in step.broken if broken.rule is not None]
        self._differing += len(rows)
        for row in rows:
            self._followed.setdefault(row.key[0], []).append(row)
        if rows and self._tdb is None:
            self._tdb = min((self._tdb_difference(row, step.until) for row in rows), key=_earliest)
        if self._snapshot is None:
            found = [self._snapshot_difference(payload, rows, step) for payload, rows in self._followed.items()]
            self._snapshot = min((difference for difference in found if difference), key=_earliest, default=None)
        for payload in list(self._followed):
            alive = [row for row in self._followed[payload] if _alive(row, step.until)]
            if alive:
                self._followed[payload] = alive
            else:
                del self._followed[payload]

    def _tdb_difference(self, row: Row, until: int) -> Difference:
        """Return the first difference at a key: the least t at which not equally many events have ``ve >= t``."""
        payload, vs = row.key
        a, b = row.ends[MERGED], row.ends[_OTHER]
        first = max(self._judge.merged.joins_at, vs + 1)
        times = sorted({first} | {ve + 1 for ve in (*a, *b) if first <= ve < until})
        differing = next(t for t in times if sum(ve >= t for ve in a) != sum(ve >= t for ve in b))
        return Difference(
            differing - 1,
            show_payload(payload),
            show_ends(a, vs=vs, stable=until),
            show_ends(b, vs=vs, stable=until),
        )

    def _snapshot_difference(self, payload: Payload, rows: list[Row], step: Step) -> Difference | None:
        """Return the first instant of a step at which a payload is not valid equally often."""
        changes: dict[int, int] = {}
        for row in rows:
            for ends, sign in ((row.ends[MERGED], 1), (row.ends[_OTHER], -1)):
                for ve in ends:
                    changes[row.vs] = changes.get(row.vs, 0) + sign
                    changes[ve] = changes.get(ve, 0) - sign
        surplus = 0  # how much more often it is valid in A
        times = sorted(changes)
        for time, following in zip(times, [*times[1:], INFINITY], strict=True):
            surplus += changes[time]
            instant = max(time, step.old, self._judge.merged.joins_at)
            if surplus and instant < min(following, step.until):
                a, b = (_valid(rows, column, instant, step.until) for column in (MERGED, _OTHER))
                return Difference(instant, show_payload(payload), a, b)
        return None


def _earliest(difference: Difference) -> tuple[int, str]:
    return difference.instant, difference.payload


def _alive(row: Row, until: int) -> bool:
    return any(ends and ends[-1] >= until for ends in (row.ends[MERGED], row.ends[_OTHER]))


def _valid(rows: Iterable[Row], column: int, instant: int, until: int) -> str:
    """Say which of the differing lifetimes hold at an instant."""
    lifetimes = [(row.vs, ve) for row in rows for ve in row.ends[column] if row.vs <= instant < ve]
    texts = [f"[{vs}, {ve})" if ve < until else f"[{vs}, …)" for vs, ve in sorted(lifetimes)]
    return " and ".join(texts) or "none"


def _single_incarnation(name: str, batches: Batches) -> Iterator[Batch]:
    """Pass batches on; raise at a hello that is not the first element."""
    begun = False
    for batch in batches:
        for element, position in zip(batch.elements, batch.positions, strict=False):
            if isinstance(element, Hello) and begun:
                raise BeginsAnew(name, position)
            begun = True
        yield batch


def _opening(batches: Batches) -> tuple[int, Batches]:
    """Return where a stream joins, by its first element, and all its batches."""
    first = next((batch for batch in batches if batch.positions), None)
    if first is None:
        return MINUS_INFINITY, iter(())
    opening = first.elements[0] if first.elements else None
    joins_at = opening.joins_at if isinstance(opening, Hello) else MINUS_INFINITY
    return joins_at, itertools.chain([first], batches)


def _last_stable(batches: Batches) -> int:
    stables = (element.vc for batch in batches for element in batch.elements if isinstance(element, Stable))
    return max(stables, default=MINUS_INFINITY)
