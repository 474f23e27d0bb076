"""Replicas on a real broker and a real Spark, against an answer that was counted by hand.

The heartbeats are the test's own. Partitions are read 30 s of event time apart, transactions are aborted in between,
and the last heartbeat moves tau alone: it brings the open windows out.
"""

import json
import random
import re
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from lmerge import TDB, Event
from lmerge.canonical import payload
from lmerge.feed import Heartbeat
from lmerge.kafka import KafkaSettings, KeyValue
from replicas.queries import hot_items
from replicas.query import Plan, Query, Sources
from replicas.sink import Sink
from replicas.source import samples_in
from replicas.state import Tag
from replicas.windows import Windows
from tests.support.heartbeat import HeartbeatProcess
from tests.support.kafka import committed
from tests.support.replica import DISORDER_MS, Bid, FeedWorld, ReplicaTopic, bids, wait_seldom, window_counts
from tests.support.replica_process import ReplicaProcess
from tests.support.running_replica import LANES, RunningReplica, settings_in, start_all

HOT_ITEMS = hot_items.QUERY
WINDOWS = HOT_ITEMS.windows
PARTITIONS = 3
SKEW_MS = 30_000


@pytest.fixture(scope="module")
def settings(bootstrap_servers: str) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers)


@pytest.fixture
def make_world(settings: KafkaSettings) -> Iterator[Callable[..., FeedWorld]]:
    with ExitStack() as stack:

        def make(*topics: str, partitions: int = PARTITIONS) -> FeedWorld:
            world = FeedWorld(settings, f"f{uuid.uuid4().hex[:12]}", topics=topics, partitions=partitions)
            stack.callback(world.close)
            return world

        yield make


def assert_equals_the_answer(topic: ReplicaTopic, rows: Sequence[Bid], tau: int) -> None:
    """Every prefix is legal, nothing is repeated, and all that is frozen is what counting by hand gives."""
    stable = WINDOWS.first_open(tau)
    written = topic.written()
    assert written.stable == stable
    frozen = written.frozen()
    assert len(frozen) > 0
    assert frozen == window_counts(rows, WINDOWS, below=stable)
    assert set(written.kinds()) == {"hello", "insert", "stable"}


def write_a_skewed_feed(world: FeedWorld, *, seed: int, cuts: int = 60) -> tuple[list[Bid], int]:
    """Write two minutes of bids and their cuts; return the rows, and a tau that closes all their windows."""
    rows = bids(seed, count=1_500, partitions=PARTITIONS, seconds=120)
    world.write_rows("bids", rows)
    world.cut(steps=cuts, lag_ms=SKEW_MS)
    return rows, max(row.ts for row in rows) + 2 * WINDOWS.width_ms


@pytest.mark.parametrize("plans", [("direct", "panes", "direct"), ("panes", "direct", "panes")], ids="-".join)
def test_each_plan_in_batches_of_any_size_equals_the_answer_and_heartbeats_alone_close_it(
    plans: tuple[str, ...], spark: SparkSession, make_world: Callable[..., FeedWorld], tmp_path: Path, long: bool
) -> None:
    if not long:
        pytest.skip(
            "`test_queries` has both plans and two bounds, the test of two topics the third bound and heartbeats alone"
        )
    world = make_world("bids")
    rows, closing = write_a_skewed_feed(world, seed=1)
    tau = world.last.tau
    assert tau is not None
    with ExitStack() as stack:
        replicas = [
            RunningReplica(
                stack, settings_in(world, tmp_path / f"{plan}-{cuts}", HOT_ITEMS, plan, max_cuts=cuts), spark
            )
            for plan, cuts in zip(plans, (1, 7, 1_000), strict=True)
        ]
        start_all(replicas)
        for running in replicas:
            running.wait_for_watermark(tau)
            assert_equals_the_answer(running.topic, rows, tau)
        before = len(replicas[0].topic.written().frozen())
        world.beat(tau=closing)
        for running in replicas:
            running.wait_for_watermark(closing)
            assert_equals_the_answer(running.topic, rows, closing)
            assert running.dropped() == 0
        frozen = replicas[0].topic.written().frozen()
        assert len(frozen) > before
        assert frozen == window_counts(rows, WINDOWS, below=closing + WINDOWS.width_ms)


def late_rows(world: FeedWorld, heartbeats: Sequence[Heartbeat]) -> int:
    """Count the rows of the one topic that the rule calls late: ts is at or below the tau of the cut before theirs."""
    (topic,) = world.topics.values()
    late = 0
    for partition in range(2):
        rows = iter(committed(world.settings, topic, partition))
        row = next(rows, None)
        for before, beat in pairwise(heartbeats):
            while row is not None and row.offset < beat.ends[topic][partition]:
                late += before.tau is not None and json.loads(row.value or b"")["date_time"] <= before.tau
                row = next(rows, None)
        assert row is None, f"{topic}/{partition} at offset {row.offset} is in no cut"
    return late


