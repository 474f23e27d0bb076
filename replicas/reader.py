"""The data source behind `replicas.source`: Spark asks where a batch ends, what tasks read it, and for the rows.

Planning runs in one long-lived Python process beside the driver's JVM, reading in Python workers. Neither shares
memory with the other, so all they know comes with `SourceSpec`, the offsets and the tasks.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from lmerge.errors import UsageError
from lmerge.feed import Heartbeat, Source
from lmerge.kafka import Record, RecordsGone, TailReader
from lmerge.process.kafka_options import read_cluster
from replicas.cuts import CutOffset, Located, Range, Task, choose_end, floor_of, plan_tasks, require_consecutive
from replicas.rows import RowReader, ddl
from replicas.state import Offset, ReplicaDirectory, ReplicaFile

NAME: Final = "lmerge_cuts"
SPEC: Final = "spec"

DELAY_DAYS: Final = 3_660_000
"""D: the watermark is the largest event time minus D. Ten thousand years, so that no row that a feed can have (years 1
to 9999) moves it, with or without a ceiling; only heartbeat rows do, whose event time is tau + D."""
DELAY_MS: Final = DELAY_DAYS * 86_400_000

_ROWS_PER_TASK: Final = 50_000
"""A fifth of a second of reading and decoding, against 50 ms that a task costs by itself."""


class SourceSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a source needs to know; it travels as the one option of the data source.

    Args:
        bootstrap_servers: the cluster.
        kafka_config: a file with further settings of its clients: a path, since Spark shows options.
        heartbeats: the topic of the feed's heartbeats.
        source: the topic, and where its rows have their timestamp.
        schema: fields and the names of their types.
        directory: the replica's. Its file has the offset of the first batch, which is never "the newest now" (S10).
        max_cuts: the most heartbeats of a batch.
        max_rows: the most rows of a batch, if one cut is not larger.
    """

    bootstrap_servers: str
    heartbeats: str
    source: Source
    schema: dict[str, str]
    directory: str
    max_cuts: int
    max_rows: int
    kafka_config: str | None = None

    def encode(self) -> str:
        """Return it as the text of an option."""
        return msgspec.json.encode(self).decode()


