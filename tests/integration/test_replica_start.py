"""Where replicas start and start again, on a real broker and a real Spark: cold, restored, too late."""

import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from lmerge import TDB, Hello, Insert
from lmerge.codec import decode_batch
from lmerge.errors import UsageError
from lmerge.feed import Heartbeat
from lmerge.kafka import KafkaSettings, RecordsGone
from replicas.cuts import Located
from replicas.feed_start import FeedStart
from replicas.process import _cause
from replicas.session import make_session
from replicas.start import Start
from tests.integration.test_replica import (
    PARTITIONS,
    SKEW_MS,
    WINDOWS,
    Running,
    assert_equals_the_answer,
    replica_settings,
    write_a_skewed_feed,
)
from tests.support.kafka import committed, delete_before
from tests.support.replica import FeedWorld, bids, wait_seldom, window_counts


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = make_session("lmerge-starts", master="local[2]", overrides={})
    yield session
    session.stop()


@pytest.fixture
def world(bootstrap_servers: str) -> Iterator[FeedWorld]:
    name = f"f{uuid.uuid4().hex[:12]}"
    made = FeedWorld(KafkaSettings(bootstrap_servers), name, topics=("bids",), partitions=PARTITIONS)
    yield made
    made.close()


def finder(world: FeedWorld) -> Callable[[str], Located]:
    look = FeedStart(world.settings, world.definition, wait_seconds=30, stopping=threading.Event())
    return lambda text: look.find(Start.parse(text), world.feed_id, world.topics.values())


def test_the_start_is_the_last_heartbeat_that_is_accepted_and_what_is_gone_is_said(world: FeedWorld) -> None:
    find = finder(world)
    assert find("latest").heartbeat.n == 0
    write_a_skewed_feed(world, seed=2, cuts=30)
    heartbeats = world.definition.heartbeats_topic
    beats = [Located(r.offset, Heartbeat.decode(r.value)) for r in committed(world.settings, heartbeats)]
    times = sorted({beat.heartbeat.max_ts or 0 for beat in beats})
    for text in ("first", "latest", *(f"heartbeat:{n}" for n in range(31)), *(f"time:{t}" for t in times)):
        expected = [beat for beat in beats if Start.parse(text).accepts(beat.heartbeat)][-1]
        assert find(text) == expected, text
    with pytest.raises(UsageError, match="heartbeat 31: the newest is 30"):
        find("heartbeat:31")
    with pytest.raises(RecordsGone, match="start a feed with another name"):
        FeedStart(world.settings, world.definition, wait_seconds=30, stopping=threading.Event()).find(
            Start("latest"), "another", ()
        )
    delete_before(world.settings, world.topics["bids"], 10)
    for text in ("first", f"time:{times[1]}"):
        with pytest.raises(RecordsGone, match=r"rows \[0, 10\) of .*/0.* removed by retention: .*--start latest"):
            find(text)
    delete_before(world.settings, heartbeats, beats[5].at)
    for text in ("first", "heartbeat:4", f"time:{times[1]}"):
        with pytest.raises(RecordsGone, match=r"begins with heartbeat 5, .*--start latest, or --start heartbeat:5"):
            find(text)
    assert find("latest") == beats[-1]


def test_a_cold_start_is_complete_from_where_it_says_and_says_what_to_do_when_rows_are_gone(
    spark: SparkSession, world: FeedWorld, tmp_path: Path
) -> None:
    rows, closing = write_a_skewed_feed(world, seed=4, cuts=20)
    world.beat(tau=closing)
    cold = msgspec.structs.replace(
        replica_settings(world, tmp_path / "cold", "panes", max_cuts=7), start=Start("heartbeat", 6)
    )
    at = finder(world)("heartbeat:6").heartbeat
    assert at.max_ts is not None
    joins_at = at.max_ts + 1 + WINDOWS.width_ms
    with ExitStack() as stack:
        running = Running(stack, cold, spark)
        running.wait_for_watermark(closing)
        assert running.dropped() == 0
    for records in running.topic.records():
        elements, error = decode_batch([record.value for record in records])
        assert error is None
        hello = elements[0]
        assert isinstance(hello, Hello)
        assert hello.joins_at == joins_at
        assert all(element.ve >= joins_at for element in elements if isinstance(element, Insert))
    answer = window_counts(rows, WINDOWS, below=closing)
    complete = TDB(event for event in answer if event.ve >= joins_at)
    assert 0 < len(complete) < len(answer)
    assert running.topic.frozen() == complete

    more = bids(5, count=30, partitions=PARTITIONS, seconds=5, start_ms=closing + SKEW_MS)
    world.write_rows("bids", more)
    world.cut(steps=1)
    delete_before(world.settings, world.topics["bids"], world.last.ends[world.topics["bids"]][0] - 1)
    with ExitStack() as stack:
        too_late = Running(stack, cold, spark)
        wait_seldom(lambda: not too_late.query.isActive, "the replica ends", seconds=60)
        said = _cause(too_late.query, too_late.replica.failure)
    assert said.startswith("RecordsGone: range [")
    assert f"Move its directory {tmp_path / 'cold'} away and start it with --start latest" in said


def test_a_restored_checkpoint_begins_anew_and_shuffle_partitions_may_change(
    spark: SparkSession, world: FeedWorld, tmp_path: Path
) -> None:
    rows, closing = write_a_skewed_feed(world, seed=6, cuts=5)
    tau = world.last.tau
    assert tau is not None
    settings, saved = replica_settings(world, tmp_path / "r1", "direct", max_cuts=2), tmp_path / "saved"
    checkpoint = tmp_path / "r1" / "spark"

    def run(shuffle_partitions: int, incarnation: int, waits_for: int) -> None:
        spark.conf.set("spark.sql.shuffle.partitions", str(shuffle_partitions))
        with ExitStack() as stack:
            stack.callback(spark.conf.set, "spark.sql.shuffle.partitions", "1")
            running = Running(stack, settings, spark)
            running.wait_for_watermark(waits_for)
            assert running.replica.incarnation == incarnation
            assert_equals_the_answer(running.topic, rows, waits_for)

    run(1, 1, tau)
    shutil.copytree(checkpoint, saved)
    world.beat(tau=closing)
    run(3, 1, closing)
    shutil.rmtree(checkpoint)
    saved.rename(checkpoint)
    run(2, 2, closing)
    assert (tmp_path / "r1" / "spark.aside-1" / "offsets").is_dir()