def wait_for_ends(world: FeedWorld, service: HeartbeatProcess, ends: tuple[int, ...]) -> None:
    """Wait until the last heartbeat has these ends of the one topic."""

    def is_there() -> bool:
        assert service.process.poll() is None, service.lines
        return [*world.read_last().ends.values()] == [ends]

    wait_seldom(is_there, f"the cuts have come to {ends}", seconds=60)


def test_a_backlog_of_an_hour_in_two_partitions_read_one_after_the_other_makes_no_row_late(
    spark: SparkSession, make_world: Callable[..., FeedWorld], tmp_path: Path
) -> None:
    """The heartbeats are those of the real service. It meets all of partition 0 first, since 1 is not committed yet."""
    world = make_world("bids", partitions=2)
    topic = world.topics["bids"]
    rows = bids(21, count=1_800, partitions=2, seconds=3_600)
    world.write_rows("bids", [row for row in rows if row.partition == 0])
    with ExitStack() as stack:
        with world.undecided("bids", [row for row in rows if row.partition == 1]):
            service = HeartbeatProcess(
                tmp_path / "heartbeat.log",
                *("--bootstrap-servers", world.settings.bootstrap_servers),
                *("--feed", str(world.feed_file(tmp_path)), "--interval-ms", "10"),
            )
            stack.callback(service.close)
            wait_for_ends(world, service, (committed(world.settings, topic, 0)[-1].offset + 1, 0))
        ends = tuple(committed(world.settings, topic, partition)[-1].offset + 1 for partition in (0, 1))
        wait_for_ends(world, service, ends)
        assert service.end(signal.SIGTERM) == 0
        heartbeats = [Heartbeat.decode(r.value) for r in committed(world.settings, world.definition.heartbeats_topic)]
        assert late_rows(world, heartbeats) == 0
        assert service.lines[-2]["rows"][topic]["late"] == 0
        tau = heartbeats[-1].tau
        assert tau is not None
        assert tau > max(row.ts for row in rows) - 3 * DISORDER_MS
        settings = settings_in(world, tmp_path / "backlog", HOT_ITEMS, "direct", max_cuts=3)
        running = RunningReplica(stack, settings, spark).start()
        running.wait_for_watermark(tau)
        assert_equals_the_answer(running.topic, rows, tau)
        assert running.dropped() == 0


def count_both(sources: Sources, windows: Windows) -> DataFrame:
    return hot_items.direct({"bids": sources["bids"].unionAll(sources["asks"])}, windows)


BOTH = Query(
    name="both",
    sources={"bids": {"auction": int}, "asks": {"auction": int}},
    key=("auction",),
    windows=WINDOWS,
    plans={"direct": Plan(build=count_both)},
)


def test_cut_by_cut_heartbeats_alone_close_the_windows_of_two_topics_and_malformed_rows_are_counted(
    spark: SparkSession, make_world: Callable[..., FeedWorld], tmp_path: Path
) -> None:
    world = make_world("bids", "asks")
    rows = []
    for number, topic in enumerate(("bids", "asks")):
        some = bids(10 + number, count=200, partitions=PARTITIONS, seconds=60)
        world.write_rows(topic, some)
        rows += some
    world.write_value("asks", 1, b'{"date_time":%d,"auction":"no number"}' % (rows[-1].ts + 1))
    world.cut(steps=5, lag_ms=SKEW_MS)
    with ExitStack() as stack:
        settings = settings_in(world, tmp_path / "both", BOTH, "direct", max_cuts=1)
        running = RunningReplica(stack, settings, spark).start()
        for ahead in (WINDOWS.width_ms, 3 * WINDOWS.width_ms):
            tau = rows[-1].ts + ahead
            world.beat(tau=tau)
            running.wait_for_watermark(tau)
            assert_equals_the_answer(running.topic, rows, tau)
        assert running.dropped() == 0
        wait_seldom(lambda: running.malformed() == 1, "the malformed row is counted", seconds=30)
        (sample,) = (sample for progress in running.query.recentProgress for sample in samples_in(progress))
        assert sample.startswith(f"{world.topics['asks']}/1 at offset ")
        assert "Expected `int`, got `str` - at `$.auction`" in sample


