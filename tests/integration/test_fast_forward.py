"""A replica that was away for long skips what does not matter any more, catches up, and carries on alone.

One whose plan has no bounded reach does not, whatever it is told.
"""

import itertools
import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the name that every Spark user knows

from lmerge import TDB, Skip, Stable
from lmerge.codec import decode
from lmerge.kafka import KafkaSettings, TopicAdmin, TopicSpec
from replicas.checkpoint import Skipped, last_batch, read_offsets
from replicas.loader import load_query
from replicas.query import Plan, Sources
from replicas.sink import HEADER
from replicas.state import Tag
from replicas.windows import Windows
from tests.integration.conftest import Figure
from tests.support.cli import run_cli
from tests.support.merge_service import TOKEN, Service, running
from tests.support.queries import RunningQuery, answers, directory_name, nexmark_rows, write
from tests.support.query_runs import close, nexmark_world
from tests.support.replica import START_MS, FeedWorld, ReplicaTopic, bids, wait_seldom, window_counts
from tests.support.replica_process import Probed, ReplicaProcess
from tests.support.running_replica import LANES, RunningReplica, settings_in, start_all, tell

PARTITIONS = 2
MAX_CUTS = 4
LAG_MS = 20_000
HOT_ITEMS = load_query("hot_items")
WINDOWS = HOT_ITEMS.windows


@pytest.fixture
def service(bootstrap_servers: str) -> Iterator[Service]:
    with running(KafkaSettings(bootstrap_servers)) as service:
        yield service


@pytest.fixture
def world(bootstrap_servers: str) -> Iterator[FeedWorld]:
    made = FeedWorld(KafkaSettings(bootstrap_servers), f"f{uuid.uuid4().hex[:12]}", partitions=PARTITIONS)
    yield made
    made.close()


def send(replica: ReplicaProcess, number: signal.Signals) -> None:
    """Send a signal to a replica and everything that it has started."""
    for pid in replica.tree():
        os.kill(pid, number)


def skipped(directory: Path) -> Skipped:
    batch = last_batch(directory / "spark")
    assert batch is not None
    return read_offsets(directory / "spark", batch).skipped


def stable_after(topic: ReplicaTopic, batch: int) -> int:
    """Give what a replica had promised in all lanes when it had written a batch."""
    promised = []
    for lane in topic.records():
        tagged = [(tag, decode(record.value)) for record in lane if (tag := dict(record.headers).get(HEADER))]
        stables = [it.vc for tag, it in tagged if isinstance(it, Stable) and Tag.decode(tag).batch <= batch]
        promised.append(max(stables))
    return min(promised)


def assert_two_batches_were_enough(replica: ReplicaProcess, directory: Path, others: int) -> None:
    """One that skips, and the next, in which Spark's watermark follows what that one has read.

    A batch that was under way when the replica was stopped, or planned before it had heard, may come before them.
    """
    batches = itertools.count()
    skips = next(batch for batch in batches if read_offsets(directory / "spark", batch).before is not None)
    replica.wait_for_batch(skips + 1)
    assert others - stable_after(replica.topic, skips + 1) < LAG_MS


def assert_shown(service: Service, merge: str, probed: Probed, left_out: Skipped) -> None:
    """What the laggard did not have to read is something, and is in its own metrics, in REST, and in words."""
    assert left_out.cuts > MAX_CUTS
    assert left_out.rows > 0
    wait_seldom(lambda: probed.metric("skipped_cuts") == left_out.cuts, "its metrics tell the cuts", seconds=30)
    assert probed.metric("skipped_rows") == left_out.rows
    lanes = service.observed(f"{merge}/inputs/slow")["lanes"]
    assert {(lane["skipped_cuts"], lane["skipped_rows"]) for lane in lanes} == {(left_out.cuts, left_out.rows)}
    said = run_cli("status", merge, "--url", f"http://127.0.0.1:{service.port}", "--token", TOKEN)
    (line,) = [line for line in said.out.splitlines() if line.strip().startswith("slow ")]
    assert f"at most {left_out.rows:,} rows in {left_out.cuts:,} cuts not read" in line


