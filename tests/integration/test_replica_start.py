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

from lmerge import MINUS_INFINITY, TDB, Hello, Insert
from lmerge.codec import decode
from lmerge.errors import UsageError
from lmerge.feed import Heartbeat
from lmerge.kafka import KafkaSettings, RecordsGone
from replicas.cuts import Located
from replicas.feed_start import FeedStart
from replicas.process import cause
from replicas.start import Start
from tests.integration.test_replica import (
    HOT_ITEMS,
    PARTITIONS,
    SKEW_MS,
    WINDOWS,
    assert_equals_the_answer,
    write_a_skewed_feed,
)
from tests.support.kafka import committed, delete_before
from tests.support.replica import FeedWorld, ReplicaTopic, bids, wait_seldom, window_counts
from tests.support.running_replica import RunningReplica, settings_in


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
        settings_in(world, tmp_path / "cold", HOT_ITEMS, "panes", max_cuts=7), start=Start("heartbeat", 6)
    )
    at = finder(world)("heartbeat:6").heartbeat
    assert at.max_ts is not None
    joins_at = at.max_ts + 1 + WINDOWS.width_ms
    with ExitStack() as stack:
        running = RunningReplica(stack, cold, spark).start()
        running.wait_for_watermark(closing)
        assert running.dropped() == 0
    for elements in running.topic.written().lanes:
        hello = elements[0]
        assert isinstance(hello, Hello)
        assert hello.joins_at == joins_at
        assert all(element.ve >= joins_at for element in elements if isinstance(element, Insert))
    answer = window_counts(rows, WINDOWS, below=closing)
    complete = TDB(event for event in answer if event.ve >= joins_at)
    assert 0 < len(complete) < len(answer)
    assert running.topic.written().frozen() == complete

    more = bids(5, count=30, partitions=PARTITIONS, seconds=5, start_ms=closing + SKEW_MS)
    world.write_rows("bids", more)
    world.cut(steps=1)
    delete_before(world.settings, world.topics["bids"], world.last.ends[world.topics["bids"]][0] - 1)
    with ExitStack() as stack:
        too_late = RunningReplica(stack, cold, spark).start()
        wait_seldom(lambda: not too_late.query.isActive, "the replica ends", seconds=60)
        said = cause(too_late.query, too_late.replica.failure)
    assert said.startswith("RecordsGone: range [")
    assert f"Move its directory {tmp_path / 'cold'} away and start it with --start latest" in said


def test_a_restart_goes_on_and_a_restored_checkpoint_or_another_plan_begins_anew_with_the_same_result(
    spark: SparkSession, world: FeedWorld, tmp_path: Path
) -> None:
    """The number of shuffle partitions, which is part of Spark's state, changes from one start to the next."""
    rows, closing = write_a_skewed_feed(world, seed=6, cuts=5)
    tau = world.last.tau
    assert tau is not None
    checkpoint, saved = tmp_path / "r1" / "spark", tmp_path / "saved"

    def run(plan: str, *, shuffle_partitions: int, incarnation: int, waits_for: int) -> ReplicaTopic:
        spark.conf.set("spark.sql.shuffle.partitions", str(shuffle_partitions))
        with ExitStack() as stack:
            stack.callback(spark.conf.set, "spark.sql.shuffle.partitions", "1")
            settings = settings_in(world, tmp_path / "r1", HOT_ITEMS, plan, max_cuts=2)
            running = RunningReplica(stack, settings, spark).start()
            running.wait_for_watermark(waits_for)
            assert running.replica.incarnation == incarnation
            assert_equals_the_answer(running.topic, rows, waits_for)
        return running.topic

    run("direct", shuffle_partitions=1, incarnation=1, waits_for=tau)
    shutil.copytree(checkpoint, saved)
    world.beat(tau=closing)
    run("direct", shuffle_partitions=3, incarnation=1, waits_for=closing)
    shutil.rmtree(checkpoint)
    saved.rename(checkpoint)
    run("direct", shuffle_partitions=2, incarnation=2, waits_for=closing)
    topic = run("panes", shuffle_partitions=1, incarnation=3, waits_for=closing)
    assert all((tmp_path / "r1" / f"spark.aside-{number}" / "offsets").is_dir() for number in (1, 2))
    hellos = [decode(record.value) for record in topic.records()[0] if b'"hello"' in (record.value or b"")]
    assert [(hello.incarnation, hello.joins_at, hello.plan) for hello in hellos if isinstance(hello, Hello)] == [
        (1, MINUS_INFINITY, "hot_items/direct"),
        (2, MINUS_INFINITY, "hot_items/direct"),
        (3, MINUS_INFINITY, "hot_items/panes"),
    ]
