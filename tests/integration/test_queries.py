"""The shipped queries, every plan of each, against DuckDB's answer over the same rows; and their plans merged.

The partitions of the sources are read 20 s of event time apart, and the last heartbeat moves tau alone.
"""

import random
import shutil
import signal
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lmerge import Event, Hello, reconstitute
from lmerge.kafka import KafkaSettings
from replicas.loader import SHIPPED, shipped_queries
from replicas.session import make_session
from tests.integration.conftest import Figure
from tests.support.cli import run_cli
from tests.support.merge_service import Service, running
from tests.support.queries import (
    CASES,
    LANES,
    PARTITIONS,
    TOPICS,
    WIDTH_MS,
    NexmarkRow,
    RunningQuery,
    answers,
    assert_equals_the_answer,
    assert_in_order,
    directory_name,
    lane_elements,
    last_stable,
    merge_lane,
    nexmark_rows,
    write,
)
from tests.support.replica import FeedWorld, ReplicaTopic, wait_seldom
from tests.support.replica_group import ReplicaGroup
from tests.support.replica_process import ReplicaProcess, committed_batch, is_between_the_commits

SEED = 5
SKEW_MS = 20_000


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = make_session("lmerge-queries", master="local[2]", overrides={})
    yield session
    session.stop()


@pytest.fixture(scope="module")
def service(bootstrap_servers: str) -> Iterator[Service]:
    with running(KafkaSettings(bootstrap_servers)) as service:
        yield service


@pytest.fixture
def world(bootstrap_servers: str) -> Iterator[FeedWorld]:
    settings = KafkaSettings(bootstrap_servers)
    made = FeedWorld(settings, f"f{uuid.uuid4().hex[:12]}", topics=TOPICS, partitions=PARTITIONS)
    yield made
    made.close()


def close(world: FeedWorld, rows: Sequence[NexmarkRow]) -> int:
    """Write a heartbeat whose tau lies behind every result of the rows, those of windows over a join too; give tau."""
    tau = max(int(row.fields["date_time"]) for row in rows) + 6 * WIDTH_MS
    world.beat(tau=tau)
    return tau


def assert_plans_merge(name: str, replicas: Sequence[RunningQuery]) -> None:
    """Merged by the algorithm that their properties lead to, plans give what each of them does."""
    for lanes in zip(*(lane_elements(each.topic) for each in replicas), strict=True):
        for lane in lanes:
            assert_in_order(name, lane)
        algorithm, merged = merge_lane(lanes)
        assert algorithm == CASES[name].algorithm
        stable = last_stable(merged)
        assert stable == max(last_stable(lane) for lane in lanes)
        expected = reconstitute(lanes[0][1:])
        assert reconstitute(merged).frozen(stable) == expected.frozen(stable)


def assert_right_at_the_end(replicas: Sequence[RunningQuery], answer: Sequence[Event], tau: int) -> None:
    for each in replicas:
        each.wait_for_end(tau)
        assert_equals_the_answer(each.topic, each.name, answer, tau)
        assert each.topic.kinds()["hello"] == LANES, "one incarnation"
        assert each.dropped() == 0


def merged_by_the_service(
    service: Service, world: FeedWorld, name: str, replicas: Sequence[RunningQuery], tau: int
) -> ReplicaTopic:
    """Let `auto` choose by what the replicas say of themselves, merge, certify; give the merged topic."""
    settings, merge = world.settings, f"{name}-{uuid.uuid4().hex[:8]}"
    hellos = [lane_elements(each.topic)[0][0] for each in replicas]
    properties = [hello.properties for hello in hellos if isinstance(hello, Hello)]
    defined = service.put(merge, {"partitions": LANES, "properties": properties})
    assert defined["desired"]["algorithm"] == CASES[name].algorithm
    for number, each in enumerate(replicas):
        service.put(f"{merge}/inputs/r{number}", {"topic": each.topic.name})
    service.wait_until_running(merge)
    merged = ReplicaTopic(settings, f"{merge}.merged", LANES)
    merged.wait_for_stable(CASES[name].complete(tau), check=lambda: None, seconds=60)
    result = run_cli("certify", "--merge", merge, "--bootstrap-servers", settings.bootstrap_servers)
    assert result.code == 0, result
    return merged


def test_every_query_is_tested_here_and_its_answers_have_ties() -> None:
    assert sorted(CASES) == shipped_queries()
    found = answers(nexmark_rows(SEED, seconds=100))
    assert all(found.values())
    joined = found["bids_with_auction"]
    assert len(set(joined)) < len(joined) * 0.9, "equal results must repeat"
    assert len({event.vs for event in found["highest_bid"]}) == len(found["highest_bid"])


