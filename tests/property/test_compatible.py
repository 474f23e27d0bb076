"""`check_compatible` against the definition of III-B, word for word, on small universes, and the checker against it.

The definition here knows nothing of freezing, bounds or conditions: what a stream can become is found by applying
every legal element to its TDB until nothing new comes up.
"""

import functools
import itertools
import random
from collections.abc import Iterator

import pytest

from lmerge.compatibility_checker import CompatibilityChecker
from lmerge.compatible import Promise, check_compatible, contradictory, judge
from lmerge.elements import INFINITY, MINUS_INFINITY, Adjust, Element, Hello, Insert, Skip, Stable
from lmerge.errors import IllegalElement
from lmerge.facts import Rule, Violation
from lmerge.tdb import TDB, Event, reconstitute

Ends = tuple[int, ...]

VS = 1
TIMES = (2, 3, 4, 5, INFINITY)
STABLES = (1, 2, 3, 4, 5, INFINITY)
JOINS = (MINUS_INFINITY, 2, 3, 4, 5, 6)


@functools.cache
def references(vs: int, most: int) -> tuple[Ends, ...]:
    """Every multiset of ends that the reference may have for a key, over times that go beyond all that streams say."""
    times = [*range(vs + 1, 8), INFINITY]
    return tuple(ends for size in range(most + 1) for ends in itertools.combinations_with_replacement(times, size))


@functools.cache
def successors(vs: int, stable: int, ends: Ends) -> frozenset[Ends]:
    """Everything that one legal element can make of the events of one key."""
    times = [*range(vs, 8), INFINITY]
    elements: list[Element] = [Insert("A", vs, ve) for ve in times if ve > vs]
    elements += [Adjust("A", vs, vold, ve) for vold in set(ends) for ve in times]
    found = set()
    for element in elements:
        tdb = TDB((Event("A", vs, ve) for ve in ends), stable=stable)
        try:
            tdb.apply(element)
        except IllegalElement:
            continue
        found.add(tuple(sorted(event.ve for event in tdb)))
    return frozenset(found)


@functools.cache
def futures(vs: int, stable: int, ends: Ends, most: int) -> frozenset[Ends]:
    """Everything that the events of one key can become by legal elements."""
    reached, frontier = {ends}, [ends]
    while frontier:
        new = {after for after in successors(vs, stable, frontier.pop()) if len(after) <= most} - reached
        reached |= new
        frontier += new
    return frozenset(reached)


@functools.cache
def possible(vs: int, promise: Promise, most: int) -> int:
    """The references that the stream can still come to agree with, from its joins_at on, as a set of bits."""
    joins_at, stable, ends = promise
    kept = {tuple(ve for ve in future if ve >= joins_at) for future in futures(vs, stable, ends, most)}
    return sum(
        1 << number
        for number, reference in enumerate(references(vs, most))
        if tuple(ve for ve in reference if ve >= joins_at) in kept
    )


def verdict_by_definition(vs: int, output: Promise, inputs: list[Promise], most: int) -> bool | None:
    """Tell whether the output can follow wherever the inputs may go; None if they can go nowhere together."""
    left = (1 << len(references(vs, most))) - 1
    for promise in inputs:
        left &= possible(vs, promise, most)
    return None if left == 0 else left & ~possible(vs, output, most) == 0


def from_origin(promise: Promise, origin: int) -> Promise:
    return promise._replace(joins_at=max(promise.joins_at, origin))


def compare_with_definition(output: Promise, inputs: list[Promise], *, multiset: bool) -> None:
    most = 3 if multiset else 1
    agreed = [from_origin(promise, output.joins_at) for promise in inputs]
    expected = verdict_by_definition(VS, output, agreed, most)
    assert contradictory(VS, inputs, origin=output.joins_at, multiset=multiset) == (expected is None)
    rule = judge(VS, output, inputs, multiset=multiset)
    if expected is not None:
        assert (rule is None) == expected
    whole = verdict_by_definition(VS, output, inputs, most)  # what inputs say below the origin changes no verdict
    if whole is not None:
        assert (rule is None) == whole


def promises(most: int, joins: tuple[int, ...] = JOINS) -> list[Promise]:
    ends = [ends for size in range(most + 1) for ends in itertools.combinations_with_replacement(TIMES, size)]
    return [Promise(*parts) for parts in itertools.product(joins, STABLES, ends)]


