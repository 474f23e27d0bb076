"""The worked cases S1 to S11 of recovery-and-sink, by their own elements, as far as they are decisions.

Each docstring says what the mistake would do. What takes a broker (S1, S2, S3, S7) is in
tests/integration/test_sink.py too, what takes Spark (S9, S11) in tests/integration/test_replica.py.
"""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from lmerge import Adjust, Element, Insert, reconstitute
from lmerge.codec import decode_batch
from lmerge.elements import INFINITY
from lmerge.errors import UsageError
from lmerge.feed import Heartbeat, Source
from lmerge.kafka import KeyValue, Record
from replicas.checkpoint import read_offsets
from replicas.cuts import Bounds, CutOffset, Located, choose_end, floor_of, plan_tasks
from replicas.emit import records_of
from replicas.errors import Superseded
from replicas.reader import CutReader, SourceSpec
from replicas.rows import RowReader
from replicas.session import FIXED, make_session
from replicas.sink import is_done
from replicas.start import joins_at
from replicas.state import Begin, ReplicaDirectory, ReplicaFile, Resume, Tag, decide

TOPIC = "m.replica.r1"
BIDS = Source(topic="bids", time="$.ts", disorder_ms=0)


def results(*rows: tuple[str, int, int | None]) -> pa.Table:
    """Make results of (name, vs, ve)."""
    names, starts, ends = zip(*rows, strict=True)
    times = {"vs": pa.array(starts, pa.int64()), "ve": pa.array(ends, pa.int64())}
    return pa.table({"name": pa.array(names, pa.string()), **times})


def elements_of(records: dict[int, list[KeyValue]]) -> dict[int, list[Element]]:
    found = {}
    for lane, lane_records in records.items():
        found[lane], error = decode_batch([value for _, value in lane_records])
        assert error is None
    return found


BATCH_7 = [("a", 1, 5), ("b", 2, 5), ("c", 2, 5), ("d", 3, 5)]


@pytest.mark.parametrize("tasks", [1, 2, 3, 4])
def test_s1_s2_a_batch_is_the_same_records_however_many_tasks_made_its_rows(tasks: int) -> None:
    """Keyed by task: a is skipped and b written again with more tasks, c and d are lost with one."""
    expected = records_of(results(*BATCH_7), key=("name",), lanes=2)
    assert sorted(elements_of(expected)) == [0, 1]
    for order in itertools.permutations(BATCH_7):
        parts = [results(*order[first::tasks]) for first in range(tasks)]
        assert records_of(pa.concat_tables(parts), key=("name",), lanes=2) == expected
    assert is_done(Tag(1, 7), Tag(1, 7), TOPIC), "and the replay writes none of them, since the lanes hold batch 7"


def test_s4_the_order_of_a_lane_is_total_so_a_tie_comes_out_the_same_in_the_replay() -> None:
    """Else: ins({9, bidder 1}) is committed, the replay has bidder 2 first, and what ends one of them hits nothing.

    That the state is the same too is the query's part: its ties are broken by a total order (docs/queries.md).
    """
    rows = [{"price": 9, "bidder": bidder, "rank": 1, "vs": 0, "ve": 10} for bidder in (1, 2)]
    first, replay = (
        records_of(pa.Table.from_pylist(order), key=("price",), lanes=1, rank="rank") for order in (rows, rows[::-1])
    )
    assert first == replay
    assert [element.payload for element in elements_of(first)[0] if isinstance(element, Insert)] == [
        b'{"bidder":1,"price":9,"rank":1}',
        b'{"bidder":2,"price":9,"rank":1}',
    ]


def rows_read(before: int | None, values: Sequence[bytes]) -> list[int]:
    """Read the rows of a batch whose offset has this `before`, with a reach of 5."""
    start = CutOffset(feed="f", n=6, at=12, ends=(0,), tau=None, before=before)
    end = Heartbeat(feed="f", n=7, tau=None, ceiling=None, max_ts=60, ends={"bids": (len(values),)})
    last = choose_end(start, [Located(14, end)], "bids", Bounds(9, 99), before=before, reach_ms=5)
    replayed = CutOffset.from_json(json.loads(json.dumps(last.to_json())))
    floor = floor_of(replayed.before, 5)
    found: list[int] = []
    heartbeats = [start.located("bids").heartbeat, end]
    for task in plan_tasks(heartbeats, "bids", rows_per_task=99, tau=None, floor=floor):
        for part in task.ranges:
            records = [Record("bids", 0, offset, None, value, (), 0) for offset, value in enumerate(values)]
            batch = RowReader(BIDS, {"n": "int"}).read(records, part.segments)
            found += [] if batch is None else batch.to_pydict()["n"]
    return found


