"""The shipped queries, every plan of each, against DuckDB's answer over the same rows; and their plans merged.

The partitions of the sources are read 20 s of event time apart, and the last heartbeat moves tau alone. In the default
run some rows are late, some are early, and a partition is added while the replicas run (`kill_a_group`).
"""

import random
import shutil
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lmerge import TDB, Event, Hello, reconstitute
from lmerge.kafka import KafkaSettings
from replicas.loader import SHIPPED, shipped_queries
from replicas.start import Start
from tests.integration.conftest import Figure
from tests.support.merge_service import Service, running
from tests.support.queries import (
    CASES,
    RunningQuery,
    answers,
    assert_equals_the_answer,
    assert_in_order,
    directory_name,
    last_stable,
    merge_lane,
    nexmark_rows,
    strays,
    write,
)
from tests.support.query_runs import (
    SKEW_MS,
    WITH_STRAYS,
    close,
    define_merge,
    kill_a_group,
    merged_and_certified,
    nexmark_world,
)
from tests.support.replica import FeedWorld, Written
from tests.support.replica_process import ReplicaProcess
from tests.support.running_replica import LANES, start_all

SEED = 5


@pytest.fixture(scope="module")
def service(bootstrap_servers: str) -> Iterator[Service]:
    with running(KafkaSettings(bootstrap_servers)) as service:
        yield service


@pytest.fixture
def world(bootstrap_servers: str) -> Iterator[FeedWorld]:
    with nexmark_world(bootstrap_servers) as world:
        yield world


def assert_plans_merge(name: str, replicas: Iterable[Written]) -> None:
    """Merged by the algorithm that their properties lead to, plans give what each of them does."""
    for lanes in zip(*(each.lanes for each in replicas), strict=True):
        for lane in lanes:
            assert_in_order(name, lane)
        algorithm, merged = merge_lane(lanes)
        assert algorithm == CASES[name].algorithm
        stable = last_stable(merged)
        assert stable == max(last_stable(lane) for lane in lanes)
        expected = reconstitute(lanes[0][1:])
        assert reconstitute(merged).frozen(stable) == expected.frozen(stable)


def right_at_the_end(
    replicas: Sequence[RunningQuery], answer: Sequence[Event], tau: int
) -> dict[RunningQuery, Written]:
    """Wait for the end of each replica, and judge what it has written; give that."""
    found = {}
    for each in replicas:
        each.wait_for_end(tau)
        found[each] = written = each.topic.written()
        assert_equals_the_answer(written, each.name, answer, tau)
        assert written.kinds()["hello"] == LANES, "one incarnation"
        assert each.dropped() == 0
    return found


def test_every_query_is_tested_here_and_its_answers_have_ties() -> None:
    assert sorted(CASES) == shipped_queries()
    rows = nexmark_rows(SEED, seconds=100)
    found = answers(rows)
    assert all(found.values())
    joined = found["bids_with_auction"]
    assert len(set(joined)) < len(joined) * 0.9, "equal results must repeat"
    assert len({event.vs for event in found["highest_bid"]}) == len(found["highest_bid"])
    some = rows[len(rows) // 2 :][:WITH_STRAYS]
    times = [int(row.fields["date_time"]) for row in some]
    for kind in strays(some, tau=min(times) - 1, ceiling=max(times)):
        wrong = answers([*rows, *kind])
        assert all(TDB(wrong[name]) != TDB(found[name]) for name in CASES), "a stray that counted would show"


@pytest.mark.timeout(900)  # fifteen or eighteen starts of a replica, on cores that are busy with other work
def test_plans_of_every_query_killed_or_not_in_small_or_large_batches_equal_the_answer_and_merge(
    *, spark: SparkSession, service: Service, world: FeedWorld, tmp_path: Path, figure: Figure, long: bool
) -> None:
    """The first plan of each runs in small batches and is killed, the second in large ones.

    `classified_bids`, which is there to be measured (`make bench-feedback`), is for the long run.
    """
    cases = {name: case for name, case in CASES.items() if long or name != "classified_bids"}
    began = time.monotonic()
    rows = nexmark_rows(SEED, seconds=100)
    expected = answers(rows)
    killed = {name: tmp_path / directory_name(name, case.plans[0], 7) for name, case in cases.items()}
    other = {name: tmp_path / directory_name(name, case.plans[1], 1_000) for name, case in cases.items()}
    kill_a_group(world, rows, [*killed.values()], max_cuts=7, cuts=14)
    tau = close(world, rows)
    figure(f"{len(cases)} queries killed after {time.monotonic() - began:.1f} s")
    merges = {}
    names = [*cases]
    for some in (names[:2], names[2:4], names[4:]):  # a start waits for much; more at once starve on two cores
        with ExitStack() as stack:
            replicas = {
                name: [
                    RunningQuery(stack, spark, world, killed[name], max_cuts=7),
                    RunningQuery(stack, spark, world, other[name], max_cuts=1_000),
                ]
                for name in some
            }
            start_all([each for pair in replicas.values() for each in pair])
            for name, pair in replicas.items():
                found = right_at_the_end(pair, expected[name], tau)
                assert_plans_merge(name, found.values())
                merges[name] = define_merge(service, found, algorithm=cases[name].algorithm)
                figure(f"{name}: {len(expected[name])} results, right after {time.monotonic() - began:.1f} s")
    for name, merge in merges.items():  # which were at work while the next replicas started
        merged = merged_and_certified(service, world, name, merge, tau)
        assert_equals_the_answer(merged, name, expected[name], tau)
    figure(f"{len(cases)} merges: right after {time.monotonic() - began:.1f} s")


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
        start_all(replicas)
        found = right_at_the_end(replicas, answers(rows)[name], tau)
        assert_plans_merge(name, found.values())


@pytest.mark.parametrize("name", [*CASES])
def test_every_plan_that_starts_cold_is_complete_from_where_it_says(
    name: str, spark: SparkSession, world: FeedWorld, tmp_path: Path, long: bool
) -> None:
    if not long:
        pytest.skip("test_replica_start has a cold start of windows; those of every query are for the long run")
    rows = nexmark_rows(SEED + 3, seconds=100)
    write(world, rows, cuts=12, lag_ms=SKEW_MS)
    start, tau = Start("heartbeat", 5), close(world, rows)
    with ExitStack() as stack:
        replicas = [
            RunningQuery(stack, spark, world, tmp_path / directory_name(name, plan, 7), max_cuts=7, start=start)
            for plan in CASES[name].plans
        ]
        start_all(replicas)
        for each in replicas:
            each.wait_for_end(tau)
            assert each.dropped() == 0
    answer = answers(rows)[name]
    for each in replicas:
        written = each.topic.written()
        hello = written.lanes[0][0]
        assert isinstance(hello, Hello)
        complete = [event for event in answer if hello.joins_at <= event.ve < written.stable]
        assert 0 < len(complete) < len(answer)
        frozen = written.frozen(repeats=name == "bids_with_auction")
        assert TDB(event for event in frozen if event.ve >= hello.joins_at) == TDB(complete)


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
            assert process.topic.written().stable < stable, "it was at its end before the kill"
        process.start()
        process.topic.wait_for_stable(stable, check=process.check)
        assert process.signal(signal.SIGTERM) == 0
    written = process.topic.written()
    assert_equals_the_answer(written, name, answers(rows)[name], tau)
    assert written.kinds()["hello"] == LANES, "a kill is no new incarnation"
