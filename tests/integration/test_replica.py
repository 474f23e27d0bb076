"""Replicas on a real broker and a real Spark, against an answer that was counted by hand.

The heartbeats are the test's own. Partitions are read 30 s of event time apart, transactions are aborted in between,
and the last heartbeat moves tau alone: it brings the open windows out.
"""

import json
import random
import re
import signal
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lmerge import MINUS_INFINITY, Hello
from lmerge.codec import decode
from lmerge.feed import Heartbeat
from lmerge.kafka import KafkaSettings
from replicas.job import Replica
from replicas.queries import hot_items
from replicas.query import Plan, Query, Sources
from replicas.session import make_session
from replicas.settings import ReplicaSettings
from replicas.source import malformed_in, samples_in
from replicas.windows import Windows
from tests.support.heartbeat import HeartbeatProcess
from tests.support.kafka import committed
from tests.support.replica import DISORDER_MS, Bid, FeedWorld, ReplicaTopic, bids, wait_seldom, window_counts
from tests.support.replica_process import ReplicaProcess

WINDOWS = Windows(width_ms=10_000, slide_ms=2_000)
PARTITIONS = 3
LANES = 2
SKEW_MS = 30_000


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = make_session("lmerge-tests", master="local[2]", overrides={})
    yield session
    session.stop()


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


def replica_settings(
    world: FeedWorld, directory: Path, plan: str, *, query: Query = hot_items.QUERY, max_cuts: int = 1_000
) -> ReplicaSettings:
    return ReplicaSettings(
        bootstrap_servers=world.settings.bootstrap_servers,
        merge=world.name,
        replica=directory.name,
        feed=world.definition,
        query=query,
        plan_name=plan,
        windows=WINDOWS,
        topics=world.topics,
        directory=directory,
        lanes=LANES,
        max_cuts=max_cuts,
        trigger_ms=0,
    )


class Running:
    """A replica that runs in this process's Spark, stopped at the end whatever happens."""

    def __init__(self, stack: ExitStack, settings: ReplicaSettings, spark: SparkSession) -> None:
        self.replica = stack.enter_context(Replica(settings, spark))
        stack.callback(self.replica.stop)
        self.query: StreamingQuery = self.replica.start()
        self.topic = ReplicaTopic(KafkaSettings(settings.bootstrap_servers), settings.topic, LANES)

    def check(self) -> None:
        assert self.query.isActive, self.query.exception()

    def wait_for_watermark(self, tau: int) -> None:
        self.topic.wait_for_stable(WINDOWS.first_open(tau), check=self.check)

    def dropped(self) -> int:
        operators = [operator for progress in self.query.recentProgress for operator in progress["stateOperators"]]
        return sum(operator["numRowsDroppedByWatermark"] for operator in operators)

    def malformed(self) -> int:
        return sum(malformed_in(progress) for progress in self.query.recentProgress)


def assert_equals_the_answer(topic: ReplicaTopic, rows: Sequence[Bid], tau: int) -> None:
    """Every prefix is legal, nothing is repeated, and all that is frozen is what counting by hand gives."""
    stable = WINDOWS.first_open(tau)
    assert topic.stable() == stable
    frozen = topic.frozen()
    assert len(frozen) > 0
    assert frozen == window_counts(rows, WINDOWS, below=stable)
    assert set(topic.kinds()) == {"hello", "insert", "stable"}


def write_a_skewed_feed(world: FeedWorld, *, seed: int, cuts: int = 60) -> tuple[list[Bid], int]:
    """Write two minutes of bids and their cuts; return the rows, and a tau that closes all their windows."""
    rows = bids(seed, count=1_500, partitions=PARTITIONS, seconds=120)
    world.write_rows("bids", rows)
    world.cut(steps=cuts, lag_ms=SKEW_MS)
    assert world.late == 0
    return rows, max(row.ts for row in rows) + 2 * WINDOWS.width_ms


