"""One replica: a streaming query from a feed to the replica's own topic, in a Spark session that is given.

Starting is in this order, and the order matters: build the plan and check it; fence; read what the lanes hold; decide
by it which incarnation this is; write the file; say hello; start Spark (recovery-and-sink.md 7.9).
"""

import logging
import threading
from contextlib import ExitStack

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from lmerge.elements import MINUS_INFINITY, Hello, Skip
from lmerge.errors import UsageError
from lmerge.kafka import Closing, TopicAdmin, TopicSpec
from replicas.build import Built, build
from replicas.checkpoint import BatchOffsets, Skipped, last_batch, read_offsets
from replicas.cuts import CutOffset
from replicas.emit import VE, batch_of, require_lifetimes, stable_of
from replicas.errors import Stopped, explain_room, in_a_line
from replicas.feed_start import FeedStart
from replicas.plan_reader import analysed_text, read_plan
from replicas.planshape import plan_hash
from replicas.reach import infer_reach_ms
from replicas.reader import SourceSpec
from replicas.rows import type_names
from replicas.settings import ReplicaSettings
from replicas.shape import Shape
from replicas.sink import Sink
from replicas.source import load, load_placed, require_heartbeats_move
from replicas.start import joins_at
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
        self._kafka = settings.read_cluster()
        self._start = FeedStart(self._kafka, settings.feed, wait_seconds=settings.wait_seconds, stopping=self._stopping)
        self._directory = ReplicaDirectory(settings.directory)
        self._resources = ExitStack()
        self._sink = Sink(
            self._kafka, topic=settings.topic, transactional_id=settings.transactional_id, lanes=settings.lanes
        )
        self._resources.enter_context(self._sink)
        self._query: StreamingQuery | None = None
        self._incarnation = 0
        # Where this incarnation joins; None: from minus infinity.
        self._complete_from: int | None = None
        self.skipped = Skipped()
        """What this incarnation did not have to read, up to the last batch of this process."""
        # What the plan promises, and how far a row reaches into its results; known once it is built.
        self._shape: Shape | None = None
        self._reach_ms: int | None = None
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

    @property
    def stable(self) -> int | None:
        """The last stable that this process has written."""
        return self._stable

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
        self._reach_ms = self._infer_reach_ms(frame)
        self._open(feed, self._hash(frame))
        writer = (
            frame.writeStream.outputMode("append")
            .queryName(settings.topic)
            .option("checkpointLocation", str(self._directory.checkpoint))
            .trigger(processingTime=f"{settings.trigger_ms} milliseconds")
            .foreachBatch(self._batch)
        )
        try:
            self._query = writer.start()
        except AnalysisException as error:  # what Spark cannot run as a stream
            plan = settings.plan
            raise UsageError(f"{plan.place}: plan {settings.plan_name}: {in_a_line(str(error))}") from error
        return self._query

    def stop(self) -> None:
        """Stop between two batches: wait for the one that is being written, let no other begin."""
        self._stopping.set()
        with self._in_batch:
            pass
        if self._query is not None:
            self._query.stop()

    def give_up(self, reason: str) -> None:
        """Note that this incarnation is wrong: the next start begins another one."""
        file = self._directory.read()
        assert file is not None
        self._directory.write(msgspec.structs.replace(file, given_up=reason))

    def _close(self) -> None:
        """Drop the connections and the lock."""
        self._resources.close()

    def _topics(self) -> tuple[str, ...]:
        """Return the topics that the query reads."""
        return tuple(self._settings.source(name).topic for name in self._settings.query.sources)

    def _build(self) -> Built:
        settings, topics = self._settings, self._topics()
        load_rows = load if settings.plan.operator is None else load_placed
        sources = {
            name: load_rows(
                self._spark,
                SourceSpec(
                    bootstrap_servers=settings.bootstrap_servers,
                    kafka_config=None if settings.kafka_config is None else str(settings.kafka_config),
                    heartbeats=settings.feed.heartbeats_topic,
                    source=settings.source(name),
                    schema=type_names(schema),
                    directory=str(settings.directory),
                    max_cuts=settings.max_cuts,
                    max_rows=settings.max_rows,
                    topics=topics,
                    feedback=settings.feedback_topic,
                    input=settings.replica,
                    lanes=settings.lanes,
                ),
            )
            for name, schema in settings.query.sources.items()
        }
        return build(settings.query, settings.plan_name, sources, settings.windows)

    def _infer_reach_ms(self, frame: DataFrame) -> int | None:
        """Return how far a row reaches into the results: its author's word, or what its shape says."""
        stated, windows = self._settings.plan.reach_ms, self._settings.windows
        return infer_reach_ms(read_plan(frame), frame.columns.index(VE)) if stated is None else stated(windows)

    def _hash(self, frame: DataFrame) -> str:
        settings = self._settings
        schemas = [(name, settings.source(name).topic, type_names(s)) for name, s in settings.query.sources.items()]
        declared = [
            settings.query.name,
            settings.plan_name,
            settings.plan.operator,
            settings.query.key,
            settings.query.rank,
            settings.lanes,
            settings.windows,
            schemas,
            settings.query.code,
            self._shape,
            self._reach_ms,
        ]
        return plan_hash(analysed_text(frame), declared)

    def _open(self, feed: str, plan: str) -> None:
        """Fence, and begin an incarnation or go on with one."""
        file = self._directory.read()
        committed = self._sink.recover()
        decision = decide(file, last_batch(self._directory.checkpoint), committed, plan_hash=plan, feed=feed)
        if isinstance(decision, Begin):
            log.info("beginning incarnation %d: %s", decision.incarnation, decision.reason)
            file = self._begin(decision.incarnation, feed, plan)
        assert file is not None
        self._incarnation, self._complete_from = file.incarnation, file.joins_at
        if file.reach_ms is None and self._settings.feedback_topic is not None:
            log.info("never skips ahead: results of this plan may rest on rows however old")
        if isinstance(decision, Begin) or decision.say_hello:
            self._sink.hello(self._hello(file))
        log.info("incarnation %d of %s, lanes hold %s", file.incarnation, self._settings.topic, committed)

    def _begin(self, incarnation: int, feed: str, plan: str) -> ReplicaFile:
        """Decide where an incarnation starts, and write it down: Spark asks again when batch 0 is replayed (S10).

        What cannot start raises before anything is changed: the old checkpoint stays where it is.
        """
        topics = self._topics()
        located = self._start.find(self._settings.start, feed, topics)
        complete_from = joins_at(located.heartbeat, self._reach_ms)
        file = ReplicaFile(
            incarnation=incarnation,
            plan_hash=plan,
            feed=feed,
            start={
                topic: CutOffset.of(located, topic, topics=topics, before=complete_from).to_json() for topic in topics
            },
            t0=None if complete_from is None else (located.heartbeat.max_ts or 0) + 1,
            joins_at=complete_from,
            reach_ms=self._reach_ms,
        )
        aside = self._directory.move_aside()
        self._directory.write(file)
        log.info(
            "starting at heartbeat %d, complete from %s; old checkpoint: %s", located.heartbeat.n, complete_from, aside
        )
        return file

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
        assert self._shape is not None
        rows = self._collect(frame, batch)  # the one action, also where nothing will be written (S9)
        offsets, query = read_offsets(self._directory.checkpoint, batch), settings.query
        complete = self._shape.progress.complete(offsets)
        promised = self._promised_before(batch)
        require_lifetimes(rows, settings.windows, promised)
        skip = self._skip(batch, offsets)
        stable = stable_of(complete, settings.windows, self._stable)
        records = batch_of(
            rows, skip, stable, key=query.key, lanes=settings.lanes, rank=query.rank, before=offsets.before
        )
        wrote = self._sink.write(Tag(self._incarnation, batch), records)
        if stable is not None:
            self._stable = stable.vc
        self.skipped = offsets.skipped.beyond(self._complete_from)
        log.info(
            "batch %d: complete to %d, %d results, %s",
            batch,
            complete,
            rows.num_rows,
            "written" if wrote else "nothing written",
        )

    def _skip(self, batch: int, offsets: BatchOffsets) -> Skip | None:
        """Return what has to be said if this batch leaves out more than the one before, by the offset log alone.

        Below where the incarnation joins nothing was promised.
        """
        last = self._complete_from if batch == 0 else read_offsets(self._directory.checkpoint, batch - 1).before
        if offsets.before is None or (last is not None and offsets.before <= last):
            return None
        log.info("batch %d: told to skip what ends before %d", batch, offsets.before)
        return Skip(offsets.before, offsets.skipped.cuts, offsets.skipped.rows)

    def _promised_before(self, batch: int) -> int | None:
        """Return the promise that held before a batch, by the offset log alone."""
        if batch == 0 or self._shape is None:
            return None
        before = read_offsets(self._directory.checkpoint, batch - 1)
        stable = stable_of(self._shape.progress.complete(before), self._settings.windows, None)
        return None if stable is None else stable.vc

    def _collect(self, frame: DataFrame, batch: int) -> pa.Table:
        """Run a batch and bring its results here.

        Raises:
            BatchTooLarge: there is no room for it, or for them.
        """
        try:
            return frame.toArrow()
        except Exception as error:  # py4j's and Spark's; which of them depends on where the room ran out
            explained = explain_room(str(error), batch, max_rows=self._settings.max_rows)
            if explained is not None:
                raise explained from error
            raise
