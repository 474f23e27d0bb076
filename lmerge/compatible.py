"""Is an output compatible with its inputs? The conditions of paper 000, III-D, made exact, as an oracle and a tool.

**Definition** (III-B). An output prefix is compatible with a set of input prefixes if, however the inputs go on to
become equivalent, the output can still go on to become equivalent to them. Two things are added to it
(recovery-and-sink 5). An input that joins at J, or skips to J, is complete from J on only: of a TDB it promises the
events with ``ve >= J``. A merge has an origin G, and inputs and output need to agree on events with ``ve >= G`` only.

**One key at a time.** What may still happen to the events of one ``(payload, vs)`` depends on no other key. For one
key let

    N(t)     = how many events with ve >= t the reference will have in the end; it falls as t rises
    #S(t)    = how many events with ve >= t the stream S has now
    first(S) = max(J of S, G, vs + 1)

A stream with the stable point s > vs can still change the ends that are >= s, to other ends >= s, and nothing else:
no event comes, none goes. So it *promises* exactly this (and nothing if s <= vs):

    first <= s:    N(t) = #S(t)  for first <= t <= s         frozen ends are exact, half-frozen events are counted
    first >  s:    N(first) <= #S(s)                         what is not there by now will not be there from J on

``#S`` changes only after an end, so both are finitely many bounds ``N(t) >= n`` and ``N(t) <= n`` (`_bounds`). What the
inputs leave possible is every falling N within all their bounds. By the same argument the output can still become
any N within *its own* bounds, and no other. Hence, necessary and sufficient, for R4 as for R3, with L anywhere:

    the output is compatible at a key  iff  each bound of the output follows from the inputs' bounds:
    N(t) >= n follows  iff  some input bound N(s) >= m has s >= t and m >= n  (or n = 0)
    N(t) <= n follows  iff  some input bound N(s) <= m has s <= t and m <= n

since the largest and the smallest N within the inputs' bounds are themselves possible. R3 adds the bound N <= 1.

A key that no stream has is the case n = 0; over all of them this is **C1**: L <= D, the least D with
D = max{L_m : J_m <= max(G, D + 1)}. Without late joiners D is the largest L_m.

It follows that **only a stable can make an output incompatible**: a legal insert or adjust changes no bound of its own
stream. And more input only adds bounds: it can never make a compatible output incompatible.

**Against the printed conditions** (tests/property/test_compatible.py holds them against the definition, with few times:
the first item over all pairs of inputs, the second over all single ones, the judgement as a whole by samples too):

* C2 for a half-frozen output event prints ``L_m <= L``; it must read ``L <= L_m``. As printed it refuses {A [2, inf)}
  with L = 11 against the one input {A [2, 16)} with L_m = 14, which is compatible. So corrected, C1 to C3 are exact
  for mutually consistent inputs that are complete from the start.
* The R4 condition (all fully frozen events, equally many half-frozen ones) is exact for L = max L_m, as it says. For
  L < L_m with the leading input m it is: the same events with ``ve < L`` and equally many with ``ve >= L``.
* J <= max(G, L), the rule by which a merge lets an input lead (recovery-and-sink 5.2), is sufficient. Exact is
  J <= max(G, L + 1): time is counted in whole milliseconds, so what begins at L ends at L + 1 or later, and what is
  alive at L and unknown to a joiner with J = L + 1 ends at L.
* A stable below the origin (recovery-and-sink 5.6: not taken) is not incompatible by itself: an event that it half
  freezes can still be ended before G. What J5 shows is found when the stable that makes it final comes.

**Inputs that contradict one another** about a key (missing elements, V-C; divergence) leave no N, and by definition
every output is compatible. There a weaker condition is checked: the number of the output's events lies between the
least and the largest that the inputs, one by one, promise. So the output cannot invent an event, or lose one that all
have; its ends are not judged, since a merge that obeyed one input may be contradicted by a later one. Other keys are
judged as usual. Note that R0 to R2 may put out what a leading input turns out to lack (V-C) and cannot take it back;
that *is* incompatible.
"""

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Element, Hello, Insert, Payload, Skip, Stable, show_time
from lmerge.errors import IllegalElement
from lmerge.facts import Rule, StreamId, Violation
from lmerge.tdb import TDB