def kill_a_group(world: FeedWorld, rows: Sequence[NexmarkRow], directories: Sequence[Path], *, max_cuts: int) -> None:
    """Run replicas in a process that is killed in their midst, between the two commits of one of them."""
    half = len(rows) // 2
    write(world, rows[:half], cuts=3, lag_ms=0)
    topics = [f"{world.name}.replica.{directory.name}" for directory in directories]
    group = ReplicaGroup(world, directories, max_cuts=max_cuts)
    with ExitStack() as stack:
        stack.callback(group.close)
        group.start()
        begun = [committed_batch(world.settings, topic, LANES) for topic in topics]
        write(world, rows[half:], cuts=14, lag_ms=SKEW_MS)

        def all_went_on() -> bool:
            group.check()
            return all(
                committed_batch(world.settings, topic, LANES) > batch
                for topic, batch in zip(topics, begun, strict=True)
            )

        wait_seldom(all_went_on, "every replica has written more", seconds=120)
        group.arm()
        world.beat(tau=(world.last.tau or 0) + 1)  # brings another commit, should all have come to their end
        assert group.wait_for_end() == -signal.SIGKILL
    batches = [committed_batch(world.settings, topic, LANES) for topic in topics]
    assert any(map(is_between_the_commits, directories, batches))


@pytest.mark.timeout(900)  # fifteen starts of a replica; three minutes on cores that are busy with other work
def test_plans_of_every_query_killed_or_not_in_small_or_large_batches_equal_the_answer_and_merge(
    spark: SparkSession, service: Service, world: FeedWorld, tmp_path: Path, figure: Figure
) -> None:
    """The first plan of each runs in small batches and is killed, the second in large ones."""
    began = time.monotonic()
    rows = nexmark_rows(SEED, seconds=100)
    expected = answers(rows)
    killed = {name: tmp_path / directory_name(name, case.plans[0], 7) for name, case in CASES.items()}
    kill_a_group(world, rows, [*killed.values()], max_cuts=7)
    tau = close(world, rows)
    figure(f"five queries killed after {time.monotonic() - began:.1f} s")
    for name, case in CASES.items():
        with ExitStack() as stack:
            other = tmp_path / directory_name(name, case.plans[1], 1_000)
            replicas = [
                RunningQuery(stack, spark, world, killed[name], max_cuts=7),
                RunningQuery(stack, spark, world, other, max_cuts=1_000),
            ]
            assert_right_at_the_end(replicas, expected[name], tau)
            assert_plans_merge(name, replicas)
            merged = merged_by_the_service(service, world, name, replicas, tau)
            assert_equals_the_answer(merged, name, expected[name], tau)
        figure(f"{name}: {len(expected[name])} results, right after {time.monotonic() - began:.1f} s")


@pytest.mark.parametrize("name", [*CASES])
def test_every_plan_in_batches_of_every_size_equals_the_answer_and_all_merge(
    name: str, spark: SparkSession, world: FeedWorld, tmp_path: Path, long: bool
) -> None:
    if not long:
        pytest.skip("six replicas of each query are for the long run")
    rows = nexmark_rows(SEED + 1, seconds=120)
    write(world, rows, cuts=40, lag_ms=SKEW_MS)
    tau = close(world, rows)
    with ExitStack() as stack:
        replicas = [
            RunningQuery(stack, spark, world, tmp_path / directory_name(name, plan, cuts), max_cuts=cuts)
            for plan in CASES[name].plans
            for cuts in (1, 7, 1_000)
        ]
        assert_right_at_the_end(replicas, answers(rows)[name], tau)
        assert_plans_merge(name, replicas)


@pytest.mark.parametrize("name", [*CASES])
def test_a_query_killed_five_times_at_random_moments_loses_and_repeats_nothing(
    name: str, world: FeedWorld, tmp_path: Path, long: bool
) -> None:
    """The first kill is between the two commits. SQL queries run from a file elsewhere, as a user's do."""
    if not long:
        pytest.skip("it starts Spark six times")
    rng = random.Random(name)
    rows = nexmark_rows(SEED + 2, seconds=120)
    write(world, rows, cuts=280, lag_ms=SKEW_MS)
    tau = close(world, rows)
    query, stable = name, CASES[name].complete(tau)
    if (file := SHIPPED / f"{name}.sql").exists():
        query = str(shutil.copy(file, tmp_path))
    plan = rng.choice(CASES[name].plans)
    process = ReplicaProcess(world, tmp_path / "killed", query=query, plan=plan, lanes=LANES, max_cuts=7)
    with ExitStack() as stack:
        stack.callback(process.close)
        process.kill_between_the_commits(batch=16)
        for batch in sorted(rng.sample(range(20, 34), 4)):
            goal = max(batch, process.committed_batch() + 1)
            process.start()
            process.wait_for_batch(goal)
            process.let_run(seconds=rng.uniform(0, 0.7))
            assert process.signal(signal.SIGKILL) == -signal.SIGKILL
            assert process.topic.stable() < stable, "it was at its end before the kill"
        process.start()
        process.topic.wait_for_stable(stable, check=process.check)
        assert process.signal(signal.SIGTERM) == 0
    assert_equals_the_answer(process.topic, name, answers(rows)[name], tau)
    assert process.topic.kinds()["hello"] == LANES, "a kill is no new incarnation"