def test_s5_before_comes_with_the_offset_so_the_replay_drops_the_same_rows(tmp_path: Path) -> None:
    """Else: batch 7 with before = 10 commits ins(A,6,inf), its replay with before = 50 has no rows of A to end it."""
    values = [b'{"ts":6,"n":1}', b'{"ts":60,"n":2}']
    assert rows_read(10, values) == [1, 2]
    assert rows_read(50, values) == [2], "what a replay that asks for the newest `before` would read"
    (tmp_path / "offsets").mkdir()
    line = CutOffset(feed="f", n=7, at=14, ends=(2,), tau=None, before=10).to_json()
    (tmp_path / "offsets" / "7").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(line)}\n-\n')
    assert read_offsets(tmp_path, 7).before == 10
    first = records_of(results(("A", 6, None), ("X", 1, 9)), key=(), lanes=1, before=read_offsets(tmp_path, 7).before)
    assert elements_of(first)[0] == [Insert(b'{"name":"A"}', 6, INFINITY)], "X ends before 10: it is said to be lacking"


def test_s6_a_batch_whose_offsets_are_not_durable_is_not_written(tmp_path: Path) -> None:
    """Else, with asynchronous progress: batch 7 comes back with offsets 0-149, is skipped, and 100-149 are lost."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "6").write_text('v1\n{"batchWatermarkMs":0}\n-\n')
    with pytest.raises(UsageError, match=r"offsets/7 is not there.*Asynchronous progress"):
        read_offsets(tmp_path, 7)


@pytest.mark.parametrize("name", [*FIXED, "spark.sql.legacy.timeParserPolicy"])
def test_s6_what_the_sink_rests_on_cannot_be_set(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be set"):
        make_session("s6", master="local[1]", overrides={name: "x"})


def test_s7_a_zombie_of_incarnation_1_ends_though_its_batch_number_is_the_larger() -> None:
    """Comparing batch numbers only: elements of 1 after hello(2)."""
    with pytest.raises(Superseded, match="incarnation 2 has begun, this is 1"):
        is_done(Tag(1, 58), Tag(2, -1), TOPIC)
    assert not is_done(Tag(2, 0), Tag(2, -1), TOPIC)


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))])
def test_s8_what_an_operator_said_is_written_in_its_order(order: tuple[int, ...]) -> None:
    """Else: an adjust before its insert, and the merge quarantines the replica."""
    said = [
        {"name": "A", "vs": 6, "_vold": None, "ve": 10, "_sequence": 0},
        {"name": "A", "vs": 6, "_vold": 10, "ve": 12, "_sequence": 1},
        {"name": "A", "vs": 6, "_vold": 12, "ve": 6, "_sequence": 2},
    ]
    layout = pa.schema([("name", pa.string()), *((name, pa.int64()) for name in ("vs", "_vold", "ve", "_sequence"))])
    table = pa.Table.from_pylist([said[place] for place in order], schema=layout)
    elements = elements_of(records_of(table, key=("name",), lanes=1))[0]
    payload = b'{"name":"A"}'
    assert elements == [Insert(payload, 6, 10), Adjust(payload, 6, 10, 12), Adjust(payload, 6, 12, 6)]
    assert not len(reconstitute(elements))


def test_s8_results_of_sparks_operators_are_written_by_vs() -> None:
    shuffled = results(("c", 7, 9), ("a", 6, 10), ("b", 6, 10))
    elements = elements_of(records_of(shuffled, key=(), lanes=1))[0]
    assert [(each.vs, each.payload) for each in elements if isinstance(each, Insert)] == [
        (6, b'{"name":"a"}'),
        (6, b'{"name":"b"}'),
        (7, b'{"name":"c"}'),
    ]


def test_s10_a_replica_that_started_at_the_latest_heartbeat_starts_there_again(tmp_path: Path) -> None:
    """Else: killed in batch 0, Spark asks again, and rows between the two calls are lost."""
    latest = Located(24, Heartbeat(feed="f", n=12, tau=90, ceiling=None, max_ts=99, ends={"bids": (40,)}))
    complete_from = joins_at(latest.heartbeat, 10)
    start = CutOffset.of(latest, "bids", before=complete_from)
    file = ReplicaFile(
        incarnation=1, plan_hash="p", feed="f", start={"bids": start.to_json()}, t0=100, joins_at=complete_from
    )
    ReplicaDirectory(tmp_path).write(file)
    spec = SourceSpec(
        bootstrap_servers="nobody:1",
        heartbeats="f.heartbeats",
        source=BIDS,
        schema={},
        directory=str(tmp_path),
        max_cuts=1,
        max_rows=1,
    )
    assert CutReader(spec).initialOffset() == CutReader(spec).initialOffset() == start.to_json()
    assert (start.n, start.before) == (12, 110)
    assert decide(file, None, Tag(1, -1), plan_hash="p", feed="f") == Resume(say_hello=False)


def test_s11_the_offset_log_is_compared_and_not_the_commit_log() -> None:
    """Else: killed between the sink's commit (57) and Spark's (56), it is taken for a restored checkpoint."""
    file = ReplicaFile(incarnation=3, plan_hash="p", feed="f", start={})
    assert decide(file, 57, Tag(3, 57), plan_hash="p", feed="f") == Resume(say_hello=False)
    restored = decide(file, 56, Tag(3, 57), plan_hash="p", feed="f")
    assert isinstance(restored, Begin)
    assert (restored.incarnation, "older than the topic" in restored.reason) == (4, True)