OUTPUT: Final = "output"
"""The `stream_id` of violations that the output is to blame for."""

Key: TypeAlias = tuple[Payload, int]
Bound: TypeAlias = tuple[int, int]
"""(t, n): N(t) >= n or N(t) <= n."""
Name = TypeVar("Name", bound=StreamId)


class Order(enum.Enum):
    """What the order of a stream promises beyond its stables; the value is added to `vs` to give a stable point.

    Streams of R0 to R2 rely on it: their joiners may lead from what was inserted, without any stable.
    """

    ANY = None
    BY_VS = 0
    """R1 and R2: after an insert at vs none comes below vs."""
    STRICTLY_BY_VS = 1
    """R0: after an insert at vs none comes at or below vs."""


class Promise(NamedTuple):
    """What a stream says about one key: its ends, how far they are final, and from where on they are complete."""

    joins_at: int
    stable: int
    ends: tuple[int, ...]


class _View(msgspec.Struct):
    """A prefix that counts: to the end of what was read, or to a skip or hello that made it promise less from there."""

    stream_id: StreamId
    joins_at: int
    stable: int
    ends: dict[Key, tuple[int, ...]]

    def promise(self, key: Key) -> Promise:
        return Promise(self.joins_at, self.stable, self.ends.get(key, ()))


def check_compatible(
    output: Iterable[Element],
    inputs: Mapping[Name, Iterable[Element]] | Sequence[Iterable[Element]],
    *,
    multiset: bool = False,
    joins_at: Mapping[Name, int] | None = None,
    origin: int | None = None,
    order: Order = Order.ANY,
) -> list[Violation]:
    """Return what makes an output prefix incompatible with a set of input prefixes; nothing if it is compatible.

    An input that left counts with what was read of it; so does what an input said before a hello or a skip in it.
    Each stream also has to keep its own contract; of an incarnation that does not, only the part before the illegal
    element counts. Costs O(n log n) in all elements; for a check after every element use `CompatibilityChecker`.

    Args:
        output: the prefix under test. Only its last incarnation is compared with the inputs.
        inputs: prefixes by stream id; those of a sequence are called 0, 1, ...
        multiset: judge by R4: a payload and vs may have several events.
        joins_at: replaces what the hellos of these streams say; a skip still raises it.
        origin: the merge's origin; if None, what the output's hello says, or minus infinity. A merge by R0 to R2 that
            began at G is complete only from G + the longest lifetime on (recovery-and-sink 5.6): give that.
        order: what the order of all streams, the output's too, promises: see `Order`.

    >>> i1 = [Insert("A", 2, 16), Insert("B", 3, 10), Stable(14)]
    >>> i2 = [Insert("A", 2, 12), Insert("B", 3, 10), Stable(11)]
    >>> check_compatible([Insert("A", 2, INFINITY), Insert("B", 3, 10), Stable(11)], [i1, i2])
    []
    >>> for violation in check_compatible([Insert("A", 2, 12), Stable(13)], {"I1": i1, "I2": i2}):
    ...     print(violation.rule.name, violation.detail)
    C2 ('A', 2): the output ends at 12; I1 is alive at 14; I2 is alive at 11
    C3 ('B', 3): the output has none; I1 ends at 10; I2 ends at 10
    """
    named = inputs if isinstance(inputs, Mapping) else dict(enumerate(inputs))
    given: Mapping[Any, int] = joins_at or {}
    views: list[_View] = []
    violations: list[Violation] = []
    for stream_id, prefix in named.items():
        reader = _Reader(stream_id, given.get(stream_id), multiset=multiset, order=order)
        views += reader.read(prefix)
        violations += reader.violations
    reader = _Reader(OUTPUT, origin, multiset=multiset, order=order)
    out = reader.read(output)[-1]
    return violations + reader.violations + _compare(out, views, multiset=multiset)


