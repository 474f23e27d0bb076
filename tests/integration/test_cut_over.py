"""Another plan takes over while the merge goes on: it starts cold and joins, then the old one leaves or is killed."""

import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from lmerge.kafka import KafkaSettings
from replicas.loader import load_query
from replicas.start import Start
from tests.integration.conftest import Figure
from tests.support.cli import run_cli
from tests.support.merge_service import Service, running
from tests.support.replica import FeedWorld, ReplicaTopic, bids, wait_seldom, window_counts
from tests.support.replica_process import ReplicaProcess
from tests.support.running_replica import LANES, RunningReplica, settings_in, start_all

PARTITIONS = 2
QUERY = load_query("hot_items")
WINDOWS = QUERY.windows


@pytest.fixture
def service(bootstrap_servers: str) -> Iterator[Service]:
    with running(KafkaSettings(bootstrap_servers)) as service:
        yield service


@pytest.fixture
def world(bootstrap_servers: str) -> Iterator[FeedWorld]:
    made = FeedWorld(KafkaSettings(bootstrap_servers), f"f{uuid.uuid4().hex[:12]}", partitions=PARTITIONS)
    yield made
    made.close()


class Cutover:
    """A merge of plan A, and the moment from which plan B reads."""

    def __init__(self, service: Service, world: FeedWorld) -> None:
        self.rows = bids(seed=11, count=900, partitions=PARTITIONS, seconds=180)
        self.merged = ReplicaTopic(world.settings, f"{world.name}.merged", LANES)
        self._service, self.world = service, world
        self._feed(0)
        service.put(world.name, {"partitions": LANES, "algorithm": "R2"})
        self.start = Start("heartbeat", world.last.n)

    def attach(self, topic: ReplicaTopic) -> None:
        """Attach a replica under its own name."""
        name = topic.name.rsplit(".", 1)[-1]
        self._service.put(f"{self.world.name}/inputs/{name}", {"topic": topic.name})

    def detach(self, name: str) -> None:
        """Detach a replica."""
        assert self._service.call("DELETE", f"/v1/merges/{self.world.name}/inputs/{name}")[0] == 204

    def start_b(self, spark: SparkSession, stack: ExitStack, directory: Path) -> RunningReplica:
        """Start plan B cold, behind rows that it does not read, and wait until it has joined."""
        self._service.wait_until_running(self.world.name)
        self._feed(300)
        settings = settings_in(self.world, directory, QUERY, "panes")
        new = RunningReplica(stack, msgspec.structs.replace(settings, start=self.start), spark).start()
        self.attach(new.topic)
        path = f"{self.world.name}/inputs/{directory.name}"
        wait_seldom(lambda: self._service.observed(path)["membership"] == "joined", "plan B joins", seconds=120)
        return new

    def finish(self, new: RunningReplica) -> None:
        """Let plan B carry on alone to the end, and see that the merged topic is right."""
        self._feed(600)
        tau = max(row.ts for row in self.rows) + 2 * WINDOWS.width_ms
        self.world.beat(tau=tau)
        stable = WINDOWS.first_open(tau)
        self.merged.wait_for_stable(stable, check=new.check, seconds=120)
        assert self.merged.written().frozen() == window_counts(self.rows, WINDOWS, below=stable)

    def certify(self) -> None:
        """Let the command judge it."""
        servers = self.world.settings.bootstrap_servers
        result = run_cli("certify", "--merge", self.world.name, "--bootstrap-servers", servers)
        assert result.code == 0, result

    def _feed(self, first: int) -> None:
        self.world.write_rows("bids", self.rows[first : first + 300])
        self.world.cut(steps=5)


@pytest.fixture
def cutover(service: Service, world: FeedWorld) -> Cutover:
    return Cutover(service, world)


def test_another_plan_takes_over_by_the_recipe(spark: SparkSession, cutover: Cutover, tmp_path: Path) -> None:
    """docs/operations.md: start plan B cold, wait until it has joined, detach and stop every plan A, certify."""
    with ExitStack() as stack:
        old = [
            RunningReplica(stack, settings_in(cutover.world, tmp_path / name, QUERY, "direct"), spark)
            for name in ("a1", "a2")
        ]
        start_all(old)
        for each in old:
            cutover.attach(each.topic)
        new = cutover.start_b(spark, stack, tmp_path / "b1")
        for name, each in zip(("a1", "a2"), old, strict=True):
            cutover.detach(name)
            each.replica.stop()
        cutover.finish(new)
    cutover.certify()


@pytest.mark.timeout(600)  # a start of Spark that is starved is tried again
def test_a_plan_that_starts_cold_joins_and_carries_on_alone_when_the_old_one_is_killed(
    spark: SparkSession, cutover: Cutover, tmp_path: Path, figure: Figure
) -> None:
    """The old one is a process of its own; the new one runs in this one, where Spark is warm."""
    with ExitStack() as stack:
        old = ReplicaProcess(cutover.world, tmp_path / "a1", plan="direct", lanes=LANES, max_cuts=7)
        stack.callback(old.close)
        old.start()
        cutover.attach(old.topic)
        new = cutover.start_b(spark, stack, tmp_path / "b1")
        assert old.signal(signal.SIGKILL) == -signal.SIGKILL
        killed = time.monotonic()
        cutover.finish(new)
        figure(f"merged to the end by the new plan alone, {time.monotonic() - killed:.1f} s after the kill of the old")
        cutover.detach("a1")
    cutover.certify()
