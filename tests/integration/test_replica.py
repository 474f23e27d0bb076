"""Replicas on a real broker and a real Spark, against an answer that was counted by hand.

The heartbeats are the test's own. Partitions are read 30 s of event time apart, transactions are aborted in between,
and the last heartbeat moves tau alone: it brings the open windows out.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lmerge import MINUS_INFINITY, TDB, Hello
from lmerge.codec import decode
from lmerge.feed import Heartbeat
from lmerge.kafka import KafkaSettings, TailReader
from replicas.job import Replica
from replicas.queries import hot_items
from replicas.query import Plan, Query, Sources
from replicas.session import make_session
from replicas.settings import ReplicaSettings
from replicas.sink import HEADER, KILL_AFTER_COMMIT
from replicas.source import malformed_in
from replicas.state import Tag
from replicas.windows import Windows
from tests.support.heartbeat import HeartbeatProcess
from tests.support.kafka import committed, wait_until
from tests.support.replica import DISORDER_MS, Bid, FeedWorld, ReplicaTopic, bids, wait_seldom, window_counts

WINDOWS = Windows(width_ms=10_000, slide_ms=2_000)
PARTITIONS = 3
LANES = 2
SKEW_MS = 30_000
MARKER = "LMERGE_TEST_RUN"


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


def test_each_plan_in_batches_of_any_size_equals_the_answer_and_heartbeats_alone_close_it(
    spark: SparkSession, make_world: Callable[..., FeedWorld], tmp_path: Path, long: bool
) -> None:
    world = make_world("bids")
    rows, closing = write_a_skewed_feed(world, seed=1)
    tau = world.last.tau
    assert tau is not None
    runs = [("direct", 1), ("panes", 7), ("direct", 1_000)]
    if long:
        runs = [(plan, cuts) for plan in ("direct", "panes") for cuts in (1, 7, 1_000)]
    with ExitStack() as stack:
        replicas = [
            Running(stack, replica_settings(world, tmp_path / f"{plan}-{cuts}", plan, max_cuts=cuts), spark)
            for plan, cuts in runs
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


def test_a_backlog_of_an_hour_in_two_partitions_read_one_after_the_other_makes_no_row_late(
    spark: SparkSession, make_world: Callable[..., FeedWorld], tmp_path: Path
) -> None:
    """The heartbeats are those of the real service, which finds all of the backlog there when it starts."""
    world = make_world("bids", partitions=2)
    rows = bids(21, count=7_200, partitions=2, seconds=3_600)
    for partition in (0, 1):
        world.write_rows("bids", [row for row in rows if row.partition == partition])
    topic = world.topics["bids"]
    ends = tuple(committed(world.settings, topic, partition)[-1].offset + 1 for partition in (0, 1))
    with ExitStack() as stack:
        service = HeartbeatProcess(
            tmp_path / "heartbeat.log",
            *("--bootstrap-servers", world.settings.bootstrap_servers),
            *("--feed", str(world.feed_file(tmp_path)), "--interval-ms", "10"),
        )
        stack.callback(service.close)
        running = Running(stack, replica_settings(world, tmp_path / "backlog", "direct", max_cuts=3), spark)

        def is_read() -> bool:
            assert service.process.poll() is None, service.lines
            return world.read_last().ends == {topic: ends}

        wait_until(is_read, "all of the backlog is in cuts")
        assert service.end(signal.SIGTERM) == 0
        heartbeats = [Heartbeat.decode(r.value) for r in committed(world.settings, world.definition.heartbeats_topic)]
        first, second = (0, 1) if heartbeats[1].ends[topic][0] else (1, 0)
        assert all(beat.ends[topic][first] == ends[first] for beat in heartbeats if beat.ends[topic][second])
        assert late_rows(world, heartbeats) == 0
        assert service.lines[-2]["rows"][topic]["late"] == 0
        tau = heartbeats[-1].tau
        assert tau is not None
        assert tau > max(row.ts for row in rows) - 3 * DISORDER_MS
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
    plans={"direct": Plan(build=count_both, properties=hot_items.QUERY.plan("direct").properties)},
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


class ReplicaProcess:
    """`python -m replicas` with everything that it starts; all of it can be recognised by a mark."""

    def __init__(self, world: FeedWorld, directory: Path, plan: str, max_cuts: int) -> None:
        self._mark = uuid.uuid4().hex
        self._log = directory.parent / f"{directory.name}.log"
        topics = [part for name, topic in world.topics.items() for part in ("--topic", f"{name}={topic}")]
        self._command = [
            *(sys.executable, "-m", "replicas", "--bootstrap-servers", world.settings.bootstrap_servers),
            *("--merge", world.name, "--replica", directory.name, "--feed", str(world.feed_file(directory.parent))),
            *("--query", "hot_items", "--plan", plan, "--checkpoint", str(directory), "--partitions", str(LANES)),
            *("--max-cuts", str(max_cuts), "--trigger-ms", "0", "--master", "local[2]", *topics),
        ]
        self.topic = ReplicaTopic(world.settings, f"{world.name}.replica.{directory.name}", LANES)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, **environment: str) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env={**os.environ, MARKER: self._mark, **environment}, stdout=log, stderr=log
            )

    def check(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.log()[-3_000:]

    def wait_for_end(self, *, seconds: float = 90) -> int:
        """Wait until the process and everything that it started is gone, and give its exit code."""
        assert self._process is not None
        code = self._process.wait(seconds)
        wait_seldom(lambda: not self._marked(), "nothing is left of the replica", seconds=30)
        return code

    def signal(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self.wait_for_end()

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def close(self) -> None:
        """End what still runs, one by one."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)
        for pid in self._marked():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _marked(self) -> list[int]:
        mark = f"{MARKER}={self._mark}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found


