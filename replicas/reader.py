"""The data source behind `replicas.source`: Spark asks where a batch ends, what tasks read it, and for the rows.

Planning runs in one long-lived Python process beside the driver's JVM, reading in Python workers. Neither shares
memory with the other, so all they know comes with `SourceSpec`, the offsets and the tasks.
"""

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
from lmerge.kafka import Record, RecordsGone, RetryError, TailReader
from lmerge.process.kafka_options import read_cluster
from replicas.ahead import Ahead
from replicas.cuts import (
    Bounds,
    CutOffset,
    Located,
    Range,
    Task,
    choose_end,
    floor_of,
    plan_tasks,
)
from replicas.rows import RowReader, ddl
from replicas.skipping import Signals, Told
from replicas.state import Offset, ReplicaDirectory, ReplicaFile

NAME: Final = "lmerge_cuts"
SPEC: Final = "spec"

DELAY_DAYS: Final = 3_660_000
"""D: the watermark is the largest event time minus D. Ten thousand years, so that no row that a feed can have (1970
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
        max_rows: the most rows of a batch, of all topics, if one cut is not larger.
        topics: all that the query reads; none: this one alone.
        feedback: the topic on which the merge says how far to skip; None: nobody does.
        input: the name under which it does.
        lanes: how many of its lanes have to.
        placed: whether rows say where they stand in the topic, and the heartbeat row what does not matter any more.
    """

    bootstrap_servers: str
    heartbeats: str
    source: Source
    schema: dict[str, str]
    directory: str
    max_cuts: int
    max_rows: int
    topics: tuple[str, ...] = ()
    kafka_config: str | None = None
    feedback: str | None = None
    input: str = ""
    lanes: int = 1
    placed: bool = False

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
        return ddl(self._spec.schema, placed=self._spec.placed)

    def streamReader(self, schema: StructType) -> "CutReader":  # noqa: ARG002, N802  # Spark's names
        """Return the reader."""
        return CutReader(self._spec)


class CutReader(DataSourceStreamReader):
    """Reads a source topic cut by cut."""

    def __init__(self, spec: SourceSpec) -> None:
        self._spec = spec
        self._ahead = Ahead(
            spec.source.topic,
            end=lambda: _tail_reader(spec).watermarks(spec.heartbeats, 0).end,
            read=self._read_heartbeats,
        )
        self._signals: Signals | None = None
        if spec.feedback is not None:
            self._signals = Signals(lambda: _tail_reader(spec), spec.feedback, Told(spec.input, spec.lanes))

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
        self._ahead.begin_at(begin)
        reach_ms = self._file().reach_ms
        before = begin.before if reach_ms is None else self._before(begin)
        bounds = Bounds(self._spec.max_cuts, self._spec.max_rows)
        self._ahead.look(bounds, floor_of(before, reach_ms))
        end = choose_end(
            begin,
            self._ahead.following,
            self._spec.source.topic,
            bounds,
            topics=self._spec.topics,
            before=before,
            reach_ms=reach_ms,
        )
        return start if end == begin else end.to_json()  # the same text, or Spark would run a batch of nothing

    def _before(self, begin: CutOffset) -> int | None:
        """Return what the next offset says: what the last one said, or more if the merge has said so since."""
        given = [begin.before, None if self._signals is None else self._signals.before()]
        return max((before for before in given if before is not None), default=None)

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Return the tasks of the batch `(start, end]`."""
        begin, last = CutOffset.from_json(start), CutOffset.from_json(end)
        if begin.n == last.n:
            return []
        topic, floor = self._spec.source.topic, self._floor(last)
        chain = [located.heartbeat for located in self._ahead.chain(begin, last, floor)]
        if chain[-1].n != last.n:
            raise self._gone(
                f"heartbeats {begin.n + 1} to {last.n} are not in {self._spec.heartbeats} at offsets "
                f"({begin.at}, {last.at}]"
            )
        return plan_tasks(chain, topic, rows_per_task=_ROWS_PER_TASK, tau=last.tau, before=last.before, floor=floor)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task and, in one task of the batch, the heartbeat row."""
        assert isinstance(partition, Task)
        rows = RowReader(self._spec.source, self._spec.schema, placed=self._spec.placed)
        for part in partition.ranges:
            yield from self._read_range(part, rows)
        if partition.tau is not None or partition.before is not None or rows.malformed:
            # At the epoch an event time moves no watermark: it is D below 0.
            event_time = 0 if partition.tau is None else partition.tau + DELAY_MS
            yield rows.control(event_time, tau=partition.tau, before=partition.before)

    def _read_range(self, part: Range, rows: RowReader) -> Iterator[pa.RecordBatch]:
        topic = self._spec.source.topic
        start, end = part.segments[0].start, part.segments[-1].end
        place = start
        for records in self._read_committed(topic, part.partition, start, end):
            place = records[-1].offset + 1
            batch = rows.read(records, part.segments)
            if batch is not None:
                yield batch
        if place < end and part.ends_with_row:  # else the batch would be silently incomplete
            raise RetryError(
                f"{topic}/{part.partition} was not read to its end: nothing came of offsets [{place}, {end}), where "
                f"heartbeats found a record at {end - 1}. Start the replica again: nothing of the batch was written, "
                "and its rows are read anew. If it comes again, a record was taken out of the topic"
            )

    def _floor(self, offset: CutOffset) -> int | None:
        """Return the smallest timestamp that matters; the reach is the incarnation's, as its plan is."""
        return None if offset.before is None else floor_of(offset.before, self._file().reach_ms)

    def _file(self) -> ReplicaFile:
        file = ReplicaDirectory(Path(self._spec.directory)).read()
        if file is None:
            raise UsageError(f"{self._spec.directory} has no replica.json: a replica writes it before it starts Spark")
        return file

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