def _compare(out: _View, views: list[_View], *, multiset: bool) -> list[Violation]:
    violations = []
    reach = furthest_stable(((view.joins_at, view.stable) for view in views), origin=out.joins_at)
    if out.stable > reach:
        violations.append(ahead(out.stable, reach))
    # An unfrozen event of an input places no constraint (III-D); a key with no other event is one of those of C1.
    keys = {key for view in (out, *views) for key in view.ends if key[1] < min(view.stable, out.stable)}
    for key in sorted(keys, key=lambda key: (key[1], repr(key[0]))):
        promises = [view.promise(key) for view in views]
        rule = judge(key[1], out.promise(key), promises, multiset=multiset)
        if rule is not None:
            named = [(view.stream_id, promise) for view, promise in zip(views, promises, strict=True)]
            violations.append(incompatible(rule, key, out.promise(key), named))
    return violations


def furthest_stable(promises: Iterable[tuple[int, int]], *, origin: int, known: int = MINUS_INFINITY + 1) -> int:
    """Return the D of C1: how far the output's stable may go, given the (joins_at, stable) of the inputs.

    `known` is a value that D is known to have reached; no event begins before the first instant.
    """
    reach = known
    for joins_at, stable in sorted(promises):  # an input that cannot join yet is not helped by those that join later
        if joins_at > max(origin, reach + 1):
            break
        reach = max(reach, stable)
    return reach


def judge(vs: int, output: Promise, inputs: Sequence[Promise], *, multiset: bool) -> Rule | None:
    """Return the rule that the output breaks at a key with this `vs`, or None: the theorem of this module."""
    if vs >= output.stable:
        return None
    first = max(output.joins_at, vs + 1)
    needs_least, needs_most = _bounds(output, first)
    has = needs_most[0][1]
    said = [_bounds(promise, first) for promise in inputs if vs < promise.stable]
    at_least, at_most = _together(said, first, multiset=multiset)
    if _contradict(at_least, at_most):
        lowest = min(max((n for _, n in least), default=0) for least, _ in said)
        highest = max(next((n for t, n in most if t == first), INFINITY) for _, most in said)
        fine = has >= lowest and (has <= highest or not needs_least)
    else:
        fine = all(any(s >= t and m >= n for s, m in at_least) for t, n in needs_least) and all(
            any(s <= t and m <= n for s, m in at_most) for t, n in needs_most
        )
    if fine:
        return None
    # The words of the two conditions: C3, the output has too few events; C2, it has events without support.
    return Rule.C3 if has == 0 or any(n > has for _, n in at_least) else Rule.C2


def contradictory(vs: int, inputs: Sequence[Promise], *, origin: int, multiset: bool) -> bool:
    """Tell whether no reference can agree with all these inputs about a key, from the origin on."""
    first = max(origin, vs + 1)
    said = [_bounds(promise, first) for promise in inputs if vs < promise.stable]
    return _contradict(*_together(said, first, multiset=multiset))


def _bounds(promise: Promise, first: int) -> tuple[list[Bound], list[Bound]]:
    """Return what a stream promises about N from `first` on, as N(t) >= n and N(t) <= n; the least t comes first."""
    joins_at, stable, ends = promise
    start = max(joins_at, first)
    if start > stable:
        return [], [(start, sum(ve >= stable for ve in ends))]
    steps = {t for ve in ends if start <= ve < stable for t in (ve, ve + 1)}
    bounds = [(t, sum(ve >= t for ve in ends)) for t in sorted({start, stable} | steps)]
    return bounds, bounds


def _together(
    said: list[tuple[list[Bound], list[Bound]]], first: int, *, multiset: bool
) -> tuple[list[Bound], list[Bound]]:
    """Return the bounds of all inputs together with those that always hold: 0 <= N, and N <= 1 for R3."""
    at_least = [(INFINITY, 0), *(bound for least, _ in said for bound in least)]
    at_most = [(first, INFINITY if multiset else 1), *(bound for _, most in said for bound in most)]
    return at_least, at_most


def _contradict(at_least: list[Bound], at_most: list[Bound]) -> bool:
    return any(s <= t and m < n for t, n in at_least for s, m in at_most)


def ahead(stable: int, reach: int) -> Violation:
    """Return the violation of C1 by an output whose stable has passed what the inputs have reached together."""
    detail = f"the inputs, each from where it joins, have come to {show_time(reach)}"
    return Violation(Rule.C1, OUTPUT, Stable(stable), f"Stable({show_time(stable)}): {detail}")