def committed_batch(settings: KafkaSettings, topic: str) -> int:
    """Give the last batch in the lanes; -2 if there is none."""
    with TailReader(settings) as reader:
        tails = [reader.read_tail(topic, lane) for lane in range(LANES)]
    return max((Tag.decode(dict(tail.headers)[HEADER] or b"").batch for tail in tails if tail), default=-2)


@pytest.mark.parametrize("plan", ["direct", "panes"])
def test_a_killed_replica_goes_on_with_nothing_lost_and_nothing_repeated(
    plan: str, settings: KafkaSettings, make_world: Callable[..., FeedWorld], tmp_path: Path, long: bool
) -> None:
    """One kill comes between the sink's commit and Spark's; the others, in the long run, at random batches."""
    if plan == "panes" and not long:
        pytest.skip("one plan is killed by default, both in the long run")
    world = make_world("bids")
    rows, closing = write_a_skewed_feed(world, seed=7)
    world.beat(tau=closing)
    max_cuts = 2 if long else 7
    process = ReplicaProcess(world, tmp_path / "killed", plan, max_cuts)
    name = f"{world.name}.replica.killed"
    with ExitStack() as stack:
        stack.callback(process.close)
        process.start(**{KILL_AFTER_COMMIT: "5"})
        assert process.wait_for_end(seconds=120) == -signal.SIGKILL
        committed = committed_batch(settings, name)
        assert committed >= 5
        assert (tmp_path / "killed" / "spark" / "offsets" / str(committed)).exists()
        assert not (tmp_path / "killed" / "spark" / "commits" / str(committed)).exists()
        for batch in sorted(random.Random(7).sample(range(14, 28), 4)) if long else ():
            process.start()
            wait_seldom(lambda batch=batch: reached(process, settings, name, batch), f"batch {batch}", seconds=120)  # type: ignore[misc]
            assert process.signal(signal.SIGKILL) == -signal.SIGKILL
        process.start()
        process.topic.wait_for_stable(WINDOWS.first_open(closing), check=process.check)
        assert process.signal(signal.SIGTERM) == 0
    assert_equals_the_answer(process.topic, rows, closing)
    assert process.topic.kinds()["hello"] == LANES, "a kill is no new incarnation"
    dropped = re.findall(r"dropped=(\d+)", process.log())
    assert dropped
    assert set(dropped) == {"0"}
    assert isinstance(process.topic.frozen(), TDB)


def reached(process: ReplicaProcess, settings: KafkaSettings, topic: str, batch: int) -> bool:
    process.check()
    return committed_batch(settings, topic) >= batch
