"""A merged stream against whole inputs, in the order of time, with no more state than is not frozen.

**What is decided.** Nobody outside knows how far a merge had read its inputs when it put an element out. But more input
only adds bounds and never makes a compatible output incompatible (`lmerge.compatible`); so a right merge is compatible,
at every prefix, with the *whole* inputs. That is the strongest condition that needs no knowledge of the interleaving,
and it is what is judged here: after each element, is the prefix legal, and is it compatible with all that the inputs
say, those that left and former incarnations with what they had said?

**Why a part of the inputs is enough.** Only a stable can make the output incompatible, and the bounds of an output
with the stable v are about times ``t <= v``. An input with ``J <= t <= L``, for its stable L, has pinned N(t) for ever:
its later elements change no event with an end below L, nor how many have one at or above it. Let D be the reach of C1.
If ``v <= D``, some input pins every t from the origin to v, and the verdict is the one that the whole inputs give. If
``v > D``, more has to be read; when nothing is left, C1 is broken.

**In steps.** Between two stables the output does not change what it has promised, so Stable(v) may be judged as
Stable(v1), Stable(v2), ... up to v, with rising v1, v2. The judge reads the input that is furthest behind, by one
batch, and judges as far as all have come. An output with few stables, or one that is ahead, therefore costs no memory
for the inputs. A step also ends where an input ends, so that an input either covers a step or has nothing to say on it.
Below the origin G an output promises something about N(G) too, so the first step waits until all have come to G.

**What a step looks at.** If some input covers the step from `old` to v (``J <= old``, ``v <= L``), a key that began
before `old` and to which nobody gives an end in ``[old, v)`` is as it was, in the input and in the output, which agreed
at `old`. So only the rows that are due are looked at, and one whose ends, cut at v, are the same in the output and in
all inputs that cover the step is right by the theorem. Others, and all open rows if no input covers the step, go to
`lmerge.compatible.judge`. What claimants that are gone had said is in the output's own promise at `old`.

**Exact** for inputs that do not contradict each other. About a key on which they do, every output is compatible by
definition. It is reported as contested, its count is judged (as in `lmerge.compatible`), its ends are not; if the
contradiction lies beyond v, a violation at v is still one, though the whole inputs would excuse it.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple, assert_never

from lmerge.compatible import Order, Promise, contradictory, furthest_stable, judge
from lmerge.elements import MINUS_INFINITY, Adjust, Element, Hello, Insert, Skip, Stable
from lmerge.facts import Rule
from services.certify.batch import Batch, Batches
from services.certify.table import MERGED, Claimant, Row, Table

_FIRST: Final = MINUS_INFINITY + 1
"""The first instant; no event begins before it, so every stream has reached it."""


class Input:
    """An input as it is being read."""

    def __init__(self, name: str, batches: Batches, claimant: Claimant, *, begins_late: bool = False) -> None:
        self.name = name
        self.claimant = claimant  # its incarnation of now
        self.ended = False
        self.elements = 0
        self.incarnations = 1
        self.problems: list[tuple[int, str]] = []  # where it broke its contract, and how
        self.begun = False  # whether an element was read
        # Whether nothing counts until the next hello: after a broken contract, or if the beginning is gone.
        self.void = begins_late
        self._batches = batches

    def read(self) -> Batch | None:
        """Return the next batch; None at the end."""
        batch = next(self._batches, None)
        if batch is None:
            self.ended = self.claimant.done = True
        else:
            self.elements += len(batch.elements) + (batch.problem is not None)
        return batch


class Broken(NamedTuple):
    """A key at which the output is wrong (a rule), at which the inputs contradict each other, or both."""

    row: Row
    rule: Rule | None
    contested: bool


class Step(NamedTuple):
    """A judged stretch ``[old, until)`` with what was found at it."""

    old: int
    until: int
    broken: list[Broken]


class Taken(Enum):
    """What became of an element of the merged stream."""

    LEGAL = auto()
    AHEAD = auto()
    """A stable that the inputs, read to their ends, do not bear out; it was judged as far as they do."""
    BEGINS_ANEW = auto()
    """A hello that takes back what was promised; it was not applied."""


class Judge:
    """Takes the elements of a merged stream one by one and reads inputs as far as the verdict needs.

    Args:
        name: of the merged stream.
        inputs: batches by name.
        on_step: is told what each step found, before settled rows are dropped.
        begin_late: names of inputs whose beginning is gone; each counts from its first hello on.
        multiset: judge by R4.
        origin: where the merge begins; if None, what a hello that opens the merged stream says.
        order: what the order of all streams promises.
        follow: raise the origin with every skip: for two streams that are to be compared where both are complete.
    """

    def __init__(
        self,
        name: str,
        inputs: Mapping[str, Batches],
        on_step: Callable[[Step], None],
        *,
        begin_late: frozenset[str] = frozenset(),
        multiset: bool = False,
        origin: int | None = None,
        order: Order = Order.ANY,
        follow: bool = False,
    ) -> None:
        self.table = Table(name, multiset=multiset, order=order)
        self.merged = self.table.merged
        self.merged.joins_at = MINUS_INFINITY if origin is None else origin
        self.inputs = [
            Input(name, batches, self.table.add(name), begins_late=name in begin_late)
            for name, batches in inputs.items()
        ]
        self._on_step = on_step
        self._multiset = multiset
        self._given = origin
        self._follow = follow
        self._begun = False  # whether the merged stream is past its opening
        # How far the output of now, since its last hello, is known to follow from the inputs.
        self._proven = MINUS_INFINITY

    @property
    def reach(self) -> int:
        """The D of C1, as far as the inputs were read."""
        promises = ((claimant.joins_at, claimant.stable) for claimant in self.table.claimants)
        known = max(self.table.judged, _FIRST)
        return furthest_stable(promises, origin=self.merged.joins_at, known=known)

    def take(self, element: Element, at: int) -> Taken | Rule:
        """Take the next element of the merged stream; return the rule if the stream itself does not allow it."""
        old = self.merged.stable
        if isinstance(element, Hello):
            return self._hello(element)
        if isinstance(element, Skip):
            self.merged.joins_at = max(self.merged.joins_at, element.before)
            return Taken.LEGAL
        rule = self._apply(self.merged, element, at)
        self._begun = True
        if rule is not None:
            return rule
        if self.merged.stable > old and not self._catch_up(self.merged.stable):
            return Taken.AHEAD
        return Taken.LEGAL

    def _apply(self, claimant: Claimant, element: Insert | Adjust | Stable, at: int) -> Rule | None:
        if isinstance(element, Insert):  # not match: this runs once per element, and match costs three times as much
            return self.table.insert(claimant, element, at)
        if isinstance(element, Adjust):
            return self.table.adjust(claimant, element, at)
        if isinstance(element, Stable):
            return self.table.stable(claimant, element)
        assert_never(element)

    def _hello(self, element: Hello) -> Taken:
        if self._begun:  # a gap that was accepted: another output, complete from a later time on
            if element.joins_at < self.merged.stable:
                return Taken.BEGINS_ANEW
            self.table.clear(self.merged)
            self._proven = MINUS_INFINITY
        if self._given is None or self._begun:
            self.merged.joins_at = element.joins_at
        return Taken.LEGAL

    def _catch_up(self, vc: int) -> bool:
        """Judge the merged stream up to its stable; False if the inputs do not come so far."""
        while self.table.judged < vc > _FIRST:  # at the first instant there is nothing to judge
            until = self._comparable(vc)
            if until > self.table.judged:
                self._step(until)
            elif not self._read_on():
                return False
        return True

    def _comparable(self, vc: int) -> int:
        """Return how far the next step may go: as all inputs have come, and to the next end of one that is over."""
        judged, origin, reach = self.table.judged, self.merged.joins_at, self.reach
        unread = [source.claimant.stable for source in self.inputs if not source.ended]
        until = min([vc, *unread])
        if until <= judged or (unread and min(*unread, reach) < origin):
            return judged
        ends = [claimant.stable for claimant in self.table.claimants if claimant.done]
        until = min([until, reach, *(end for end in ends if end > max(judged, origin))])
        return until if until > _FIRST else judged

    def _read_on(self) -> bool:
        """Read a batch of the input that is furthest behind; False if all have ended."""
        unread = [source for source in self.inputs if not source.ended]
        if not unread:
            return False
        source = min(unread, key=lambda source: source.claimant.stable)
        batch = source.read()
        if batch is not None:
            for element, position in zip(batch.elements, batch.positions, strict=False):
                self._take_input(source, element, position)
            if batch.problem is not None and not source.void:
                self._void(source, batch.positions[len(batch.elements)], batch.problem)
        self.table.sweep()
        return True

    def _take_input(self, source: Input, element: Element, position: int) -> None:
        if isinstance(element, Hello):
            self._new_incarnation(source, element)
        elif source.void:
            return
        elif isinstance(element, Skip):
            self._skip(source.claimant, element.before)
        else:
            rule = self._apply(source.claimant, element, position)
            if rule is not None:
                self._void(source, position, f"{element}: {rule.value}")
        source.begun = True

    def _void(self, source: Input, position: int, problem: str) -> None:
        """Let an input count with what it said before it broke its contract, until it begins anew."""
        source.problems.append((position, problem))
        source.void = True

    def _new_incarnation(self, source: Input, hello: Hello) -> None:
        """A hello voids what came before it, but what was promised until then has been promised."""
        old = source.claimant
        source.incarnations += source.begun
        source.void = False
        if old.stable == MINUS_INFINITY:
            self.table.clear(old)
            old.joins_at = hello.joins_at
            return
        old.done = True
        source.claimant = self.table.add(source.name, hello.joins_at)
        self._drop_done()

    def _skip(self, claimant: Claimant, before: int) -> None:
        """Let a claimant promise less from here on; what it had promised counts as that of one that left."""
        if before <= claimant.joins_at:
            return
        if self._follow:
            self.merged.joins_at = max(self.merged.joins_at, before)
        if max(claimant.stable, claimant.joins_at) > self.table.judged:
            past = self.table.add(claimant.name, claimant.joins_at, like=claimant)
            past.done = True
        claimant.joins_at = before

    def _step(self, until: int) -> None:
        """Judge from where the output was judged up to `until`."""
        table, old = self.table, self.table.judged
        covering = self._covering(old, until)
        due = table.pop_due(until)
        if not covering:
            due = table.open_before(until)
        columns = [claimant.column for claimant in covering]
        suspects = [row for row in due if not columns or not _agree(row.ends, columns, old, until)]
        broken = [found for row in suspects if (found := self._judge(row, until))]
        table.judged = self._proven = until
        self._on_step(Step(old, until, broken))
        table.close(found.row for found in broken)
        table.close_final(due, until)
        self._drop_done()

    def _covering(self, old: int, until: int) -> list[Claimant]:
        """Return the claimants that speak about all of a step, if the output was right up to its beginning."""
        if self._proven < old or self.merged.joins_at > old:
            return []
        return [claimant for claimant in self.table.claimants if claimant.joins_at <= old and claimant.stable >= until]

    def _judge(self, row: Row, until: int) -> Broken | None:
        # Cut at `until`: how far a batch happened to reach beyond it must not matter.
        cut = max(until, self.merged.joins_at)
        promises = [claimant.promise(row, cut) for claimant in self.table.claimants if claimant.stable > row.vs]
        ends = row.ends[MERGED]
        if not ends and not any(promise.ends for promise in promises):
            return None  # nobody has it for good: C1 speaks for all such keys
        origin = self.merged.joins_at
        contested = contradictory(row.vs, promises, origin=origin, multiset=self._multiset)
        promises.append(Promise(origin, self._proven, ends))
        rule = judge(row.vs, Promise(origin, until, ends), promises, multiset=self._multiset)
        return Broken(row, rule, contested) if rule is not None or contested else None

    def _drop_done(self) -> None:
        """Forget the claimants that are over and that the output, judged further than they went, makes superfluous."""
        judged, origin = self.table.judged, self.merged.joins_at
        for claimant in [claimant for claimant in self.table.claimants if claimant.done]:
            if max(claimant.stable, claimant.joins_at, origin) <= judged:
                self.table.remove(claimant)


def _agree(ends: list[tuple[int, ...]], columns: list[int], old: int, until: int) -> bool:
    """Tell whether the output and all covering claimants have the same ends in a step, and equally many after it."""
    merged = ends[MERGED]
    for column in columns:
        theirs = ends[column]
        if theirs != merged and _cut(theirs, old, until) != _cut(merged, old, until):
            return False
    return True


def _cut(ends: tuple[int, ...], old: int, until: int) -> list[int]:
    return [min(ve, until) for ve in ends if ve >= old]