def test_the_judgement_of_r3_is_the_definition_for_every_output_and_every_single_input() -> None:
    every = promises(1)
    for output, promise in itertools.product(every, every):
        compare_with_definition(output, [promise], multiset=False)


@pytest.mark.parametrize("multiset", [False, True])
def test_the_judgement_is_the_definition_for_sets_of_inputs(*, multiset: bool) -> None:
    rng = random.Random(1)
    every = promises(2 if multiset else 1)
    for _ in range(8_000):
        inputs = rng.choices(every, k=rng.randint(1, 3))
        compare_with_definition(rng.choice(every), inputs, multiset=multiset)


@pytest.mark.parametrize("multiset", [False, True])
def test_the_judgement_is_the_definition_for_streams_that_agree(*, multiset: bool) -> None:
    """Streams drawn at random mostly contradict one another; these are made from one reference."""
    rng = random.Random(2)
    most = 2 if multiset else 1
    every = promises(most)
    agreeing = {
        number: [promise for promise in every if possible(VS, promise, 3 if multiset else 1) >> number & 1]
        for number, reference in enumerate(references(VS, 3 if multiset else 1))
        if len(reference) <= most
    }
    for _ in range(6_000):
        *inputs, output = rng.choices(rng.choice(list(agreeing.values())), k=rng.randint(2, 4))
        compare_with_definition(output, inputs, multiset=multiset)


def prefix(promise: Promise) -> list[Element]:
    hello = Hello(replica="r", incarnation=0, joins_at=promise.joins_at)
    return [hello, *(Insert("A", VS, ve) for ve in promise.ends), Stable(promise.stable)]


def test_c1_is_the_definition_for_keys_that_no_stream_has() -> None:
    rng = random.Random(3)
    every = promises(1)
    for _ in range(2_500):
        inputs = rng.choices(every, k=rng.randint(1, 3))
        output = rng.choice(every)
        agreed = [from_origin(promise, output.joins_at) for promise in inputs]
        expected = all(
            verdict_by_definition(vs, output._replace(ends=()), [p._replace(ends=()) for p in agreed], 1)
            for vs in range(-1, 7)
        )
        violations = check_compatible(prefix(output), [prefix(promise) for promise in inputs])
        assert expected == all(violation.rule is not Rule.C1 for violation in violations)


def printed_conditions(output: Promise, inputs: list[Promise], *, corrected: bool) -> bool:
    """C2 and C3 as III-D prints them, for the key at VS; `corrected` turns L_m <= L in C2 into L <= L_m."""
    last = output.stable
    fully = [p.ends[0] for p in inputs if p.ends and p.ends[0] < p.stable]
    half = [p.stable for p in inputs if p.ends and p.stable > VS and p.ends[0] >= p.stable]
    half_frozen = bool(output.ends) and VS < last <= output.ends[0]
    c2 = True
    if half_frozen:
        c2 = any(last <= m if corrected else m <= last for m in half) or any(last <= ve for ve in fully)
    elif output.ends and output.ends[0] < last:
        c2 = output.ends[0] in fully
    c3 = True
    if fully:
        c3 = all(last <= VS or (last <= ve and half_frozen) or (ve < last and output.ends == (ve,)) for ve in fully)
    elif half:
        c3 = last <= VS or (last <= max(half) and half_frozen)
    return c2 and c3


def test_the_printed_conditions_are_exact_once_the_comparison_in_c2_is_turned_round() -> None:
    every = promises(1, joins=(MINUS_INFINITY,))
    too_strict = 0
    for output, *inputs in itertools.product(every, repeat=3):
        expected = verdict_by_definition(VS, output, inputs, 1)
        if expected is None or output.stable > max(promise.stable for promise in inputs):
            continue
        assert printed_conditions(output, inputs, corrected=True) == expected
        as_printed = printed_conditions(output, inputs, corrected=False)
        assert expected or not as_printed
        too_strict += expected and not as_printed
    assert too_strict > 0