def assert_says_that_it_skipped(topic: ReplicaTopic) -> None:
    """In every lane, and it never takes back how far."""
    for lane in topic.records():
        skips = [element for record in lane if isinstance(element := decode(record.value), Skip)]
        assert skips
        assert skips == sorted(skips, key=lambda skip: skip.before)


@pytest.mark.timeout(600)  # two starts of Spark, which may be starved and started anew
@pytest.mark.parametrize(("plan", "algorithm"), [("panes", "R2"), ("eager", "R3")])
def test_a_laggard_skips_catches_up_in_two_batches_and_carries_on_alone(
    *, plan: str, algorithm: str, service: Service, world: FeedWorld, tmp_path: Path, figure: Figure, long: bool
) -> None:
    """Of 60 s of stream time, in 30 cuts of which a batch reads four, it is told that they do not matter."""
    if plan == "eager" and not long:
        pytest.skip("`test_early` has a replica that takes back what it skips, without processes and a merge")
    rows = bids(seed=13, count=900, partitions=PARTITIONS, seconds=180)
    merge, merged = world.name, ReplicaTopic(world.settings, f"{world.name}.merged", LANES)

    def observed(field: str) -> list[int | None]:
        """Give what each lane says of the laggard."""
        return [lane[field] for lane in service.observed(f"{merge}/inputs/slow")["lanes"]]

    with ExitStack() as stack:
        fast = ReplicaProcess(world, tmp_path / "fast", plan="direct", lanes=LANES, max_cuts=100)
        probed = Probed()
        port = ["--port", str(probed.port)]
        slow = ReplicaProcess(world, tmp_path / "slow", plan=plan, lanes=LANES, max_cuts=MAX_CUTS, options=port)
        stack.callback(fast.close)
        stack.callback(slow.close)
        world.write_rows("bids", rows[:300])
        world.cut(steps=4)
        fast.launch()
        slow.start()
        feedback = {"lag_ms": LAG_MS, "interval_ms": 100}
        service.put(merge, {"partitions": LANES, "algorithm": algorithm, "feedback": feedback})
        for each in (fast, slow):
            service.put(f"{merge}/inputs/{each.topic.name.rsplit('.', 1)[-1]}", {"topic": each.topic.name})
        service.wait_until_running(merge)
        wait_seldom(
            lambda: min(each.topic.written().stable for each in (fast, slow)) > 0, "both have read", seconds=120
        )
        slow.wait_for_batch(0)

        send(slow, signal.SIGSTOP)
        stack.callback(send, slow, signal.SIGCONT)
        world.write_rows("bids", rows[300:600])
        world.cut(steps=30)
        others = WINDOWS.first_open(world.last.tau or 0)
        wait_seldom(
            lambda: all(to == others for to in observed("fast_forwarded_to")), "it is told to skip", seconds=120
        )
        send(slow, signal.SIGCONT)
        wait_seldom(
            lambda: all(lag is not None and lag < LAG_MS for lag in observed("lag_ms")), "it has caught up", seconds=120
        )
        assert None not in observed("skipped_to")
        assert_two_batches_were_enough(slow, tmp_path / "slow", others)
        left_out = skipped(tmp_path / "slow")
        assert_shown(service, merge, probed, left_out)

        assert fast.signal(signal.SIGKILL) == -signal.SIGKILL
        world.write_rows("bids", rows[600:])
        world.cut(steps=10)
        world.beat(tau=(tau := max(row.ts for row in rows) + 2 * WINDOWS.width_ms))
        stable = (tau - WINDOWS.width_ms) // WINDOWS.slide_ms * WINDOWS.slide_ms + WINDOWS.slide_ms
        merged.wait_for_stable(stable, check=slow.check, seconds=120)
        assert slow.signal(signal.SIGTERM) == 0
    figure(f"{plan}: a laggard of 60 s left out {left_out.cuts} of 30 cuts with {left_out.rows} of 300 rows")
    assert_says_that_it_skipped(slow.topic)
    assert merged.written().frozen() == window_counts(rows, WINDOWS, below=stable)
    result = run_cli("certify", "--merge", merge, "--bootstrap-servers", world.settings.bootstrap_servers)
    assert result.code == 0, result