@pytest.mark.parametrize("plans", [("direct", "panes", "direct"), ("panes", "direct", "panes")], ids="-".join)
def test_each_plan_in_batches_of_any_size_equals_the_answer_and_heartbeats_alone_close_it(
    plans: tuple[str, ...], spark: SparkSession, make_world: Callable[..., FeedWorld], tmp_path: Path, long: bool
) -> None:
    if not long and plans[0] == "panes":
        pytest.skip("the other three pairs of a plan and a bound are for the long run")
    world = make_world("bids")
    rows, closing = write_a_skewed_feed(world, seed=1)
    tau = world.last.tau
    assert tau is not None
    with ExitStack() as stack:
        replicas = [
            Running(stack, replica_settings(world, tmp_path / f"{plan}-{cuts}", plan, max_cuts=cuts), spark)
            for plan, cuts in zip(plans, (1, 7, 1_000), strict=True)
        ]
        for running in replicas:
            running.wait_for_watermark(tau)
            assert_equals_the_answer(running.topic, rows, tau)
        before = len(replicas[0].topic.frozen())
        world.beat(tau=closing)
        for running in replicas:
            running.wait_for_watermark(closing)
            assert_equals_the_answer(running.topic, rows, closing)
            assert running.dropped() == 0
        assert len(replicas[0].topic.frozen()) > before
        assert replicas[0].topic.frozen() == window_counts(rows, WINDOWS, below=closing + WINDOWS.width_ms)


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
    rows = bids(21, count=7_200, partitions=2, seconds=3_600)
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
        running = Running(stack, replica_settings(world, tmp_path / "backlog", "direct", max_cuts=3), spark)
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


def test_heartbeats_alone_close_the_windows_of_two_topics_and_malformed_rows_are_counted(
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
    assert world.late == 0
    with ExitStack() as stack:
        running = Running(stack, replica_settings(world, tmp_path / "both", "direct", query=BOTH, max_cuts=3), spark)
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


def test_a_restart_goes_on_and_another_plan_begins_a_new_incarnation_with_the_same_result(
    spark: SparkSession, make_world: Callable[..., FeedWorld], tmp_path: Path
) -> None:
    world = make_world("bids")
    rows, closing = write_a_skewed_feed(world, seed=3, cuts=5)
    tau = world.last.tau
    assert tau is not None
    for plan, incarnation, waits_for in (("direct", 1, tau), ("direct", 1, closing), ("panes", 2, closing)):
        with ExitStack() as stack:
            if waits_for == closing and incarnation == 1:
                world.beat(tau=closing)
            running = Running(stack, replica_settings(world, tmp_path / "r1", plan), spark)
            running.wait_for_watermark(waits_for)
            assert running.replica.incarnation == incarnation
            assert_equals_the_answer(running.topic, rows, waits_for)
    assert (tmp_path / "r1" / "spark.aside-1" / "offsets").is_dir()
    hellos = [decode(record.value) for record in running.topic.records()[0] if b'"hello"' in (record.value or b"")]
    assert [(hello.incarnation, hello.joins_at, hello.plan) for hello in hellos if isinstance(hello, Hello)] == [
        (1, MINUS_INFINITY, "hot_items/direct"),
        (2, MINUS_INFINITY, "hot_items/panes"),
    ]


def assert_right_after_kills(process: ReplicaProcess, rows: Sequence[Bid], tau: int) -> None:
    assert_equals_the_answer(process.topic, rows, tau)
    assert process.topic.kinds()["hello"] == LANES, "a kill is no new incarnation"
    dropped = re.findall(r"dropped=(\d+)", process.log())
    assert dropped
    assert set(dropped) == {"0"}


def test_a_replica_killed_between_the_sinks_commit_and_sparks_loses_and_repeats_nothing(
    spark: SparkSession, make_world: Callable[..., FeedWorld], tmp_path: Path
) -> None:
    """The successor runs in this process, where Spark is warm; in the long run successors are processes too."""
    world = make_world("bids")
    rows, closing = write_a_skewed_feed(world, seed=7)
    world.beat(tau=closing)
    directory = tmp_path / "killed"
    process = ReplicaProcess(world, directory, plan="direct", lanes=LANES, max_cuts=7)
    with ExitStack() as stack:
        stack.callback(process.close)
        process.kill_between_the_commits(batch=5)
        successor = Running(stack, replica_settings(world, directory, "direct", max_cuts=7), spark)
        successor.wait_for_watermark(closing)
        assert successor.dropped() == 0
    assert_right_after_kills(process, rows, closing)


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
            assert process.topic.stable() < WINDOWS.first_open(closing), "it was at its end before the kill"
        process.start()
        process.topic.wait_for_stable(WINDOWS.first_open(closing), check=process.check)
        assert process.signal(signal.SIGTERM) == 0
    assert_right_after_kills(process, rows, closing)