def test_the_printed_condition_of_r4_is_exact_when_the_output_has_the_stable_of_the_leading_input() -> None:
    every = [promise for promise in promises(2, joins=(MINUS_INFINITY,)) if promise.stable > VS]
    for output, promise in itertools.product(every, every):
        if output.stable == promise.stable:
            final = [tuple(ve for ve in p.ends if ve < p.stable) for p in (output, promise)]
            printed = final[0] == final[1] and len(output.ends) == len(promise.ends)
            assert printed == verdict_by_definition(VS, output, [promise], 3)


# The checker against the slow one.

LAST = 20
KEYS = [(payload, vs) for payload in "AB" for vs in range(0, LAST, 3)]
Reference = dict[tuple[str, int], Ends]


def ends_of(tdb: TDB, key: tuple[str, int]) -> Ends:
    return tuple(sorted(event.ve for event in tdb if (event.payload, event.vs) == key))


class Source:
    """An input that agrees with a reference from its joins_at on, with junk below it, by a random path."""

    def __init__(self, rng: random.Random, reference: Reference, *, multiset: bool) -> None:
        self.rng = rng
        self.reference = reference
        self.multiset = multiset
        self.joins_at = MINUS_INFINITY
        self.tdb = TDB()
        self.elements: list[Element] = []
        self.plan: list[Element] = []

    def step(self) -> Element | None:
        """Add an element that keeps the contract and leaves the reference within reach; None if none was found."""
        for _ in range(20):
            element = self.propose()
            if self.accept(element):
                self.elements.append(element)
                return element
        return None

    def accept(self, element: Element) -> bool:
        joins_at, tdb = self.joins_at, TDB(self.tdb, stable=self.tdb.stable)
        if isinstance(element, Hello):
            joins_at = element.joins_at
        elif isinstance(element, Skip):
            joins_at = max(joins_at, element.before)
        elif isinstance(element, Insert) and not self.multiset and ends_of(tdb, (str(element.payload), element.vs)):
            return False
        try:
            tdb.apply(element)
        except IllegalElement:
            return False
        if not all(self.can_become(Promise(joins_at, tdb.stable, ends_of(tdb, key)), key) for key in KEYS):
            return False
        self.joins_at, self.tdb = joins_at, tdb
        return True

    def can_become(self, promise: Promise, key: tuple[str, int]) -> bool:
        truth = Promise(MINUS_INFINITY, INFINITY, self.reference[key])
        return judge(key[1], promise, [truth], multiset=self.multiset) is None

    def propose(self) -> Element:
        rng, choice = self.rng, self.rng.random()
        time = min(max(self.tdb.stable, 0), LAST) + rng.randint(0, 4)
        if choice < 0.01:
            return Hello(replica="r", incarnation=0, joins_at=rng.choice([MINUS_INFINITY, time]))
        if choice < 0.03:
            return Skip(time)
        events = list(self.tdb)
        key = rng.choice(KEYS)
        if choice < 0.1 and events:
            event = rng.choice(events)
            return Adjust(event.payload, event.vs, event.ve, rng.choice([event.vs, random_end(rng, event.vs)]))
        if choice < 0.25:
            return Insert(*key, random_end(rng, key[1]))
        if not self.plan:
            truth = TDB(Event(*key, ve) for key, ends in self.reference.items() for ve in ends if ve >= self.joins_at)
            self.plan = list(follow(self.tdb, truth, rng.choice([time, time, time, INFINITY])))
        return self.plan.pop(0)


def random_end(rng: random.Random, vs: int) -> int:
    end: int = rng.choice([*range(vs + 1, LAST + 3), INFINITY])
    return end


def random_reference(rng: random.Random, *, multiset: bool) -> Reference:
    counts = (0, 1, 2, 3) if multiset else (0, 1, 1)
    return {(p, vs): tuple(sorted(random_end(rng, vs) for _ in range(rng.choice(counts)))) for p, vs in KEYS}


def follow(output: TDB, target: TDB, vc: int) -> Iterator[Element]:
    """What an output has to say to be as final as Stable(vc) makes it, if the target is right."""
    for key in KEYS:
        if key[1] >= vc:
            continue
        has, wants = list(ends_of(output, key)), list(ends_of(target, key))
        for ve in tuple(has):
            if ve in wants:
                has.remove(ve)
                wants.remove(ve)
        has = [ve for ve in has if ve >= output.stable]
        wants = [ve for ve in wants if ve >= output.stable]
        for vold, ve in zip(has, wants, strict=False):
            yield Adjust(*key, vold, ve)
        if key[1] >= output.stable:
            yield from (Adjust(*key, vold, key[1]) for vold in has[len(wants) :])
            yield from (Insert(*key, ve) for ve in wants[len(has) :])
    yield Stable(vc)


