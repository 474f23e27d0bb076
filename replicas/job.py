"""One replica: a streaming query from a feed to the replica's own topic, in a Spark session that is given.

Starting is in this order, and the order matters: build the plan and check it; fence; read what the lanes hold; decide
by it which incarnation this is; write the file; say hello; start Spark (recovery-and-sink.md 7.9).
"""

import logging
import threading
from contextlib import ExitStack

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lmerge.elements import MINUS_INFINITY, Hello
from lmerge.kafka import Closing, KafkaSettings, TopicAdmin, TopicSpec
from replicas.build import Built, build
from replicas.checkpoint import last_batch, read_offsets
from replicas.cuts import CutOffset
from replicas.emit import records_of, require_lifetimes, stable_of, with_element
from replicas.errors import Stopped
from replicas.feed_start import FeedStart
from replicas.plan_reader import analysed_text
from replicas.planshape import plan_hash
from replicas.reader import SourceSpec
from replicas.rows import type_names
from replicas.settings import ReplicaSettings
from replicas.shape import Shape
from replicas.sink import Sink
from replicas.source import load, require_heartbeats_move
from replicas.state import Begin, ReplicaDirectory, ReplicaFile, Tag, decide

log = logging.getLogger(__name__)


class Replica(Closing):
    """A replica that can be started once and stopped; `with` closes what it holds.

    Args:
        settings: which one.
        spark: the session; several replicas may share one.
        stopping: set by whoever wants the replica to stop; `stop` sets it too.
    """

    def __init__(self, settings: ReplicaSettings, spark: SparkSession, stopping: threading.Event | None = None) -> None:
        self._settings = settings
        self._spark = spark
        self._stopping = stopping or threading.Event()
        self._kafka = KafkaSettings(settings.bootstrap_servers)
        self._start = FeedStart(self._kafka, settings.feed, wait_seconds=settings.wait_seconds, stopping=self._stopping)
        self._directory = ReplicaDirectory(settings.directory)
        self._resources = ExitStack()
        self._sink = Sink(
            self._kafka, topic=settings.topic, transactional_id=settings.transactional_id, lanes=settings.lanes
        )
        self._resources.enter_context(self._sink)
        self._query: StreamingQuery | None = None
        self._incarnation = 0
        # What the plan promises; known once it is built.
        self._shape: Shape | None = None
        # The last stable that this process has promised.
        self._stable: int | None = None
        # Held during a batch: who has it knows that none is being written.
        self._in_batch = threading.Lock()
        self.failure: BaseException | None = None
        """What ended the query, if it was our own code in the driver; Spark's report of it is a page of Java."""

    @property
    def incarnation(self) -> int:
        """Which incarnation this is, once it has started."""
        return self._incarnation

    def start(self) -> StreamingQuery:
        """Start the query: from its checkpoint, or as a new incarnation.

        Raises:
            LMergeError: it cannot run; the message says why.
        """
        settings = self._settings
        self._resources.enter_context(self._directory.locked())
        feed = self._start.feed_id()
        TopicAdmin(self._kafka).ensure(TopicSpec(settings.topic, settings.lanes))
        frame, self._shape = self._build()
        require_heartbeats_move(self._spark, frame)
        self._open(feed, self._hash(frame))
        self._query = (
            frame.writeStream.outputMode("append")
            .queryName(settings.topic)
            .option("checkpointLocation", str(self._directory.checkpoint))
            .trigger(processingTime=f"{settings.trigger_ms} milliseconds")
            .foreachBatch(self._batch)
            .start()
        )
        return self._query

    def stop(self) -> None:
        """Stop between two batches: wait for the one that is being written, let no other begin."""
        self._stopping.set()
        with self._in_batch:
            pass
        if self._query is not None:
            self._query.stop()

    def _close(self) -> None:
        """Drop the connections and the lock."""
        self._resources.close()

    def _build(self) -> Built:
        settings = self._settings
        sources = {
            name: load(
                self._spark,
                SourceSpec(
                    bootstrap_servers=settings.bootstrap_servers,
                    heartbeats=settings.feed.heartbeats_topic,
                    source=settings.source(name),
                    schema=type_names(schema),
                    directory=str(settings.directory),
                    max_cuts=settings.max_cuts,
                    max_rows=settings.max_rows,
                ),
            )
            for name, schema in settings.query.sources.items()
        }
        return build(settings.query, settings.plan_name, sources, settings.windows)

    def _hash(self, frame: DataFrame) -> str:
        settings = self._settings
        schemas = [(name, settings.source(name).topic, type_names(s)) for name, s in settings.query.sources.items()]
        declared = [
            settings.query.name,
            settings.plan_name,
            settings.query.key,
            settings.query.rank,
            settings.lanes,
            settings.windows,
            schemas,
        ]
        return plan_hash(analysed_text(frame), declared)

    def _open(self, feed: str, plan: str) -> None:
        """Fence, and begin an incarnation or go on with one."""
        file = self._directory.read()
        committed = self._sink.recover()
        decision = decide(file, last_batch(self._directory.checkpoint), committed, plan_hash=plan, feed=feed)
        if isinstance(decision, Begin):
            aside = self._directory.move_aside()
            log.info("beginning incarnation %d: %s; old checkpoint: %s", decision.incarnation, decision.reason, aside)
            first = self._start.first_heartbeat(feed)
            topics = [self._settings.source(name).topic for name in self._settings.query.sources]
            start = {topic: CutOffset.of(first, topic).to_json() for topic in topics}
            file = ReplicaFile(incarnation=decision.incarnation, plan_hash=plan, feed=feed, start=start)
            self._directory.write(file)
        assert file is not None
        self._incarnation = file.incarnation
        if isinstance(decision, Begin) or decision.say_hello:
            self._sink.hello(self._hello(file))
        log.info("incarnation %d of %s, lanes hold %s", file.incarnation, self._settings.topic, committed)

    def _hello(self, file: ReplicaFile) -> Hello:
        assert self._shape is not None
        return Hello(
            replica=self._settings.replica,
            incarnation=file.incarnation,
            joins_at=MINUS_INFINITY if file.joins_at is None else file.joins_at,
            feed=file.feed,
            plan=f"{self._settings.query.name}/{self._settings.plan_name}",
            properties=self._shape.properties.to_dict(),
        )

    def _batch(self, frame: DataFrame, batch: int) -> None:
        """Write a batch; Spark calls it, in a thread of its own, once per attempt."""
        try:
            with self._in_batch:
                self._write(frame, batch)
        except BaseException as error:
            self.failure = error
            raise

    def _write(self, frame: DataFrame, batch: int) -> None:
        if self._stopping.is_set():
            raise Stopped(f"stopped before batch {batch}")
        settings = self._settings
        rows = frame.toArrow().to_pylist()  # the one action, also where nothing will be written (S9)
        complete = self._complete(batch)
        before = stable_of(self._complete(batch - 1), settings.windows, None) if batch else None
        require_lifetimes(rows, settings.windows, None if before is None else before.vc)
        records = records_of(rows, key=settings.query.key, lanes=settings.lanes, rank=settings.query.rank)
        stable = stable_of(complete, settings.windows, self._stable)
        if stable is not None:
            records = with_element(records, stable, lanes=settings.lanes)
        wrote = self._sink.write(Tag(self._incarnation, batch), records)
        if stable is not None:
            self._stable = stable.vc
        log.info(
            "batch %d: complete to %d, %d results, %s",
            batch,
            complete,
            len(rows),
            "written" if wrote else "nothing written",
        )

    def _complete(self, batch: int) -> int:
        """Return up to where results are complete after a batch, by the offset log alone."""
        assert self._shape is not None
        return self._shape.progress.complete(read_offsets(self._directory.checkpoint, batch))