def every_bid(sources: Sources, _windows: Windows) -> DataFrame:
    return sources["bids"].selectExpr("auction", "unix_millis(event_time) AS vs", "unix_millis(event_time) + 1 AS ve")


BIDS = Query(
    name="every_bid", sources={"bids": {"auction": int}}, key=("auction",), plans={"direct": Plan(build=every_bid)}
)


def test_a_plan_without_state_that_ends_between_the_two_commits_loses_and_repeats_nothing(
    spark: SparkSession,
    make_world: Callable[..., FeedWorld],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The batch comes again, its action runs though the lanes hold it already (S9), and nothing is written twice."""
    world = make_world("bids")
    rows = bids(30, count=120, partitions=PARTITIONS, seconds=60)
    world.write_rows("bids", rows)
    world.cut(steps=4)
    write = Sink.write

    def write_and_end(sink: Sink, tag: Tag, records: Mapping[int, Sequence[KeyValue]]) -> bool:
        wrote = write(sink, tag, records)
        if tag.batch == 1:
            raise BrokenPipeError("killed after the sink's commit")
        return wrote

    settings = settings_in(world, tmp_path / "every", BIDS, "direct", max_cuts=1)
    with ExitStack() as stack:
        monkeypatch.setattr(Sink, "write", write_and_end)
        ended = RunningReplica(stack, settings, spark).start()
        wait_seldom(lambda: not ended.query.isActive, "it ends after the commit of batch 1", seconds=60)
    monkeypatch.setattr(Sink, "write", write)
    tau = max(row.ts for row in rows) + DISORDER_MS
    world.beat(tau=tau)
    with ExitStack() as stack:
        running = RunningReplica(stack, settings, spark).start()
        running.wait_for_watermark(tau + 1)
        replayed = [progress for progress in running.query.recentProgress if progress["batchId"] == 1]
        assert replayed
        assert replayed[0]["numInputRows"] > 1, "it was read again, beyond the heartbeat row"
        assert running.topic.written().kinds()["hello"] == LANES, "one incarnation"
    expected = TDB(Event(payload({"auction": row.auction}), row.ts, row.ts + 1) for row in rows)
    assert running.topic.written().frozen(repeats=True) == expected


def assert_right_after_kills(process: ReplicaProcess, rows: Sequence[Bid], tau: int) -> None:
    assert_equals_the_answer(process.topic, rows, tau)
    assert process.topic.written().kinds()["hello"] == LANES, "a kill is no new incarnation"
    dropped = re.findall(r"dropped=(\d+)", process.log())
    assert dropped
    assert set(dropped) == {"0"}


class Kills(NamedTuple):
    """When a replica is killed that has this many cuts to read."""

    cuts: int
    between_commits: int
    """The first kill: after the sink's commit of this batch."""
    after: range
    """The other four: at any moment after some of these batches."""


KILLS = {  # by the bound of a batch
    1: Kills(cuts=80, between_commits=24, after=range(30, 70)),
    7: Kills(cuts=280, between_commits=16, after=range(20, 34)),
    1_000: Kills(cuts=24_000, between_commits=10, after=range(12, 19)),
}


@pytest.mark.parametrize("plan", ["direct", "panes"])
@pytest.mark.parametrize("max_cuts", [*KILLS])
def test_a_replica_killed_five_times_at_random_moments_loses_and_repeats_nothing(
    plan: str, max_cuts: int, make_world: Callable[..., FeedWorld], tmp_path: Path, long: bool
) -> None:
    if not long:
        pytest.skip("it starts Spark six times")
    rng = random.Random(f"{plan} {max_cuts}")
    kills = KILLS[max_cuts]
    world = make_world("bids")
    rows, closing = write_a_skewed_feed(world, seed=7, cuts=kills.cuts)
    world.beat(tau=closing)
    directory = tmp_path / "killed"
    process = ReplicaProcess(world, directory, plan=plan, lanes=LANES, max_cuts=max_cuts)
    with ExitStack() as stack:
        stack.callback(process.close)
        process.kill_between_the_commits(batch=kills.between_commits)
        for batch in sorted(rng.sample(kills.after, 4)):
            goal = max(batch, process.committed_batch() + 1)
            process.start()
            process.wait_for_batch(goal)
            process.let_run(seconds=rng.uniform(0, 0.7))
            assert process.signal(signal.SIGKILL) == -signal.SIGKILL
            assert process.topic.written().stable < WINDOWS.first_open(closing), "it was at its end before the kill"
        process.start()
        process.topic.wait_for_stable(WINDOWS.first_open(closing), check=process.check)
        assert process.signal(signal.SIGTERM) == 0
    assert_right_after_kills(process, rows, closing)
