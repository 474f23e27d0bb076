"""The baselines of the benchmarks are slow or large, but right: each gives the TDB of its inputs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines import make
from benchmarks.generator import Workload, count_lifetimes, interleave, presentation, until_next
from lmerge import INFINITY, TDB, Element, Insert, Stable, reconstitute

workloads = st.builds(
    Workload,
    events=st.integers(1, 60),
    event_duration=st.sampled_from([1, 30, 300]),
    min_gap=st.just(1),
    max_gap=st.sampled_from([1, 20]),
    payload_bytes=st.just(1),
    stable_freq=st.sampled_from([0.05, 0.3, 1.0]),
    disorder=st.sampled_from([0.0, 0.5, 1.0]),
    max_delay=st.sampled_from([1, 20]),
)


def _streams(workload: Workload, seed: int, sub_query: str) -> list[list[Element]]:
    """Return three presentations that end."""
    raw = [presentation(workload, seed=seed, index=index) for index in range(3)]
    if sub_query == "count_lifetimes":
        raw = [count_lifetimes(stream, workload) for stream in raw]
    elif sub_query == "until_next":
        raw = [until_next(stream) for stream in raw]
    return [[*stream, Stable(INFINITY)] for stream in raw]


@pytest.mark.parametrize("name", ["R3-", "R3 paper", "C+R1", "R3"])
@given(
    workload=workloads,
    seed=st.integers(0, 2**32),
    sub_query=st.sampled_from(["none", "count_lifetimes", "until_next"]),
    turns=st.sampled_from([(1, 0), (1, 3), (7, 0), (7, 14)]),
)
def test_the_output_is_legal_and_has_the_tdb_of_the_inputs(
    name: str, workload: Workload, seed: int, sub_query: str, turns: tuple[int, int]
) -> None:
    streams = _streams(workload, seed, sub_query)
    batch, lag = turns
    merge = make(name)
    for index in range(len(streams)):
        merge.attach(index)
    output = TDB()
    for index, elements in interleave(streams, batch=batch, lags=[0, lag, 0]):
        for element in merge.process(index, elements):
            output.apply(element)  # raises if it is not legal
            assert name != "C+R1" or isinstance(element, Insert | Stable)
        merge.take_facts()
    assert output == reconstitute(streams[0])
    assert output.stable == INFINITY
