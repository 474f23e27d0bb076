"""`python -m replicas` as an operator runs it: settings from a file, probes, attaching, what a stop or kill leaves."""

import signal
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from deploy.local import ports
from lmerge.kafka import KafkaSettings
from replicas.windows import Windows
from tests.integration.conftest import Figure
from tests.support.merge_service import TOKEN, Service, running
from tests.support.processes import alive
from tests.support.replica import FeedWorld, bids, wait_seldom, window_counts
from tests.support.replica_process import DEADLINE, ReplicaProcess
from tests.support.spark_cluster import SparkCluster

WINDOWS = Windows(width_ms=10_000, slide_ms=2_000)
PARTITIONS = 2
LANES = 2


@pytest.fixture
def world(bootstrap_servers: str) -> Iterator[FeedWorld]:
    name = f"f{uuid.uuid4().hex[:12]}"
    with closing(FeedWorld(KafkaSettings(bootstrap_servers), name, partitions=PARTITIONS)) as made:
        yield made


class Probed:
    """What a replica shows at its port."""

    def __init__(self) -> None:
        (self.port,) = ports.choose(1)

    def get(self, path: str) -> tuple[int, str]:
        """Ask; 0 if nobody listens."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str) -> float | None:
        """Give the value of the one series of this name, None if there is none."""
        for line in self.get("/metrics")[1].splitlines():
            if line.startswith(f"lmerge_replica_{name}{{"):
                return float(line.rsplit(" ", 1)[1])
        return None

    def is_ready(self) -> bool:
        return self.get("/readyz")[0] == 200


def is_attached(service: Service, merge: str) -> bool:
    return service.call("GET", f"/v1/merges/{merge}/inputs/r1")[0] == 200


def end(process: ReplicaProcess, how: signal.Signals, figure: Figure) -> int:
    """Send a signal; see that of all processes that it had, Spark's among them, none is left."""
    tree = process.tree()
    assert any("java" in command for command in tree.values()), tree
    assert any("pyspark" in command and "java" not in command for command in tree.values()), tree
    began = time.monotonic()
    code = process.signal(how)
    ended = time.monotonic()
    wait_seldom(lambda: not alive(tree), "none of its processes is left", seconds=30)
    gone = time.monotonic()
    figure(f"{how.name}: {len(tree)} processes; ended after {ended - began:.1f} s, all gone after {gone - began:.1f} s")
    return code


def test_a_replica_is_ready_attached_and_measured_and_neither_a_kill_nor_a_stop_leaves_a_process(
    world: FeedWorld, tmp_path: Path, figure: Figure
) -> None:
    rows = bids(5, count=600, partitions=PARTITIONS, seconds=60)
    world.write_rows("bids", rows)
    world.cut(steps=10)
    closing_tau = max(row.ts for row in rows) + 2 * WINDOWS.width_ms
    probed = Probed()
    with running(world.settings) as service:
        service.put(world.name, {"partitions": LANES})
        settings = tmp_path / "settings.toml"
        lines = {"port": probed.port, "api": f"http://127.0.0.1:{service.port}", "max_cuts": 1}
        settings.write_text("\n".join(f"{key} = {msgspec.json.encode(value).decode()}" for key, value in lines.items()))
        process = ReplicaProcess(
            world,
            tmp_path / "r1",
            plan="direct",
            lanes=LANES,
            max_cuts=1_000,  # a flag, which wins over the file
            options=("--config", str(settings)),
        )
        with closing(process):
            process.start(LMERGE_TOKEN=TOKEN)
            assert probed.get("/healthz")[0] == 200
            wait_seldom(probed.is_ready, "it is ready", seconds=30)
            wait_seldom(lambda: probed.metric("attached") == 1, "it is attached", seconds=30)
            assert is_attached(service, world.name)
            tau = world.last.tau
            assert tau is not None
            process.topic.wait_for_stable(WINDOWS.first_open(tau), check=process.check)
            last = process.committed_batch()
            wait_seldom(lambda: probed.metric("batch") == last, "Spark has noted the last batch", seconds=30)
            assert (probed.metric("rows_total") or 0) > len(rows)
            assert (probed.metric("batch") or 0) < 8, "batches of one cut: the file has won over the flag"
            assert probed.metric("incarnation") == 1
            assert probed.metric("dropped_rows_total") == 0
            assert (probed.metric("state_rows") or 0) > 0

            assert end(process, signal.SIGKILL, figure) == -signal.SIGKILL
            assert is_attached(service, world.name), "it will come back"

            process.start(LMERGE_TOKEN=TOKEN)  # there is nothing new to read
            wait_seldom(probed.is_ready, "it is ready", seconds=30)
            assert probed.get("/readyz")[1] == '{"status":"running, nothing new to read yet"}'
            assert probed.metric("batch") is None
            world.beat(tau=closing_tau)
            stable = WINDOWS.first_open(closing_tau)
            process.topic.wait_for_stable(stable, check=process.check)
            wait_seldom(lambda: probed.metric("stable_milliseconds") == stable, "the stable is shown", seconds=30)
            wait_seldom(lambda: probed.metric("batch") is not None, "the batch is counted", seconds=30)
            assert probed.metric("incarnation") == 1
            wait_seldom(lambda: probed.metric("attached") == 1, "it is attached", seconds=30)

            assert end(process, signal.SIGTERM, figure) == 0
            assert not is_attached(service, world.name)
    assert "detached from" in process.log()
    assert process.topic.frozen() == window_counts(rows, WINDOWS, below=stable)


