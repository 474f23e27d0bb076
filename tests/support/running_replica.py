"""A replica in the Spark session of a test, and the settings of every replica that has no command line."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lmerge.feed import FeedDefinition
from lmerge.kafka import KafkaSettings, TransactionalWriter
from lmerge.signals import Signal
from replicas.job import Replica
from replicas.process import cause
from replicas.query import Query
from replicas.session import make_session
from replicas.settings import ReplicaSettings
from replicas.source import malformed_in
from tests.support.replica import FeedWorld, ReplicaTopic

LANES: Final = 2
CORES: Final = 2
"""Of the machine that the tests are made for, and of Spark's master there."""


def start_spark() -> SparkSession:
    """Start Spark as a replica does, for several replicas: those that have nothing to read ask less often for more."""
    overrides = {"spark.sql.streaming.pollingDelay": "100ms"}
    return make_session("lmerge-tests", master=f"local[{CORES}]", overrides=overrides)


def replica_settings(
    bootstrap_servers: str,
    feed: FeedDefinition,
    topics: Mapping[str, str],
    directory: Path,
    *,
    query: Query,
    plan: str,
    max_cuts: int,
) -> ReplicaSettings:
    """Give the settings of the replica that is named as its directory; its merge is named as the feed."""
    return ReplicaSettings(
        bootstrap_servers=bootstrap_servers,
        merge=feed.name,
        replica=directory.name,
        feed=feed,
        query=query,
        plan_name=plan,
        windows=query.windows,
        topics=topics,
        directory=directory,
        lanes=LANES,
        max_cuts=max_cuts,
        trigger_ms=0,
    )


def settings_in(
    world: FeedWorld, directory: Path, query: Query, plan: str, *, max_cuts: int = 1_000
) -> ReplicaSettings:
    """Give the settings of a replica that reads the feed of a world."""
    servers, feed, topics = world.settings.bootstrap_servers, world.definition, world.topics
    return replica_settings(servers, feed, topics, directory, query=query, plan=plan, max_cuts=max_cuts)


class RunningReplica:
    """A replica for this process's Spark, stopped at the end whatever happens."""

    def __init__(self, stack: ExitStack, settings: ReplicaSettings, spark: SparkSession) -> None:
        self.name = settings.query.name
        self.windows = settings.windows
        self.replica = stack.enter_context(Replica(settings, spark))
        stack.callback(self.replica.stop)
        self.topic = ReplicaTopic(KafkaSettings(settings.bootstrap_servers), settings.topic, settings.lanes)
        self._query: StreamingQuery | None = None

    def start(self) -> Self:
        """Start its query, and return when Spark has planned it."""
        self._query = self.replica.start()
        return self

    @property
    def query(self) -> StreamingQuery:
        """Spark's side of it, once it has started."""
        assert self._query is not None
        return self._query

    def check(self) -> None:
        """Check that it runs."""
        assert self.query.isActive, (
            f"{self.name}: {cause(self.query, self.replica.failure)}\nin full: {self.replica.failure}"
        )

    def wait_for_watermark(self, tau: int) -> None:
        """Wait until it has promised all that a plan of windows may promise at this watermark."""
        self.topic.wait_for_stable(self.windows.first_open(tau), check=self.check)

    def dropped(self) -> int:
        """Count the rows that Spark left out by its watermark."""
        operators = [operator for progress in self.query.recentProgress for operator in progress["stateOperators"]]
        return sum(operator["numRowsDroppedByWatermark"] for operator in operators)

    def malformed(self) -> int:
        """Count the rows that were no rows."""
        return sum(malformed_in(progress) for progress in self.query.recentProgress)


def start_all(replicas: Sequence[RunningReplica]) -> None:
    """Start several replicas, as many at once as there are cores: a start keeps one of them busy."""
    # Two threads that came to it together would each start Spark's way back to Python.
    ensure_callback_server_started(SparkContext._gateway)  # type: ignore[no-untyped-call]
    with ThreadPoolExecutor(CORES) as pool:
        for _ in pool.map(RunningReplica.start, replicas):
            pass


def tell(world: FeedWorld, before: int, *replicas: str) -> None:
    """Tell replicas, in the name of all lanes of their merge, that what ends before does not matter any more."""
    signals = [
        Signal(id=f"{world.name}/{lane}/1", input=name, partition=lane, before=before)
        for name in replicas
        for lane in range(LANES)
    ]
    with TransactionalWriter(world.settings, f"{world.name}/feedback") as writer:
        writer.fence()
        with writer.transaction():
            records = [(signal.input.encode(), signal.encode()) for signal in signals]
            writer.write(f"{world.name}.feedback", 0, records)
