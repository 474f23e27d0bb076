"""NEXMark rows for any parameters: disorder and skew only change the order, within their bounds."""

from collections import defaultdict

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from services.workload.nexmark import Parameters, Row, rows

PARAMETERS = st.builds(
    Parameters,
    seed=st.integers(0, 1 << 64),
    rows=st.integers(0, 300),
    event_rate=st.integers(1, 5_000),
    partitions=st.integers(1, 5),
    disorder_ms=st.integers(0, 200) | st.integers(0, 10_000),
    skew_ms=st.sampled_from([0, 0, 1, 7, 500, 30_000]),
)


@given(PARAMETERS)
def test_the_same_rows_arrive_in_another_order_that_keeps_the_bound(parameters: Parameters) -> None:
    plain = list(rows(msgspec.structs.replace(parameters, disorder_ms=0, skew_ms=0)))
    partitions: dict[tuple[str, int], list[Row]] = defaultdict(list)
    arrived = list(rows(parameters))
    for row in arrived:
        partitions[row.topic, row.partition].append(row)
    for received in partitions.values():
        newest = 0
        for row in received:
            newest = max(newest, row.ts)
            assert newest - row.ts <= parameters.disorder_ms
    assert sorted(map(repr, arrived)) == sorted(map(repr, plain))


@given(PARAMETERS)
def test_a_partition_never_overtakes_another_by_more_than_skew_and_disorder(parameters: Parameters) -> None:
    newest = 0
    for row in rows(parameters):
        due = row.ts + row.partition * parameters.skew_ms
        assert newest - due <= parameters.disorder_ms
        newest = max(newest, due)