def incompatible(rule: Rule, key: Key, output: Promise, inputs: Iterable[tuple[StreamId, Promise]]) -> Violation:
    """Return the violation of C2 or C3 at a key, with what every stream that has come so far says about it."""
    payload, vs = key
    claims = [f"{stream_id} {_words(promise)}" for stream_id, promise in inputs if vs < promise.stable]
    detail = "; ".join([f"the output {_words(output)}", *(claims or ["no input has come so far"])])
    return Violation(rule, OUTPUT, Stable(output.stable), f"({payload!r}, {show_time(vs)}): {detail}")


def _words(promise: Promise) -> str:
    joins_at, stable, ends = promise
    final = sorted(ve for ve in ends if ve < stable)
    alive = len(ends) - len(final)
    words = [f"ends at {ve}" for ve in final]
    words += [f"is alive at {show_time(stable)}" + (f", {alive} times" if alive > 1 else "")] if alive else []
    since = "" if joins_at == MINUS_INFINITY else f" (complete from {joins_at} on)"
    return (" and ".join(words) or "has none") + since


class _Reader:
    """Reads one prefix: what it promises, and where it breaks its own contract."""

    def __init__(self, stream_id: StreamId, joins_at: int | None, *, multiset: bool, order: Order) -> None:
        self.violations: list[Violation] = []
        self._stream_id = stream_id
        self._given = joins_at
        self._multiset = multiset
        self._order = order
        self._begin(MINUS_INFINITY)

    def _begin(self, joins_at: int) -> None:
        self._joins_at = joins_at if self._given is None else self._given
        self._tdb = TDB()
        self._count: Counter[Key | None] = Counter()  # events by key, to find duplicates without a scan of the TDB
        self._said = MINUS_INFINITY  # the last stable in the stream; its order may have promised more
        self._broken = False

    def read(self, prefix: Iterable[Element]) -> list[_View]:
        """Return the views of a prefix; the last is that of all of it."""
        views = []
        for element in prefix:
            if isinstance(element, Hello):
                views.append(self._view())
                self._begin(element.joins_at)
            elif self._broken:
                continue
            elif isinstance(element, Skip):
                if element.before > self._joins_at:
                    views.append(self._view())
                    self._joins_at = element.before
            else:
                self._apply(element)
        return [*views, self._view()]

    def _view(self) -> _View:
        ends: dict[Key, list[int]] = {}
        for event in self._tdb:
            ends.setdefault((event.payload, event.vs), []).append(event.ve)
        frozen = {key: tuple(sorted(values)) for key, values in ends.items()}
        return _View(self._stream_id, self._joins_at, self._tdb.stable, frozen)

    def _apply(self, element: Insert | Adjust | Stable) -> None:
        key = None if isinstance(element, Stable) else (element.payload, element.vs)
        if isinstance(element, Insert) and not self._multiset and self._count[key] and element.vs >= self._tdb.stable:
            self._report(Rule.DUPLICATE, element, f"{element} comes while an event with its payload and vs is there")
            return
        try:
            if isinstance(element, Stable) and element.vc >= self._said:
                self._said = element.vc
                self._tdb.apply(Stable(max(self._tdb.stable, element.vc)))
            else:
                self._tdb.apply(element)
        except IllegalElement as error:
            self._report(self._rule(element), element, str(error))
            return
        if isinstance(element, Insert):
            self._count[key] += 1
            if self._order.value is not None:
                self._tdb.apply(Stable(max(self._tdb.stable, element.vs + self._order.value)))
        elif isinstance(element, Adjust) and element.ve == element.vs:
            self._count[key] -= 1

    def _rule(self, element: Element) -> Rule:
        stable = self._tdb.stable
        missing = isinstance(element, Adjust) and element.vold >= stable and element.ve >= stable
        return Rule.NO_SUCH_EVENT if missing else Rule.STABLE

    def _report(self, rule: Rule, element: Element, detail: str) -> None:
        self._broken = True
        self.violations.append(Violation(rule, self._stream_id, element, detail))