def with_ends_that_tell_nothing(sources: Sources, windows: Windows) -> DataFrame:
    """Count as `panes` does; that an end comes from a window cannot be read off its text."""
    return HOT_ITEMS.plan("panes").build(sources, windows).withColumn("ve", F.expr("cast(cast(ve AS string) AS long)"))


def test_a_plan_without_a_bounded_reach_says_so_and_is_never_fast_forwarded(
    spark: SparkSession, world: FeedWorld, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two replicas that are told the same, one has a plan that tells how far its rows reach."""
    caplog.set_level("INFO", logger="replicas.job")
    TopicAdmin(world.settings).ensure(TopicSpec(f"{world.name}.feedback", 1))
    unbounded = Plan(build=with_ends_that_tell_nothing)
    query = msgspec.structs.replace(HOT_ITEMS, plans={**HOT_ITEMS.plans, "unbounded": unbounded})
    rows = bids(seed=14, count=400, partitions=PARTITIONS, seconds=100)
    world.write_rows("bids", rows[:100])
    world.cut(steps=2)
    with ExitStack() as stack:
        bounded, other = replicas = [
            RunningReplica(stack, settings_in(world, tmp_path / plan, query, plan), spark)
            for plan in ("panes", "unbounded")
        ]
        start_all(replicas)
        assert caplog.text.count("never skips ahead: results of this plan may rest on rows however old") == 1
        for each in replicas:
            each.wait_for_watermark(world.last.tau or 0)
        tell(world, START_MS + 80_000, "panes", "unbounded")
        world.write_rows("bids", rows[100:])
        world.cut(steps=20)
        tau = rows[-1].ts + 2 * WINDOWS.width_ms
        world.beat(tau=tau)
        for each in replicas:
            each.wait_for_watermark(tau)
    assert bounded.topic.written().kinds()["skip"] == LANES
    assert bounded.replica.skipped.cuts > 0
    written = other.topic.written()
    assert written.kinds()["skip"] == 0
    assert other.replica.skipped == Skipped()
    assert written.frozen() == window_counts(rows, WINDOWS, below=WINDOWS.first_open(tau))


def test_a_join_is_right_from_where_it_skipped_on(
    spark: SparkSession, bootstrap_servers: str, tmp_path: Path, figure: Figure
) -> None:
    """Rows of both sources that can meet in a result that matters are read, 20 s back; its sources go on together."""
    name, rows = "bids_with_auction", nexmark_rows(5, seconds=120)
    third = len(rows) // 3
    before = int(rows[2 * third].fields["date_time"])
    with nexmark_world(bootstrap_servers) as world, ExitStack() as stack:
        TopicAdmin(world.settings).ensure(TopicSpec(f"{world.name}.feedback", 1))
        directory = tmp_path / directory_name(name, "bids_first", MAX_CUTS)
        replica = RunningQuery(stack, spark, world, directory, max_cuts=MAX_CUTS).start()
        write(world, rows[:third], cuts=4, lag_ms=0)
        replica.wait_for_end(world.last.tau or 0)
        tell(world, before, directory.name)
        write(world, rows[third:], cuts=20, lag_ms=0)
        replica.wait_for_end(close(world, rows))
        left_out = replica.replica.skipped
    assert left_out.before == before
    assert left_out.cuts > 0
    written = replica.topic.written()
    stable, frozen = written.stable, written.frozen(repeats=True)
    figure(f"a join left out {left_out.cuts} cuts of its two sources, and has {len(frozen)} results")
    truth = [event for event in answers(rows)[name] if event.ve < stable]
    assert TDB(event for event in frozen if event.ve >= before) == TDB(event for event in truth if event.ve >= before)
    assert len(frozen) < len(truth), "it did leave something out"
