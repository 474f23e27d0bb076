"""Which rows come out of records, in which columns, and what is said about the others."""

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from lmerge.errors import UsageError
from lmerge.feed import Segment, Source, counts, read_timestamp
from lmerge.feed.columns import BARRIER, RESERVED
from lmerge.kafka import Record
from replicas.rows import RowReader, ddl, type_names
from services.cli.infer import propose

BIDS = Source(topic="bids", time="$.ts", disorder_ms=0)
BY_KAFKA = Source(topic="bids", time="kafka", disorder_ms=0)
ALL = [Segment(0, 1_000_000, None, None)]


def record(offset: int, value: bytes) -> Record:
    return Record("bids", 0, offset, None, value, (), 0)


def test_late_early_and_malformed_rows_are_left_out_and_only_the_malformed_are_counted_here() -> None:
    reader = RowReader(BIDS, type_names({"auction": int, "city": str}))
    values = [
        b'{"ts":101,"auction":1,"city":"a","more":[]}',
        b'{"ts":100,"auction":2,"city":"late: at tau of the heartbeat before"}',
        b'{"ts":501,"auction":3,"city":"early"}',
        b'{"ts":500,"auction":4,"city":"b"}',
        b'{"ts":300,"auction":"no integer","city":"malformed"}',
        b'{"ts":300,"auction":6}',
        b'{"auction":7,"city":"without a timestamp"}',
        b"no JSON",
        b'{"ts":200,"auction":8,"city":"late in the second heartbeat only"}',
    ]
    segments = [Segment(0, 8, 100, 500), Segment(8, 20, 200, None)]
    batch = reader.read([record(offset, value) for offset, value in enumerate(values)], segments)
    assert batch is not None
    columns = batch.to_pydict()
    assert columns["auction"] == [1, 4]
    assert columns["city"] == ["a", "b"]
    assert [time.timestamp() for time in columns["event_time"]] == [0.101, 0.5]
    assert reader.malformed == 2


def read(
    values: Sequence[bytes | None],
    schema: dict[str, type],
    *,
    source: Source = BIDS,
    segments: Sequence[Segment] = ALL,
) -> tuple[dict[str, list[Any]], RowReader]:
    reader = RowReader(source, type_names(schema))
    records = [Record("bids", 3, offset, None, value, (), 50) for offset, value in enumerate(values)]
    batch = reader.read(records, segments)
    return ({} if batch is None else batch.to_pydict()), reader


@pytest.mark.parametrize("source", [BIDS, BY_KAFKA])
@pytest.mark.parametrize(
    "value",
    [
        b'{"ts":1,"n":9223372036854775808}',  # one more than a bigint holds
        b'{"ts":1,"n":-99999999999999999999999999}',
        b'{"ts":1,"n":1.5}',
        b'{"ts":1,"n":true}',
        b'{"ts":1,"n":null}',
        b'{"ts":1,"n":"1"}',
        b'{"ts":1}',
        b'{"ts":1,"n":1,"s":"\xff"}',
    ],
)
def test_what_the_schema_cannot_read_is_counted_and_sampled_and_ends_nothing(source: Source, value: bytes) -> None:
    good = b'{"ts":1,"n":9223372036854775807,"s":"a"}'
    columns, reader = read([good, value, good], {"n": int, "s": str}, source=source)
    assert columns["n"] == [2**63 - 1] * 2
    assert reader.malformed == 1
    (sample,) = reader.samples
    assert sample.startswith("bids/3 at offset 1: ")
    assert repr(value)[:60] in sample


@pytest.mark.parametrize("value", [None, b"", b"[1]", b'{"n":1,"x":' + b"[" * 101 + b"]" * 101 + b"}", b"[" * 100_000])
def test_what_is_no_row_at_all_ends_nothing(value: bytes | None) -> None:
    """By a JSON field it has no timestamp and does not count; by Kafka's own it is malformed."""
    assert read([value], {"n": int})[1].malformed == 0
    assert read([value], {"n": int}, source=BY_KAFKA)[1].malformed == 1


def test_a_few_malformed_rows_are_sampled_and_a_control_row_tells_of_them() -> None:
    _, reader = read([b'{"ts":1,"n":"%d"}' % n for n in range(10)], {"n": int})
    plain = reader.control(5_000).to_pydict()
    assert (plain["n"], plain["_control"], plain["_malformed"]) == ([None], [True], [10])
    assert [sample.split(":")[0] for sample in json.loads(plain["_samples"][0])] == [
        f"bids/3 at offset {offset}" for offset in range(3)
    ]


