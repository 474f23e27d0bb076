"""The shipped queries, every plan of each, against DuckDB's answer over the same rows; and their plans merged.

One Spark runs all of them at once. The partitions of the sources are read 20 s of event time apart.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lmerge import reconstitute
from lmerge.kafka import KafkaSettings
from replicas.loader import shipped_queries
from replicas.session import make_session
from tests.integration.conftest import Figure
from tests.support.queries import (
    CASES,
    PARTITIONS,
    TOPICS,
    WIDTH_MS,
    NexmarkRow,
    RunningQuery,
    answers,
    assert_equals_the_answer,
    directory_name,
    lane_elements,
    last_stable,
    merge_lane,
    nexmark_rows,
    write,
)
from tests.support.replica import FeedWorld

SEED = 5
SKEW_MS = 20_000


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    session = make_session("lmerge-queries", master="local[2]", overrides={})
    yield session
    session.stop()


@pytest.fixture
def make_world(bootstrap_servers: str) -> Iterator[Callable[[], FeedWorld]]:
    with ExitStack() as stack:

        def make() -> FeedWorld:
            settings = KafkaSettings(bootstrap_servers)
            world = FeedWorld(settings, f"f{uuid.uuid4().hex[:12]}", topics=TOPICS, partitions=PARTITIONS)
            stack.callback(world.close)
            return world

        yield make


def closing_tau(rows: list[NexmarkRow]) -> int:
    """Give a tau behind which every result of the rows lies, that of a window over a join too."""
    return max(int(row.fields["date_time"]) for row in rows) + 6 * WIDTH_MS


def assert_plans_merge(name: str, replicas: list[RunningQuery]) -> None:
    """Merged by the algorithm that their properties lead to, plans give what each of them does."""
    for lanes in zip(*(lane_elements(running.topic) for running in replicas), strict=True):
        algorithm, merged = merge_lane(lanes)
        assert algorithm == CASES[name].algorithm
        stable = last_stable(merged)
        assert stable == max(last_stable(lane) for lane in lanes)
        expected = reconstitute(lanes[0][1:])
        assert reconstitute(merged).frozen(stable) == expected.frozen(stable)


def test_every_query_is_tested_here() -> None:
    assert sorted(CASES) == shipped_queries()


def test_both_plans_of_every_query_in_small_and_large_batches_equal_the_answer_and_merge(
    spark: SparkSession, make_world: Callable[[], FeedWorld], tmp_path: Path, figure: Figure
) -> None:
    began = time.monotonic()
    world = make_world()
    rows = nexmark_rows(SEED, seconds=100)
    write(world, rows, cuts=30, lag_ms=SKEW_MS)
    tau = closing_tau(rows)
    world.beat(tau=tau)
    expected = answers(rows)
    for name, case in CASES.items():
        with ExitStack() as stack:
            replicas = [
                RunningQuery(stack, spark, world, tmp_path / directory_name(name, plan), max_cuts=cuts)
                for plan, cuts in zip(case.plans, (7, 1_000), strict=True)
            ]
            for running in replicas:
                running.wait_for_end(tau)
                assert_equals_the_answer(running.topic, name, expected[name], tau)
                assert running.dropped() == 0
            assert_plans_merge(name, replicas)
        figure(f"{name}: {len(expected[name])} results, {time.monotonic() - began:.1f} s since the start")
