"""The certifier and the comparison against their definitions, on random merges, right and wrong."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle, islice

import pytest

from lmerge import INFINITY, MINUS_INFINITY, TDB, Adjust, Element, Event, Hello, Insert, Stable, check_compatible
from lmerge.compatible import OUTPUT
from lmerge.errors import IllegalElement
from lmerge.properties import StreamProperties
from services.certify import Batch, Certificate, Certifier, Compared, Comparison, Kind
from tests.support.presentations import HORIZON, fragment, plan
from tests.support.presentations import present as present_plan
from tests.support.seeds import play_seeds
from tests.support.world import CASES, ORDERS, World

RIGHT_MERGES = 1_000
"""Acceptance of issue 5; ten times as many in `make test-long`."""

UNIQUE = [case for case in CASES if case[0] == "R3"]
"""Cases in which an element belongs to one event for sure and no order is promised: one rule can be broken alone."""


class Run(World):
    """A world that keeps what its inputs have in their topics, whole: all incarnations, and what nobody read."""

    def __init__(self, rng: random.Random, algorithm: str, policy: str = "", *, size: int = 25) -> None:
        self.topics: dict[str, list[Element]] = {}
        super().__init__(rng, algorithm, policy, size=size)
        while self.step():
            pass
        for name in list(self.streams):
            self._keep(name)

    def attach(self, joins_at: int) -> None:
        """Keep what the stream had whose name is used again."""
        before = dict(self.streams)
        super().attach(joins_at)
        for name in [name for name in before if self.streams[name] is not before[name]]:
            self._keep(name, before[name])
            self.topics[name].append(Hello(replica=name, incarnation=len(self.topics[name]), joins_at=joins_at))

    def _keep(self, name: str, stream: Sequence[Element] | None = None) -> None:
        self.topics.setdefault(name, []).extend(self.streams[name] if stream is None else stream)


def runs(
    seed: int, *, cases: Sequence[tuple[str, str]] = CASES, size: int = 25, complete: bool = False
) -> Iterator[Run]:
    """Make right merges, endlessly.

    R0 to R2 with an origin are left out: their output is complete only from where the longest lifetime that begins
    before the origin is over, which no judge can know while it lasts (tests/support/world.py).
    """
    for algorithm, policy in cycle(cases):
        run = Run(random.Random(seed), algorithm, policy, size=size)
        if run.origin == MINUS_INFINITY or (algorithm in ("R3", "R4") and not complete):
            yield run
        seed += 1


def batches(rng: random.Random, stream: Sequence[Element]) -> Iterator[Batch]:
    """Cut a stream anywhere; positions are counted from 1, as lines are."""
    position = 0
    while position < len(stream):
        size = rng.choice([1, 2, 7, 40])
        elements = stream[position : position + size]
        yield Batch(elements, range(position + 1, position + 1 + len(elements)))
        position += len(elements)


def certify(run: Run, output: Sequence[Element], *, reference: Sequence[Element] | None = None) -> Certificate:
    rng = random.Random(len(output))
    return Certifier(
        ("merged", batches(rng, output)),
        {name: batches(rng, topic) for name, topic in run.topics.items()},
        reference=None if reference is None else ("reference", batches(rng, reference)),
        multiset=run.algorithm in ("R1", "R4"),
        origin=run.origin,
        order=ORDERS[run.algorithm],
    ).run()


def test_right_merges_are_certified(long: bool) -> None:
    """R0 to R4 with all policies; inputs that come late, go, skip, say hello again and share names."""
    for run in islice(runs(0, size=15), RIGHT_MERGES * (10 if long else 1)):
        certificate = certify(run, run.output)
        assert certificate.certified, (run.algorithm, certificate.findings)
        assert certificate.judged == INFINITY
        assert certificate.final + certificate.alive == len(run.tdb)
        assert not any(figures.problems for figures in certificate.inputs)


def test_right_merges_equal_their_reference() -> None:
    for run in islice(runs(10_000, complete=True), 100):
        reference: list[Element] = [Insert(event.payload, event.vs, event.ve) for event in run.reference]
        certificate = certify(run, run.output, reference=[*reference, Stable(INFINITY)])
        assert certificate.certified, certificate.findings
        assert certificate.reference_until == INFINITY


def test_a_reference_that_has_one_event_less_is_found_to_differ() -> None:
    for run in islice(runs(11_000, cases=UNIQUE, complete=True), 50):
        if run.reference:
            reference: list[Element] = [Insert(event.payload, event.vs, event.ve) for event in run.reference[1:]]
            certificate = certify(run, run.output, reference=[*reference, Stable(INFINITY)])
            assert certificate.counts == {Kind.NOT_THE_REFERENCE: 1}


# -- exactness: any change at all gets the verdict of the definition


def is_right(run: Run, output: Sequence[Element]) -> bool:
    """Judge by definition: every prefix legal, and compatible with all that the inputs have."""
    multiset = run.algorithm in ("R1", "R4")
    for length in range(1, len(output) + 1):
        if length == len(output) or isinstance(output[length - 1], Stable) or run.algorithm in ("R0", "R1", "R2"):
            violations = check_compatible(
                output[:length], run.topics, multiset=multiset, origin=run.origin, order=ORDERS[run.algorithm]
            )
            assert all(violation.stream_id == OUTPUT for violation in violations)
            if violations:
                return False
    return True


def change(rng: random.Random, output: Sequence[Element]) -> list[Element]:
    """Change anything: leave out, say twice, swap, or say something else."""
    changed = list(output)
    index = rng.randrange(len(changed))
    element = changed[index]
    kind = rng.randrange(5)
    if kind == 0:
        del changed[index]
    elif kind == 1:
        changed.insert(rng.randrange(index, len(changed) + 1), element)
    elif kind == 2:
        other = rng.randrange(len(changed))
        changed[index], changed[other] = changed[other], element
    elif isinstance(element, Insert):
        ve = INFINITY if rng.random() < 0.1 else element.vs + rng.randrange(1, 20)
        changed[index] = Insert(element.payload, element.vs, ve)
    elif isinstance(element, Adjust):
        changed[index] = Adjust(element.payload, element.vs, element.vold, element.vs + rng.randrange(20))
    elif isinstance(element, Stable):
        changed[index] = Stable(rng.randrange(70))
    return changed


def test_the_verdict_is_that_of_the_definition(long: bool) -> None:
    """The streaming verdict equals `check_compatible` of every prefix with whole inputs; both verdicts are frequent."""
    verdicts: Counter[bool] = Counter()
    for number, run in enumerate(islice(runs(20_000, size=8), 4_000 if long else 400)):
        rng = random.Random(number)
        output = change(rng, run.output)
        if rng.random() < 0.3:  # inputs that end early: all that is known is less than all there is
            run.topics = {name: topic[: rng.randrange(len(topic) + 1)] for name, topic in run.topics.items()}
        certificate = certify(run, output)
        assert certificate.certified == is_right(run, output), (number, run.algorithm, output, certificate.findings)
        verdicts[certificate.certified] += 1
    assert min(verdicts[True], verdicts[False]) > 50, verdicts


# -- each planted corruption breaks one rule, and is found as that, where it is


def elements_of(run: Run, event: Event) -> list[int]:
    """Return where the output speaks of an event."""
    return [
        index
        for index, element in enumerate(run.output)
        if isinstance(element, Insert | Adjust) and (element.payload, element.vs) == (event.payload, event.vs)
    ]


def removed(run: Run, event: Event) -> bool:
    """Tell whether the output took the event back for a while: then to insert it again may be legal."""
    elements = [run.output[index] for index in elements_of(run, event)]
    return any(isinstance(element, Adjust) and element.ve == element.vs for element in elements)


def stable_before(run: Run, index: int) -> int:
    return max((e.vc for e in run.output[:index] if isinstance(e, Stable)), default=MINUS_INFINITY)


Planted = tuple[list[Element], int]
"""A corrupted output, and the index of the element to be blamed."""


def lose(_rng: random.Random, run: Run, event: Event) -> Planted:
    indices = elements_of(run, event)
    output = [element for index, element in enumerate(run.output) if index not in indices]
    passes = (index for index, e in enumerate(output) if isinstance(e, Stable) and e.vc > event.vs)
    return output, next(passes)


def repeat(rng: random.Random, run: Run, event: Event) -> Planted:
    first = elements_of(run, event)[0]
    index = rng.randrange(first + 1, len(run.output) + 1)
    return [*run.output[:index], run.output[first], *run.output[index:]], index


def adjust_nothing(rng: random.Random, run: Run, _event: Event) -> Planted:
    index = rng.randrange(len(run.output))
    vs = max(0, min(stable_before(run, index), 1_000))
    element = Adjust("nobody", vs, vs + 9, vs + rng.randrange(1, 5))
    return [*run.output[:index], element, *run.output[index:]], index


def adjust_what_is_final(_rng: random.Random, run: Run, event: Event) -> Planted:
    element = Adjust(event.payload, event.vs, event.ve, event.ve + 1)
    return [*run.output, element], len(run.output)


def go_back(rng: random.Random, run: Run, _event: Event) -> Planted:
    index = rng.choice([index for index, e in enumerate(run.output, 1) if isinstance(e, Stable)])
    element = Stable(min(stable_before(run, index) - 1, 1_000))
    return [*run.output[:index], element, *run.output[index:]], index


def invent(rng: random.Random, run: Run, _event: Event) -> Planted:
    index = rng.randrange(len(run.output))
    while stable_before(run, index) > 1_000:
        index -= 1
    vs = max(run.origin, stable_before(run, index), 0)
    element = Insert("nobody", vs, vs + rng.randrange(1, 9))
    return [*run.output[:index], element, *run.output[index:]], index


def end_wrong(_rng: random.Random, run: Run, event: Event) -> Planted:
    index = elements_of(run, event)[-1]
    output = list(run.output)
    element = output[index]
    if isinstance(element, Insert):
        output[index] = Insert(element.payload, element.vs, element.ve + 1)
    else:
        assert isinstance(element, Adjust)
        output[index] = Adjust(element.payload, element.vs, element.vold, element.ve + 1)
    return output, index


PLANTS: dict[str, tuple[Callable[[random.Random, Run, Event], Planted], Kind]] = {
    "lost": (lose, Kind.LOST),
    "repeated": (repeat, Kind.REPEATED),
    "adjust of nothing": (adjust_nothing, Kind.ILLEGAL_ADJUST),
    "adjust of what is final": (adjust_what_is_final, Kind.ILLEGAL_ADJUST),
    "stable going back": (go_back, Kind.STABLE_BACK),
    "an event no input has": (invent, Kind.INVENTED),
    "wrong end": (end_wrong, Kind.WRONG_END),
}


def planted(plant: str, count: int) -> Iterator[tuple[Run, list[Element], int]]:
    """Make corrupted runs, with the index of the element to be blamed."""
    corrupt, _ = PLANTS[plant]
    number = 0
    for run in runs(30_000, cases=UNIQUE):
        certain = [event for event in run.tdb if run.origin < event.ve < INFINITY and not removed(run, event)]
        if certain:
            rng = random.Random(number)
            yield run, *corrupt(rng, run, rng.choice(certain))
            number += 1
        if number == count:
            return


@pytest.mark.parametrize("plant", PLANTS)
def test_a_planted_corruption_is_found_where_it_is(plant: str, long: bool) -> None:
    _, kind = PLANTS[plant]
    for number, (run, output, index) in enumerate(planted(plant, 500 if long else 50)):
        certificate = certify(run, output)
        assert certificate.counts == {kind: 1}, (number, certificate.findings)
        assert certificate.findings[0].position == index + 1, (number, certificate.findings)


MUTANTS: dict[str, tuple[str, Callable[..., object], list[str]]] = {
    "no key is judged": (
        "services.certify.judge.judge",
        lambda *_, **__: None,
        ["lost", "an event no input has", "wrong end"],
    ),
    "all keys look alike": (
        "services.certify.judge._agree",
        lambda *_: True,
        ["lost", "an event no input has", "wrong end"],
    ),
    "no key is ever due": (
        "services.certify.table.Table.pop_due",
        lambda *_: [],
        ["lost", "an event no input has", "wrong end"],
    ),
    "any stable is taken": ("services.certify.table.Table.stable", lambda *_: None, ["stable going back"]),
    "any adjust is taken": (
        "services.certify.table.Table.adjust",
        lambda *_: None,
        ["adjust of nothing", "adjust of what is final"],
    ),
    "no illegal element is reported": (
        "services.certify.certifier.Certifier._note_illegal",
        lambda *_: None,
        ["repeated", "adjust of nothing", "adjust of what is final", "stable going back"],
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_certifier_with_a_part_missing_lets_corruption_pass(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So each part is what finds it, and the plants would notice if it stopped working."""
    target, blind, plants = MUTANTS[mutant]
    for plant in plants:
        cases = list(planted(plant, 10))
        monkeypatch.setattr(target, blind)
        kinds = [certify(run, output).counts for run, output, _ in cases]
        monkeypatch.undo()
        assert not all(counts == {PLANTS[plant][1]: 1} for counts in kinds), plant