def test_the_time_field_may_be_a_column_too() -> None:
    values = [
        b'{"ts":7,"n":1}',
        b'{"ts":"8","n":2}',
        b'{"ts":9.5,"n":3}',
        b'{"n":4,"ts":10}',
        b'{"ts":1,"ts":11,"n":5}',
    ]
    columns, reader = read(values, {"n": int, "ts": int})
    assert (columns["ts"], columns["n"]) == ([7, 10, 11], [1, 4, 5])
    assert reader.malformed == 2
    assert read(values, {"ts": str})[0]["ts"] == ["8"]
    assert read(values, {"ts": float})[0]["ts"] == [7.0, 9.5, 10.0, 11.0]


TIMES = (
    *("0", "-1", "-5", "1", "20", "21", "999999999999999", "253402300799999", "253402300800000", "1" * 30),
    *("1.0", "1.9999", "1e3", '"12"', '"x"', "null", "true", "[]", "{}", "0.5e1", "2" + "0" * 80, "1." + "0" * 70),
)


@pytest.mark.parametrize("unit", ["ms", "s", "us"])
def test_the_short_way_and_the_rule_of_the_feed_choose_the_same_rows(unit: str) -> None:
    source = Source(topic="bids", time="$.ts", unit=unit, disorder_ms=0)  # type: ignore[arg-type]
    rng = random.Random(unit)
    for _ in range(200):
        values = [
            b'{"n":%d,"deep":%b,"ts":%b}'
            % (n, b"[" * (depth := rng.choice([1, 98, 99, 100])) + b"]" * depth, rng.choice(TIMES).encode())
            for n in range(20)
        ]
        bounds = [rng.choice([None, -2, 0, 1, 12, 1_000]) for _ in range(4)]
        segments = [Segment(0, 7, bounds[0], bounds[1]), Segment(7, 20, bounds[2], bounds[3])]
        expected = []
        for offset, value in enumerate(values):
            rule = segments[offset >= 7]
            ts = read_timestamp(source, value, 50)
            if counts(ts, tau_before=rule.tau_before, ceiling=rule.ceiling):
                expected.append((offset, ts))
        columns, reader = read(values, {"n": int}, source=source, segments=segments)
        times = [int(time.timestamp() * 1000) for time in columns.get("event_time", ())] if unit == "us" else None
        assert columns.get("n", []) == [offset for offset, _ in expected]
        assert times is None or times == [ts for _, ts in expected]
        assert reader.malformed == 0


def test_columns_have_the_types_that_were_declared() -> None:
    schema = type_names({"n": int, "s": str, "b": bool, "f": float})
    assert ddl(schema).startswith("`n` bigint, `s` string, `b` boolean, `f` double, `event_time` timestamp")


def test_a_schema_with_unknown_types_is_refused() -> None:
    with pytest.raises(UsageError, match="'prices' is of type"):
        type_names({"prices": list})


OURS = ["event_time", "_control", "_barrier", "_malformed", "_samples", "_partition", "_offset", "_tau", "_before"]


@pytest.mark.parametrize("name", OURS)
def test_a_schema_with_a_name_of_ours_is_refused_and_infer_does_not_propose_it(name: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be named '{name}'"):
        type_names({name: int})
    assert propose([b'{"%s":1}' % name.encode()]).fields == {}


def test_our_names_are_all_columns_that_a_source_adds() -> None:
    added = {column.split("`")[1] for column in ddl({}, placed=True).split(", ")}
    assert {*OURS} == RESERVED == added | {BARRIER}


def test_placed_rows_say_where_they_stand_and_the_heartbeat_row_what_it_says() -> None:
    reader = RowReader(BIDS, type_names({"n": int}), placed=True)
    records = [Record("bids", 3, offset, None, b'{"ts":9,"n":1}', (), 0) for offset in (5, 8)]
    batch = reader.read(records, ALL)
    assert batch is not None
    columns = batch.to_pydict()
    assert (columns["_partition"], columns["_offset"]) == ([3, 3], [5, 8])
    assert (columns["_tau"], columns["_before"]) == ([None, None], [None, None])
    (heartbeat,) = reader.control(0, tau=70, before=60).to_pylist()
    assert (heartbeat["_control"], heartbeat["_tau"], heartbeat["_before"]) == (True, 70, 60)
    assert [heartbeat[name] for name in ("n", "_partition", "_offset")] == [None] * 3
    assert ddl({"n": "int"}, placed=True).endswith(
        "`_partition` bigint, `_offset` bigint, `_tau` bigint, `_before` bigint"
    )
    assert batch.schema.names == [part.split("`")[1] for part in ddl({"n": "int"}, placed=True).split(", ")]