def test_a_replica_that_still_waits_for_its_feed_says_so_and_is_stopped_cleanly(
    world: FeedWorld, tmp_path: Path
) -> None:
    probed = Probed()
    options = ("--port", str(probed.port), "--feed", str(tmp_path / "absent.toml"), "--topic", "bids=absent")
    (tmp_path / "absent.toml").write_text(
        f'name = "{world.name}-absent"\n[[sources]]\ntopic = "absent"\ntime = "kafka"\ndisorder_ms = 0\n'
    )
    process = ReplicaProcess(world, tmp_path / "r1", plan="direct", lanes=LANES, max_cuts=1, options=options)
    with closing(process):
        process.launch()
        wait_seldom(lambda: probed.get("/healthz")[0] == 200, "it is alive", seconds=DEADLINE)
        assert probed.get("/readyz") == (503, '{"status":"looking for the feed"}')
        assert process.signal(signal.SIGTERM) == 0


def test_a_replica_runs_on_a_standalone_cluster_and_a_kill_of_its_driver_leaves_no_executor(
    world: FeedWorld, tmp_path: Path, figure: Figure, long: bool
) -> None:
    if not long:
        pytest.skip("a master, a worker and their executors take a minute to start")
    rows = bids(6, count=600, partitions=PARTITIONS, seconds=60)
    world.write_rows("bids", rows)
    world.cut(steps=10)
    tau = max(row.ts for row in rows) + 2 * WINDOWS.width_ms
    world.beat(tau=tau)
    with closing(SparkCluster(tmp_path)) as cluster:
        cluster.wait()
        process = ReplicaProcess(
            world,
            tmp_path / "r1",
            plan="direct",
            lanes=LANES,
            max_cuts=3,
            options=("--master", cluster.master, "--conf", "spark.executor.memory=512m"),
        )
        with closing(process):
            process.start(SPARK_LOCAL_IP="127.0.0.1")
            stable = WINDOWS.first_open(tau)
            process.topic.wait_for_stable(stable, check=process.check)
            assert process.topic.frozen() == window_counts(rows, WINDOWS, below=stable)
            executors = cluster.executors()
            assert any("CoarseGrainedExecutorBackend" in command for command in executors.values()), executors
            assert any("pyspark" in command and "java" not in command for command in executors.values()), executors
            began = time.monotonic()
            assert process.signal(signal.SIGKILL) == -signal.SIGKILL
            wait_seldom(lambda: not alive(executors), "no executor is left", seconds=60)
            figure(
                f"cluster: {len(executors)} processes of executors gone {time.monotonic() - began:.1f} s after kill -9"
            )