def test_a_stable_ahead_of_every_input_is_found() -> None:
    for run in islice(runs(40_000), 50):
        for topic in run.topics.values():
            topic[:] = [element for element in topic if element != Stable(INFINITY)]
        certificate = certify(run, run.output)
        assert certificate.counts == {Kind.AHEAD: 1}, (run.algorithm, certificate.findings)
        assert certificate.findings[0].position == run.output.index(Stable(INFINITY)) + 1


# -- comparison


def stretch(rng: random.Random, stream: list[Element]) -> list[Element]:
    return stream if rng.random() < 0.5 else stream[: rng.randrange(len(stream) + 1)]


def test_a_comparison_is_that_of_the_definition(long: bool) -> None:
    """Of streams that mean the same, that are cut otherwise, and that differ anywhere; both read in part."""
    outcomes: Counter[tuple[bool, bool]] = Counter()

    def play(rng: random.Random) -> int:
        planned = plan(rng, endless=rng.random() < 0.3)
        others = plan(rng) if rng.random() < 0.2 else list(planned)
        if others and rng.random() < 0.5:
            others[0] = others[0]._replace(ve=rng.randint(others[0].vs + 1, HORIZON))
        tdb = TDB(Event(*event) for event in others if event.ve > event.vs)
        if rng.random() < 0.5 and not any(event.ve == INFINITY for event in tdb):
            others = fragment(rng, tdb)
        streams = [stretch(rng, present_plan(rng, events, StreamProperties())) for events in (planned, others)]
        compared = Comparison(("a", batches(rng, streams[0])), ("b", batches(rng, streams[1]))).run()
        check_compared(compared, *streams)
        outcomes[compared.tdb_equal, compared.snapshot_equal] += 1
        return 1

    play_seeds(play, "compare", until=20_000 if long else 1_500)
    assert min(outcomes[True, True], outcomes[False, True], outcomes[False, False]) > 50, outcomes


def check_compared(compared: Compared, a: Sequence[Element], b: Sequence[Element]) -> None:
    one, other = reconstituted(a), reconstituted(b)
    until = min(one.stable, other.stable)
    assert (compared.a_stable, compared.b_stable, compared.until) == (one.stable, other.stable, until)
    assert compared.tdb_equal == (known(one, until) == known(other, until))
    instants = [t for t in range(-1, HORIZON + 3) if t < until and one.snapshot(t) != other.snapshot(t)]
    first = compared.snapshot_difference.instant if compared.snapshot_difference else None
    assert first == (instants[0] if instants else None)


def known(tdb: TDB, until: int) -> Counter[tuple[object, int, int]]:
    """Return what a TDB says up to `until`: what has ended, and what lives on, however long."""
    return Counter((event.payload, event.vs, min(event.ve, until)) for event in tdb if event.vs < until)


def reconstituted(elements: Sequence[Element]) -> TDB:
    tdb = TDB()
    for element in elements:
        try:
            tdb.apply(element)
        except IllegalElement as error:
            raise AssertionError(f"the generator made an illegal stream: {error}") from error
    return tdb