class CutSource(DataSource):
    """Spark's entry: makes the schema and the reader."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self._spec = msgspec.json.decode(options[SPEC], type=SourceSpec)

    @classmethod
    def name(cls) -> str:
        """Return what `spark.readStream.format` takes."""
        return NAME

    def schema(self) -> str:
        """Return the columns."""
        return ddl(self._spec.schema)

    def streamReader(self, schema: StructType) -> "CutReader":  # noqa: ARG002, N802  # Spark's names
        """Return the reader."""
        return CutReader(self._spec)


class CutReader(DataSourceStreamReader):
    """Reads a source topic cut by cut."""

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        # Heartbeats after the last `start`, in order: what was looked up is not asked for again.
        self._following: deque[Located] = deque()
        # Up to which heartbeat, and to which Kafka offset, they were looked up: behind the last heartbeat there is a
        # transaction's marker, which a read that begins at the next offset would wait for in vain, in every poll.
        self._known_n = -1
        self._read_to = 0

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what only the planning process needs: this is pickled for every task, wherever that runs."""
        return {"_spec": self._spec}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_spec"])  # type: ignore[misc]  # as new

    def initialOffset(self) -> Offset:  # noqa: N802  # Spark's name
        """Return where the first batch begins; asked again when batch 0 is replayed."""
        return self._file().start[self._spec.source.topic]

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: ARG002, N802  # Spark's names
        """Return where the batch that begins at `start` ends; `start` itself if no heartbeat came."""
        begin = CutOffset.from_json(start)
        self._forget_up_to(begin)
        if len(self._following) < self._spec.max_cuts:
            self._look_ahead(begin)
        spec, floor = self._spec, self._floor(begin)
        topic, following = spec.source.topic, self._following
        end = choose_end(begin, following, topic, max_cuts=spec.max_cuts, max_rows=spec.max_rows, floor=floor)
        return end.to_json()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of the batch `(start, end]`."""
        begin, last = CutOffset.from_json(start), CutOffset.from_json(end)
        if begin.n == last.n:
            return []
        topic = self._spec.source.topic
        chain = [begin.heartbeat(topic), *(located.heartbeat for located in self._between(begin, last))]
        return plan_tasks(chain, topic, rows_per_task=_ROWS_PER_TASK, tau=last.tau, floor=self._floor(last))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task and, in one task of the batch, the heartbeat row."""
        assert isinstance(partition, Task)
        rows = RowReader(self._spec.source, self._spec.schema)
        for part in partition.ranges:
            yield from self._read_range(part, rows)
        if partition.tau is not None or rows.malformed:
            # At the epoch an event time moves no watermark: it is D below 0.
            event_time = 0 if partition.tau is None else partition.tau + DELAY_MS
            yield rows.control(event_time)

    def _read_range(self, part: Range, rows: RowReader) -> Iterator[pa.RecordBatch]:
        start, end = part.segments[0].start, part.segments[-1].end
        for records in self._read_committed(self._spec.source.topic, part.partition, start, end):
            batch = rows.read(records, part.segments)
            if batch is not None:
                yield batch

    def _floor(self, offset: CutOffset) -> int | None:
        """Return the smallest timestamp that matters; the reach is the incarnation's, as its plan is."""
        return None if offset.before is None else floor_of(offset.before, self._file().reach_ms)

    def _file(self) -> ReplicaFile:
        file = ReplicaDirectory(Path(self._spec.directory)).read()
        if file is None:
            raise UsageError(f"{self._spec.directory} has no replica.json: a replica writes it before it starts Spark")
        return file

    def _forget_up_to(self, start: CutOffset) -> None:
        while self._following and self._following[0].heartbeat.n <= start.n:
            self._following.popleft()
        first = self._following[0].heartbeat.n if self._following else self._known_n + 1
        if first != start.n + 1:  # the first call, or Spark went back
            self._following.clear()
            self._known_n, self._read_to = start.n, start.at + 1

    def _look_ahead(self, start: CutOffset) -> None:
        """Read on in the heartbeats, to where they end now or until there are enough for a batch."""
        end = _tail_reader(self._spec).watermarks(self._spec.heartbeats, 0).end
        if end <= self._read_to:
            return
        topic = self._spec.source.topic
        for batch in self._read_heartbeats(self._read_to, end):
            before = CutOffset.of(self._following[-1], topic) if self._following else start
            require_consecutive(before, batch, topic)
            self._following += batch
            self._known_n, self._read_to = batch[-1].heartbeat.n, batch[-1].at + 1
            if len(self._following) >= self._spec.max_cuts:
                return
        self._read_to = end

    def _between(self, start: CutOffset, end: CutOffset) -> list[Located]:
        """Return the heartbeats of a batch; from the log if they are not in memory, as after a restart."""
        known = [located for located in self._following if start.n < located.heartbeat.n <= end.n]
        if len(known) != end.n - start.n:
            known = [located for batch in self._read_heartbeats(start.at + 1, end.at + 1) for located in batch]
            require_consecutive(start, known, self._spec.source.topic)
        if not known or known[-1].heartbeat.n != end.n:
            raise self._gone(
                f"heartbeats {start.n + 1} to {end.n} are not in {self._spec.heartbeats} at offsets "
                f"({start.at}, {end.at}]"
            )
        return known

    def _read_heartbeats(self, start: int, end: int) -> Iterator[list[Located]]:
        for records in self._read_committed(self._spec.heartbeats, 0, start, end):
            yield [Located(record.offset, Heartbeat.decode(record.value)) for record in records]

    def _read_committed(self, topic: str, partition: int, start: int, end: int) -> Iterator[list[Record]]:
        try:
            yield from _tail_reader(self._spec).read_range(topic, partition, start=start, end=end)
        except RecordsGone as error:
            raise self._gone(str(error).removesuffix(f"; {RecordsGone.advice}")) from error

    def _gone(self, fact: str) -> RecordsGone:
        """Say what can be done when records that this replica has not read yet were removed."""
        return RecordsGone(
            f"{fact}: records were removed by retention, or the topic was made anew, so this replica cannot be "
            f"complete any more. Move its directory {self._spec.directory} away and start it with --start latest: it "
            "begins a new incarnation, which joins where it is complete. Then keep the topics for longer than a "
            "replica may be away or behind"
        )


_readers: dict[tuple[str, str | None], TailReader] = {}
"""One per process and cluster, kept: a Python worker serves many tasks, and a new consumer costs more than a read."""


def _tail_reader(spec: SourceSpec) -> TailReader:
    cluster = (spec.bootstrap_servers, spec.kafka_config)
    if cluster not in _readers:
        file = None if spec.kafka_config is None else Path(spec.kafka_config)
        _readers[cluster] = TailReader(read_cluster(spec.bootstrap_servers, file))
    return _readers[cluster]
