"""What the planning side of the source remembers of the heartbeats, over a log that is a list."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lmerge.feed import Heartbeat, Segment, Source
from lmerge.kafka import Record, RetryError
from replicas import reader as reader_module
from replicas.cuts import CutOffset, Located, Range, Task
from replicas.reader import CutReader, SourceSpec
from replicas.state import ReplicaDirectory, ReplicaFile

REACH_MS = 10
HEARTBEATS = 5_000


def beat(n: int) -> Heartbeat:
    """Heartbeat n has counted rows up to 100 n, and each but the first has ten of them."""
    tau = None if n == 0 else 100 * n - 1
    max_ts = None if n == 0 else 100 * n
    return Heartbeat(feed="f", n=n, tau=tau, ceiling=None, max_ts=max_ts, ends={"bids": (10 * n,)})


class Log:
    """The heartbeats topic, a heartbeat at every other offset; counts what is asked for."""

    def __init__(self) -> None:
        self.read = 0

    def watermarks(self, _topic: str, _partition: int) -> "Log":
        return self

    end = 2 * HEARTBEATS

    def read_range(self, topic: str, partition: int, *, start: int, end: int) -> Iterator[list[Record]]:
        found = [
            Record(topic, partition, at, None, beat(at // 2).encode(), (), 0) for at in range(start, end) if at % 2 == 0
        ]
        self.read += len(found)
        for first in range(0, len(found), 100):
            yield found[first : first + 100]


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    log = Log()
    monkeypatch.setattr(reader_module, "_tail_reader", lambda _spec: log)
    return log


def make_reader(directory: Path, before: int | None) -> tuple[CutReader, CutOffset]:
    start = CutOffset.of(Located(0, beat(0)), "bids", before=before)
    ReplicaDirectory(directory).write(
        ReplicaFile(incarnation=1, plan_hash="p", feed="f", start={"bids": start.to_json()}, reach_ms=REACH_MS)
    )
    spec = SourceSpec(
        bootstrap_servers="nobody:1",
        heartbeats="f.heartbeats",
        source=Source(topic="bids", time="$.ts", disorder_ms=0),
        schema={},
        directory=str(directory),
        max_cuts=3,
        max_rows=1_000,
    )
    return CutReader(spec), start


class Rows:
    """A source topic of which a client gives only the rows before `given`."""

    def __init__(self, given: int) -> None:
        self._given = given

    def read_range(self, topic: str, partition: int, *, start: int, end: int) -> Iterator[list[Record]]:
        values = [b'{"ts":%d}' % (1_000 + offset) for offset in range(start, min(end, self._given))]
        if values:
            yield [Record(topic, partition, start + number, None, value, (), 0) for number, value in enumerate(values)]


@pytest.mark.parametrize("given", [0, 6])
def test_a_range_without_its_last_row_ends_the_batch_and_a_restart_is_the_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: int
) -> None:
    monkeypatch.setattr(reader_module, "_tail_reader", lambda _spec: Rows(given))
    reader, _ = make_reader(tmp_path, before=None)
    segment = Segment(0, 10, None, None)
    with pytest.raises(
        RetryError, match=rf"bids/0 was not read to its end: .*\[{given}, 10\).*Start the replica again"
    ):
        [*reader.read(Task([Range(0, (segment,), ends_with_row=True)], tau=5, before=None))]
    # Where a task was full there may be a marker: nothing was to be expected.
    *rows, _ = reader.read(Task([Range(0, (segment,), ends_with_row=False)], tau=5, before=None))
    assert sum(batch.num_rows for batch in rows) == given


def ranges(tasks: object) -> list[tuple[int, int]]:
    assert isinstance(tasks, list)
    found = []
    for task in tasks:
        assert isinstance(task, Task)
        found += [(part.segments[0].start, part.segments[-1].end) for part in task.ranges]
    return found


def test_heartbeats_that_are_not_read_are_counted_and_not_kept(log: Log, tmp_path: Path) -> None:
    """4,900 of them lie below the floor; the batch is planned from what is in memory, and again from the log."""
    reader, start = make_reader(tmp_path, before=490_001 + REACH_MS)
    end = CutOffset.from_json(reader.latestOffset(start.to_json(), None))  # type: ignore[arg-type]  # not looked at
    assert (end.n, end.skipped_cuts, end.skipped_rows) == (4_903, 4_900, 49_000)
    assert len(reader._ahead.following) < 200
    once = log.read
    assert ranges(reader.partitions(start.to_json(), end.to_json())) == [(49_000, 49_030)]
    assert log.read == once, "it was in memory"
    again, _ = make_reader(tmp_path, before=490_001 + REACH_MS)
    assert ranges(again.partitions(start.to_json(), end.to_json())) == [(49_000, 49_030)]
    assert log.read > once
    following = CutOffset.from_json(reader.latestOffset(end.to_json(), None))  # type: ignore[arg-type]
    assert (following.n, following.skipped_cuts, following.skipped_rows) == (4_906, 4_900, 49_000)
    assert ranges(reader.partitions(end.to_json(), following.to_json())) == [(49_030, 49_060)]


def test_a_start_that_goes_back_is_looked_up_anew(log: Log, tmp_path: Path) -> None:
    reader, start = make_reader(tmp_path, before=None)
    end = CutOffset.from_json(reader.latestOffset(start.to_json(), None))  # type: ignore[arg-type]
    assert (end.n, end.skipped_cuts) == (3, 0)
    later = CutOffset.from_json(reader.latestOffset(end.to_json(), None))  # type: ignore[arg-type]
    assert later.n == 6
    once = log.read
    assert CutOffset.from_json(reader.latestOffset(start.to_json(), None)) == end  # type: ignore[arg-type]
    assert log.read > once
    assert ranges(reader.partitions(end.to_json(), later.to_json())) == [(30, 60)], "not the batch that was asked last"
