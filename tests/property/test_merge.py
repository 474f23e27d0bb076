"""R0 to R4 against each other, against the rules for missing elements, and against crashes.

A seed that fails is printed with the case. The oracle is in tests/simulation.
"""

import random
from collections import Counter

import pytest

from lmerge import (
    MINUS_INFINITY,
    TDB,
    Element,
    Event,
    Insert,
    OutputPolicy,
    Stable,
    create,
    reconstitute,
)
from lmerge.codec import encode, encode_batch
from tests.support.lane import MemoryLane
from tests.support.logical import events, present
from tests.support.seeds import play_seeds
from tests.support.world import CASES


@pytest.mark.parametrize(("one", "other", "streams"), [("R3", "R4", "R3"), ("R2", "R3", "R2"), ("R1", "R2", "R1")])
def test_two_algorithms_agree_on_shared_inputs(one: str, other: str, streams: str, long: bool) -> None:
    """After every element both have the same stable, and the same events before it."""

    def play(rng: random.Random) -> int:
        reference = events(rng, streams)
        inputs = {name: present(streams, reference, rng) for name in "abc"}
        merges = [create(one), create(other)]
        tdbs = [TDB(), TDB()]
        for name in inputs:
            for merge in merges:
                merge.attach(name)
        count = 0
        while any(inputs.values()):
            name = rng.choice([name for name, rest in inputs.items() if rest])
            element = inputs[name].pop(0)
            for merge, tdb in zip(merges, tdbs, strict=True):
                for out in merge.process(name, [element]):
                    tdb.apply(out)
            count += 1
            assert merges[0].max_stable == merges[1].max_stable
            assert tdbs[0].frozen(tdbs[0].stable) == tdbs[1].frozen(tdbs[1].stable)
        assert tdbs[0] == tdbs[1] == TDB(reference)
        return count

    play_seeds(play, (one, other), until=200_000 if long else 20_000)


@pytest.mark.parametrize("algorithm", ["R3", "R4"])
def test_a_missing_element_is_there_iff_the_stream_that_froze_its_start_had_it(algorithm: str, long: bool) -> None:
    """V-C, second half. Each input lacks some events; what a stable of input i moved past is judged by i alone."""

    def play(rng: random.Random) -> int:
        reference = events(rng, algorithm, count=15)
        owned = {name: [event for event in reference if rng.random() < 0.8] for name in "abc"}
        inputs = {name: present(algorithm, own, rng) for name, own in owned.items()}
        merge = create(algorithm)
        for name in inputs:
            merge.attach(name)
        tdb, expected, stable, count = TDB(), Counter[tuple[object, int]](), MINUS_INFINITY, 0
        while any(inputs.values()):
            name = rng.choice([name for name, rest in inputs.items() if rest])
            for out in merge.process(name, [inputs[name].pop(0)]):
                tdb.apply(out)
                if isinstance(out, Stable):
                    expected.update((e.payload, e.vs) for e in owned[name] if stable <= e.vs < out.vc)
                    stable = out.vc
            count += 1
        assert Counter((event.payload, event.vs) for event in tdb) == expected
        return count

    play_seeds(play, algorithm, until=100_000 if long else 10_000)


@pytest.mark.parametrize("algorithm", ["R0", "R2"])
def test_a_missing_element_is_there_iff_it_came_before_max_vs_had_passed_it(algorithm: str, long: bool) -> None:
    """V-C, first half, and E24: not below the merged stable either."""

    def play(rng: random.Random) -> int:
        reference = events(rng, algorithm, count=15)
        inputs = {name: present(algorithm, [event for event in reference if rng.random() < 0.8], rng) for name in "abc"}
        merge = create(algorithm)
        for name in inputs:
            merge.attach(name)
        expected: set[Event] = set()
        furthest = stable = MINUS_INFINITY
        output: list[Element] = []
        while any(inputs.values()):
            name = rng.choice([name for name, rest in inputs.items() if rest])
            element = inputs[name].pop(0)
            output += merge.process(name, [element])
            if isinstance(element, Stable):
                stable = max(stable, element.vc)
            elif isinstance(element, Insert) and element.vs >= max(stable, furthest):
                expected.add(Event(element.payload, element.vs, element.ve))
                furthest = element.vs
        assert reconstitute(output) == TDB(expected)
        return len(output)

    play_seeds(play, algorithm, until=100_000 if long else 10_000)


def _compare_since(same: int, calm: MemoryLane, shaken: MemoryLane) -> int:
    """Commit, and require that both put out the same; so they did up to `same`. Return up to where they do now."""
    shaken.commit()
    new, other = shaken.log[same:], encode_batch(calm.lane._pending[same:])
    assert _steps(new) == _steps(other)
    stables = [place for place, value in enumerate(new, start=1) if value.startswith(_STABLE)]
    return same + stables[-1] if stables else same


_STABLE = encode(Stable(0))[:16]


def _steps(output: list[bytes]) -> list[Counter[bytes]]:
    """Cut an output at its stables. What one stable brings about has no order, and a recovery may change it."""
    steps: list[Counter[bytes]] = [Counter()]
    for value in output:
        steps[-1][value] += 1
        if value.startswith(_STABLE):
            steps.append(Counter())
    return steps


@pytest.mark.parametrize(("algorithm", "policy"), CASES)
def test_a_crash_changes_nothing_that_follows(algorithm: str, policy: str, long: bool) -> None:
    """The same schedule with crashes at random steps, each recovered by load and refeed, puts out the same elements."""
    holds = "abc" if algorithm in ("R0", "R1", "R2") else ""  # a joiner, until it is joined

    def play(rng: random.Random) -> int:
        reference = events(rng, algorithm, count=15)
        parsed = OutputPolicy.parse(policy) if policy else None
        calm, shaken = MemoryLane(algorithm, parsed), MemoryLane(algorithm, parsed)
        inputs = {}
        for name in "abc":
            late = name != "a" and rng.random() < 0.4
            inputs[name] = present(algorithm, reference, rng, rng.randrange(5, 40) if late else MINUS_INFINITY)
            for lane in (calm, shaken):
                lane.attach(name)
        shaken.commit()
        count = same = 0
        while any(inputs.values()):
            name = rng.choice([name for name, rest in inputs.items() if rest])
            element = inputs[name].pop(0)
            values = MemoryLane.wire(element)
            for lane in (calm, shaken):
                lane.feed_wire(name, values)
                for held in holds:
                    lane.run(held)
            count += 1
            if rng.random() < 0.2:
                same = _compare_since(same, calm, shaken)
                if rng.random() < 0.5:
                    shaken.crash()
                    assert shaken.lane.merge.max_stable == calm.lane.merge.max_stable
        _compare_since(same, calm, shaken)
        assert reconstitute(calm.output) == TDB(reference)
        return count

    play_seeds(play, (algorithm, policy), until=50_000 if long else 4_000)
