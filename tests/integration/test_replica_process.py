"""`python -m replicas` as an operator runs it: settings from a file, probes, attaching, what a stop or kill leaves."""

import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from lmerge.kafka import KafkaSettings
from replicas.loader import load_query
from tests.integration.conftest import Figure
from tests.support.failpoints import KILL_AFTER_COMMIT
from tests.support.merge_service import TOKEN, Service, running
from tests.support.processes import alive
from tests.support.replica import FeedWorld, bids, wait_seldom, window_counts
from tests.support.replica_process import DEADLINE, Probed, ReplicaProcess, is_between_the_commits
from tests.support.running_replica import LANES, RunningReplica, settings_in
from tests.support.spark_cluster import SparkCluster

QUERY = load_query("hot_items")
WINDOWS = QUERY.windows
PARTITIONS = 2
SHUFFLES = "spark.sql.shuffle.partitions"


@pytest.fixture
def world(bootstrap_servers: str) -> Iterator[FeedWorld]:
    name = f"f{uuid.uuid4().hex[:12]}"
    with closing(FeedWorld(KafkaSettings(bootstrap_servers), name, partitions=PARTITIONS)) as made:
        yield made


def is_attached(service: Service, merge: str) -> bool:
    return service.call("GET", f"/v1/merges/{merge}/inputs/r1")[0] == 200


def tree_of(process: ReplicaProcess) -> dict[int, str]:
    """Give all processes that it has, Spark's among them."""
    tree = process.tree()
    assert any("java" in command for command in tree.values()), tree
    assert any("pyspark" in command and "java" not in command for command in tree.values()), tree
    return tree


def assert_gone(process: ReplicaProcess, tree: dict[int, str], how: str, figure: Figure) -> None:
    """See that none of the processes of a replica that has ended is left."""
    assert not alive(tree)
    figure(f"{how}: {len(tree)} processes, all gone {process.outlived_seconds:.1f} s after the first")


def newest_offsets(directory: Path) -> str:
    """Read what Spark has planned last, with the settings that it keeps."""
    return max((directory / "spark" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name)).read_text()


def assert_measured(probed: Probed, *, batch: int, rows: int, stable: int) -> None:
    """See that what a replica has done shows in its metrics, once Spark has noted its last batch."""
    wait_seldom(lambda: probed.metric("batch") == batch, "Spark has noted the last batch", seconds=30)
    assert (probed.metric("rows_total") or 0) > rows
    wait_seldom(lambda: probed.metric("stable_milliseconds") == stable, "the stable is shown", seconds=30)
    assert batch < 8, "batches of one cut: the file has won over the flag"
    assert probed.metric("incarnation") == 1
    assert probed.metric("dropped_rows_total") == 0
    assert (probed.metric("state_rows") or 0) > 0


def test_a_replica_is_ready_attached_and_measured_and_neither_a_stop_nor_a_kill_leaves_a_process(
    spark: SparkSession, world: FeedWorld, tmp_path: Path, figure: Figure
) -> None:
    """It is killed between the sink's commit and Spark's; its successor, in this process, loses and repeats nothing.

    The successor asks for another number of shuffle partitions: the checkpoint's stays.
    """
    rows = bids(5, count=600, partitions=PARTITIONS, seconds=60)
    world.write_rows("bids", rows)
    world.cut(steps=10)
    directory, probed = tmp_path / "r1", Probed()
    with running(world.settings) as service:
        service.put(world.name, {"partitions": LANES})
        settings = tmp_path / "settings.toml"
        lines = {"port": probed.port, "api": f"http://127.0.0.1:{service.port}", "max_cuts": 1}
        settings.write_text("\n".join(f"{key} = {msgspec.json.encode(value).decode()}" for key, value in lines.items()))
        options = ("--conf", f"{SHUFFLES}=3", "--config", str(settings))  # its bound of a batch loses against the flag
        process = ReplicaProcess(world, directory, plan="direct", lanes=LANES, max_cuts=1_000, options=options)
        with closing(process):
            process.start(LMERGE_TOKEN=TOKEN)
            assert probed.get("/healthz")[0] == 200
            wait_seldom(probed.is_ready, "it is ready", seconds=30)
            wait_seldom(lambda: probed.metric("attached") == 1, "it is attached", seconds=30)
            assert is_attached(service, world.name)
            assert world.last.tau is not None
            stable = WINDOWS.first_open(world.last.tau)
            process.topic.wait_for_stable(stable, check=process.check)
            assert_measured(probed, batch=process.committed_batch(), rows=len(rows), stable=stable)
            tree = tree_of(process)
            assert process.signal(signal.SIGTERM) == 0
            assert_gone(process, tree, "SIGTERM", figure)
            assert not is_attached(service, world.name)
            assert "detached from" in process.log()

            process.start(LMERGE_TOKEN=TOKEN, **{KILL_AFTER_COMMIT: "0"})  # there is nothing new to read
            wait_seldom(probed.is_ready, "it is ready", seconds=30)
            assert probed.get("/readyz")[1] == '{"status":"running, nothing new to read yet"}'
            assert probed.metric("batch") is None
            assert probed.metric("incarnation") == 1
            wait_seldom(lambda: probed.metric("attached") == 1, "it is attached", seconds=30)
            tree = tree_of(process)
            tau = max(row.ts for row in rows) + 2 * WINDOWS.width_ms
            world.beat(tau=tau)
            assert process.wait_for_end() == -signal.SIGKILL
            assert_gone(process, tree, "kill -9", figure)
            assert is_between_the_commits(directory, process.committed_batch())
            assert is_attached(service, world.name), "it will come back"
    assert spark.conf.get(SHUFFLES) != "3"
    with ExitStack() as stack:
        successor = RunningReplica(stack, settings_in(world, directory, QUERY, "direct"), spark).start()
        world.beat(tau=tau + WINDOWS.width_ms)
        successor.wait_for_watermark(tau + WINDOWS.width_ms)
        assert successor.dropped() == 0
    assert f'"{SHUFFLES}":"3"' in newest_offsets(directory)
    written = process.topic.written()
    assert written.frozen() == window_counts(rows, WINDOWS, below=tau)
    assert written.kinds()["hello"] == LANES, "a kill is no new incarnation"