def spoil(rng: random.Random, elements: list[Element]) -> list[Element]:
    """Plant one defect: an element left out, repeated or with another end, or a promise of more than is known."""
    number = rng.randrange(len(elements))
    before, element, after = elements[:number], elements[number], elements[number + 1 :]
    if rng.random() < 0.1:
        return [*before, element, element, *after]
    match element:
        case Stable(vc):
            return [*before, Stable(min(INFINITY, vc + rng.randint(1, 3)))]
        case Insert(payload, vs, _) if rng.random() < 0.5:
            return [*before, Insert(payload, vs, random_end(rng, vs)), *after]
        case Adjust(payload, vs, vold, _) if rng.random() < 0.5:
            return [*before, Adjust(payload, vs, vold, random_end(rng, vs)), *after]
        case _:
            return before + after


class Walk:
    """Random inputs, an output that follows now one and now another, and the two checkers beside it."""

    def __init__(self, seed: int, *, multiset: bool, diverging: bool) -> None:
        self.rng = rng = random.Random(seed)
        self.multiset = multiset
        references = [random_reference(rng, multiset=multiset)]
        if diverging:
            references.append(
                {**references[0], **dict(rng.sample(list(random_reference(rng, multiset=multiset).items()), 3))}
            )
        self.sources = {f"r{n}": Source(rng, rng.choice(references), multiset=multiset) for n in range(3)}
        self.live = list(self.sources)
        self.origin = rng.choice([MINUS_INFINITY, 0, 4])
        self.out: list[Element] = [Hello(replica="m", incarnation=0, joins_at=self.origin)]
        self.checker = CompatibilityChecker(multiset=multiset)
        assert self.checker.output(self.out[0]) == []

    def read(self) -> None:
        stream_id = self.rng.choice(self.live)
        element = self.sources[stream_id].step()
        if element is not None:
            assert self.checker.input(stream_id, element) == []
        if self.rng.random() < 0.01 and len(self.live) > 1:
            self.live.remove(stream_id)
            self.checker.leave(stream_id)

    def emit(self, defects: float) -> list[Element]:
        """Follow an input that is ahead, mostly one that has joined, wholly or in part."""
        rng, output = self.rng, reconstitute(self.out)
        joined = [source for source in self.sources.values() if source.joins_at <= max(output.stable, self.origin)]
        source = rng.choice(joined if joined and rng.random() < 0.97 else list(self.sources.values()))
        target = reconstitute(source.elements)
        if target.stable <= output.stable:
            return []
        vc = rng.choice([target.stable, min(target.stable, max(output.stable, 0) + rng.randint(1, 3))])
        elements = list(follow(output, target, vc))
        return spoil(rng, elements) if rng.random() < defects else elements

    def run(self, steps: int, defects: float) -> set[Rule]:
        """Go on until the output goes wrong; return how."""
        for _ in range(steps):
            self.read()
            for element in self.emit(defects) if self.rng.random() < 0.3 else ():
                self.out.append(element)
                found = self.checker.output(element)
                prefixes = {stream_id: source.elements for stream_id, source in self.sources.items()}
                expected = check_compatible(self.out, prefixes, multiset=self.multiset)
                assert [heading(violation) for violation in found] == [heading(violation) for violation in expected]
                if found:
                    return {violation.rule for violation in found}
        return set()


def heading(violation: Violation) -> tuple[Rule, object, Element | None, str]:
    """All but what the inputs say: of those that left, the checker forgets what no longer matters."""
    return violation.rule, violation.stream_id, violation.element, violation.detail.split(":")[0]


@pytest.mark.parametrize("multiset", [False, True])
@pytest.mark.parametrize("diverging", [False, True])
def test_the_checker_finds_what_the_slow_one_finds_and_when(*, multiset: bool, diverging: bool) -> None:
    outcomes = [Walk(seed, multiset=multiset, diverging=diverging).run(60, defects=0.2) for seed in range(40)]
    assert {rule for rules in outcomes for rule in rules} >= {Rule.C1, Rule.C2, Rule.C3}
    assert set() in outcomes
