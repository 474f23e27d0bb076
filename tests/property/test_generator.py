"""The benchmarks' stream generator: legal streams, equal presentations, parameters that do what they say (VI-B)."""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from random import Random
from statistics import mean
from typing import TypeAlias

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.generator import (
    Workload,
    count_lifetimes,
    events,
    integer_of,
    interleave,
    presentation,
    until_next,
)
from lmerge import MINUS_INFINITY, TDB, Adjust, Element, Event, Insert, Stable
from lmerge.canonical import canonical

SubQuery: TypeAlias = Callable[[Iterable[Element], Workload], Iterator[Element]]


def raw(elements: Iterable[Element], _: Workload) -> Iterator[Element]:
    return iter(elements)


def clipped(elements: Iterable[Element], _: Workload) -> Iterator[Element]:
    return until_next(elements)


SUB_QUERIES: dict[str, SubQuery] = {"none": raw, "count_lifetimes": count_lifetimes, "until_next": clipped}

workloads = st.builds(
    Workload,
    events=st.integers(0, 150),
    event_duration=st.sampled_from([1, 30, 300, 10_000]),
    min_gap=st.just(1),
    max_gap=st.sampled_from([1, 4, 20]),
    payload_bytes=st.sampled_from([0, 3]),
    stable_freq=st.sampled_from([0.0, 0.02, 0.2, 1.0]),
    disorder=st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    max_delay=st.sampled_from([1, 5, 50]),
)


def reconstituted(elements: Iterable[Element]) -> TDB:
    """Return the TDB, having checked that every prefix is legal, that (payload, vs) is a key and stables advance."""
    tdb = TDB()
    keys: set[tuple[object, int]] = set()
    for element in elements:
        before = tdb.stable
        tdb.apply(element)  # raises if the element is not legal here
        if isinstance(element, Insert):
            assert (element.payload, element.vs) not in keys
            keys.add((element.payload, element.vs))
        elif isinstance(element, Stable):
            assert element.vc > before
    return tdb


@pytest.mark.parametrize("name", SUB_QUERIES)
@given(workload=workloads, seed=st.integers(0, 2**32))
def test_every_prefix_is_legal_and_all_presentations_have_one_tdb(name: str, workload: Workload, seed: int) -> None:
    query = SUB_QUERIES[name]
    tdbs = [reconstituted(query(presentation(workload, seed=seed, index=i), workload)) for i in range(3)]
    assert tdbs[0] == tdbs[1] == tdbs[2]
    if name == "none":
        assert tdbs[0] == TDB(Event(e.payload, e.vs, e.ve) for e in events(workload, Random(seed)))


@given(workload=workloads, seed=st.integers(0, 2**32))
def test_inputs_that_are_presented_by_other_parameters_have_the_same_tdb(workload: Workload, seed: int) -> None:
    other = msgspec.structs.replace(workload, stable_freq=0.05, disorder=0.9, max_delay=7)
    tdbs = [reconstituted(presentation(w, seed=seed, index=i)) for i, w in enumerate([workload, other])]
    assert tdbs[0] == tdbs[1]


@given(workload=workloads, seed=st.integers(0, 2**32))
def test_the_result_of_a_window_lives_the_longer_the_more_it_counts(workload: Workload, seed: int) -> None:
    """The count sub-query against its definition, computed from the logical stream at once."""
    groups, per_result = 4, 2
    width = max(1, round(workload.mean_gap * groups * per_result))
    counts: dict[tuple[int, int], int] = {}
    for event in events(workload, Random(seed)):
        key = event.vs - event.vs % width, integer_of(event.payload) % groups
        counts[key] = counts.get(key, 0) + 1
    stream = count_lifetimes(presentation(workload, seed=seed, index=0), workload, groups=groups, per_result=per_result)
    lifetimes = {(e.vs, integer_of(e.payload)): e.ve - e.vs for e in reconstituted(stream)}
    lifetime = workload.event_duration * per_result
    assert lifetimes == {key: lifetime + count * width for key, count in counts.items()}


@given(workload=workloads, seed=st.integers(0, 2**32))
def test_an_event_lives_until_the_next_of_its_integer(workload: Workload, seed: int) -> None:
    expected: list[Event] = []
    following: dict[int, int] = {}
    for event in reversed(list(events(workload, Random(seed)))):
        n = integer_of(event.payload)
        expected.append(Event(event.payload, event.vs, min(event.ve, following.get(n, event.ve))))
        following[n] = event.vs
    assert reconstituted(until_next(presentation(workload, seed=seed, index=0))) == TDB(expected)


SMALL = Workload(events=20_000, payload_bytes=8)


