"""What a replica is told when it starts: typed, read once, passed down."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from lmerge.errors import UsageError
from lmerge.feed import FeedDefinition, Source
from lmerge.kafka import KafkaSettings
from lmerge.process.kafka_options import read_cluster
from replicas.query import Plan, Query
from replicas.start import Start
from replicas.windows import Windows

_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")

MAX_CUTS: Final = 1_000
MAX_ROWS: Final = 100_000
"""The bounds of a batch. A hundred thousand rows take about half a second; their results pass through the driver."""

TRANSACTION_TIMEOUT_MS: Final = 10_000
"""How long a write may take; so long, too, whoever reads a topic waits for a writer that died and has no successor."""

FIRST: Final = Start("first")


class ReplicaSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One replica of one merge.

    Args:
        bootstrap_servers: the cluster.
        kafka_config: further settings of its clients. The file is read wherever Spark reads rows, so on a cluster every
            node has it at this path; what is in it does not travel through Spark.
        merge: the merge that it is for.
        replica: its id, which names its topic and its transactions.
        feed: what it reads.
        query: what it computes.
        plan_name: how.
        windows: the windows of the results.
        topics: which topic of the feed each source of the query is.
        directory: where its checkpoint is.
        lanes: the partitions of its topic: those of the merge.
        max_cuts: the most heartbeats of a batch.
        max_rows: the most rows of a batch, of all topics together, unless a single cut has more.
        trigger_ms: the shortest time from one batch to the next.
        wait_seconds: how long to wait for the first heartbeat of the feed.
        start: where an incarnation begins; a replica that goes on from its checkpoint does not ask.
        transaction_timeout_ms: how long the transaction of a batch may take, from its first record on.
        feedback: the topic on which its merge tells it to skip ahead, `<merge>.feedback` by default; "" if none.

    Raises:
        UsageError: what cannot be, or parts that do not fit together.
    """

    bootstrap_servers: str
    merge: str
    replica: str
    feed: FeedDefinition
    query: Query
    plan_name: str
    windows: Windows
    topics: Mapping[str, str]
    directory: Path
    lanes: int = 1
    max_cuts: int = MAX_CUTS
    max_rows: int = MAX_ROWS
    trigger_ms: int = 100
    wait_seconds: float = 60
    start: Start = FIRST
    kafka_config: Path | None = None
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    feedback: str | None = None

    def __post_init__(self) -> None:
        for kind, name in (("merge", self.merge), ("replica", self.replica)):
            if not _ID.fullmatch(name):
                raise UsageError(f"{kind} id {name!r}: it must match {_ID.pattern}")
        for name, least, value in (
            ("partitions", 1, self.lanes),
            ("max-cuts", 1, self.max_cuts),
            ("max-rows", 1, self.max_rows),
            ("trigger-ms", 0, self.trigger_ms),
        ):
            if value < least:
                raise UsageError(f"{name} {value}: must be at least {least}")
        self.plan.check(self.windows)
        for name in self.query.sources:
            self.source(name)

    def read_cluster(self) -> KafkaSettings:
        """Return how to reach the cluster.

        Raises:
            UsageError: the file of its settings cannot be read, or no broker allows such a timeout.
        """
        cluster = read_cluster(self.bootstrap_servers, self.kafka_config)
        return msgspec.structs.replace(cluster, transaction_timeout_ms=self.transaction_timeout_ms)

    @property
    def topic(self) -> str:
        """The topic that it writes."""
        return f"{self.merge}.replica.{self.replica}"

    @property
    def feedback_topic(self) -> str | None:
        """The topic on which its merge tells it to skip ahead; None: it is not to listen."""
        return f"{self.merge}.feedback" if self.feedback is None else self.feedback or None

    @property
    def transactional_id(self) -> str:
        """The name by which a second process with the same id fences this one; `<m>/<n>` is that of lane n."""
        return self.topic

    @property
    def plan(self) -> Plan:
        """The plan that it runs."""
        return self.query.plan(self.plan_name)

    def source(self, name: str) -> Source:
        """Return the source of the feed that a source of the query reads.

        Raises:
            UsageError: the feed has no such topic.
        """
        topic = self.topics.get(name, name)
        for source in self.feed.sources:
            if source.topic == topic:
                return source
        raise UsageError(
            f"query {self.query.name} reads {name}, but feed {self.feed.name} has no topic {topic}, only "
            f"{', '.join(self.feed.topics)}; add it to the feed, or say which one it is: --topic {name}=TOPIC"
        )
