"""Another plan takes over while the merge goes on: it starts cold, joins, and the old one is killed."""

import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lmerge.kafka import KafkaSettings
from replicas.loader import load_query
from tests.integration.conftest import Figure
from tests.support.cli import run_cli
from tests.support.merge_service import Service, running
from tests.support.replica import FeedWorld, ReplicaTopic, bids, wait_seldom, window_counts
from tests.support.replica_process import ReplicaProcess

LANES = 2
PARTITIONS = 2
WINDOWS = load_query("hot_items").windows


@pytest.fixture
def service(bootstrap_servers: str) -> Iterator[Service]:
    with running(KafkaSettings(bootstrap_servers)) as service:
        yield service


@pytest.fixture
def world(bootstrap_servers: str) -> Iterator[FeedWorld]:
    made = FeedWorld(KafkaSettings(bootstrap_servers), f"f{uuid.uuid4().hex[:12]}", partitions=PARTITIONS)
    yield made
    made.close()


@pytest.mark.timeout(600)  # two starts of Spark, which may be starved and started anew
def test_a_plan_that_starts_cold_joins_and_carries_on_alone_when_the_old_one_is_killed(
    service: Service, world: FeedWorld, tmp_path: Path, figure: Figure
) -> None:
    rows = bids(seed=11, count=900, partitions=PARTITIONS, seconds=180)
    merge, merged = world.name, ReplicaTopic(world.settings, f"{world.name}.merged", LANES)
    with ExitStack() as stack:
        old = ReplicaProcess(world, tmp_path / "old", plan="direct", lanes=LANES, max_cuts=7)
        stack.callback(old.close)
        world.write_rows("bids", rows[:300])
        world.cut(steps=10)
        old.start()
        service.put(merge, {"partitions": LANES, "algorithm": "R2"})
        service.put(f"{merge}/inputs/old", {"topic": old.topic.name})
        service.wait_until_running(merge)

        cold = f"heartbeat:{world.last.n}"
        world.write_rows("bids", rows[300:600])
        world.cut(steps=10)
        new = ReplicaProcess(world, tmp_path / "new", plan="panes", lanes=LANES, max_cuts=7, options=("--start", cold))
        stack.callback(new.close)
        new.start()
        service.put(f"{merge}/inputs/new", {"topic": new.topic.name})
        wait_seldom(
            lambda: service.observed(f"{merge}/inputs/new")["membership"] == "joined", "the new plan joins", seconds=120
        )

        assert old.signal(signal.SIGKILL) == -signal.SIGKILL
        killed = time.monotonic()
        world.write_rows("bids", rows[600:])
        world.cut(steps=10)
        tau = max(row.ts for row in rows) + 2 * WINDOWS.width_ms
        world.beat(tau=tau)
        stable = (tau - WINDOWS.width_ms) // WINDOWS.slide_ms * WINDOWS.slide_ms + WINDOWS.slide_ms
        merged.wait_for_stable(stable, check=new.check, seconds=120)
        figure(f"merged to the end by the new plan alone, {time.monotonic() - killed:.1f} s after the kill of the old")
        assert service.call("DELETE", f"/v1/merges/{merge}/inputs/old")[0] == 204
        assert new.signal(signal.SIGTERM) == 0
    assert world.late == 0
    assert merged.frozen() == window_counts(rows, WINDOWS, below=stable)
    result = run_cli("certify", "--merge", merge, "--bootstrap-servers", world.settings.bootstrap_servers)
    assert result.code == 0, result