def test_results_that_do_not_fit_into_the_driver_end_it_with_a_way_out_and_more_room_is_one(
    spark: SparkSession, world: FeedWorld, tmp_path: Path, long: bool
) -> None:
    """A batch without results has 19 KB, which are Spark's own; the one that closes 300 windows has 93 KB."""
    if not long:
        pytest.skip(
            "it starts Spark in a process of its own, half a minute; tests/unit/replicas/test_errors has the text"
        )
    rows = bids(7, count=600, partitions=PARTITIONS, seconds=600)
    world.write_rows("bids", rows)
    world.cut(steps=10)
    tau = max(row.ts for row in rows) + 2 * WINDOWS.width_ms
    world.beat(tau=tau)
    options = ("--conf", "spark.driver.maxResultSize=48k")
    process = ReplicaProcess(world, tmp_path / "r1", plan="direct", lanes=LANES, max_cuts=1_000, options=options)
    with closing(process):
        process.start()
        assert process.wait_for_end() == 1
        *_, last = process.log().splitlines()
        assert "batch 1: its results do not fit into the driver" in last
        assert "give the driver more room: --conf spark.driver.memory=2g --conf spark.driver.maxResultSize=1g" in last
    assert process.topic.written().kinds()["insert"] == 0
    with ExitStack() as stack:
        roomier = RunningReplica(stack, settings_in(world, tmp_path / "r1", QUERY, "direct"), spark).start()
        roomier.wait_for_watermark(tau)
    written = process.topic.written()
    assert written.frozen() == window_counts(rows, WINDOWS, below=tau)
    assert written.kinds()["hello"] == LANES, "the same incarnation"


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


def test_a_replica_runs_on_a_standalone_cluster_and_neither_a_kill_of_its_driver_nor_a_stop_leaves_an_executor(
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
            assert process.topic.written().frozen() == window_counts(rows, WINDOWS, below=stable)
            figure(f"cluster: {executors_gone(cluster, process, signal.SIGKILL)} after kill -9")
            process.start(SPARK_LOCAL_IP="127.0.0.1")
            world.beat(tau=tau + WINDOWS.width_ms)
            process.topic.wait_for_stable(WINDOWS.first_open(tau + WINDOWS.width_ms), check=process.check)
            figure(f"cluster: {executors_gone(cluster, process, signal.SIGTERM)} after a stop")


def executors_gone(cluster: SparkCluster, process: ReplicaProcess, how: signal.Signals) -> str:
    """Send the driver a signal, and wait until no executor of it is left; tell how many, and how long."""
    executors = cluster.executors()
    assert any("CoarseGrainedExecutorBackend" in command for command in executors.values()), executors
    assert any("pyspark" in command and "java" not in command for command in executors.values()), executors
    began = time.monotonic()
    assert process.signal(how) == (0 if how is signal.SIGTERM else -how)
    wait_seldom(lambda: not alive(executors), "no executor is left", seconds=60)
    return f"{len(executors)} processes of executors gone {time.monotonic() - began:.1f} s"