def inserts(stream: Iterable[Element]) -> list[Insert]:
    return [element for element in stream if isinstance(element, Insert)]


def adjusted(workload: Workload) -> float:
    """Return the fraction of adjusts among the elements of the count sub-query."""
    stream = list(count_lifetimes(presentation(workload, seed=1, index=0), workload))
    return mean(isinstance(element, Adjust) for element in stream)


def test_same_seed_same_stream_other_seed_or_index_another() -> None:
    workload = Workload(events=300)
    stream = list(presentation(workload, seed=5, index=0))
    assert list(presentation(workload, seed=5, index=0)) == stream
    assert list(presentation(workload, seed=5, index=1)) != stream
    assert inserts(presentation(workload, seed=6, index=0)) != inserts(stream)


def test_defaults_are_the_papers() -> None:
    workload = Workload()
    assert workload.event_duration / workload.mean_gap == 10_000
    sample = list(events(msgspec.structs.replace(workload, events=500), Random(1)))
    for event in sample:
        assert isinstance(event.payload, bytes)
        assert canonical(event.payload) == event.payload
        assert 0 <= integer_of(event.payload) <= 400
        assert len(msgspec.json.decode(event.payload)["s"]) == 1000
    gaps = [b.vs - a.vs for a, b in pairwise(sample)]
    assert 0 <= min(gaps) < max(gaps) <= 20_000


@pytest.mark.parametrize("stable_freq", [0.0, 0.001, 0.01, 0.1])
def test_stable_freq_is_the_fraction_of_stables(stable_freq: float) -> None:
    workload = msgspec.structs.replace(SMALL, stable_freq=stable_freq)
    stream = list(presentation(workload, seed=1, index=0))
    assert mean(isinstance(e, Stable) for e in stream) == pytest.approx(stable_freq, rel=0.25, abs=0.0003)


def test_between_two_stables_there_is_an_insert_even_if_every_element_could_be_one() -> None:
    workload = Workload(events=200, payload_bytes=0, stable_freq=1, disorder=1)
    kinds = [type(element) for element in presentation(workload, seed=1, index=0)]
    assert kinds == [Insert, Stable] * 200


@pytest.mark.parametrize("disorder", [0.0, 0.2, 0.5])
def test_disorder_is_the_fraction_of_events_behind_their_predecessors(disorder: float) -> None:
    workload = msgspec.structs.replace(SMALL, disorder=disorder, stable_freq=0.001)
    latest, behind = MINUS_INFINITY, 0
    for event in inserts(presentation(workload, seed=1, index=0)):
        behind += event.vs < latest
        latest = max(latest, event.vs)
    assert behind / workload.events == pytest.approx(disorder, abs=0.02)


def test_event_duration_decides_how_many_events_are_active() -> None:
    workload = SMALL.with_active(500)
    ends = [event.ve for event in events(workload, Random(1))]
    now = ends[10_000] - workload.event_duration
    assert sum(end - workload.event_duration <= now < end for end in ends) == pytest.approx(500, rel=0.1)


def test_min_gap_makes_vs_strictly_increasing() -> None:
    workload = msgspec.structs.replace(SMALL, min_gap=1, max_gap=2)
    starts = [event.vs for event in events(workload, Random(1))]
    assert starts == sorted(set(starts))


def test_adjusts_grow_with_disorder_from_none() -> None:
    fractions = [
        adjusted(msgspec.structs.replace(SMALL, disorder=disorder, stable_freq=0.001))
        for disorder in (0.0, 0.2, 0.5, 0.8)
    ]
    assert fractions[0] == 0
    assert fractions == sorted(fractions)
    assert fractions[2] == pytest.approx(0.36, abs=0.03)  # the stream of VI-D: 50 % disorder, 36 % adjusts


def test_until_next_adjusts_half_frozen_events() -> None:
    stable, half_frozen = MINUS_INFINITY, 0
    workload = Workload(events=3000, payload_bytes=0, min_gap=1)
    for element in until_next(presentation(workload, seed=1, index=0)):
        if isinstance(element, Stable):
            stable = element.vc
        elif isinstance(element, Adjust):
            half_frozen += element.vs < stable
    assert half_frozen > 1000


def test_interleave_takes_turns_and_lets_inputs_lag() -> None:
    streams = [[Stable(10 * i + k) for k in range(1, 6)] for i in range(2)]
    turns = [(i, [e.vc for e in batch]) for i, batch in interleave(streams, batch=2, lags=[0, 4])]  # type: ignore[union-attr]
    assert turns == [(0, [1, 2]), (0, [3, 4]), (0, [5]), (1, [11, 12]), (1, [13, 14]), (1, [15])]
    assert [i for i, _ in interleave(streams)] == [0, 1] * 5
